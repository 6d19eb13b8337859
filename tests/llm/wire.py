"""A proxy between the service and the model: it records what passes, and can limit the answers to a grammar."""

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

ANSWER_SECONDS = 120


@dataclass(frozen=True)
class Exchange:
    """A request of the service, as it came, and what the model made of it."""

    path: str
    authorization: str | None
    body: dict[str, Any]
    status: int
    answer: dict[str, Any]

    @property
    def system(self) -> str:
        return self._text("system")

    @property
    def user(self) -> str:
        return self._text("user")

    @property
    def catalogue(self) -> dict[str, str]:
        """The tools that the model may choose: names and descriptions, in their order."""
        lines = self.user.split("\n\nCatalogue:\n", 1)[1].splitlines()
        return dict(json.loads(f"[{line.split('. ', 1)[1].replace(': ', ', ', 1)}]") for line in lines)

    @property
    def task(self) -> str:
        task: str = json.loads(self.user.split("\n\nCatalogue:\n", 1)[0].removeprefix("Task: "))
        return task

    @property
    def said(self) -> str:
        """What the model wrote."""
        said: str = self.answer["choices"][0]["message"]["content"]
        return said

    def _text(self, role: str) -> str:
        (text,) = [message["content"] for message in self.body["messages"] if message["role"] == role]
        assert isinstance(text, str)
        return text


class Wire:
    """
    The proxy. Set `grammar` to a grammar in GBNF, the notation of llama.cpp, to decide the form of an answer. The model
    still decides everything that the grammar leaves open.
    """

    def __init__(self, model_url: str) -> None:
        self.exchanges: list[Exchange] = []
        self.grammar: str | None = None
        wire = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                authorization = self.headers["Authorization"]
                body = json.loads(raw)
                sent = raw if wire.grammar is None else json.dumps({**body, "grammar": wire.grammar}).encode()
                headers = {"Content-Type": "application/json"}
                if authorization:
                    headers["Authorization"] = authorization
                response = requests.post(model_url + self.path, data=sent, headers=headers, timeout=ANSWER_SECONDS)
                wire.exchanges.append(Exchange(self.path, authorization, body, response.status_code, response.json()))
                self.send_response(response.status_code)
                self.send_header("Content-Type", response.headers["Content-Type"])
                self.send_header("Content-Length", str(len(response.content)))
                self.end_headers()
                self.wfile.write(response.content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def last(self) -> Exchange:
        return self.exchanges[-1]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
