#!/usr/bin/env python3
"""Shows which share of search results would be weak for a range of floors, to choose `WEAK_COSINE` for a built-in model.

Reads the messages and the rankings that `toolsieve bench --runs` writes for them, one pair after the other. Needs Python
3.11 and nothing else:

    toolsieve bench --data tests/cases/languages tests/cases/search \\
        --toollists tests/cases/languages/servers.jsonl --lang en --runs runs
    python3 benches/weak_results.py tests/cases/languages/messages.jsonl runs/messages.jsonl \\
        tests/cases/search/queries.jsonl runs/search.jsonl

A result is one of the first ten tools of a ranking. The first column counts the results that a message needs, and should stay
at or below 2 %. The other columns count all results for messages that need no tool, by the messages' kind; more is better.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

RESULTS = 10
NEEDED = "needed"
Line = dict[str, Any]


def lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def needed(message: Line) -> set[str]:
    """The ids of all tools that serve the message."""
    relevant = message.get("relevant")
    if relevant is None:
        pairs = message.get("tools", [[message["server"], message["tool"]]] if "tool" in message else [])
        relevant = [f"{server}::{tool}" for server, tool in pairs]
    others = [other for tool in relevant for other in message.get("alt", {}).get(tool, [])]
    return {*relevant, *others, *(message.get("alternatives", []) if relevant else [])}


def cosines(messages: Path, run: Path) -> dict[str, list[float]]:
    """The cosines of the results, by what they are for. A tool without a vector has none and is skipped."""
    known = {(message.get("id", str(number)), message.get("lang")): message for number, message in enumerate(lines(messages), 1)}
    found: dict[str, list[float]] = defaultdict(list)
    for ranking in lines(run):
        message = known[(ranking["query_id"], ranking.get("lang"))]
        tools = needed(message)
        for tool, cosine in list(zip(ranking["ranked"], ranking["cosines"], strict=True))[:RESULTS]:
            if cosine is not None and (not tools or tool in tools):
                found[NEEDED if tools else message.get("kind", "no tool")].append(cosine)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="MESSAGES RUN")
    files: list[Path] = parser.parse_args().files
    if len(files) % 2:
        parser.error("name a file of rankings for each file of messages")
    found: dict[str, list[float]] = defaultdict(list)
    for messages, run in zip(files[::2], files[1::2], strict=True):
        for kind, values in cosines(messages, run).items():
            found[kind] += values
    kinds = sorted(found, key=lambda kind: (kind != NEEDED, kind))
    print("floor  " + "  ".join(f"{kind} ({len(found[kind])})" for kind in kinds))
    for floor in (hundredths / 100 for hundredths in range(20, 62, 2)):
        shares = (sum(cosine < floor for cosine in found[kind]) / len(found[kind]) for kind in kinds)
        print(f"{floor:.2f}   " + "  ".join(f"{share:>{len(f'{kind} ({len(found[kind])})')}.1%}" for kind, share in zip(kinds, shares, strict=True)))


if __name__ == "__main__":
    main()
