"""A2A: agents for other agents, which speak the Agent2Agent protocol, version 1.0 or 0.3, as JSON-RPC over HTTP.

A task is a run, and its context the session. Nothing here needs the protocol's own library.
"""
