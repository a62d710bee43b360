"""Agents inside an editor: the Agent Client Protocol, whose messages are lines of JSON on standard input and output."""
