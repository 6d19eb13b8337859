#!/usr/bin/env python3
"""Times `POST /v1/filter` with traces against the same without.

Two services with the same tools get the same new messages in turns of 25: one sends all its traces to a collector on this
machine, the other has traces off. A third has a collector that accepts connections and never answers. Toolsieve's time is
measured here, in the client, over connections that stay open.

    python3 benches/tracing.py --toolsieve target/release/toolsieve

Goal: the p50 with traces is at most 1.05 times the p50 without.
"""

import argparse
import http.server
import multiprocessing
import random
import socket
import statistics
import string
import tempfile
import time
from pathlib import Path
from typing import Any

from services import (
    SENTENCE,
    Service,
    Wire,
    finish,
    free_port,
    machine,
    made_tools,
    replayed,
    table,
    toolsieve,
    until_indexed,
    write_config,
)

OFF, ON, SILENT = "traces off", "traces on", "traces on, silent collector"
# Messages that are measured, and those that warm up for them, before it is the turn of the next way.
BLOCK = 25
WARM_UP = 3


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def collect(port: int) -> None:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Collector).serve_forever()


def spans(service: Service) -> dict[str, float]:
    """The spans of a service by their outcome."""
    text = service.ask("GET", "/metrics")[1]
    lines = [line for line in text.splitlines() if line.startswith("toolsieve_spans_total")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--count", type=int, default=500, help="tools")
    parser.add_argument("--rounds", type=int, default=1000, help="messages for each way")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    port = free_port()
    collector = multiprocessing.Process(target=collect, args=(port,), daemon=True)
    collector.start()
    silent = socket.create_server(("127.0.0.1", 0))
    urls = {ON: f"http://127.0.0.1:{port}", SILENT: f"http://127.0.0.1:{silent.getsockname()[1]}"}
    tools = [tool for _, tool in zip(range(options.count), made_tools(), strict=False)]
    letters = random.Random(options.seed)
    times: dict[str, list[float]] = {OFF: [], ON: [], SILENT: []}
    report: dict[str, Any] = {"machine": machine(), "tools": options.count, "spans": {}}
    services: dict[str, Service] = {}
    with tempfile.TemporaryDirectory() as name:
        try:
            for number, way in enumerate(times):
                folder = Path(name) / str(number)
                folder.mkdir()
                servers = replayed(tools, folder)
                config = write_config(folder / "mcp.json", servers)
                env = {"TOOLSIEVE_TELEMETRY__TRACES_PER_MINUTE": "0", "OTEL_EXPORTER_OTLP_ENDPOINT": urls.get(way, "")}
                service = services[way] = toolsieve(options.toolsieve, config, folder, env)
                until_indexed(service, len(servers), options.count)
            time.sleep(2)
            wires = {way: Wire(service) for way, service in services.items()}
            for _ in range(max(1, options.rounds // BLOCK)):
                words = ["".join(letters.choices(string.ascii_lowercase, k=7)) for _ in range(BLOCK + WARM_UP)]
                bodies = [{"messages": [{"role": "user", "content": SENTENCE.format(word)}]} for word in words]
                for way, wire in wires.items():
                    times[way] += [wire.filter(body)[0] for body in bodies][WARM_UP:]
            report["spans"] = {way: spans(service) for way, service in services.items()}
        finally:
            for service in services.values():
                service.stop()
            collector.terminate()

    rows, report["ways"] = [], {}
    base = statistics.median(times[OFF])
    for way, values in times.items():
        cuts = statistics.quantiles(values, n=100)
        found = {"p50": statistics.median(values), "p90": cuts[89], "p99": cuts[98]}
        report["ways"][way] = {**found, "ratio_p50": found["p50"] / base}
        rows.append([way, *[f"{value:.3f}" for value in found.values()], f"{found['p50'] / base:.3f}x"])
    text = table(["milliseconds", "p50", "p90", "p99", "p50 to off"], rows)
    finish(report, f"{text}\n\nspans: {report['spans']}", options.json)


if __name__ == "__main__":
    main()
