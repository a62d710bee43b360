"""The payload classes of all events, in one file for each part of the system that publishes them.

`by_type` lists the classes of each event type. `harborage.events` exports all of them.
"""
