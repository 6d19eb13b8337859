#!/usr/bin/env python3
"""Restarts the service under 50 requests per second, and counts the requests that fail.

Half of the requests are calls and half are messages, each on a new connection. `alone`: clients connect to the service itself.
`socket`: this script keeps the socket open and passes it to each process, as systemd does. `haproxy`: clients connect to HAProxy
with the settings in docs/src/how-to/operations.md, which retries connections that are refused. `--pause` adds to the time in which
no process runs.

    cargo build --release --examples --bins
    python3 benches/handover.py --toolsieve target/release/toolsieve --server target/release/examples/test-stdio-server \\
        --haproxy /usr/sbin/haproxy

Goal: no failure with `socket` and `haproxy`.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from services import Service, finish, free_port, machine, table, write_config

PAGE = Path(__file__).resolve().parent.parent / "docs/src/how-to/operations.md"
PERIOD = 0.02
SCRIPT = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@" 3<&%d'


class Requests:
    """Requests at a constant rate, with their outcomes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0

    async def one(self, number: int) -> None:
        message = {"messages": [{"role": "user", "content": "echo these words"}], "chat_id": str(number)}
        path, body = ("/box/echo", {"text": "a"}) if number % 2 else ("/v1/filter", message)
        text = json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "Connection: close"]
        started = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write("\r\n".join([*head, f"Content-Length: {len(text)}", "", ""]).encode() + text)
            answer = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            self.outcomes[answer.partition(b"\r\n")[0].decode() or "empty"] += 1
        except OSError as error:
            self.outcomes[type(error).__name__] += 1
        self.slowest = max(self.slowest, time.perf_counter() - started)

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            number = 0
            while not stop.is_set():
                group.create_task(self.one(number))
                number += 1
                await asyncio.sleep(PERIOD)


class Setup:
    """A service that is started again and again, and the way to it."""

    def __init__(self, kind: str, options: argparse.Namespace, folder: Path) -> None:
        self.port, self.folder, self.proxy = free_port(), folder, None
        config = write_config(folder / "mcp.json", {"box": {"command": str(options.server.resolve())}})
        command = [str(options.toolsieve.resolve()), "serve", "--config", str(config), "--data-dir", str(folder / "data")]
        self.command = [*command, "--port", str(self.port)]
        self.open_to = self.port
        self.kept: list[int] = []
        if kind == "socket":
            self.socket = socket.create_server(("127.0.0.1", self.port), backlog=2048)
            self.kept = [self.socket.fileno()]
            self.command = ["sh", "-c", SCRIPT % self.kept[0], *self.command]
        if kind == "haproxy":
            self.open_to = free_port()
            settings = re.search(r"```haproxy\n(.*?)```", PAGE.read_text(), re.DOTALL)
            assert settings, "the page has no settings"
            text = settings[1].replace("127.0.0.1:8080", f"127.0.0.1:{self.open_to}")
            (folder / "haproxy.cfg").write_text(text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}"))
            proxy = [options.haproxy, "-db", "-f", folder / "haproxy.cfg"]
            self.proxy = Service(proxy, self.open_to, folder / "haproxy.log")
        self.start()
        for _ in range(600):
            if self.is_live():
                return
            time.sleep(0.1)
        raise SystemExit((self.folder / "log").read_text())

    def is_live(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            servers = json.loads(connection.getresponse().read())["servers"]
        except OSError:
            return False
        finally:
            connection.close()
        return all(server["phase"] == "connected" for server in servers)

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stderr=log, pass_fds=self.kept, env=os.environ
            )

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def end(self) -> None:
        self.stop()
        if self.proxy:
            self.proxy.stop()


async def measure(kind: str, options: argparse.Namespace, folder: Path) -> Requests:
    setup = await asyncio.to_thread(Setup, kind, options, folder)
    requests, stop = Requests(setup.open_to), asyncio.Event()
    running = asyncio.create_task(requests.run(stop))
    for _ in range(options.restarts):
        await asyncio.sleep(2)
        await asyncio.to_thread(setup.stop)
        await asyncio.sleep(options.pause)
        setup.start()
    await asyncio.sleep(2)
    stop.set()
    await running
    await asyncio.to_thread(setup.end)
    return requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, required=True)
    parser.add_argument("--server", type=Path, required=True, help="the tests' MCP server over standard streams")
    parser.add_argument("--haproxy", type=Path, help="HAProxy; without it, this setup is left out")
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--pause", type=float, default=0, help="seconds between the end of a process and the next start")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    setups, rows = {}, []
    for kind in ["alone", "socket", *(["haproxy"] if options.haproxy else [])]:
        with tempfile.TemporaryDirectory() as folder:
            requests = asyncio.run(measure(kind, options, Path(folder)))
        total = requests.outcomes.total()
        failed = total - requests.outcomes["HTTP/1.1 200 OK"]
        setups[kind] = {"outcomes": requests.outcomes, "slowest_s": round(requests.slowest, 2)}
        rows.append([kind, total, failed, f"{requests.slowest:.2f} s"])
    report = {"machine": machine(), "restarts": options.restarts, "pause_s": options.pause, "setups": setups}
    finish(report, table(["setup", "requests", "failed", "slowest"], rows), options.report)


if __name__ == "__main__":
    main()
