"""What our small HTTP servers have in common."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EVENTS = "text/event-stream"


class Exchange(BaseHTTPRequestHandler):
    """One request, and the ways to answer it. Each connection ends with its answer."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        """Answers a request of any method."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def do_DELETE(self) -> None:
        self.answer()

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(self, value: object, status: int = 200) -> None:
        raw = json.dumps(value).encode()
        self.start(status, {"Content-Type": "application/json", "Content-Length": str(len(raw))})
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


class LocalServer:
    """Answers on a port of its own until it is stopped."""

    def __init__(self, handler: type[Exchange]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def event(data: object, name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
