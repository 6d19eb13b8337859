#!/usr/bin/env python3
"""Tells what MCP clients cost: a call through the service, 2,000 idle sessions, and 5,000 greetings without a key.

A call over MCP is compared with a bare gateway (tests/servers/bare_gateway.rs): rmcp's server in front of rmcp's client and
nothing else, before the same stdio server. Both take a request without a session and answer with JSON; Toolsieve once more in a
session. They are driven by wrk with one thread and take turns in every round, so that a change of the machine's load meets all of
them alike; the figures are medians over the rounds, the ratios the medians of the ratios within one round.

    apt-get install wrk
    cargo build --release --examples --bins
    python3 benches/mcp.py --release target/release

Goals: p50 at most 1.5 times the bare gateway's; 2,000 idle sessions within 150 MiB, the whole service with them; nothing left of
greetings without a key.
"""

import argparse
import http.client
import json
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from execute import LUA, Row, drive, figure, ratio
from services import (
    Service,
    finish,
    free_port,
    machine,
    memory,
    table,
    toolsieve,
    write_config,
)

SERVER = "bench"
KEY = "the-key"
ACCEPT = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
ARGUMENTS = {
    "message": "create an issue about the login error",
    "count": 3,
    "labels": ["bug", "login"],
}
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def message(method: str, params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def post(
    connection: http.client.HTTPConnection, body: str, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection.request("POST", "/mcp", body, {**ACCEPT, **headers})
    response = connection.getresponse()
    return response.status, response.headers, response.read()


def greet(
    connection: http.client.HTTPConnection, headers: dict[str, str]
) -> tuple[int, str | None]:
    status, answered, _ = post(connection, message("initialize", GREETING), headers)
    return status, answered.get("mcp-session-id")


def answers(service: Service, tool: str, headers: dict[str, str] | None = None) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    call = message("tools/call", {"name": tool, "arguments": ARGUMENTS})
    status, _, body = post(connection, call, headers or {})
    connection.close()
    return status == 200 and b'"result"' in body


def overhead(
    options: argparse.Namespace, folder: Path, stack: ExitStack, report: dict[str, Any]
) -> str:
    wrk = shutil.which("wrk")
    if not wrk:
        raise SystemExit("wrk is missing: apt-get install wrk")
    server = str((options.release / "examples/test-stdio-server").absolute())
    config = write_config(
        folder / "mcp.json", {SERVER: {"command": server, "args": []}}
    )
    port = free_port()
    bare = stack.enter_context(
        Service(
            [options.release / "examples/bare-gateway", str(port), server],
            port,
            folder / "bare.log",
        )
    )
    ours = stack.enter_context(toolsieve(options.release / "toolsieve", config, folder))
    bare.wait(lambda: answers(bare, "echo"))
    ours.wait(lambda: answers(ours, f"{SERVER}__echo"))
    connection = http.client.HTTPConnection("127.0.0.1", ours.port, timeout=60)
    _, session = greet(connection, {})
    connection.close()
    ways: dict[str, tuple[str, Path]] = {}
    for way, service, tool, extra in (
        ("bare gateway", bare, "echo", {}),
        ("toolsieve", ours, f"{SERVER}__echo", {}),
        (
            "toolsieve, in a session",
            ours,
            f"{SERVER}__echo",
            {"Mcp-Session-Id": session or ""},
        ),
    ):
        script = folder / f"{len(ways)}.lua"
        headers = {"Accept": ACCEPT["Accept"], **extra}
        lines = "".join(
            f'wrk.headers["{name}"] = "{value}"\n' for name, value in headers.items()
        )
        call = message("tools/call", {"name": tool, "arguments": ARGUMENTS})
        script.write_text(LUA % f"[==[{call}]==]" + lines)
        ways[way] = (f"http://127.0.0.1:{service.port}/mcp", script)
        drive(wrk, script, ways[way][0], 16, 2)
    names = list(ways)
    for number in range(options.rounds):
        for callers in options.callers:
            turn = names[number % len(names) :] + names[: number % len(names)]
            row = {
                way: drive(wrk, ways[way][1], ways[way][0], callers, options.seconds)
                for way in turn
            }
            report["rounds"].append({"callers": callers, "ways": row})

    def median(callers: int, value: Any) -> float:
        found: list[Row] = [
            row["ways"] for row in report["rounds"] if row["callers"] == callers
        ]
        return statistics.median(value(row) for row in found)

    rows = []
    for callers in options.callers:
        for way in names:
            p50, over = (
                median(callers, figure(way, "p50")),
                median(callers, ratio(way, "bare gateway", "p50")),
            )
            rps = median(callers, figure(way, "rps"))
            report["summary"].append(
                {
                    "callers": callers,
                    "way": way,
                    "p50": p50,
                    "p50_over_bare": over,
                    "rps": rps,
                }
            )
            rows.append(
                [
                    f"{callers} callers, {way}",
                    f"{p50:.3f}",
                    f"{rps:,.0f}",
                    f"{over:.2f}x",
                ]
            )
    return table(["", "p50, ms", "calls/s", "p50 over bare"], rows)


def sessions(
    options: argparse.Namespace, folder: Path, stack: ExitStack, report: dict[str, Any]
) -> str:
    server = str((options.release / "examples/test-stdio-server").absolute())
    config = write_config(
        folder / "mcp.json", {SERVER: {"command": server, "args": []}}
    )
    service = stack.enter_context(
        toolsieve(
            options.release / "toolsieve", config, folder, {"TOOLSIEVE_API_KEY": KEY}
        )
    )
    authorized = {"Authorization": f"Bearer {KEY}"}
    service.wait(lambda: answers(service, f"{SERVER}__echo", authorized))
    figures = {"before": memory(service.pid)["VmRSS"]}
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    for _ in range(options.greetings):
        status, session = greet(connection, {})
        if status != 401 or session is not None:
            raise SystemExit(f"a greeting without a key: {status}, {session}")
    figures["after greetings without a key"] = memory(service.pid)["VmRSS"]
    opened = []
    for _ in range(options.sessions):
        status, session = greet(connection, authorized)
        if status != 200 or session is None:
            raise SystemExit(f"no session: {status}")
        opened.append(session)
        status, _, _ = post(
            connection,
            message("tools/list", {}),
            {**authorized, "Mcp-Session-Id": session},
        )
        if status != 200:
            raise SystemExit(f"a session was not kept: {status}")
    figures["idle sessions"] = memory(service.pid)["VmRSS"]
    alive = sum(
        post(connection, message("ping", {}), {**authorized, "Mcp-Session-Id": id_})[0]
        == 200
        for id_ in opened
    )
    if alive != options.sessions:
        raise SystemExit(f"only {alive} sessions are left")
    connection.close()
    streams = []
    for session in opened:
        listening = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        listening.request(
            "GET",
            "/mcp",
            None,
            {**authorized, "Accept": "text/event-stream", "Mcp-Session-Id": session},
        )
        if listening.getresponse().status != 200:
            raise SystemExit("a stream was refused")
        streams.append(listening)
    figures["idle sessions with open streams"] = memory(service.pid)["VmRSS"]
    report["memory"] = figures
    rows = [[what, f"{value:.0f}"] for what, value in figures.items()]
    return table(["resident memory", "MiB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--release",
        type=Path,
        default=Path("target/release"),
        help="where cargo put the programs",
    )
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--greetings", type=int, default=5_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "rounds": [], "summary": []}
    shown = []
    for part in (overhead, sessions):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            shown.append(part(options, folder, stack, report))
    finish(report, "\n".join(shown), options.json)


if __name__ == "__main__":
    main()
