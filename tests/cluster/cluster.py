#!/usr/bin/env python3
"""Three replicas of Toolsieve on one PostgreSQL and one Qdrant, under load, while parts fail; and a final comparison.

    TOOLSIEVE_BIN=… tests/cluster/run [--faults 6] [--minutes 4] [--seed 1] [--other FORMER_VERSION]

A TCP load balancer stands in front of three replicas, and TCP proxies between each replica, PostgreSQL and Qdrant.
Chats, callers, readers of lists and administrators work through the load balancer. A seed decides the faults. After
each fault, and at the end after a restart of everything, these must hold, or the exit code is 1:

- each acknowledged key is accepted by each replica, and each revoked key is refused by each replica;
- the acknowledged rules and toolsets apply on each replica: within 100 ms while nothing is broken, and within 2.5 s
  after a fault;
- no denied tool is in a list or is called once a replica has the number of the change;
- no call ran twice, and each acknowledged call ran once;
- each message was answered. Only requests in flight at a killed replica may fail, and in a rolling restart none may;
- without Qdrant, messages are answered by words, and by meaning again soon after it is back.
"""

import argparse
import asyncio
import base64
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from checker import Checker
from faults import FAULTS, HARMLESS, KILLS, Bed
from ledger import Ledger
from mcp_sessions import McpCaller
from network import Balancer, Proxy
from programs import (
    ADMIN,
    QDRANT,
    SERVER,
    START_SECONDS,
    BedError,
    Postgres,
    Qdrant,
    Replica,
    SharedServer,
    clock_library,
    until,
)
from report import percentile, report
from wire import Client
from workload import SERVER_OF, TOOLSET, Workload

REPLICAS, MCP_CALLERS = 3, 3


class Run:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.ledger = Ledger()
        self.chance = random.Random(options.seed)  # noqa: S311
        self.journal = folder / "journal"
        self.journal.touch()
        self.postgres = Postgres(folder / "postgres")
        self.qdrant = Qdrant(options.qdrant, folder / "qdrant")
        self.replicas: list[Replica] = []
        self.rows: list[list[str]] = []
        self.left_out: list[str] = []
        self.shared = SharedServer(self.journal, folder / "ledger.log")

    async def prepare(self) -> Bed:
        self.postgres.create()
        self.postgres.start()
        self.qdrant.start()
        self.shared.start()
        servers = {
            "desk": {"command": sys.executable, "args": [str(SERVER), "stdio", str(self.journal)]},
            "ledger": {"type": "streamable-http", "url": f"http://127.0.0.1:{self.shared.port}/mcp"},
        }
        clock = clock_library(self.folder)
        if clock is None:
            self.left_out.append("clock jump (there is no C compiler)")
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        proxies, qdrant_proxies = {}, {}
        for number in range(1, REPLICAS + 1):
            proxy, qdrant_proxy = Proxy(self.postgres.port), Proxy(self.qdrant.port)
            await proxy.start()
            await qdrant_proxy.start()
            replica = Replica(
                f"replica-{number}",
                self.folder / f"replica-{number}",
                self.options.binary,
                proxy.port,
                servers,
                key,
                f'[index]\nqdrant_url = ["http://127.0.0.1:{qdrant_proxy.port}"]\n',
                clock=clock,
            )
            replica.prepare(small_disk=number == REPLICAS)
            proxies[replica.name], qdrant_proxies[replica.name] = proxy, qdrant_proxy
            self.replicas.append(replica)
        if not any(replica.has_disk for replica in self.replicas):
            self.left_out.append("full disk (a tmpfs needs root)")
        await self.start_replicas()
        balancer = Balancer(self.replicas, self.ledger.note)
        await balancer.start()
        workload = Workload(self.ledger, balancer, self.replicas, self.chance)
        checker = Checker(self.ledger, workload, self.replicas, self.journal, self.chance)
        share = self.options.minutes * 60 / max(self.options.faults, 1)
        bed = Bed(
            self.replicas,
            proxies,
            qdrant_proxies,
            self.postgres,
            self.qdrant,
            self.shared,
            balancer,
            self.ledger,
            workload,
            checker,
        )
        bed.other = self.options.other
        if share < 2 * bed.partition_seconds and self.options.faults <= len(FAULTS):
            bed.partition_seconds = share / 3
        await bed.wait_balanced()
        await bed.wait_meaning(self.replicas, START_SECONDS)
        await self.begin(bed)
        return bed

    async def start_replicas(self) -> None:
        await until(self.postgres.is_ready, START_SECONDS, "PostgreSQL is ready")
        await until(self.qdrant.is_ready, START_SECONDS, "Qdrant is ready")
        for replica in self.replicas:
            replica.start()
        await asyncio.gather(*(replica.wait_ready() for replica in self.replicas))

    async def begin(self, bed: Bed) -> None:
        """The first toolset and the first rules."""
        client = Client(bed.balancer.port, ADMIN)
        for versions, path, body in (
            (self.ledger.toolset, f"/v1/admin/toolsets/{TOOLSET}", {"tools": sorted(SERVER_OF)}),
            (self.ledger.policy, "/v1/admin/policy", {"rules": []}),
        ):
            change = versions.begin(frozenset(SERVER_OF) if versions is self.ledger.toolset else frozenset())
            response = await client.ask("PUT", path, body)
            if not response.is_fine:
                raise BedError(f"{path}: {response.status} {response.json()}")
            change.number = response.state
            versions.changes = [change]
            change.number = 0
        client.close()
        await bed.checker.catch_up()

    def deck(self) -> list[str]:
        """The faults in an order that the seed decides. Each occurs equally often, and a short run has all kills."""
        left_out = tuple(one.partition(" (")[0] for one in self.left_out)
        names = [name for name in FAULTS if not name.startswith(left_out)]
        if self.options.only:
            names = [name for name in names if name in self.options.only]
        kills = [name for name in names if name in KILLS]
        others = self.chance.sample([name for name in names if name not in KILLS], len(names) - len(kills))
        round_ = kills + others
        deck = self.chance.sample(round_[: self.options.faults], min(len(round_), self.options.faults))
        while len(deck) < self.options.faults:
            deck += self.chance.sample(names, len(names))
        return deck[: self.options.faults]

    async def fault(self, bed: Bed, number: int, name: str) -> None:
        ledger = self.ledger
        begun, answered, failed, wrong = (
            time.monotonic(),
            ledger.answered.total(),
            len(ledger.failures),
            len(ledger.violations),
        )
        earlier = len(ledger.latencies[name, "chat"])
        ledger.fault = name
        bed.workload.is_whole = name in HARMLESS
        note = ""
        try:
            note = await FAULTS[name](bed)
        except (TimeoutError, RuntimeError) as error:
            ledger.violation(f"{name}: {error}")
        prompt = await bed.wait_prompt()
        bed.workload.mended()
        await bed.checker.verify()
        await bed.progress()
        failures = Counter(failure.kind.partition(" ")[0] for failure in ledger.failures[failed:])
        text = ", ".join(f"{count} {kind}" for kind, count in sorted(failures.items())) or "none"
        took = ledger.latencies[name, "chat"][earlier:]
        row = [str(number), name, f"{time.monotonic() - begun:.1f}", str(ledger.answered.total() - answered), text]
        row += [
            f"{percentile(took, 0.5) * 1e3:.0f} / {max(took, default=0) * 1e3:.0f}",
            str(len(ledger.violations) - wrong),
            f"{prompt:.1f}",
            note,
        ]
        self.rows.append(row)
        print("  ".join(row), flush=True)
        ledger.fault = "nothing"

    async def run_to_end(self) -> bool:
        try:
            return await self.run()
        finally:
            # The replicas must not connect again while the proxies end.
            self.end()

    async def run(self) -> bool:
        begun = time.monotonic()
        bed = await self.prepare()
        parts = f"PostgreSQL {self.postgres.version}, Qdrant, {REPLICAS} replicas"
        print(f"{parts}, ready after {time.monotonic() - begun:.0f} s", flush=True)
        bed.workload.start([McpCaller(bed.workload).call for _ in range(MCP_CALLERS)])
        await bed.progress()
        deadline = begun + self.options.minutes * 60
        for number, name in enumerate(self.deck(), 1):
            if time.monotonic() > deadline:
                self.ledger.violations.append(
                    f"only {number - 1} of {self.options.faults} faults in {self.options.minutes} minutes"
                )
                break
            await self.fault(bed, number, name)
        await bed.workload.stop()
        lost = await bed.checker.lost()
        await self.restart_all(bed)
        report(self.ledger, self.rows, self.left_out)
        await self.print_audit(bed, lost)
        checks = f"{bed.checker.checks} checks in {time.monotonic() - begun:.0f} s"
        print(f"{checks}, seed {self.options.seed}")
        print(f"{len(self.ledger.violations)} violations" if self.ledger.violations else "no violation")
        return not self.ledger.violations

    async def print_audit(self, bed: Bed, lost: Counter[str]) -> None:
        """The audit log is written behind, so entries of the last moment before a kill may be missing."""
        called, created = await bed.checker.audited("call&outcome=success"), await bed.checker.audited("key_create")
        acknowledged = sum(call.is_acknowledged for call in self.ledger.calls.values())
        print(f"audit log: {called} calls of {acknowledged} acknowledged, {created} keys of {len(self.ledger.keys)}")
        print(f"entries that the replicas could not write since their last start: {dict(lost)}")

    async def restart_all(self, bed: Bed) -> None:
        """Everything must be in the database: all processes are killed, and started again."""
        self.ledger.fault = "restart of everything"
        for replica in self.replicas:
            replica.kill()
        await self.postgres.crash()
        self.qdrant.kill()
        self.postgres.start()
        self.qdrant.start()
        await self.start_replicas()
        await bed.checker.verify()

    def end(self) -> None:
        for replica in self.replicas:
            replica.end()
        self.postgres.end()
        self.qdrant.kill()
        self.shared.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--binary", type=Path, default=os.environ.get("TOOLSIEVE_BIN"), help="the built binary ($TOOLSIEVE_BIN)"
    )
    parser.add_argument(
        "--qdrant", type=Path, help=f"the built {QDRANT}; by default in the folder examples beside the binary"
    )
    parser.add_argument(
        "--other", type=Path, help="another version: rolling restarts go from one to the other and back"
    )
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=4, help="the limit for all faults together")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of a former run")
    parser.add_argument("--only", action="append", choices=list(FAULTS), help="only this fault; may be repeated")
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder with all logs; it is kept after a violation in any case"
    )
    options = parser.parse_args()
    if options.binary is None:
        parser.error("set TOOLSIEVE_BIN, or --binary")
    options.binary = Path(options.binary).resolve()
    options.qdrant = (options.qdrant or options.binary.parent / "examples" / QDRANT).resolve()
    options.other = options.other.resolve() if options.other else options.binary
    options.seed = secrets.randbelow(10_000) if options.seed is None else options.seed
    # Whoever ends this ends all programs too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="toolsieve-cluster-"))
    # PostgreSQL runs as another user.
    folder.chmod(0o711)
    run = Run(options, folder)
    is_fine = False
    try:
        is_fine = asyncio.run(run.run_to_end())
    except BedError as error:
        print(f"the bed can't go on: {error}")
    finally:
        if is_fine and not options.keep:
            shutil.rmtree(folder)
        else:
            print(f"the logs are in {folder}")
    sys.exit(0 if is_fine else 1)


if __name__ == "__main__":
    main()
