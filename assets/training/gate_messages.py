#!/usr/bin/env python3
"""The messages that need a tool for the gate's fit: `gate_messages.py > needs.jsonl`.

2,500 of messages.jsonl, drawn with a seed, and the tasks whose first tool is of a real server.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import data

FOLDER = Path(__file__).parent
COUNT = 2500
SEED = 3


def main() -> None:
    messages = list(data.lines(FOLDER / "messages.jsonl"))
    real = {line["server"] for line in messages}
    random.Random(SEED).shuffle(messages)
    rows = [{"query": line["query"], "kind": line["kind"], "server": line["server"]} for line in messages[:COUNT]]
    for line in data.lines(FOLDER / "tasks.jsonl"):
        server = line["tools"][0][0]
        if server in real:
            rows.append({"query": line["query"], "kind": "multi", "server": server})
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
