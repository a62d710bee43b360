"""Pauses: rows of the store of record that somebody has to settle."""
