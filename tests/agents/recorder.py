"""Stands between an agent and Toolsieve, passes everything on unchanged, and records the messages of MCP."""

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from serving import Exchange, LocalServer

# Headers that belong to one connection.
OF_A_CONNECTION = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
ANSWER_SECONDS = 120


@dataclass
class Message:
    """A message of JSON-RPC: from the client, with the answer, or from Toolsieve on a stream."""

    method: str
    params: dict[str, Any]
    answer: dict[str, Any] = field(default_factory=dict)


class Recorder(LocalServer):
    def __init__(self, url: str) -> None:
        self.sent: list[Message] = []
        self.received: list[Message] = []
        # Everything in its order, for the question of what happened after what.
        self.order: list[str] = []
        self.streams = 0
        target, recorder = urlsplit(url).netloc, self

        class Handler(Exchange):
            def answer(self) -> None:
                body = self.body()
                message = recorder._note(body)
                upstream = http.client.HTTPConnection(target, timeout=None if self.command == "GET" else ANSWER_SECONDS)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_A_CONNECTION}
                upstream.request(self.command, self.path, body or None, headers)
                response = upstream.getresponse()
                if self.command == "GET" and response.status == 200:
                    recorder.streams += 1
                kept = {name: value for name, value in response.getheaders() if name.lower() not in OF_A_CONNECTION}
                self.start(response.status, kept)
                text = b""
                try:
                    while part := response.read1(65536):
                        text = recorder._take(text + part, message)
                        self.wfile.write(part)
                except OSError:
                    # The client has closed its stream.
                    pass
                finally:
                    upstream.close()

        super().__init__(Handler)

    def messages(self, method: str) -> Sequence[Message]:
        return [message for message in self.sent if message.method == method]

    @property
    def lists_after_a_change(self) -> int:
        """How often the client listed tools after it was notified."""
        changed = "notifications/tools/list_changed"
        return self.order[self.order.index(changed) :].count("tools/list") if changed in self.order else 0

    def _note(self, body: bytes) -> Message | None:
        value = json.loads(body) if body else {}
        if "method" not in value:
            return None
        message = Message(value["method"], value.get("params") or {})
        self.sent.append(message)
        self.order.append(message.method)
        return message

    def _take(self, text: bytes, message: Message | None) -> bytes:
        """Reads the complete lines of an answer or a stream; returns the rest."""
        *lines, rest = text.split(b"\n")
        for line in [*lines, rest]:
            try:
                value = json.loads(line.removeprefix(b"data:"))
            except ValueError:
                continue
            if line is rest:
                rest = b""
            if isinstance(value, dict) and "method" in value:
                self.received.append(Message(value["method"], value.get("params") or {}))
                self.order.append(value["method"])
            elif message and isinstance(value, dict):
                message.answer = value
        return rest
