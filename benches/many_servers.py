#!/usr/bin/env python3
"""Many MCP servers (streamable HTTP) in one process: `/NUMBER/mcp`, with 50 tools each.

    python3 benches/many_servers.py PORT

Each server keeps one kind of things at one place: `create_invoice`, `list_invoice` and so on of the hospital in Lisbon.
A call is answered with its arguments.
"""

import asyncio
import itertools
import json
import sys
from typing import Any

from replay_server import answer
from services import NOUNS, PLACES, VERBS, made_tool

PER_SERVER = 50
CITIES = [
    "Lisbon", "Oslo", "Vienna", "Prague", "Dublin", "Madrid", "Warsaw", "Athens", "Zurich", "Helsinki",
    "Hamburg", "Lyon", "Naples", "Porto", "Leeds", "Ghent", "Bergen", "Turku", "Graz", "Basel", "Bremen",
    "Malmo", "Sevilla", "Utrecht", "Krakow", "Riga", "Vilnius", "Tallinn", "Split", "Brno", "Nice", "Cork",
    "Bari", "Bonn", "Kiel", "Linz", "Nantes", "Lille", "Toulouse", "Bilbao",
]
PARTS = ["", "archive", "backup", "draft", "annual"]


def place(number: int) -> tuple[str, str, list[str]]:
    """The city and the place of a server, and what it keeps: five of the ten nouns, each with a part of its own."""
    city, rest = CITIES[number % len(CITIES)], number // len(CITIES)
    here, rest = PLACES[rest % len(PLACES)], rest // len(PLACES)
    part = PARTS[rest % len(PARTS)]
    nouns = NOUNS[:5] if number % 2 else NOUNS[5:]
    return city, here, [f"{part} {noun}".strip() for noun in nouns]


def tools(number: int) -> list[dict[str, Any]]:
    city, here, things = place(number)
    pairs = itertools.product(VERBS, things)
    return [made_tool(f"{verb}_{thing}", verb, thing, f"{here} in {city}") for verb, thing in pairs]


def respond(method: str, path: str, body: bytes) -> tuple[str, bytes]:
    """The status line's end, and the body."""
    if method != "POST":
        return "405 Method Not Allowed", b""
    message = json.loads(body)
    if "id" not in message or "method" not in message:
        return "202 Accepted", b""
    found = answer(message["method"], message.get("params") or {}, tools(int(path.split("/")[1])))
    outcome = {"error": {"code": -32601, "message": "no such method"}} if found is None else {"result": found}
    return "200 OK", json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode()


async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            status, text = respond(method, path, body)
            lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(text)}", "Content-Type: application/json", "", ""]
            writer.write("\r\n".join(lines).encode() + text)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(connection, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
