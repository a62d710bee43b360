"""Chaos: real processes over one database, killed with SIGKILL at moments that a seed draws.

What `harborage.testing.simulation` plays on a loop of its own is played here for real, with SQLite on a disk, sockets
and `kill -9`; the same promises are checked at the end.
"""
