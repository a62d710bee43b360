"""Harborage simulated with itself: agents, processes that come and go, people and faults, all drawn from one seed.

The loop, the faults and the processes are those of `harborage.testing.simulation`; what runs on them is here.
"""
