#!/usr/bin/env python3
"""What the filter costs inside Open WebUI at 2,000 tools: processor time and waiting of each model call.

Three measurements, each against a real Toolsieve whose tools are those of the *.json files in a folder (`{"tools": […]}`,
real servers), filled up with made ones, and replayed by real stdio servers:

1. In a real Open WebUI, the hook alone, one message at a time: processor time for which it holds the event loop, processor
   time of the whole process from its start to its end (Open WebUI's other tasks and threads included), and waiting. For
   the first model call of a message, and for those after tool calls.
2. In the same Open WebUI, whole messages of several model calls, one after the other, in turns without a filter, with a
   filter that keeps a fixed list of tools, and with Toolsieve's. Processor time is that of Open WebUI's process. Without
   a filter every model call carries all definitions, which costs more than choosing.
3. The plugin as Open WebUI loads it, 100 model calls at once on one event loop: waiting, and how many were not narrowed.

A busy machine slows the waiting, so compare processor times, and the ways among each other: they take turns. Run it with
the Python of tests/e2e/install.sh, which prints its path:

    $(tests/e2e/install.sh) benches/webui_filter.py --toolsieve target/release/toolsieve --tools ../shared/toollists

Goals at 2,000 tools: 1. at most 8 ms of processor time and 10 ms of waiting for a model call; 3. none of 100 gives up, and
p99 is at most 400 ms.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import sys
import tempfile
import time
import types
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from services import (
    Service,
    cpu_seconds,
    finish,
    free_port,
    machine,
    made_tools,
    real_tools,
    replayed,
    table,
    until_indexed,
    write_config,
)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
FILTER = ROOT / "webui-filter" / "filter.py"
CONNECTION = "server:toolsieve"
WATCHED = ("held", "burned", "waited")
TOPICS = ["invoice", "ticket", "event", "customer", "photo", "order", "contract", "playlist", "sensor", "recipe"]
# Put at the end of the filter's text: it writes down what each call of the hook takes. What other tasks of Open WebUI
# do meanwhile is in `burned` and not in `held`; what its threads do for the hook in the database is not in `held`.
STOPWATCH = '''

async def within(_, work):
    return await work


class Steps:
    def __init__(self, work):
        self.work, self.held = work, 0.0

    def __await__(self):
        step, value = self.work.send, None
        while True:
            began = time.thread_time()
            try:
                waited_for = step(value)
            except StopIteration as done:
                return done.value
            finally:
                self.held += time.thread_time() - began
            try:
                step, value = self.work.send, (yield waited_for)
            except BaseException as error:
                step, value = self.work.throw, error


class Filter(Filter):
    async def request(
        self, body, __user__=None, __metadata__=None, __request__=None, __event_emitter__=None
    ):
        offered, began, burned = len(body.get("tools") or []), time.perf_counter(), time.process_time()
        steps = Steps(super().request(body, __user__, __metadata__, __request__, __event_emitter__))
        body = await steps
        burned, waited = time.process_time() - burned, time.perf_counter() - began
        with open({path!r}, "a") as file:
            line = {{"held": steps.held * 1e3, "burned": burned * 1e3, "waited": waited * 1e3, "offered": offered}}
            file.write(json.dumps({{**line, "kept": len(body.get("tools") or [])}}) + "\\n")
        return body
'''
# Keeps what Toolsieve's filter keeps for a message, without asking anybody.
FIXED = '''"""
title: Fixed
"""


class Filter:
    async def request(self, body):
        kept = {names!r}
        body["tools"] = [tool for tool in body["tools"] if tool["function"]["name"] in kept]
        return body
'''


def message(number: int) -> str:
    """No two are alike."""
    return f"search the {TOPICS[number % len(TOPICS)]} number {number} of the museum"


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": statistics.median(values), "p90": cuts[89], "p99": cuts[98], "most": max(values)}


def figures(values: dict[str, float]) -> list[str]:
    return [f"{value:.2f}" for value in values.values()]


def load(source: str) -> types.ModuleType:
    """The plugin as Open WebUI loads it: a module made of text."""
    sys.modules["open_webui"] = None  # type: ignore[assignment]  # It is installed here, and not what is measured.
    module = types.ModuleType(f"function_{uuid.uuid4().hex}")
    exec(source, module.__dict__)  # noqa: S102
    return module


class Chats:
    """Model calls of as many chats on one instance of the plugin, as Open WebUI makes them."""

    def __init__(self, url: str, key: str, document: dict[str, Any], source: str) -> None:
        self.filter = load(source).Filter()
        self.filter.valves = self.filter.Valves(url=url, key=key, connections=json.dumps({CONNECTION: "/"}))
        self.specs = [
            {"name": operation["operationId"], "description": operation.get("description", ""), "parameters": {}}
            for methods in document["paths"].values()
            for operation in methods.values()
        ]
        self.number = 0

    def call(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Body and metadata of the first model call of a message."""
        self.number += 1
        registry = {
            spec["name"]: {"tool_id": CONNECTION, "spec": dict(spec), "type": "external"} for spec in self.specs
        }
        messages = [{"role": "user", "content": message(self.number)}]
        tools = [{"type": "function", "function": entry["spec"]} for entry in registry.values()]
        metadata = {
            "chat_id": f"chat-{self.number}",
            "message_id": f"message-{self.number}",
            "session_id": "s",
            "tool_ids": [CONNECTION],
            "tools": registry,
            "params": {},
        }
        return {"model": "m", "messages": messages, "tools": tools}, metadata

    async def at_once(self, count: int) -> tuple[list[float], float, int]:
        """Milliseconds that each waited, those of processor time of all, and how many were not narrowed."""
        calls = [self.call() for _ in range(count)]

        async def ask(body: dict[str, Any], metadata: dict[str, Any]) -> tuple[float, int]:
            began = time.perf_counter()
            body = await self.filter.request(body, {"id": "u", "role": "user"}, metadata)
            return (time.perf_counter() - began) * 1e3, len(body["tools"])

        burned = time.process_time()
        done = await asyncio.gather(*(ask(*call) for call in calls))
        burned = (time.process_time() - burned) * 1e3
        return [waited for waited, _ in done], burned, sum(kept >= len(self.specs) for _, kept in done)


async def many_at_once(chats: Chats, rounds: int, count: int) -> dict[str, Any]:
    await chats.at_once(1)
    waited, given_up, burned = [], 0, 0.0
    for _ in range(rounds):
        took, used, failed = await chats.at_once(count)
        waited += took
        burned += used
        given_up += failed
    return {"waited": quantiles(waited), "given_up": given_up, "burned": burned / (rounds * count)}


class OpenWebUi:
    """A real Open WebUI whose one tool server is Toolsieve, before a scripted model."""

    def __init__(self, stack: ExitStack, folder: Path, toolsieve_url: str, key: str, plugin: Path) -> None:
        import model
        import openwebui

        self.calls = [model.Call("find_tools", {"query": "what is there for sensors", "limit": 1})]
        self.model = model.ScriptedModel()
        stack.callback(self.model.stop)
        self.program, url = openwebui.start(folder, self.model.url)
        stack.callback(self.program.stop)
        self.admin = openwebui.Client.sign_up(url)
        self.admin.set_tool_servers([openwebui.connection("toolsieve", toolsieve_url, key=key)])
        self.stopwatch = folder / "stopwatch.jsonl"
        source = plugin.read_text() + STOPWATCH.format(path=str(self.stopwatch))
        self.admin.paste_function("toolsieve", source)
        self.valves = {"url": toolsieve_url, "key": key, "timeout": 6}
        self.admin.set_valves("toolsieve", self.valves)
        self.active = {"toolsieve"}
        self.number, self.text, self.wanted = 0, "", 0
        # The page hears of an answer; asking for it again and again would be measured, too.
        openwebui.time = types.SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=self.wait)

    def wait(self, _: float) -> None:
        """Until the last model call of the message, and until Open WebUI has written it down."""
        while len(self.model.seen(self.text)) < self.wanted:
            time.sleep(0.001)
        self.seen_at = time.perf_counter()
        time.sleep(0.5)

    def use(self, way: str) -> None:
        """Switches one filter on and the others off."""
        for function in [name for name in self.active if name != way]:
            self.admin.post(f"/api/v1/functions/id/{function}/toggle")
            self.active.remove(function)
        if way != "none" and way not in self.active:
            self.admin.post(f"/api/v1/functions/id/{way}/toggle")
            self.active.add(way)

    def ask(self, model_calls: int) -> tuple[float, float]:
        """Milliseconds of processor time for a whole message, and of waiting until its last model call."""
        self.number += 1
        self.text = text = message(self.number)
        self.wanted = model_calls
        self.model.forget()
        self.model.on(text, *[self.calls] * (model_calls - 1))
        began, burned = time.perf_counter(), self.burned()
        self.admin.ask(text, [CONNECTION])
        burned, waited = self.burned() - burned, (self.seen_at - began) * 1e3
        seen = len(self.model.seen(text))
        if seen != model_calls:
            raise SystemExit(f"{seen} model calls in place of {model_calls}")
        return burned, waited

    def burned(self) -> float:
        """Milliseconds of processor time of Open WebUI's process until now."""
        return cpu_seconds(self.program._process.pid) * 1e3

    def watched(self) -> list[dict[str, float]]:
        lines = self.stopwatch.read_text().splitlines() if self.stopwatch.exists() else []
        self.stopwatch.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


def in_open_webui(open_webui: OpenWebUi, rounds: int, model_calls: int, published: int) -> dict[str, Any]:
    for _ in range(3):
        open_webui.ask(model_calls)
    first = open_webui.model.requests[0]
    open_webui.admin.paste_function("fixed", FIXED.format(names=set(first.tools)))
    open_webui.active.add("fixed")
    open_webui.watched()
    ways: dict[str, list[tuple[float, float]]] = {"none": [], "fixed": [], "toolsieve": []}
    for _ in range(rounds):
        for way, taken in ways.items():
            open_webui.use(way)
            open_webui.ask(1)
            open_webui.watched() if way != "toolsieve" else None
            taken.append(open_webui.ask(model_calls))
    open_webui.use("toolsieve")
    watched = open_webui.watched()
    for _ in range(rounds):
        open_webui.ask(model_calls)
    watched += open_webui.watched()
    if failed := [one for one in watched if one["kept"] >= published]:
        raise SystemExit(f"not narrowed: {failed}")
    parts = {
        "first model call": [one for one in watched if one["offered"] >= published],
        "after tool calls": [one for one in watched if one["offered"] < published],
    }
    report: dict[str, Any] = {"hook": {}, "messages": {}}
    for part, calls in parts.items():
        report["hook"][part] = {
            "count": len(calls),
            **{what: quantiles([one[what] for one in calls]) for what in WATCHED},
        }
    for way, taken in ways.items():
        burned, waited = zip(*taken, strict=True)
        report["messages"][way] = {"burned": statistics.median(burned), "waited": statistics.median(waited)}
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--tools", type=Path, help="folder with tool lists")
    parser.add_argument("--filter", type=Path, default=FILTER, help="another version of the plugin")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model-calls", type=int, default=6, help="of one message in Open WebUI")
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--only", choices=["openwebui", "at-once"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    tools = real_tools(options.tools)[: options.count]
    report: dict[str, Any] = {"machine": machine(), "tools": options.count, "real_tools": len(tools)}
    tools += [tool for _, tool in zip(range(options.count - len(tools)), made_tools(), strict=False)]
    key, texts = secrets.token_hex(16), []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = replayed(tools, folder)
        config, port = write_config(folder / "mcp.json", servers), free_port()
        command: list[str | Path] = [options.toolsieve, "serve", "--config", config, "--data-dir", folder / "data"]
        command += ["--port", str(port), "--api-key", key]
        service = stack.enter_context(Service(command, port, folder / "toolsieve.log"))
        until_indexed(service, len(servers), options.count)
        url = f"http://127.0.0.1:{port}"
        document = document_of(url, key)
        if options.only != "openwebui":
            chats = Chats(url, key, document, options.filter.read_text())
            found = asyncio.run(many_at_once(chats, options.rounds, options.at_once))
            report["at_once"] = found
            row = ["waiting of a model call", *figures(found["waited"]), f"{found['burned']:.2f}", found["given_up"]]
            head = [f"{options.at_once} at once, ms", "p50", "p90", "p99", "most", "processor, each", "gave up"]
            texts.append(table(head, [row]))
        if options.only != "at-once":
            open_webui = OpenWebUi(stack, folder, url, key, options.filter)
            found = in_open_webui(open_webui, options.rounds, options.model_calls, len(document["paths"]))
            report |= found
            rows = [
                [f"{part}, {what}", *figures(taken[what]), taken["count"]]
                for part, taken in found["hook"].items()
                for what in WATCHED
            ]
            texts.append(table(["the hook in Open WebUI, ms", "p50", "p90", "p99", "most", "calls"], rows))
            rows = [
                [way, *(f"{taken[what]:.0f}" for what in ("burned", "waited"))]
                for way, taken in found["messages"].items()
            ]
            head = [f"a message of {options.model_calls} model calls, ms", "processor time p50", "waiting p50"]
            texts.append(table(head, rows))
    finish(report, "\n\n".join(texts), options.json)


def document_of(url: str, key: str) -> dict[str, Any]:
    import requests

    response = requests.get(f"{url}/openapi.json", headers={"Authorization": f"Bearer {key}"}, timeout=60)
    document: dict[str, Any] = response.json()
    return document


if __name__ == "__main__":
    main()
