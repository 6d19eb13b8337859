#!/usr/bin/env python3
"""Times `GET /openapi.json` of a running service with 200 real tools, over one connection that stays open.

The first request composes the document, the following ones get it from memory: whole, and as 304 where the caller has
it (`If-None-Match`). Times are the client's, from the first byte sent to the last one received; of the whole document,
a third of a megabyte, most of the time is Python's for receiving it.

    python3 benches/documents.py --toolsieve target/release/toolsieve --tools ../shared/toollists

What composing takes by itself: cargo bench --bench service -- document
"""

import argparse
import socket
import statistics
import tempfile
import time
from pathlib import Path

from services import Service, is_live, real_tools, replayed, toolsieve, write_config


class Wire:
    """The least HTTP client: one open connection."""

    def __init__(self, service: Service) -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, etag: str | None = None) -> tuple[float, int, dict[str, str], int]:
        """Milliseconds, status, headers in lower case, bytes of the body."""
        condition = f"If-None-Match: {etag}\r\n" if etag else ""
        start = time.perf_counter()
        self.socket.sendall(f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n{condition}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(1 << 20)
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        status = int(first.split()[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = 0 if status == 304 else int(headers["content-length"])
        size = len(body)
        while size < length:
            size += len(self.socket.recv(1 << 20))
        return (time.perf_counter() - start) * 1e3, status, headers, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--tools", type=Path, required=True, help="folder with tool lists")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = replayed(real_tools(options.tools)[: options.count], folder)
        with toolsieve(options.toolsieve, write_config(folder / "mcp.json", servers), folder) as service:
            service.wait(lambda: is_live(service, len(servers)), 300)
            time.sleep(3)
            wire = Wire(service)
            composed, _, headers, size = wire.get()
            whole = [wire.get()[0] for _ in range(options.rounds)]
            known = [wire.get(headers["etag"]) for _ in range(options.rounds)]
    assert all(status == 304 for _, status, _, _ in known)
    print(f"{options.count} tools, {size:,} bytes: first {composed:.1f} ms")
    print(f"again, whole: p50 {statistics.median(whole):.3f} ms")
    print(f"again, as 304: p50 {statistics.median(time for time, _, _, _ in known):.3f} ms")


if __name__ == "__main__":
    main()
