"""The loop of a run, as rules over values: no I/O, no clock, no tasks."""
