"""A client with version 1 of the Python SDK. See sdk_sessions.py for what it does."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from steps import Connection, run


@asynccontextmanager
async def connect(url: str, key: str, era: str) -> AsyncIterator[Connection]:
    assert era == "older", "this version knows no other"
    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
        streamable_http_client(url, http_client=http) as (read, write, session_id),
        ClientSession(read, write) as session,
    ):
        await session.initialize()

        async def call(tool: str, call_id: str) -> str:
            result = await session.call_tool(tool, {"id": call_id})
            return result.content[0].text  # type: ignore[union-attr]

        yield Connection(session_id() or "", call)


asyncio.run(run(connect, *sys.argv[1:]))
