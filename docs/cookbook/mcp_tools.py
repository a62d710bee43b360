import sys
from pathlib import Path

from harborage import Agent
from harborage.tools import MCP

# A server of your own, in the place of command=["npx", "@modelcontextprotocol/server-filesystem", "."] or of url="…".
Path("stock.py").write_text('''
from mcp.server.mcpserver import MCPServer

server = MCPServer("stock")


@server.tool()
def count(item: str) -> int:
    """How many pieces of an item there are."""
    return 7


server.run("stdio")
''')

# What a tool does is said here, not by the server; a tool of which nothing is said is never called twice by itself.
stock = MCP("stock", command=[sys.executable, "stock.py"], effects={"count": "read"})
clerk = Agent("clerk", model="openai:gpt-5", tools=[stock])
print(clerk.run_sync("How many teapots are there?").output)
# > There are 7 teapots.
