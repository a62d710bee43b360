"""This server as an MCP server: its agents and runs as tools for whoever speaks the Model Context Protocol.

`desk` does what the tools say, and knows nothing of the protocol; `speaking` speaks it, and needs the extra `mcp`.
"""
