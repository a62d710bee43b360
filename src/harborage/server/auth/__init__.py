"""Who sends a request: key sets, the verification of tokens, and tokens for development."""
