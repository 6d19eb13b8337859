#!/usr/bin/env python3
"""Compares the messages per second of three replicas on one PostgreSQL with those of one, and SQLite with PostgreSQL.

Each replica is a process that may use only a share of one core (`--share`), so that the machine's other programs, such
as PostgreSQL and this client, don't decide the result. One replica and three take turns: callers send messages of
chats to `POST /v1/filter`, over connections that stay open. Each replica has as many callers. Every message is new,
and every chat is stored. Afterwards, without limits, a service on SQLite and one on PostgreSQL get the same messages
in turns.

Needs PostgreSQL 15 or later, and for the shares Linux control groups (cpu), as root:

    python3 benches/scaling.py --toolsieve target/release/toolsieve

Goals: three replicas answer at least 2.7 times as many messages, and PostgreSQL adds at most 1 ms to the median.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from services import (
    Service,
    Wire,
    finish,
    machine,
    made_tools,
    replayed,
    table,
    toolsieve,
    until_indexed,
    write_config,
)

sys.path.insert(0, str(Path(__file__).absolute().parent.parent / "tests/cluster"))
from programs import PASSWORD, USER, Postgres, until

REPLICAS = 3
# Callers of each replica: enough to keep it busy.
CALLERS = 4
# Microseconds. Short periods, so that a replica doesn't stand still for long.
PERIOD = 10_000
CPU = Path("/sys/fs/cgroup/cpu")
UNIFIED = Path("/sys/fs/cgroup")
MESSAGE = "create an invoice for customer {} of the {}, then list the orders of the {}"
PLACES = ["warehouse", "library", "hospital", "school", "kitchen", "garage", "studio", "office"]


@contextmanager
def limited(share: float) -> Iterator[list[Path]]:
    """Control groups with a share of a core, one for each replica."""
    quota, groups = int(share * PERIOD), []
    try:
        for number in range(REPLICAS):
            is_old = (CPU / "cpu.cfs_quota_us").exists()
            group = (CPU if is_old else UNIFIED) / f"toolsieve-bench-{os.getpid()}-{number}"
            group.mkdir()
            groups.append(group)
            if is_old:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {PERIOD}")
        yield groups
    finally:
        for group in groups:
            group.rmdir()


def cpu_seconds() -> float:
    """User and system time of the whole machine."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[place]) for place in (1, 2, 3, 6, 7)) / os.sysconf("SC_CLK_TCK")


class Messages:
    """Messages that nobody has sent before, each in a chat of several."""

    def __init__(self, seed: int) -> None:
        self.chance, self.number, self.lock = random.Random(seed), 0, threading.Lock()

    def next(self) -> dict[str, object]:
        with self.lock:
            self.number += 1
            text = MESSAGE.format(self.number, *self.chance.sample(PLACES, 2))
            chat = f"chat-{self.number % 200}"
        return {"messages": [{"role": "user", "content": text}], "chat_id": chat}


def rate(services: list[Service], messages: Messages, seconds: float) -> float:
    """Messages per second."""
    end, counts = time.perf_counter() + seconds, [0] * (len(services) * CALLERS)

    def call(place: int) -> None:
        wire = Wire(services[place % len(services)])
        while time.perf_counter() < end:
            wire.filter(messages.next())
            counts[place] += 1

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(counts))]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


def medians(services: dict[str, Service], messages: Messages, count: int) -> dict[str, float]:
    """Milliseconds of a message, with all services in turns."""
    wires = {name: Wire(service) for name, service in services.items()}
    took: dict[str, list[float]] = {name: [] for name in services}
    for number in range(count):
        body = messages.next()
        order = list(wires) if number % 2 else list(wires)[::-1]
        for name in order:
            took[name].append(wires[name].filter(body)[0])
    return {name: statistics.median(values) for name, values in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--count", type=int, default=500, help="tools")
    parser.add_argument("--share", type=float, default=0.15, help="of one core, for each replica")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=8.0, help="of one turn")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    messages = Messages(options.seed)
    tools = [tool for tool, _ in zip(made_tools(), range(options.count), strict=False)]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.chmod(0o755)
        postgres = Postgres(work / "postgres")
        postgres.create()
        postgres.start()
        stack.callback(postgres.end)
        asyncio.run(until(postgres.is_ready, 30, "PostgreSQL is ready"))
        url = f"postgres://{USER}:{PASSWORD}@127.0.0.1:{postgres.port}/postgres"
        servers = replayed(tools, work)
        config = write_config(work / "mcp.json", servers)

        def started(name: str, env: dict[str, str]) -> Service:
            folder = work / name
            folder.mkdir()
            service = stack.enter_context(toolsieve(options.toolsieve, config, folder, env))
            until_indexed(service, len(servers), len(tools))
            return service

        replicas = [started(f"replica-{number}", {"DATABASE_URL": url}) for number in range(REPLICAS)]
        alone = started("sqlite", {})
        took = medians({"SQLite": alone, "PostgreSQL": replicas[0]}, messages, 600)
        alone.stop()

        rows, ratios = [], []
        groups = stack.enter_context(limited(options.share))
        for group, replica in zip(groups, replicas, strict=True):
            (group / "cgroup.procs").write_text(str(replica.pid))
        # Registered last, so that the groups are empty when they are removed.
        for replica in replicas:
            stack.callback(replica.stop)
        for turn in range(options.turns):
            one = rate([replicas[turn % REPLICAS]], messages, options.seconds)
            before = cpu_seconds()
            three = rate(replicas, messages, options.seconds)
            busy = (cpu_seconds() - before) / options.seconds / (os.cpu_count() or 1)
            ratios.append(three / one)
            rows.append([turn + 1, f"{one:.0f}", f"{three:.0f}", f"{three / one:.2f}", f"{busy:.0%}"])

    rows.append(["median", "", "", f"{statistics.median(ratios):.2f}", ""])
    head = ["turn", "one replica, messages/s", "three", "ratio", "processors busy with three"]
    text = table(head, rows)
    text += "\n\n" + table(["store", "median, ms"], [[name, f"{value:.2f}"] for name, value in took.items()])
    report = {"machine": machine(), "share": options.share, "ratios": ratios, "median_ms": took}
    finish(report, text, options.json)


if __name__ == "__main__":
    main()
