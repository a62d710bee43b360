"""The heart: the loop that carries a run, and the mechanisms it stands on. Import from the rooms below this one."""
