#!/usr/bin/env python3
"""Compares the memory of Toolsieve and mcpo with the quickstart servers after 1,000 calls, their children aside.

Each starts alone with the same five servers, hands out its documents as Open WebUI fetches them, and gets the same
calls, half to a Python server and half to one on Node.js. Toolsieve is measured in its first start, in which it counts
tokens, embeds and indexes, and in its second; and once more after messages were filtered, which mcpo can't do.

    export TOOLSIEVE_QUICKSTART_DIR=~/.cache/toolsieve/quickstart
    export TOOLSIEVE_QUICKSTART_CONFIG="$(target/release/toolsieve quickstart --install-only | tail -n 1)"
    python3 -m venv ~/.cache/toolsieve-benches/mcpo
    ~/.cache/toolsieve-benches/mcpo/bin/pip install mcpo==0.0.20 mcp==1.17.0 fastapi==0.116.1 starlette==0.47.2 \\
        pydantic==2.11.7
    python3 benches/memory.py --toolsieve target/release/toolsieve

Goals: at most 60 MiB of anonymous memory, and less resident than mcpo.
"""

import argparse
import http.client
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from services import (
    JSON_HEADERS,
    MCPO,
    Service,
    finish,
    is_live,
    machine,
    mcpo,
    memory,
    table,
    toolsieve,
)

CALLS: list[tuple[str, Any]] = [
    ("/time/get_current_time", {"timezone": "Asia/Tokyo"}),
    ("/everything/echo", {"message": "hello"}),
]
MESSAGES = [
    "what time is it in Tokyo",
    "read the file notes.txt and commit it",
    "remember that Anna likes tea",
    "thanks!",
]


def send(service: Service, requests: Sequence[tuple[str, Any]]) -> None:
    """One after the other over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    for path, body in requests:
        connection.request("POST", path, json.dumps(body), JSON_HEADERS)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {answer[:300]!r}")
    connection.close()


def call(service: Service, calls: int, callers: int) -> None:
    share = [CALLS[number % len(CALLS)] for number in range(calls // callers)]
    with ThreadPoolExecutor(callers) as pool:
        for done in [pool.submit(send, service, share) for _ in range(callers)]:
            done.result()


def filter_messages(service: Service, count: int) -> None:
    texts = [f"{MESSAGES[number % len(MESSAGES)]} {number}" for number in range(count)]
    send(service, [("/v1/filter", {"messages": [{"role": "user", "content": text}]}) for text in texts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--mcpo", type=Path, default=MCPO, help="the program; none there: left out")
    parser.add_argument("--config", type=Path, default=os.environ.get("TOOLSIEVE_QUICKSTART_CONFIG"))
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--idle", type=float, default=15, help="seconds of rest before the second look")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.config:
        raise SystemExit("name the servers with --config or TOOLSIEVE_QUICKSTART_CONFIG")
    servers = list(json.loads(options.config.read_text())["mcpServers"])
    report: dict[str, Any] = {"machine": machine(), "calls": options.calls, "rows": []}

    def look(way: str, when: str, service: Service) -> None:
        report["rows"].append({"way": way, "when": when, **memory(service.pid)})

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for start in ("first start", "second start"):
            with toolsieve(options.toolsieve, options.config, folder) as service:
                service.wait(partial(is_live, service, len(servers)))
                time.sleep(3)  # what is done in the background after that
                service.ask("GET", "/openapi.json")
                look(f"toolsieve, {start}", "live", service)
                call(service, options.calls, options.callers)
                look(f"toolsieve, {start}", f"{options.calls} calls", service)
                time.sleep(options.idle)
                look(f"toolsieve, {start}", f"{options.idle:g} s later", service)
                filter_messages(service, options.calls)
                look(f"toolsieve, {start}", f"{options.calls} messages filtered", service)
        if options.mcpo.exists():
            with mcpo(options.mcpo, options.config, folder) as service:
                service.wait(lambda: all(service.ask("POST", path, body)[0] == 200 for path, body in CALLS))
                for server in servers:
                    service.ask("GET", f"/{server}/openapi.json")
                look("mcpo", "live", service)
                call(service, options.calls, options.callers)
                look("mcpo", f"{options.calls} calls", service)
                time.sleep(options.idle)
                look("mcpo", f"{options.idle:g} s later", service)

    rows = [
        [f"{row['way']}, {row['when']}", *(f"{row[name]:.1f}" for name in ("RssAnon", "VmRSS", "VmHWM"))]
        for row in report["rows"]
    ]
    finish(report, table(["MiB", "anonymous", "resident", "most resident"], rows), options.json)


if __name__ == "__main__":
    main()
