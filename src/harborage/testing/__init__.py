"""The public test kit: a clock that moves by hand, scripted parts, and a conformance suite for every port."""
