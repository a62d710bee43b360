"""How fast Harborage is, always beside a bare asyncio loop that does the same work in the same run."""
