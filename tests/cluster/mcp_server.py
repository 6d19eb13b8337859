"""An MCP server that appends the id of each call to a file, before it answers: so it shows whether a call ran twice.

mcp_server.py stdio JOURNAL        one process of a replica
mcp_server.py http JOURNAL PORT    one process for all replicas
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DESK = {
    "send_email": "Send an email message to a person.",
    "create_event": "Create an event or a meeting in the calendar.",
    "get_weather": "Get the current weather and the forecast for a city.",
    "translate_text": "Translate a text into another language.",
    "convert_currency": "Convert an amount of money from one currency to another.",
    "create_ticket": "Create a support ticket for a problem.",
    "read_file": "Read the contents of a text file.",
    "play_music": "Play a song or an album of an artist.",
    "set_timer": "Set a timer or an alarm for a number of minutes.",
    "book_room": "Book a meeting room in the office.",
}
LEDGER = {
    "write_entry": "Write an entry into the accounting ledger.",
    "write_slowly": "Write an entry into the accounting ledger after a long check.",
}
SLOW_SECONDS = 0.3


def tools(table: dict[str, str]) -> list[dict[str, Any]]:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string", "description": "The id of the call."}},
        "required": ["id"],
    }
    return [{"name": name, "description": text, "inputSchema": schema} for name, text in table.items()]


class Server:
    def __init__(self, table: dict[str, str], journal: Path) -> None:
        self.table = table
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if "id" not in message or "method" not in message:
            return None
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = self.result(message["method"], message.get("params") or {})
        return (
            {**reply, "result": result}
            if result is not None
            else {**reply, "error": {"code": -32601, "message": "Method not found"}}
        )

    def result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            info = {"name": "cluster", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": tools(self.table)}
        if method == "tools/call" and params.get("name") in self.table:
            call, tool = params["arguments"]["id"], params["name"]
            # One write: lines of several processes don't mix.
            os.write(self.journal, f"{call} {tool}\n".encode())
            if tool == "write_slowly":
                time.sleep(SLOW_SECONDS)
            return {"content": [{"type": "text", "text": f"done {call}"}]}
        return None


def serve_stdio(server: Server) -> None:
    for line in sys.stdin:
        if reply := server.answer(json.loads(line)):
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


def serve_http(server: Server, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = server.answer(message)
            text = json.dumps(reply).encode() if reply else b""
            self.send_response(200 if reply else 202)
            if reply:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    kind, file, *rest = sys.argv[1:]
    if kind == "stdio":
        serve_stdio(Server(DESK, Path(file)))
    else:
        serve_http(Server(LEDGER, Path(file)), int(rest[0]))
