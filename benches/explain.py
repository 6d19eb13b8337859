#!/usr/bin/env python3
"""Compares `POST /v1/filter` without an explanation with the same request to a build that can't explain.

`--former` is a program without explanations: that of the commit before them, or the present one, in which
each `trace` of a message below `src/service/selection` is replaced by `None`. Both get the same known
messages in turns. A second process of each program shows the noise: its ratio to the first one would be 1 on
an idle machine. The CPU time of the service is read from the kernel, because other programs disturb it less
than the elapsed time.

    python3 benches/explain.py --toolsieve target/release/toolsieve --former /tmp/former/toolsieve

Goal: the ratio is 1.00, within the noise.
"""

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from services import (
    Service,
    Wire,
    cpu_seconds,
    finish,
    machine,
    made_tools,
    replayed,
    table,
    toolsieve,
    until_indexed,
    write_config,
)

# Messages of one turn. The vectors of all of them are in the cache, so that nothing but the selection is measured.
BLOCK = 200
MESSAGES = [
    "create an invoice for the warehouse",
    "search the tickets of the library, then export the photos of the studio",
    "which orders of the school were moved yesterday?",
    "delete the playlist of the garage",
    "thanks!",
]
RESAMPLES = 2_000


def ratio(one: list[float], base: list[float], chance: random.Random) -> list[float]:
    """The ratio of the medians with its 95 % interval, over turns in pairs."""
    pairs = list(zip(one, base, strict=True))
    found = []
    for _ in range(RESAMPLES):
        drawn = chance.choices(pairs, k=len(pairs))
        found.append(statistics.median(a for a, _ in drawn) / statistics.median(b for _, b in drawn))
    cuts = statistics.quantiles(found, n=40)
    return [statistics.median(one) / statistics.median(base), cuts[0], cuts[-1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--former", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500, help="tools")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    ways = {"before": options.former, "before, again": options.former, "now": options.toolsieve, "now, again": options.toolsieve}
    tools = [tool for _, tool in zip(range(options.count), made_tools(), strict=False)]
    bodies = [{"messages": [{"role": "user", "content": message}]} for message in MESSAGES]
    chance = random.Random(options.seed)
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    elapsed: dict[str, list[float]] = {way: [] for way in ways}
    services: dict[str, Service] = {}
    with tempfile.TemporaryDirectory() as name:
        try:
            for number, (way, binary) in enumerate(ways.items()):
                folder = Path(name) / str(number)
                folder.mkdir()
                servers = replayed(tools, folder)
                config = write_config(folder / "mcp.json", servers)
                service = services[way] = toolsieve(binary, config, folder, {"TOOLSIEVE_LEARNING__MODE": "off"})
                until_indexed(service, len(servers), options.count)
            wires = {way: Wire(service) for way, service in services.items()}
            for turn in range(options.turns + 1):
                order = list(ways)
                chance.shuffle(order)
                for way in order:
                    before = cpu_seconds(services[way].pid)
                    times = [wires[way].filter(bodies[number % len(bodies)])[0] for number in range(BLOCK)]
                    # The first turn fills the caches.
                    if turn:
                        cpu[way].append((cpu_seconds(services[way].pid) - before) * 1e3 / BLOCK)
                        elapsed[way].append(statistics.median(times))
        finally:
            for service in services.values():
                service.stop()

    report: dict[str, Any] = {"machine": machine(), "tools": options.count, "ways": {}}
    rows = []
    for way in ways:
        found = {"cpu": ratio(cpu[way], cpu["before"], chance), "elapsed": ratio(elapsed[way], elapsed["before"], chance)}
        report["ways"][way] = {**found, "cpu_ms": statistics.median(cpu[way]), "p50_ms": statistics.median(elapsed[way])}
        text = [f"{value:.3f} ({low:.3f} to {high:.3f})" for value, low, high in found.values()]
        rows.append([way, f"{statistics.median(cpu[way]):.3f}", text[0], f"{statistics.median(elapsed[way]):.3f}", text[1]])
    head = ["milliseconds per message", "CPU", "ratio (95 %)", "p50", "ratio (95 %)"]
    finish(json.loads(json.dumps(report)), table(head, rows), options.json)


if __name__ == "__main__":
    main()
