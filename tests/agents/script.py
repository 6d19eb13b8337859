"""
What the stub of a model does: find a tool, load its toolset, and call it.

Like a real model, it knows only what the client sends with each request: the tools that it offers, and the results so
far. It calls the loaded tool directly once the client offers it. Until then, it calls the tool through `run_tool`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PROMPT = "What time is it in Tokyo when it is noon in Berlin?"
QUERY = "convert a time between time zones"
TOOL = "time__convert_time"
ARGUMENTS = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
# A part of the real tool's result, whatever the day of the year.
RESULT = "Asia/Tokyo"
ANSWER = "It is evening in Tokyo."
# Claude Code's own search: at first it tells the model the names of tools only.
OWN_SEARCH = "ToolSearch"


@dataclass(frozen=True)
class Offer:
    """A tool as a client offers it. Codex sends the tools of a server in a namespace."""

    name: str
    namespace: str | None = None

    def is_of(self, name: str) -> bool:
        """Whether this is Toolsieve's tool of this name. Clients put a prefix before it."""
        return self.name == name or self.name.endswith(f"_{name}")


@dataclass(frozen=True)
class Call:
    tool: Offer
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A tool's result. `tool` is the name that the client offered."""

    tool: str
    text: str


@dataclass(frozen=True)
class ModelRequest:
    """One request of a client to its model."""

    offers: Sequence[Offer]
    results: Sequence[Result]
    # The texts in which a client may name further tools.
    texts: str = ""

    def offer(self, name: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.is_of(name)), None)

    def result(self, name: str) -> str | None:
        """The latest result of one of Toolsieve's tools."""
        return next((result.text for result in reversed(self.results) if Offer(result.tool).is_of(name)), None)

    @property
    def is_ours(self) -> bool:
        """Other requests have another purpose, such as a chat's title."""
        return self._reach("find_tools", {}) is not None

    def next_call(self) -> Call | None:
        """`None` for the final answer."""
        answer = self.result("find_tools")
        if answer is None:
            return self._reach("find_tools", {"queries": [QUERY], "limit": 3})
        found = json_in(answer)
        if not found or not found.get("tools"):
            return None
        toolsets = found.get("toolsets")
        if toolsets and self.result("load_toolset") is None:
            load = self._reach("load_toolset", {"toolset": toolsets[0]["name"]})
            if load:
                return load
        name = found["tools"][0]["name"]
        if self.result(name) is not None:
            return None
        steps: list[tuple[str, dict[str, Any]]] = [(name, ARGUMENTS)]
        steps.append(("run_tool", {"name": name, "arguments": ARGUMENTS}))
        if self.result("load_toolset") is not None:
            # One more step, for clients that offer the loaded tools a little later.
            steps.append(("list_available_toolsets", {}))
        calls = (self._reach(tool, arguments) for tool, arguments in steps if self.result(tool) is None)
        return next((call for call in calls if call), None)

    def _reach(self, name: str, arguments: dict[str, Any]) -> Call | None:
        offer = self.offer(name)
        if offer:
            return Call(offer, arguments)
        search = self.offer(OWN_SEARCH)
        named = re.search(rf"\bmcp__\w+?__{name}\b", self.texts) if search else None
        if not search or not named:
            return None
        query = f"select:{named[0]}"
        searched = any(result.tool == OWN_SEARCH and named[0] in result.text for result in self.results)
        return Call(Offer(named[0]), arguments) if searched else Call(search, {"query": query})


@dataclass
class Step:
    """A request of a client with Toolsieve's tools, and the call with which the model answered."""

    request: ModelRequest
    call: Call | None


@dataclass
class Transcript:
    steps: list[Step] = field(default_factory=list)

    @property
    def calls(self) -> list[str]:
        """The names of Toolsieve's tools in the order of the calls, without the client's prefix."""
        called = [step.call.tool for step in self.steps if step.call]
        known = ("find_tools", "load_toolset", "run_tool", "list_available_toolsets", TOOL)
        return [name for tool in called for name in known if tool.is_of(name)]

    @property
    def results(self) -> Sequence[Result]:
        return self.steps[-1].request.results if self.steps else []


def json_in(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text: agents write their own words around a tool's result."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            value, _ = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            place = text.find("{", place + 1)
            continue
        return value if isinstance(value, dict) else None
    return None
