"""The loop that executes a run, and the mechanisms under it. Import from the modules below this package."""
