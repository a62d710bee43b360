"""Tools of servers that speak the Model Context Protocol, over the official library, which is loaded with the first."""
