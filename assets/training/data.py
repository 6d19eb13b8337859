"""Tools, messages and their pairs, as the training of the built-in model and of the no-tool gate reads them.

A folder of tool lists holds one JSON object a server with `server` and `tools` (as MCP's `tools/list` answers); a folder
of messages holds `messages.jsonl`, `multi.jsonl` and `notool.jsonl`, see README.md beside this file.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PASSAGE_CHARACTERS = 600
FIRST_SENTENCE_CHARACTERS = 240
ABBREVIATIONS = {"e.g", "i.e", "etc", "vs", "incl", "approx"}

IDENTIFIER_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


@dataclass(frozen=True)
class Tool:
    server: str
    name: str
    description: str

    @property
    def key(self) -> tuple[str, str]:
        return self.server, self.name

    def full(self) -> str:
        """`server name words: description`, the first of the two texts that are embedded of a tool."""
        return joined(f"{split(self.server)} {split(self.name)}", squeeze(self.description, PASSAGE_CHARACTERS))

    def short(self) -> str:
        """`name words: first sentence`, the second one."""
        first = squeeze(first_sentence(self.description), FIRST_SENTENCE_CHARACTERS)
        return joined(split(self.name), first or squeeze(self.description, PASSAGE_CHARACTERS))

    def texts(self) -> list[str]:
        return [self.full(), self.short()] if self.description.strip() else [self.full()]

    def varied(self, chance: random.Random) -> str:
        """One of several forms: mostly the two that are embedded, sometimes others, against learning one layout."""
        draw = chance.random()
        description = squeeze(self.description, PASSAGE_CHARACTERS)
        if draw < 0.47:
            return self.full()
        if draw < 0.93:
            return self.short()
        if draw < 0.97:
            return joined(split(self.name), description)
        return joined(self.name, description)


@dataclass(frozen=True)
class Pair:
    query: str
    tool: tuple[str, str]
    """All tools that would do as well, this one included: never negatives of the message."""
    positives: frozenset[tuple[str, str]]
    """The English message that this one translates, if it does."""
    english: str = ""


def split(identifier: str) -> str:
    return " ".join(IDENTIFIER_PART.findall(identifier))


def squeeze(text: str, limit: int) -> str:
    words, length = [], 0
    for word in text.split():
        width = len(word) + (1 if words else 0)
        if length + width > limit:
            break
        words.append(word)
        length += width
    return " ".join(words) if words else text.strip()[:limit]


def joined(head: str, body: str) -> str:
    return f"{head.strip()}: {body}" if body else head.strip()


def first_sentence(text: str) -> str:
    text = text.lstrip()
    for match in re.finditer(r"[\n\r。！？]|[.!?](?=\s|$)", text):
        at, sign = match.start(), match.group()
        if sign in "。！？":
            return text[: match.end()]
        if at < 12:
            continue
        if sign in "\n\r":
            return text[:at]
        word = re.split(r"[\s(]", text[:at])[-1]
        if not (text[at - 1].isalpha() and (len(word) == 1 or word in ABBREVIATIONS)):
            return text[: match.end()]
    return text


def lines(path: Path) -> Iterator[dict]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def load_tools(folder: Path) -> dict[tuple[str, str], Tool]:
    tools = {}
    for path in sorted(folder.glob("*.json")):
        for raw in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            tool = Tool(path.stem, raw["name"], raw.get("description") or raw.get("title") or "")
            tools[tool.key] = tool
    return tools


def load_messages(path: Path) -> list[Pair]:
    """One pair a message."""
    found = [(line["query"], (line["server"], line["tool"]), line.get("english", "")) for line in lines(path)]
    return [Pair(query, key, frozenset([key]), english) for query, key, english in found]


def load_tasks(path: Path) -> list[Pair]:
    """One pair for every tool of a task that needs several."""
    pairs = []
    for line in lines(path):
        wanted = [tuple(tool) for tool in line["tools"]]
        twins = [tuple(twin.split("::")) for alternatives in line["alt"].values() for twin in alternatives]
        positives = frozenset(wanted + twins)
        pairs += [Pair(line["query"], key, positives, line.get("english", "")) for key in wanted]
    return pairs


def load_invented(path: Path) -> tuple[dict[tuple[str, str], Tool], list[Pair]]:
    """Servers made up for the training, one a line, each tool with its messages."""
    tools, pairs = {}, []
    for line in lines(path):
        for raw in line["tools"]:
            tool = Tool(line["server"], raw["name"], raw["description"])
            tools[tool.key] = tool
            pairs += [Pair(message, tool.key, frozenset([tool.key])) for message in raw["messages"]]
    return tools, pairs


def load_no_tool(path: Path) -> list[str]:
    return [line["query"] for line in lines(path)]


def misspelt(text: str, chance: random.Random) -> str:
    """Now and then lowercase, or with two letters exchanged: people type like that."""
    draw = chance.random()
    if draw < 0.08:
        return text.lower()
    places = [at for at in range(len(text) - 1) if text[at].isalpha() and text[at + 1].isalpha()]
    if draw < 0.16 and len(places) > 8:
        at = chance.choice(places)
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text
