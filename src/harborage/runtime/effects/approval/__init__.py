"""Gates of tools: who has to approve a call, and what became of the question."""
