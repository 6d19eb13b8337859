#!/usr/bin/env python3
"""Lets a weak language model choose a tool for each message: from 50 tools, from Toolsieve's choice, from BM25's ten.

The tools are those of the quickstart's servers, with their full definitions. The model is SmolLM2-135M-Instruct under
llama.cpp (tests/llm). All ways get the same messages and the same prompt, and all answers are greedy. Only the list of
functions differs:

- all 50 tools; the engine keeps this list in its cache from message to message,
- the tools that `POST /v1/filter` selects; if it selects none, the model is not asked, which counts as a refusal,
- the ten best tools of plain BM25 over names, descriptions and parameter names.

No list contains meta-tools such as find_tools. An answer is right if it names a right tool. A refusal names no tool.
An invented name is not in the list. Some answers have another form. If a message needs no tool, a refusal is right.

If the server's chat template supports tools, they are sent as `tools`. Otherwise, as with this model, the prompt has
the list, and two examples show the form {"name": "FUNCTION"}. No grammar limits the answer, and it ends after the
name.

Messages: those of tests/data/quickstart, those of assets/training/calibration.jsonl for these tools, and the English
ones of tests/cases/languages that need no tool. The encoder was trained on none of them, but on other messages for the
same servers. If --messages asks for more, some of these other messages follow (assets/training/messages.jsonl). The
order is random with a fixed seed. --messages and --minutes end it early. Intervals are Wilson's, at 95 %.

    export TOOLSIEVE_QUICKSTART_CONFIG="$(toolsieve quickstart --install-only | tail -n 1)"
    "$(tests/llm/install.sh)" benches/weak_model.py --toolsieve target/release/toolsieve
"""

import argparse
import contextlib
import json
import math
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services import (
    Service,
    finish,
    free_port,
    functions,
    is_live,
    machine,
    table,
    toolsieve,
)

ROOT = Path(__file__).resolve().parents[1]
MODEL_SERVER = ROOT / "tests/llm/model_server.py"
# What the model can read at most; one slot for the fixed list, one for the others.
CONTEXT = 8192
SLOTS = {"all 50 tools": 0, "Toolsieve's choice": 1, "BM25's ten": 1}
WAYS = list(SLOTS)
# A name has at most some twenty tokens; with `tools`, arguments follow.
MOST_TOKENS = {"json": 32, "tools": 200}
K1, B = 1.2, 0.75
# The tools of the quickstart's servers.
TOOLS = 50

SYSTEM = (
    'You choose functions. Answer each message with one JSON object, {"name": "FUNCTION"}, that names the function to '
    'call, and nothing else. If no function fits, answer {"name": null}.'
)
TIME = {"type": "object", "properties": {"time": {"type": "string"}}, "required": ["time"]}
TITLE = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
EXAMPLE_FUNCTIONS = [
    {"name": "alarm__set_alarm", "description": "Set an alarm for a time of day.", "parameters": TIME},
    {"name": "music__play_song", "description": "Play a song by its title.", "parameters": TITLE},
]
EXAMPLES = [("wake me up at six", "alarm__set_alarm"), ("tell me a joke", None)]


@dataclass(frozen=True)
class Message:
    """A message, and the functions that serve it; none if it needs no tool."""

    text: str
    right: frozenset[str]


@dataclass(frozen=True)
class Answer:
    """How an answer is: `right`, `wrong`, `invented`, `refusal` or `no form`."""

    kind: str
    functions: int
    # Whether the list holds a right function, and whether it begins with one.
    held: bool
    begins: bool
    tokens: int
    seconds: float
    said: str


def lines(path: str) -> Iterator[dict[str, Any]]:
    with (ROOT / path).open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def messages(names: Sequence[str], seed: int) -> list[Message]:
    """All messages for these functions, and those that need none; first those that nothing was trained on."""

    def functions(ids: Sequence[str]) -> frozenset[str]:
        return frozenset(tool.replace("::", "__", 1) for tool in ids)

    held_out = []
    for line in lines("tests/data/quickstart/queries.jsonl"):
        serving = [tool for relevant in line["relevant"] for tool in [relevant, *line.get("alt", {}).get(relevant, [])]]
        held_out.append(Message(line["query"], functions(serving)))
    for_no_tool = [line for line in lines("tests/cases/languages/messages.jsonl") if "tool" not in line]
    held_out += [Message(line["query"], frozenset()) for line in for_no_tool if line["lang"] == "en"]
    trained = []
    for target, path in [(held_out, "calibration"), (trained, "messages")]:
        for line in lines(f"assets/training/{path}.jsonl"):
            right = functions([f"{line.get('server')}::{line.get('tool')}"])
            if right <= set(names):
                target.append(Message(line["query"], right))
    unknown = {name for message in held_out for name in message.right} - set(names)
    if unknown:
        raise SystemExit(f"the servers have no such tools: {sorted(unknown)}")
    order = random.Random(seed)
    order.shuffle(held_out)
    order.shuffle(trained)
    return held_out + trained


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())


class Bm25:
    """Plain BM25 over names, descriptions and parameter names."""

    def __init__(self, definitions: Sequence[Mapping[str, Any]]) -> None:
        self._names = [definition["name"] for definition in definitions]
        texts = [
            " ".join([tool["name"], tool["description"], *tool["parameters"].get("properties", {})])
            for tool in definitions
        ]
        self._counts = [Counter(words(text)) for text in texts]
        self._average = statistics.fmean(counts.total() for counts in self._counts)
        self._documents = Counter(word for counts in self._counts for word in counts)

    def best(self, text: str, count: int) -> list[str]:
        scores = [self._score(set(words(text)), counts) for counts in self._counts]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        return [self._names[place] for place in order[:count]]

    def _score(self, query: set[str], counts: Counter[str]) -> float:
        norm = K1 * (1 - B + B * counts.total() / self._average)
        total = len(self._counts)
        return sum(
            math.log(1 + (total - self._documents[word] + 0.5) / (self._documents[word] + 0.5))
            * counts[word]
            * (K1 + 1)
            / (counts[word] + norm)
            for word in query
            if counts[word]
        )


class Model:
    """The model's server, asked for one function."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, threads: int, way: str | None) -> None:
        port = free_port()
        command: list[str | Path] = [sys.executable, MODEL_SERVER, "--port", str(port), "--context", str(CONTEXT)]
        command += ["--slots", str(len(set(SLOTS.values()))), "--threads", str(threads)]
        command += ["--most-tokens", str(max(MOST_TOKENS.values()))]
        self._service = stack.enter_context(Service(command, port, folder / "model.log"))
        self._service.wait(lambda: self._service.ask("GET", "/health")[0] == 200)
        supports_tools = self._service.ask("GET", "/props")[1]["chat_template_caps"]["supports_tools"]
        self.way = way or ("tools" if supports_tools else "json")

    def ask(self, message: Message, definitions: Sequence[Mapping[str, Any]], slot: int) -> Answer:
        names = [definition["name"] for definition in definitions]
        held = not message.right.isdisjoint(names)
        if not names:
            return Answer("refusal", 0, held, begins=False, tokens=0, seconds=0.0, said="")
        body = {"temperature": 0, "max_tokens": MOST_TOKENS[self.way], "id_slot": slot}
        if self.way == "tools":
            tools = [{"type": "function", "function": definition} for definition in definitions]
            body |= {"messages": [{"role": "user", "content": message.text}], "tools": tools}
        else:
            body |= {"messages": conversation(message.text, definitions), "stop": ['",', "}", "\n"]}
        start = time.perf_counter()
        status, answer = self._service.ask("POST", "/v1/chat/completions", body, timeout=600)
        seconds = time.perf_counter() - start
        if status != 200:
            raise SystemExit(f"the model's server answered {status}: {answer}")
        said = answer["choices"][0]["message"]
        kind, text = self._read(said, message, names)
        begins = names[0] in message.right
        return Answer(kind, len(names), held, begins, answer["usage"]["prompt_tokens"], seconds, text)

    def _read(self, said: Mapping[str, Any], message: Message, names: Sequence[str]) -> tuple[str, str]:
        text = said.get("content") or ""
        if self.way == "tools":
            calls = said.get("tool_calls") or []
            name = calls[0]["function"]["name"] if calls else None
            text = text or str(name)
        else:
            found = re.match(r'\s*\{\s*"name"\s*:\s*(?:null|"([^"]+))', text)
            if not found:
                return "no form", text
            name = found.group(1)
        if name is None:
            return "refusal", text
        if name not in names:
            return "invented", text
        return ("right" if name in message.right else "wrong"), text


def conversation(text: str, definitions: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The prompt. What differs between messages comes last, so that a fixed list stays in the engine's cache."""

    def asked(text: str, definitions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        listed = "\n".join(json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in definitions)
        return {"role": "user", "content": f"Functions:\n{listed}\n\nMessage: {text}"}

    turns = [{"role": "system", "content": SYSTEM}]
    for example, name in EXAMPLES:
        turns.append(asked(example, EXAMPLE_FUNCTIONS))
        turns.append({"role": "assistant", "content": json.dumps({"name": name}, separators=(",", ":"))})
    return [*turns, asked(text, definitions)]


def selected(service: Service, message: Message, names: Sequence[str]) -> list[str]:
    body = {"messages": [{"role": "user", "content": message.text}], "tools": list(names)}
    status, answer = service.ask("POST", "/v1/filter", body)
    if status != 200:
        raise SystemExit(f"the service answered {status}: {answer}")
    return [tool["name"] for tool in answer["tools"]]


def interval(answers: Sequence[Answer], kind: str) -> str:
    """Wilson's interval for the share of such answers, at 95 %."""
    count, z = max(1, len(answers)), 1.96
    share = sum(answer.kind == kind for answer in answers) / count
    middle = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low, high = ((middle + side * spread) / (1 + z * z / count) for side in (-1, 1))
    return f"{max(low, 0):.0%} to {high:.0%}"


def row(way: str, asked: Sequence[tuple[Message, Answer]]) -> list[str]:
    needing = [answer for message, answer in asked if message.right]
    idle = [answer for message, answer in asked if not message.right]
    # Those that the model got at all.
    read = [answer for _, answer in asked if answer.functions]

    def share(answers: Sequence[Answer], kind: str) -> str:
        return f"{sum(answer.kind == kind for answer in answers) / max(1, len(answers)):.0%}"

    def listed(holds: Sequence[bool]) -> str:
        return f"{sum(holds) / max(1, len(holds)):.0%}"

    return [
        way,
        f"{statistics.fmean(answer.functions for _, answer in asked):.1f}",
        listed([answer.held for answer in needing]),
        listed([answer.begins for answer in needing]),
        f"{share(needing, 'right')} ({interval(needing, 'right')})",
        *(share(needing, kind) for kind in ("wrong", "invented", "refusal", "no form")),
        share(idle, "refusal"),
        f"{statistics.fmean([answer.tokens for answer in read] or [0]):,.0f}",
        f"{statistics.median([answer.seconds for answer in read] or [0]):.1f}",
    ]


HEAD = ["the model chooses from", "functions", "right one listed", "right one first", "right", "wrong"]
HEAD += ["invented name", "refusal", "other form", "no tool needed: none called", "prompt tokens", "seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, required=True)
    parser.add_argument("--config", type=Path, help="the quickstart's servers; default: TOOLSIEVE_QUICKSTART_CONFIG")
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no message after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", choices=list(MOST_TOKENS), help="default: what the chat template supports")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    config = options.config or Path(os.environ["TOOLSIEVE_QUICKSTART_CONFIG"])
    servers = len(json.loads(config.read_text())["mcpServers"])
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(toolsieve(options.toolsieve.absolute(), config, folder))
        service.wait(
            lambda: is_live(service, servers) and service.ask("GET", "/readyz")[1]["index"]["embedded"] == TOOLS
        )
        definitions = {function["name"]: function for function in functions(service) or [] if "__" in function["name"]}
        bm25 = Bm25(list(definitions.values()))
        model = Model(stack, folder, options.threads, options.way)
        results: dict[str, list[tuple[Message, Answer]]] = {way: [] for way in WAYS}
        start = time.perf_counter()
        for message in messages(list(definitions), options.seed)[: options.messages]:
            if time.perf_counter() - start > options.minutes * 60:
                break
            lists = [list(definitions), selected(service, message, list(definitions)), bm25.best(message.text, 10)]
            for way, names in zip(WAYS, lists, strict=True):
                answer = model.ask(message, [definitions[name] for name in names], SLOTS[way])
                results[way].append((message, answer))
            if options.report:
                done = {way: [[m.text, sorted(m.right), vars(a)] for m, a in asked] for way, asked in results.items()}
                options.report.write_text(json.dumps({"answers": done}, indent=1) + "\n")
    # The first request reads the whole list; afterwards, it is in the cache.
    first = results[WAYS[0]][0][1].seconds
    count = len(results[WAYS[0]])
    needing = sum(bool(message.right) for message, _ in results[WAYS[0]])
    report = {
        "machine": machine(),
        "way": model.way,
        "messages": count,
        "needing_a_tool": needing,
        "seconds_to_read_all_tools": first,
        "answers": {way: [[m.text, sorted(m.right), vars(a)] for m, a in asked] for way, asked in results.items()},
    }
    text = table(HEAD, [row(way, asked) for way, asked in results.items()])
    text += f"\n\n{count} messages, {needing} of which need a tool; answers as {model.way}; "
    text += f"{first:.0f} s for the first message with all tools, which nothing was cached for"
    finish(report, text, options.report)


if __name__ == "__main__":
    main()
