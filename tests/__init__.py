"""Tests, and what they stand on: `kit` is what they share, `programs` is what runs for hours by itself."""
