"""One suite a port: what every driver must do, as scenarios that run against yours too.

Each module has `SCENARIOS` (a tuple of named functions), `check` (one scenario against a fresh driver, for a
parametrised test) and `run_conformance` (all of them).
"""
