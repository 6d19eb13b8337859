#!/usr/bin/env python3
"""Counts what the first model call of a chat costs in a real Open WebUI: cl100k tokens of all definitions in it.

The tools are those of tests/cases/languages/servers.jsonl, replayed by real stdio servers behind Toolsieve.
`toolsieve openwebui install` registers them in an Open WebUI 0.12.4 and installs the filter. All valves have their
defaults, apart from a longer timeout, because a busy machine is slow. Open WebUI's own tools are on, as by default.

Each message starts a new chat, and a scripted model records the definitions that it receives. They are of three kinds:
the selected tools (ours), Open WebUI's own tools (built-in), and `find_tools` and the like (meta-tools). The messages
are from tests/cases/languages/messages.jsonl, evenly spaced, including those that need no tool. For those that need
one, the program also counts how often a right tool is among the definitions. None of the messages needs a built-in
tool, so the table of families shows what is kept needlessly.

The tools have no parameters, so their definitions are smaller than real ones. With --schemas, further rows show the
tokens with parameters of real tools, drawn for each tool by its name from the *.json files of a folder
(`{"tools": […]}`). The selection doesn't see these parameters.

    python="$(tests/e2e/install.sh)"; "$python" -m pip install bpe-openai
    "$python" benches/first_call.py --toolsieve target/release/toolsieve

Goal: at most 2,400 tokens in the median message, all kinds together.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from services import (
    finish,
    functions,
    machine,
    real_tools,
    table,
    toolsieve,
    write_config,
)
from tokens import counter, is_complete, minified, replayed

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
DATA = ROOT / "tests" / "cases" / "languages"
FAMILIES = ROOT / "src" / "domain" / "selection" / "builtins.tsv"
BY_EXAMPLES = "i scribbled the door code on something, where is it"
# The installer's names for the connection and the filter.
CONNECTION = "server:toolsieve"
FILTER = "toolsieve"
OURS, BUILTIN, META = KINDS = ("ours", "built-in", "meta-tools")
TOGETHER = "together"
GOAL = 2400


@dataclass(frozen=True)
class Message:
    """A message, and the functions that serve it; none if it needs no tool."""

    id: str
    text: str
    right: frozenset[str]


@dataclass(frozen=True)
class Call:
    """The tokens of a model call's definitions, by function."""

    id: str
    tokens: dict[str, int]
    # The same, with parameters of real tools for ours.
    with_schemas: dict[str, int]


def lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tool_lists() -> dict[str, list[dict[str, Any]]]:
    """The tools of each server. They have no parameters."""
    schema = {"type": "object", "properties": {}}
    listed = lines(DATA / "servers.jsonl")
    return {line["server"]: [{"inputSchema": schema, **tool} for tool in line["tools"]] for line in listed}


def messages(language: str, most: int) -> list[Message]:
    """Messages in one language, evenly spaced over all of them."""
    known = [line for line in lines(DATA / "messages.jsonl") if line["lang"] == language]
    if not known:
        raise SystemExit(f"there are no messages in the language {language}")
    count = min(most, len(known))
    chosen = [known[place * len(known) // count] for place in range(count)]
    return [Message(line["id"], line["query"], right_functions(line)) for line in chosen]


def right_functions(line: Mapping[str, Any]) -> frozenset[str]:
    if "tool" not in line:
        return frozenset()
    ids = [f"{line['server']}::{line['tool']}", *line.get("alternatives", [])]
    return frozenset(tool.replace("::", "__", 1) for tool in ids)


def families() -> dict[str, str]:
    """The family of each built-in tool."""
    rows = [line.split("\t") for line in FAMILIES.read_text(encoding="utf-8").splitlines()]
    return {row[3]: row[0] for row in rows if len(row) == 4 and row[1] == "member"}


class Costs:
    """Counts the tokens of definitions, and sorts functions by kind."""

    def __init__(self, published: Iterable[str], count: Callable[[str], int], schemas: Sequence[Any]) -> None:
        self.published = frozenset(published)
        self._count = count
        self._schemas = schemas

    def kind(self, name: str) -> str:
        if name not in self.published:
            return BUILTIN
        return OURS if "__" in name else META

    def call(self, message_id: str, definitions: Iterable[Mapping[str, Any]]) -> Call:
        called = [definition["function"] for definition in definitions]
        tokens = {function["name"]: self._count(minified(function)) for function in called}
        larger = {function["name"]: self._count(minified(self._with_schema(function))) for function in called}
        return Call(message_id, tokens, larger if self._schemas else {})

    def sums(self, tokens: Mapping[str, int]) -> dict[str, int]:
        """The tokens of each kind, and of all."""
        by_kind = Counter(dict.fromkeys(KINDS, 0))
        for name, count in tokens.items():
            by_kind[self.kind(name)] += count
        return {**by_kind, TOGETHER: by_kind.total()}

    def _with_schema(self, function: Mapping[str, Any]) -> Mapping[str, Any]:
        name = function["name"]
        if not self._schemas or self.kind(name) != OURS:
            return function
        return {**function, "parameters": random.Random(name).choice(self._schemas)}


class OpenWebUi:
    """A real Open WebUI with Toolsieve installed, before a scripted model."""

    def __init__(self, stack: ExitStack, folder: Path, binary: Path, toolsieve_url: str) -> None:
        import model
        import openwebui

        self.model = model.ScriptedModel()
        stack.callback(self.model.stop)
        program, url = openwebui.start(folder, self.model.url)
        stack.callback(program.stop)
        self.admin = openwebui.Client.sign_up(url)
        install = [str(binary), "openwebui", "install", "--url", url, "--token", self.admin.token]
        valves = ["--no-status-line", "--no-auto-enable", "--no-test"]
        subprocess.run([*install, "--toolsieve-url", toolsieve_url, *valves], check=True, timeout=120)
        self.admin.set_valves(FILTER, {**self.admin.valves(FILTER), "timeout": 6})

    def toggle_filter(self) -> None:
        self.admin.post(f"/api/v1/functions/id/{FILTER}/toggle")

    def first_call(self, text: str) -> list[dict[str, Any]]:
        """The definitions in the first model call of a new chat."""
        self.model.forget()
        self.admin.ask(text, [CONNECTION])
        definitions: list[dict[str, Any]] = self.model.seen(text)[0].definitions
        return definitions


class Measurement:
    """A model call without the filter, and the first calls of all messages with it."""

    def __init__(self, binary: Path, asked: Sequence[Message], schemas: Sequence[Any]) -> None:
        self.asked = asked
        servers = tool_lists()
        self.tools = sum(map(len, servers.values()))
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            config = write_config(folder / "mcp.json", replayed(servers, folder))
            service = stack.enter_context(toolsieve(binary, config, folder))
            service.wait(lambda: is_complete(service, servers), 300)
            service.wait(lambda: service.ask("GET", "/readyz")[1]["index"]["embedded"] >= self.tools, 300)
            self.costs = Costs([function["name"] for function in functions(service) or []], counter(), schemas)
            if unknown := {name for message in asked for name in message.right} - self.costs.published:
                raise SystemExit(f"the servers have no such tools: {sorted(unknown)}")
            open_webui = OpenWebUi(stack, folder, binary, f"http://127.0.0.1:{service.port}")
            open_webui.toggle_filter()
            self.without = self.costs.call("without", open_webui.first_call("hello"))
            if missing := self.costs.published - self.without.tokens.keys():
                raise SystemExit(f"Open WebUI does not offer {sorted(missing)}")
            open_webui.toggle_filter()
            # Toolsieve embeds its examples of messages for built-in tools once they are offered. This message is judged by them alone.
            service.wait(lambda: "search_notes" in self.costs.call("examples", open_webui.first_call(BY_EXAMPLES)).tokens, 60)
            self.calls = [self._call(open_webui, message) for message in asked]

    def _call(self, open_webui: OpenWebUi, message: Message) -> Call:
        call = self.costs.call(message.id, open_webui.first_call(message.text))
        if self.costs.published <= call.tokens.keys():
            raise SystemExit(f"not narrowed: {message.text}")
        return call

    def rows(self) -> dict[str, dict[str, float | None]]:
        """The figures of each kind."""
        before, after = self.costs.sums(self.without.tokens), [self.costs.sums(call.tokens) for call in self.calls]
        rows = {kind: figures(self.asked, before[kind], [sums[kind] for sums in after]) for kind in (*KINDS, TOGETHER)}
        if self.without.with_schemas:
            before = self.costs.sums(self.without.with_schemas)
            after = [self.costs.sums(call.with_schemas) for call in self.calls]
            for kind in (OURS, TOGETHER):
                rows[f"{kind}, real parameters"] = figures(self.asked, before[kind], [sums[kind] for sums in after])
        return rows

    def families(self) -> dict[str, dict[str, Any]]:
        """Of each family of built-in tools: its tokens, and the messages with which it is kept."""
        of_function, rows = families(), {}
        for name, count in self.without.tokens.items():
            if self.costs.kind(name) == BUILTIN:
                row = rows.setdefault(of_function.get(name, "of no family"), {"tools": 0, "tokens": 0, "kept": set()})
                row["tools"] += 1
                row["tokens"] += count
                row["kept"] |= {call.id for call in self.calls if name in call.tokens}
        return {family: {**row, "kept": sorted(row["kept"])} for family, row in rows.items()}

    def right(self) -> tuple[int, int]:
        """How many messages have a right tool among the definitions, and how many need one."""
        held = [
            not message.right.isdisjoint(call.tokens)
            for message, call in zip(self.asked, self.calls, strict=True)
            if message.right
        ]
        return sum(held), len(held)

    def selected(self) -> float:
        """How many of our tools a model call has on average."""
        return statistics.mean(sum(self.costs.kind(name) == OURS for name in call.tokens) for call in self.calls)


def figures(asked: Sequence[Message], before: int, values: Sequence[int]) -> dict[str, float | None]:
    """Without the filter, over all messages, over those that need a tool, and over those that need none."""

    def median(*, needing: bool) -> float | None:
        part = [value for message, value in zip(asked, values, strict=True) if bool(message.right) == needing]
        return statistics.median(part) if part else None

    p90 = statistics.quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]
    return {
        "without the filter": before,
        "median": statistics.median(values),
        "mean": statistics.mean(values),
        "p90": p90,
        "median, needs a tool": median(needing=True),
        "median, needs none": median(needing=False),
    }


def readable(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--lang", default="en", help="language of the messages")
    parser.add_argument("--messages", type=int, default=60, help="number of messages")
    parser.add_argument("--schemas", type=Path, help="folder with tool lists, whose parameters are counted")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    schemas = [tool["inputSchema"] for tool in real_tools(options.schemas)]
    measured = Measurement(options.toolsieve.absolute(), messages(options.lang, options.messages), schemas)
    rows, kept, (held, needing) = measured.rows(), measured.families(), measured.right()
    count = len(measured.calls)
    head = ["built-in family", "tools", "tokens", f"kept, of {count}", "tokens per message"]
    of_families = [
        [name, row["tools"], row["tokens"], len(row["kept"]), readable(row["tokens"] * len(row["kept"]) / count)]
        for name, row in kept.items()
    ]
    texts = [
        table(["tokens", *rows[TOGETHER]], [[kind, *map(readable, row.values())] for kind, row in rows.items()]),
        table(head, of_families),
        f"{held} of the {needing} messages that need a tool have a right one among the definitions.",
        f"On average, {measured.selected():.1f} of {measured.tools} tools are selected.",
    ]
    median = rows[TOGETHER]["median"] or 0
    report = {
        "machine": machine(),
        "language": options.lang,
        "tools": measured.tools,
        "tokens": rows,
        "families": kept,
        "right": {"held": held, "messages": needing},
        "goal": GOAL,
        "reached": median <= GOAL,
    }
    if options.json:
        by_message = zip(measured.asked, measured.calls, strict=True)
        report["without"] = asdict(measured.without)
        report["messages"] = [
            {"text": message.text, "right": sorted(message.right), **asdict(call)} for message, call in by_message
        ]
    finish(report, "\n\n".join(texts), options.json)
    if median > GOAL:
        raise SystemExit(f"the median message takes {median:,.0f} tokens: more than {GOAL:,}")


if __name__ == "__main__":
    main()
