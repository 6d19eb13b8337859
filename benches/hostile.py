#!/usr/bin/env python3
"""Holds 2,000 hostile connections without a key, of one kind after the other, and measures what they cost.

For each kind a service starts anew, with a key. A caller with that key calls a tool, one call after the other on one
connection and every tenth on a new one, first alone and then beside the hostile connections. Each of these is opened again
a second after the service has ended it. Reported are the most memory that the service had resident over what it had before, the p99 of
the caller with and without them, and calls that failed. HTTP/2 is not spoken: its kinds show that nothing is kept for them.
A document is unread as over a network, with small packets: of larger ones the system takes megabytes on its way to this machine.

    cargo build --release --examples --bins
    python3 benches/hostile.py --toolsieve target/release/toolsieve --server target/release/examples/test-stdio-server

Goals: 64 MiB over HTTP/1.1, 160 MiB over TLS and HTTP/2, a p99 of at most three times the one without, no
failed call.
"""

import argparse
import asyncio
import contextlib
import gzip
import http.client
import json
import multiprocessing
import resource
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from services import Service, finish, free_port, machine, table

KEY = "4f2a9c1be07d58364f2a9c1be07d5836"
MIB = 1 << 20
GOALS = {"http": 64, "tls": 160, "mcpo": 64}
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(40)


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def rapid_reset() -> bytes:
    # :method GET, :scheme http, :path /, each by its index in the static table.
    opened = [frame(1, 5, 2 * n + 1, b"\x82\x86\x84") + frame(3, 0, 2 * n + 1, bytes(4)) for n in range(200)]
    return H2_PREFACE + b"".join(opened)


def empty_data() -> bytes:
    return H2_PREFACE + frame(1, 4, 1, b"\x83\x86\x84") + frame(0, 0, 1) * 2_000


BOMB = gzip.compress(bytes(64 * MIB))
# How it is sent, what at once, and what again and again after that. `mcpo`: to a service with mcpo's command line.
KINDS: dict[str, tuple[str, bytes, bytes]] = {
    "silent": ("http", b"", b""),
    "half a line": ("http", b"GET /open", b""),
    "half a head": ("http", head("GET", "/openapi.json", "X-Half: a")[:-4], b""),
    "trickled head": ("http", head("GET", "/openapi.json")[:-2], b"X-More: a\r\n"),
    "second head trickled": ("http", head("GET", "/healthz") + b"GET /healthz HTTP/1.1\r\nHost: a\r\n", b"X-More: a\r\n"),
    "3 bytes of body": ("http", head("POST", "/v1/filter", "Content-Length: 1000") + b"abc", b""),
    "chunks without end": ("http", head("POST", "/mcp", "Transfer-Encoding: chunked"), b"1\r\na\r\n"),
    "a body for a file": ("http", head("POST", "/v1/files/x", "Content-Length: 4194303"), bytes(4096)),
    "gzip bomb": ("http", head("POST", "/v1/files/x", "Content-Encoding: gzip", f"Content-Length: {len(BOMB)}") + BOMB, b""),
    "another protocol": ("http", head("POST", "/mcp", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 9"), b"a"),
    "answers unread": ("http", head("GET", "/readyz") * 64, b""),
    "document unread": ("mcpo", head("GET", "/docs/swagger-ui-bundle.js"), b""),
    "stalled TLS": ("tls-raw", CLIENT_HELLO, b""),
    "silent after TLS": ("tls", b"", b""),
    "half a head after TLS": ("tls", head("GET", "/openapi.json", "X-Half: a")[:-4], b""),
    "idle HTTP/2": ("tls", H2_PREFACE, b""),
    "HTTP/2 rapid reset": ("tls", rapid_reset(), b""),
    "HTTP/2 empty DATA": ("tls", empty_data(), b""),
}


async def leave_unread(port: int, request: bytes, gate: asyncio.Semaphore) -> None:
    """Asks on one connection after the other, and reads nothing."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            async with gate:
                await loop.sock_connect(connection, ("127.0.0.1", port))
                await loop.sock_sendall(connection, request)
            await asyncio.sleep(20)
        await asyncio.sleep(1)


async def hold(port: int, kind: str, gate: asyncio.Semaphore) -> None:
    """One hostile connection, for ever."""
    how, first, again = KINDS[kind]
    if how == "mcpo":
        await leave_unread(port, first, gate)
        return
    context = None
    if how == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
    while True:
        try:
            async with gate:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                writer.write(first)
            while again:
                await asyncio.sleep(0.5)
                writer.write(again)
                await writer.drain()
            if kind != "answers unread":
                while await reader.read(4096):
                    pass
            else:
                await asyncio.sleep(20)
            writer.close()
        except OSError:
            pass
        await asyncio.sleep(1)


def attack(port: int, kind: str, count: int) -> None:
    async def all_of_them() -> None:
        gate = asyncio.Semaphore(50)
        await asyncio.gather(*(hold(port, kind, gate) for _ in range(count)))

    asyncio.run(all_of_them())


class Caller:
    """Calls a tool until it is told to stop; keeps the times in seconds, and what failed."""

    def __init__(self, port: int, secure: bool) -> None:
        self.port, self.secure = port, secure
        self.times: list[float] = []
        self.failed: list[str] = []

    def connect(self) -> http.client.HTTPConnection:
        if not self.secure:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)

    def run(self, seconds: float) -> None:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        connection, until, calls = self.connect(), time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            calls += 1
            if calls % 10 == 0:
                connection.close()
                connection = self.connect()
            began = time.perf_counter()
            try:
                connection.request("POST", "/one/echo", json.dumps({"text": "hello"}), headers)
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    self.failed.append(str(response.status))
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                connection = self.connect()
            self.times.append(time.perf_counter() - began)
            time.sleep(0.005)

    def p99(self) -> float:
        return sorted(self.times)[int(len(self.times) * 0.99)] * 1e3


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def certificate(folder: Path) -> list[str]:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return [f"{folder}/cert.pem", f"{folder}/key.pem"]


def measure(options: argparse.Namespace, kind: str, folder: Path) -> tuple[list[str], bool]:
    how = KINDS[kind][0]
    secure = how.startswith("tls")
    port = free_port()
    environment = {"TOOLSIEVE_API_KEY": KEY}
    if secure:
        cert, key = certificate(folder)
        environment |= {"TOOLSIEVE_HTTP__TLS_CERTIFICATE": cert, "TOOLSIEVE_HTTP__TLS_KEY": key}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"one": {"command": str(options.server.resolve())}}}))
    data = folder / kind.replace(" ", "-").replace("/", "-")
    command = [options.toolsieve, "serve", "--config", config, "--data-dir", data, "--port", str(port)]
    if how == "mcpo":
        command[1:2] = ["mcpo", "--host", "127.0.0.1", "--api-key", KEY]
    with Service(command, port, folder / "log", environment) as service:
        ready = Caller(port, secure)
        while not ready.times or ready.failed:
            ready = Caller(port, secure)
            ready.run(0.2)
        alone = Caller(port, secure)
        alone.run(options.seconds)
        before = resident(service.pid)
        attackers = multiprocessing.Process(target=attack, args=(port, kind, options.connections), daemon=True)
        attackers.start()
        beside = Caller(port, secure)
        calling = threading.Thread(target=beside.run, args=(options.seconds,))
        calling.start()
        most = before
        while calling.is_alive():
            most = max(most, resident(service.pid))
            time.sleep(0.05)
        attackers.terminate()
        attackers.join()
    cost = (most - before) / MIB
    ratio = beside.p99() / alone.p99()
    goal = GOALS["tls" if secure else how]
    holds = cost <= goal and ratio <= 3 and not beside.failed and not alone.failed
    row = [kind, f"{cost:.1f}", str(goal), f"{alone.p99():.1f}", f"{beside.p99():.1f}", f"{ratio:.1f}"]
    return [*row, str(len(beside.times)), str(len(beside.failed)), "yes" if holds else "NO"], holds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--toolsieve", type=Path, required=True)
    parser.add_argument("--server", type=Path, required=True, help="an MCP server with a tool `echo`")
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--report", type=Path, help="write the figures there as JSON")
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * options.connections)), hard))
    heads = ["kind", "MiB", "goal", "p99 alone ms", "p99 beside ms", "ratio", "calls", "failed", "holds"]
    rows, all_hold = [], True
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kind or KINDS:
            row, holds = measure(options, kind, Path(folder))
            print(", ".join(row), file=sys.stderr)
            rows.append(row)
            all_hold &= holds
    finish({"machine": machine(), "rows": rows}, table(heads, rows), options.report)
    sys.exit(0 if all_hold else 1)


if __name__ == "__main__":
    main()
