#!/usr/bin/env python3
"""The messages that need a tool, and the invented servers, for the gate's fit: `gate_messages.py FOLDER`.

Writes `needs.jsonl` (messages and tasks for real servers, in all languages, drawn with a seed), `needs_invented.jsonl` (those for
invented servers) and `invented/` (the invented servers as tool lists).
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import data

HERE = Path(__file__).parent
ENGLISH, OTHERS, INVENTED = 2500, 5000, 4000
SEED = 3


def main() -> None:
    folder = Path(sys.argv[1])
    lists = folder / "invented"
    lists.mkdir(parents=True, exist_ok=True)
    invented = [line for path in sorted(HERE.glob("invented*.jsonl")) for line in data.lines(path) if "tools" in line]
    for line in invented:
        tools = [{"name": tool["name"], "description": tool["description"], "inputSchema": {"type": "object"}} for tool in line["tools"]]
        (lists / f"{line['server']}.json").write_text(json.dumps({"tools": tools}), encoding="utf-8")
    made = {line["server"] for line in invented}
    chance = random.Random(SEED)

    def rows(name: str) -> list[dict]:
        return [
            {"query": line["query"], "kind": line["kind"], "server": line["server"], "lang": line.get("lang", "en")}
            for line in data.lines(HERE / f"{name}.jsonl")
        ]

    real = [row for name in ("messages", "styles", "languages", "translations", "languages_more") for row in rows(name) if row["server"] not in made]
    english, others = ([row for row in real if (row["lang"] == "en") == wanted] for wanted in (True, False))
    needs = chance.sample(english, ENGLISH) + chance.sample(others, OTHERS)
    for name in ("tasks", "tasks_mixed", "tasks_languages"):
        for line in data.lines(HERE / f"{name}.jsonl"):
            if line["tools"][0][0] not in made:
                needs.append({"query": line["query"], "kind": "multi", "server": line["tools"][0][0], "lang": line.get("lang", "en")})
    write(folder / "needs.jsonl", needs)
    own = [
        {"query": message, "kind": "invented", "server": line["server"], "lang": "?"}
        for line in invented
        for tool in line["tools"]
        for message in tool["messages"]
    ]
    own += [row for row in rows("languages") + rows("invented_more") if row["server"] in made]
    write(folder / "needs_invented.jsonl", chance.sample(own, INVENTED))


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
