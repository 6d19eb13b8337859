#!/usr/bin/env python3
"""Times Toolsieve's start on nine real MCP servers: until everything is live, and until it is ready a second time.

A first start has nothing stored: it is done when every server is connected and every tool has its vector. What it has
to wait for is measured over standard streams directly, from spawn to the answer of `tools/list`: each server alone,
and all nine at once, which is what a bridge that starts them together can reach where there are fewer cores than
servers. A second start has the last good catalog: it is ready when `/readyz` says so. The three take turns.

    nine=~/.cache/toolsieve/nine
    npm install --ignore-scripts --prefix $nine/npm @modelcontextprotocol/server-everything@2026.8.31 \\
        @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31 \\
        @modelcontextprotocol/server-sequential-thinking@2026.8.31 @upstash/context7-mcp@4.1.1
    python3 -m venv $nine/venv
    $nine/venv/bin/pip install mcp-server-time==2026.10.19 mcp-server-git==2026.10.19 mcp-server-fetch==2026.10.24
    python3 -m venv $nine/older
    $nine/older/bin/pip install mcp-server-sqlite==2025.4.25 mcp==1.17.0 pydantic==2.11.7
    python3 benches/start.py --servers $nine --toolsieve target/release/toolsieve

Goals: the second start is ready in less than 1 s, the first is live no later than the slowest server.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from services import Service, finish, is_live, machine, table, toolsieve, write_config

PATIENCE = 120.0
# Seconds between two looks. Until all are live few, since looking takes time from the servers that start.
OFTEN, SELDOM = 0.005, 0.1


def nine(folder: Path, written: Path) -> dict[str, dict[str, Any]]:
    """The servers as they are configured; what they write goes into `written`."""

    def node(package: str, *arguments: str) -> dict[str, Any]:
        home = folder / "npm/node_modules" / package
        programs = json.loads((home / "package.json").read_text())["bin"]
        program = programs if isinstance(programs, str) else next(iter(programs.values()))
        return {"command": "node", "args": [str(home / program), *arguments]}

    def python(program: str, *arguments: str, venv: str = "venv") -> dict[str, Any]:
        return {"command": str(folder / venv / "bin" / program), "args": list(arguments)}

    official = "@modelcontextprotocol/server-"
    return {
        "everything": node(official + "everything", "stdio"),
        "filesystem": node(official + "filesystem", str(written)),
        "memory": node(official + "memory") | {"env": {"MEMORY_FILE_PATH": str(written / "memory.jsonl")}},
        "sequential-thinking": node(official + "sequential-thinking"),
        "context7": node("@upstash/context7-mcp"),
        "time": python("mcp-server-time", "--local-timezone", "UTC"),
        "git": python("mcp-server-git"),
        "fetch": python("mcp-server-fetch"),
        "sqlite": python("mcp-server-sqlite", "--db-path", str(written / "data.db"), venv="older"),
    }


def listed(server: Mapping[str, Any]) -> tuple[float, int]:
    """Seconds from spawn to the answer of `tools/list`, and how many tools there are."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [server["command"], *server["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **server.get("env", {})},
        start_new_session=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin
    assert stdout

    def send(message: Mapping[str, Any]) -> None:
        stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        stdin.flush()

    def answer(number: int) -> Any:
        for line in stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message["result"]
        raise SystemExit(f"{server['command']} ended without an answer")

    try:
        client = {"name": "bench", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        send({"id": 1, "method": "initialize", "params": params})
        answer(1)
        send({"method": "notifications/initialized"})
        send({"id": 2, "method": "tools/list", "params": {}})
        tools = answer(2)["tools"]
        return time.perf_counter() - started, len(tools)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def readiness(service: Service) -> Any:
    return service.ask("GET", "/readyz")


def first_start(service: Service, servers: int, tools: int) -> dict[str, float]:
    live = service.wait(lambda: is_live(service, servers), PATIENCE, SELDOM)

    def is_embedded() -> bool:
        state = readiness(service)[1]
        return bool(state["tools"] >= tools and state["index"]["embedded"] >= tools)

    return {"live": live, "embedded": service.wait(is_embedded, PATIENCE, SELDOM)}


def second_start(service: Service, servers: int, tools: int) -> dict[str, float]:
    ready = service.wait(lambda: readiness(service)[0] == 200, PATIENCE, OFTEN)
    known = readiness(service)[1]["tools"]
    if known != tools:
        raise SystemExit(f"ready with {known} of {tools} tools")
    return {"ready": ready, "live": service.wait(lambda: is_live(service, servers), PATIENCE, SELDOM)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=Path, default=Path("~/.cache/toolsieve/nine").expanduser())
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "rounds": []}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "written").mkdir()
        servers = nine(options.servers.absolute(), folder / "written")
        config = write_config(folder / "mcp.json", servers)
        tools = sum(listed(server)[1] for server in servers.values())  # brings all files into the system's cache
        report["tools"] = tools
        for number in range(options.rounds):
            (folder / str(number)).mkdir()
            alone = {server: listed(settings)[0] for server, settings in servers.items()}
            with ThreadPoolExecutor(len(servers)) as pool:
                together = [took for took, _ in pool.map(listed, servers.values())]
            with toolsieve(options.toolsieve, config, folder / str(number)) as service:
                first = first_start(service, len(servers), tools)
            with toolsieve(options.toolsieve, config, folder / str(number)) as service:
                second = second_start(service, len(servers), tools)
            report["rounds"].append({"alone": alone, "together": together, "first": first, "second": second})

    def row(what: str, values: list[float]) -> list[str]:
        return [what, f"{statistics.median(values):.2f}", f"{min(values):.2f}", f"{max(values):.2f}"]

    rounds = report["rounds"]
    rows = [
        row("slowest server, alone", [max(found["alone"].values()) for found in rounds]),
        row("slowest server, all nine at once", [max(found["together"]) for found in rounds]),
        row("toolsieve, first start, all live", [found["first"]["live"] for found in rounds]),
        row("toolsieve, first start, all embedded", [found["first"]["embedded"] for found in rounds]),
        row("toolsieve, second start, ready", [found["second"]["ready"] for found in rounds]),
        row("toolsieve, second start, all live", [found["second"]["live"] for found in rounds]),
    ]
    text = table([f"seconds ({len(servers)} servers, {tools} tools)", "median", "least", "most"], rows)
    ratio = statistics.median(found["first"]["live"] / max(found["together"]) for found in rounds)
    report["live_over_together"] = ratio
    finish(report, f"{text}\n\nfirst start, live, over the slowest of nine started at once: {ratio:.2f}x", options.json)


if __name__ == "__main__":
    main()
