#!/usr/bin/env python3
"""Compares the ways to call a tool over HTTP: a bare bridge, Toolsieve, and mcpo, each before the same stdio server.

The bare bridge (tests/servers/bare_bridge.rs) is actix-web and rmcp and nothing else: what is left of the difference
is what validation, access, the record and the log cost. All three are driven by wrk with one thread, which costs the
machine least and measures to the microsecond, with keep-alive and one request at a time per caller. The ways take
turns in every round, so that a change of the machine's load meets all of them alike; the figures are the medians over
the rounds, the ratios the medians of the ratios within one round.

    apt-get install wrk
    python3 -m venv ~/.cache/toolsieve-benches/mcpo
    ~/.cache/toolsieve-benches/mcpo/bin/pip install mcpo==0.0.20 mcp==1.17.0 fastapi==0.116.1 starlette==0.47.2 \\
        pydantic==2.11.7
    cargo build --release --examples --bins
    python3 benches/execute.py --release target/release

The echo of that server declares no parameters, and mcpo drops the arguments then: it has less to do there than the
others. Even work for all three, and what the goal over mcpo is judged by, is the echo of a real server:

    python3 benches/execute.py --release target/release --tool echo --body '{"message": "hello"}' \\
        --server node PATH/server-everything/dist/index.js stdio

Goals at 16 and 64 callers, with the real server: p50 at most 1.2 times the bare bridge's, at least .83 of its calls per
second, and at least 10 times mcpo's. Many short rounds (`--rounds 20 --seconds 1`) vary least on a shared machine.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from services import (
    MCPO,
    Service,
    finish,
    free_port,
    machine,
    mcpo,
    table,
    toolsieve,
    write_config,
)

SERVER = "bench"
# Of each way, what one measurement brought.
Row = dict[str, dict[str, float]]
BODY = '{"message": "create an issue about the login error", "count": 3, "labels": ["bug", "login"]}'
LUA = """
wrk.method = "POST"
wrk.body = %s
wrk.headers["Content-Type"] = "application/json"
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('{"requests":%%d,"microseconds":%%d,"failed":%%d,"p50":%%.1f,"p90":%%.1f,"p99":%%.1f}\\n',
    summary.requests, summary.duration, errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99)))
end
"""


def drive(wrk: str, script: Path, url: str, callers: int, seconds: float) -> dict[str, float]:
    command = [wrk, "-t1", f"-c{callers}", f"-d{max(1, round(seconds))}s", "--timeout", "30s", "-s", str(script), url]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(output.splitlines()[-1])
    if found["failed"] or not found["requests"]:
        raise SystemExit(f"{url}: {found}")
    return {
        "rps": found["requests"] / found["microseconds"] * 1e6,
        **{name: found[name] / 1e3 for name in ("p50", "p90", "p99")},
    }


def figure(way: str, name: str) -> Callable[[Row], float]:
    return lambda row: row[way][name]


def ratio(way: str, base: str, name: str) -> Callable[[Row], float]:
    return lambda row: row[way][name] / row[base][name]


def responds(service: Service, path: str, body: Any) -> Callable[[], bool]:
    return lambda: service.ask("POST", path, body)[0] == 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=Path, default=Path("target/release"), help="where cargo put the programs")
    parser.add_argument("--toolsieve", type=Path, help="another toolsieve than the one there")
    parser.add_argument("--bridge", type=Path, help="another bare bridge than the one there")
    parser.add_argument("--mcpo", type=Path, default=MCPO, help="the program; none there: left out")
    parser.add_argument("--server", nargs="+", help="command of a stdio server, last on the line")
    parser.add_argument("--tool", default="echo")
    parser.add_argument("--body", default=BODY)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    wrk = shutil.which("wrk")
    if not wrk:
        raise SystemExit("wrk is missing: apt-get install wrk")
    command = options.server or [str((options.release / "examples/test-stdio-server").absolute())]
    arguments = json.loads(options.body)
    report: dict[str, Any] = {"machine": machine(), "server": [Path(part).name for part in command], "rounds": []}

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = folder / "post.lua"
        script.write_text(LUA % f"[==[{options.body}]==]")
        config = write_config(folder / "mcp.json", {SERVER: {"command": command[0], "args": command[1:]}})

        port = free_port()
        bridge = options.bridge or options.release / "examples/bare-bridge"
        bare = Service([bridge, str(port), *command], port, folder / "bridge.log")
        services = {"bare bridge": (bare, f"/{options.tool}")}
        path = f"/{SERVER}/{options.tool}"
        services["toolsieve"] = (toolsieve(options.toolsieve or options.release / "toolsieve", config, folder), path)
        if options.mcpo.exists():
            services["mcpo"] = (mcpo(options.mcpo, config, folder), path)
        urls = {}
        for way, (service, path) in services.items():
            stack.enter_context(service)
            service.wait(responds(service, path, arguments))
            urls[way] = f"http://127.0.0.1:{service.port}{path}"
            drive(wrk, script, urls[way], 16, 2)

        ways = list(urls)
        for number in range(options.rounds):
            for callers in options.callers:
                turn = ways[number % len(ways) :] + ways[: number % len(ways)]
                row = {way: drive(wrk, script, urls[way], callers, options.seconds) for way in turn}
                report["rounds"].append({"callers": callers, "ways": row})

    def median(callers: int, value: Callable[[Row], float]) -> float:
        return statistics.median(value(row["ways"]) for row in report["rounds"] if row["callers"] == callers)

    rows, report["summary"] = [], []
    for callers in options.callers:
        for way in ways:
            found: dict[str, Any] = {"callers": callers, "way": way}
            for name in ("p50", "p99", "rps"):
                found[name] = median(callers, figure(way, name))
            found["p50_over_bare"] = median(callers, ratio(way, "bare bridge", "p50"))
            found["rps_over_bare"] = median(callers, ratio(way, "bare bridge", "rps"))
            found["rps_over_mcpo"] = median(callers, ratio(way, "mcpo", "rps")) if "mcpo" in ways else None
            report["summary"].append(found)
            over_mcpo = f"{found['rps_over_mcpo']:.1f}x" if found["rps_over_mcpo"] else ""
            rows.append([
                f"{callers} callers, {way}", f"{found['p50']:.3f}", f"{found['p99']:.3f}", f"{found['rps']:,.0f}",
                f"{found['p50_over_bare']:.2f}x", f"{found['rps_over_bare']:.2f}x", over_mcpo,
            ])  # fmt: skip
    head = ["", "p50, ms", "p99, ms", "calls/s", "p50 over bare", "calls/s over bare", "calls/s over mcpo"]
    finish(report, table(head, rows), options.json)


if __name__ == "__main__":
    main()
