"""A stub of a model at the wire. It records what the client asks, and follows the script."""

import itertools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from serving import EVENTS, Exchange, LocalServer

from script import Step, Transcript
from wires import Wire


class StubModel(LocalServer):
    """`after_loading` is called before an answer once a toolset is loaded: real models take their time too."""

    def __init__(self, wire: Wire, after_loading: Callable[[], None] = lambda: None) -> None:
        self.transcript = Transcript()
        # Paths of other requests, such as those for a list of models.
        self.others: list[str] = []
        model, numbers = self, itertools.count(1)

        class Handler(Exchange):
            def answer(self) -> None:
                path, raw = urlsplit(self.path).path, self.body()
                if self.command != "POST" or not path.endswith(wire.paths):
                    model.others.append(f"{self.command} {self.path}")
                    self.send_json({"error": {"message": "This stub of a model has nothing here.", "code": 404}}, 404)
                    return
                body: dict[str, Any] = json.loads(raw)
                request = wire.read(body)
                call = request.next_call()
                # Requests without our tools are of another kind: titles of chats, and the like.
                if request.is_ours:
                    model.transcript.steps.append(Step(request, call))
                    if request.result("load_toolset") is not None:
                        after_loading()
                if not (body.get("stream") or "stream" in path):
                    self.send_json(wire.whole(body))
                    return
                self.start(200, {"Content-Type": EVENTS})
                for part in wire.stream(call, next(numbers)):
                    self.wfile.write(part)

        super().__init__(Handler)
