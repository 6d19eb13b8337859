"""An MCP server over streamable HTTP with one tool, which tells the headers of the request that called it."""

import sys

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("headers", host="127.0.0.1", port=int(sys.argv[1]), stateless_http=True, json_response=True)


@server.tool()
def headers(context: Context) -> dict[str, str]:
    """The headers of this call."""
    request = context.request_context.request
    return {} if request is None else dict(request.headers)


server.run(transport="streamable-http")
