"""Suites for parts of the runtime that have several drivers, all of them ours: hosts, tasks, record stores.

What other people implement is judged by `harborage.testing.conformance`.
"""
