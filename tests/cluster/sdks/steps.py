"""What the clients in Python do: they print a line of JSON for each step, and wait for a line before the next one."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

TOOL = "ledger__write_entry"


@dataclass
class Connection:
    session: str
    # Calls a tool with an id, and returns the text of its result.
    call: Callable[[str, str], Awaitable[str]]


Connect = Callable[[str, str, str], AbstractAsyncContextManager[Connection]]


async def attempt(connection: Connection, call_id: str) -> None:
    try:
        tell(text=await connection.call(TOOL, call_id))
    except Exception as error:
        code = getattr(getattr(error, "error", error), "code", None)
        tell(error=type(error).__name__, code=code, message=str(error))


async def run(connect: Connect, url: str, key: str, era: str, name: str) -> None:
    async with connect(url, key, era) as connection:
        tell(session=connection.session)
        for step in ("first", "second", "third"):
            await attempt(connection, f"{name}-{step}")
            await asyncio.to_thread(sys.stdin.readline)
    async with connect(url, key, era) as connection:
        tell(session=connection.session)
        await attempt(connection, f"{name}-fourth")


def tell(**step: object) -> None:
    print(json.dumps(step), flush=True)
