"""An MCP server over stdio whose tools declare output schemas, as FastMCP derives them from the types of functions."""

from typing import Any

from mcp.server.fastmcp import FastMCP

server = FastMCP("results")


@server.tool()
def text() -> str:
    """A text."""
    return 'He said "hello".\nThen he left.'


@server.tool()
def json_text() -> str:
    """A text that is JSON."""
    return '{"a": [1, 2]}'


@server.tool()
def number() -> int:
    """A number."""
    return 5


@server.tool()
def texts() -> list[str]:
    """Several texts."""
    return ["a", "b"]


@server.tool()
def mapping() -> dict[str, Any]:
    """An object."""
    return {"a": 1, "b": None}


server.run()
