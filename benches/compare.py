#!/usr/bin/env python3
"""Times `POST /v1/filter` of two builds side by side: is a change slower than what was before?

Both serve the same 2,000 tools and are asked the same new messages in blocks of 25, now one first and now the other, so that
a busy neighbour slows both. Each is asked with the message alone, with four clauses, with 100 words, and as the Open WebUI filter asks: with all names,
in one chat, in a new chat each time, and after a turn that was answered. Times are those of the client.

    python3 benches/compare.py --before OLD/toolsieve --toolsieve target/release/toolsieve --tools ../shared/toollists

`--tools` is a folder of tool lists (`{"tools": […]}`, real servers), filled up with made ones.
"""

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services import (
    CLAUSES,
    SENTENCE,
    Service,
    Wire,
    finish,
    machine,
    made_tools,
    real_tools,
    replayed,
    table,
    toolsieve,
    until_indexed,
    write_config,
)

BACKGROUND = " ".join(["we noticed it this morning after the release and several people have already asked what is going on"] * 5)
BLOCK = 25
WARM_UP = 3


class Asked:
    """A build at work."""

    def __init__(self, service: Service) -> None:
        self.wire = Wire(service)
        document = service.ask("GET", "/openapi.json")[1]
        self.names = [operation["post"]["operationId"] for operation in document["paths"].values()]


def ways() -> dict[str, Callable[[str, list[str]], dict[str, Any]]]:
    """How a service is asked: the body, of a message and the names on offer."""

    def said(*turns: str) -> dict[str, Any]:
        roles = itertools.cycle(["user", "assistant"])
        return {"messages": [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]}

    def offer(names: list[str], chat: str) -> dict[str, Any]:
        return {"connections": {"server:t": "/"}, "tools": names, "limit": 10, "model": "m", "chat_id": chat}

    return {
        "message alone": lambda message, _: said(message),
        "four clauses": lambda message, _: said(CLAUSES.format(message)),
        "100 words": lambda message, _: said(f"{message} {BACKGROUND}"),
        "as Open WebUI asks": lambda message, names: {**said(message), **offer(names, "c1")},
        "a new chat each time": lambda message, names: {**said(message), **offer(names, message)},
        "the second turn of a chat": lambda message, names: {
            **said(message, "Done. Issue 17 is open.", "and assign it to Mira"),
            **offer(names, message),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other build")
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--tools", type=Path, help="folder with tool lists")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=300, help="messages for each way")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    tools = real_tools(options.tools)[: options.count]
    report: dict[str, Any] = {"machine": machine(), "tools": options.count, "real_tools": len(tools)}
    tools += [tool for _, tool in zip(range(options.count - len(tools)), made_tools(), strict=False)]
    letters = random.Random(7)
    messages = (SENTENCE.format("".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=7))) for _ in itertools.count())
    times: dict[str, list[list[float]]] = {way: [[], []] for way in ways()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = replayed(tools, folder)
        config = write_config(folder / "mcp.json", servers)
        (folder / "before").mkdir()
        (folder / "after").mkdir()
        with (
            toolsieve(options.before, config, folder / "before") as before,
            toolsieve(options.toolsieve, config, folder / "after") as after,
        ):
            for service in (before, after):
                until_indexed(service, len(servers), options.count)
            time.sleep(2)
            asked = [Asked(before), Asked(after)]
            for number in range(max(1, options.rounds // BLOCK)):
                for way, body in ways().items():
                    block = list(itertools.islice(messages, BLOCK + WARM_UP))
                    both = list(zip(asked, times[way], strict=True))
                    for build, found in both if number % 2 else reversed(both):
                        found += [build.wire.filter(body(message, build.names))[0] for message in block][WARM_UP:]

    rows, report["ways"] = [], {}
    for way, (old, new) in times.items():
        medians = [statistics.median(old), statistics.median(new)]
        ninths = [statistics.quantiles(found, n=10)[8] for found in (old, new)]
        report["ways"][way] = {"p50": medians, "p90": ninths, "ratio_p50": medians[1] / medians[0]}
        figures = [f"{value:.3f}" for value in (*medians, *ninths)]
        rows.append([way, *figures, f"{medians[1] / medians[0]:.2f}x"])
    text = table(["milliseconds", "p50 before", "p50 now", "p90 before", "p90 now", "p50 now / before"], rows)
    finish(report, text, options.json)


if __name__ == "__main__":
    main()
