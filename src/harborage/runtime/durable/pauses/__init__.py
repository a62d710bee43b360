"""Pauses: rows of the store of record that wait for a person, an event or a deadline."""
