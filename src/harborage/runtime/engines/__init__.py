"""Hosts of runs: each carries the same loop, and the same suite judges them all."""
