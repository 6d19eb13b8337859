"""
An OpenAI-compatible provider that thinks nothing, records everything and calls the tools it is told to call.

A script belongs to a text: when a user's message contains it, the n-th model call of that turn makes the n-th round of
tool calls. Like a well-behaved model it only calls what the request offers. Everything else gets a plain answer.
"""

import json
import threading
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "scripted-model"
ANSWER = "That is all."


@dataclass(frozen=True)
class Call:
    """A tool call to make."""

    name: str
    arguments: dict[str, Any]


class Request:
    """One recorded model call."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.messages: list[dict[str, Any]] = body["messages"]
        self.definitions: list[dict[str, Any]] = body.get("tools") or []
        self.tools = [tool["function"]["name"] for tool in self.definitions]
        roles = ["", *(message["role"] for message in self.messages)]
        # What follows a tool's result is no person's message: Open WebUI shows pictures to the model in this way.
        users = [index for index, role in enumerate(roles[1:]) if role == "user" and roles[index] != "tool"]
        self._turn = self.messages[users[-1] if users else 0 :]
        self.text = _text(self._turn[0]["content"]) if users else ""
        self.system = "\n".join(_text(message["content"]) for message in self.messages if message["role"] == "system")
        # Not messages with calls: some versions of Open WebUI put the rounds of a turn together.
        self.calls = sum(len(message.get("tool_calls") or []) for message in self._turn)
        self.results = [_text(message["content"]) for message in self._turn if message["role"] == "tool"]


class ScriptedModel:
    """The provider's server."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._scripts: dict[str, list[list[Call]]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._json({"object": "list", "data": [{"id": NAME, "object": "model", "owned_by": "tests"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "messages" not in body:
                    # Open WebUI embeds what it searches for in attached knowledge.
                    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
                    rows = [{"object": "embedding", "index": at, "embedding": [1.0] * 8} for at in range(len(texts))]
                    self._json({"object": "list", "data": rows, "model": NAME})
                    return
                request = Request(body)
                provider.requests.append(request)
                content, calls = provider._reply(request)
                tool_calls = [
                    {
                        "index": index,
                        "id": f"call_{uuid.uuid4().hex[:12]}",
                        "type": "function",
                        "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                    }
                    for index, call in enumerate(calls)
                ]
                answer: dict[str, Any] = {"role": "assistant", "content": content}
                if tool_calls:
                    answer["tool_calls"] = tool_calls
                finish = "tool_calls" if tool_calls else "stop"
                if request.body.get("stream"):
                    self._stream(answer, finish)
                else:
                    self._json(_completion("message", answer, finish))

            def _json(self, value: object) -> None:
                raw = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def _stream(self, answer: dict[str, Any], finish: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for event in (_completion("delta", answer, None), _completion("delta", {}, finish)):
                    self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def on(self, text: str, *rounds: Call | list[Call]) -> None:
        """Scripts the tool calls of a turn."""
        self._scripts[text] = [round_ if isinstance(round_, list) else [round_] for round_ in rounds]

    def forget(self) -> None:
        self.requests.clear()
        self._scripts.clear()

    def seen(self, text: str) -> list[Request]:
        """The model calls of the turns whose message contains this text, oldest first."""
        return [request for request in self.requests if text in request.text]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, request: Request) -> tuple[str, list[Call]]:
        if "Available Tools" in request.system:  # Prompt mode: Open WebUI asks which tools to call, as text.
            return json.dumps({"tool_calls": []}), []
        script = next((rounds for text, rounds in self._scripts.items() if text in request.text), [])
        done = request.calls
        while script and done >= len(script[0]):
            done -= len(script[0])
            script = script[1:]
        calls = script[0] if script else []
        offered = [call for call in calls if call.name in request.tools]
        return ("", offered) if offered else (ANSWER, [])


def _completion(part: str, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
    kind = "chat.completion" if part == "message" else "chat.completion.chunk"
    choice = {"index": 0, part: content, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": NAME, "choices": [choice]}


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""
