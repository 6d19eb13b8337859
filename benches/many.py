#!/usr/bin/env python3
"""Measures Toolsieve with 100,000 tools of 2,000 MCP servers: starts, memory, messages, searches, documents.

The servers run in one process (many_servers.py) and speak streamable HTTP. The first start stores nothing yet: it
connects, embeds every tool and builds the index. The second has the last good catalog. Once it is idle, messages and
searches of about 12 word pieces are timed in the client, from the first byte sent to the last one received; each is
new. Then an administrator changes the text of one tool. Memory is that of the process: the anonymous part, and all that
is resident, which includes files that are mapped. With `--qdrant`, the index is in the tests' Qdrant node, which
searches without an index of its own, one vector after the other. `--folder` keeps the data, so that a later run needs
no first start:

    cargo build --release --bin toolsieve --example test-qdrant-server
    python3 benches/many.py --toolsieve target/release/toolsieve
    python3 benches/many.py --toolsieve target/release/toolsieve --qdrant target/release/examples/test-qdrant-server

Goals: a message takes at most 6 ms (median; 12 over a cluster), the second start is ready within 5 s, and at most
900 MiB are anonymous once the index is built.
"""

import argparse
import contextlib
import http.client
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from many_servers import CITIES, PER_SERVER, place
from services import (
    JSON_HEADERS,
    NOUNS,
    PLACES,
    VERBS,
    Service,
    cpu_seconds,
    finish,
    free_port,
    is_live,
    machine,
    memory,
    table,
    toolsieve,
    until_indexed,
    write_config,
)

HERE = Path(__file__).absolute().parent
# The first start embeds every tool.
FIRST_SECONDS = 3_600.0
# Messages that warm up.
WARM_UP = 20
MESSAGE = "{} the {} {} of the {} in {} please"


def messages(seed: int) -> Iterator[str]:
    """Messages that nobody has sent before."""
    chance, number = random.Random(seed), 0
    while True:
        number += 1
        yield MESSAGE.format(
            chance.choice(VERBS), chance.choice(NOUNS), number, chance.choice(PLACES), chance.choice(CITIES)
        )


def timed(service: Service, method: str, path: str, bodies: Iterator[Any], count: int) -> list[float]:
    """Milliseconds of each request over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    took = []
    for number in range(WARM_UP + count):
        text = json.dumps(next(bodies))
        started = time.perf_counter()
        connection.request(method, path, text, JSON_HEADERS)
        response = connection.getresponse()
        answer = response.read()
        if number >= WARM_UP:
            took.append((time.perf_counter() - started) * 1e3)
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {answer[:300]!r}")
    connection.close()
    return took


def idle(service: Service) -> Callable[[], bool]:
    """To be asked once a second: whether the process has used less than a fifth of a processor's time three times in a row."""
    used: list[float] = []

    def look() -> bool:
        used.append(cpu_seconds(service.pid))
        return len(used) > 3 and all(later - earlier < 0.2 for earlier, later in pairwise(used[-4:]))

    return look


def change(service: Service) -> float:
    """Gives one tool another text. Returns the seconds of processor time until the index has it."""
    name = place(0)[2][0].replace(" ", "_")
    before = cpu_seconds(service.pid)
    text = {"function": f"the text of second {time.time():.0f}"}
    status, answer = service.ask("PUT", f"/v1/admin/enrichment/s0/{VERBS[0]}_{name}", text)
    if status != 200:
        raise SystemExit(f"the text of a tool: {status} {answer!r}")
    service.wait(idle(service), FIRST_SECONDS, 1.0)
    return cpu_seconds(service.pid) - before


def document(service: Service, mode: str) -> dict[str, float]:
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    connection.request("GET", f"/openapi.json?mode={mode}")
    response = connection.getresponse()
    size = len(response.read())
    connection.close()
    return {"status": response.status, "seconds": time.perf_counter() - started, "mib": size / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--qdrant", type=Path, help="the program of a Qdrant node; otherwise the index is in process")
    parser.add_argument("--servers", type=int, default=2_000, help=f"each has {PER_SERVER} tools")
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--folder", type=Path, help="keeps the data, so that a later run needs no first start")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    servers, tools = options.servers, options.servers * PER_SERVER
    report: dict[str, Any] = {"machine": machine(), "servers": servers, "tools": tools}
    rows: list[list[str]] = []

    def note(what: str, value: float, unit: str) -> None:
        report[what] = value
        rows.append([what, f"{value:.2f} {unit}"])
        print(f"{what}: {value:.2f} {unit}", file=sys.stderr, flush=True)

    def note_memory(service: Service, when: str) -> None:
        found = memory(service.pid)
        for name, key in (("anonymous", "RssAnon"), ("resident", "VmRSS"), ("most resident", "VmHWM")):
            note(f"{name}, {when}", found[key], "MiB")

    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        env = {}
        if options.qdrant:
            port = free_port()
            command = [options.qdrant, folder / "qdrant", str(port)]
            stack.enter_context(Service(command, port, folder / "qdrant.log"))
            env["QDRANT_URL"] = f"http://127.0.0.1:{port}"
        port_file = folder / "port"
        port = int(port_file.read_text()) if port_file.exists() else free_port()
        port_file.write_text(str(port))
        host = Service([sys.executable, HERE / "many_servers.py", str(port)], port, folder / "servers.log")
        stack.enter_context(host)
        host.wait(lambda: host.ask("GET", "/0/mcp")[0] == 405)
        urls = {
            f"s{number}": {"type": "streamable-http", "url": f"http://127.0.0.1:{port}/{number}/mcp"}
            for number in range(servers)
        }
        config = write_config(folder / "mcp.json", urls)
        if not (folder / "data").exists():
            with toolsieve(options.toolsieve, config, folder, env) as service:
                note("first start, connected", service.wait(lambda: is_live(service, servers), FIRST_SECONDS, 1.0), "s")
                note("first start, indexed", until_indexed(service, servers, tools, FIRST_SECONDS, 1.0), "s")
                note_memory(service, "after the first indexing")
        with toolsieve(options.toolsieve, config, folder, env) as service:
            ready = service.wait(lambda: service.ask("GET", "/readyz")[0] == 200, FIRST_SECONDS, 0.02)
            note("second start, ready", ready, "s")
            known = service.ask("GET", "/readyz")[1]["tools"]
            if known != tools:
                raise SystemExit(f"ready with {known} of {tools} tools")
            note("second start, connected", service.wait(lambda: is_live(service, servers), FIRST_SECONDS, 1.0), "s")
            note("second start, indexed", until_indexed(service, servers, tools, FIRST_SECONDS, 1.0), "s")
            # After that, the texts of all tools are learned in the background.
            note("second start, idle", service.wait(idle(service), FIRST_SECONDS, 1.0), "s")
            note_memory(service, "after the second start")
            texts = messages(options.seed)
            filters = ({"messages": [{"role": "user", "content": text}]} for text in texts)
            took = timed(service, "POST", "/v1/filter", filters, options.messages)
            note("a message, median", statistics.median(took), "ms")
            finds = ({"queries": [text], "limit": 5} for text in texts)
            took = timed(service, "POST", "/v1/tools/search", finds, options.messages)
            note("a search, median", statistics.median(took), "ms")
            note_memory(service, "after the messages")
            note("one changed tool", change(service), "s of processor time")
            note_memory(service, "after the change")
            took = timed(service, "POST", "/v1/filter", filters, options.messages)
            note("a message after the change, median", statistics.median(took), "ms")
            for mode in ("meta", "full"):
                found = document(service, mode)
                report[f"document, {mode}"] = found
                text = f"{found['status']}, {found['seconds']:.2f} s, {found['mib']:.1f} MiB"
                rows.append([f"document, {mode}", text])
            note_memory(service, "after the document")
    finish(report, table([f"{tools} tools of {servers} servers", ""], rows), options.json)


if __name__ == "__main__":
    main()
