"""A client with version 2 of the Python SDK. See sdk_sessions.py for what it does."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from steps import Connection, run

SESSION = "mcp-session-id"


@asynccontextmanager
async def connect(url: str, key: str, era: str) -> AsyncIterator[Connection]:
    sessions = [""]

    async def look(response: httpx2.Response) -> None:
        sessions.append(response.headers.get(SESSION, sessions[-1]))

    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, event_hooks={"response": [look]}) as http:
        mode = "legacy" if era == "older" else "auto"
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:

            async def call(tool: str, call_id: str) -> str:
                result = await client.call_tool(tool, {"id": call_id})
                return result.content[0].text  # type: ignore[union-attr]

            yield Connection(sessions[-1], call)


asyncio.run(run(connect, *sys.argv[1:]))
