"""Approval gates: tool calls that a person must approve before they run."""
