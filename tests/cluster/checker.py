"""Compares what was acknowledged with what each replica does, and with the calls that the MCP servers have noted."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from ledger import Call, Ledger
from programs import ADMIN, KEY, Replica
from wire import BrokenError, Client
from workload import SERVER_OF, TOOLSET, Workload, published

# A replica finds changes whose notification was lost after two seconds.
CATCH_UP_SECONDS = 2.5
REVOKED = 40


class Checker:
    def __init__(
        self, ledger: Ledger, workload: Workload, replicas: list[Replica], journal: Path, chance: random.Random
    ) -> None:
        self.ledger, self.workload, self.replicas, self.journal = ledger, workload, replicas, journal
        self.random = chance
        self.checks = 0
        self._twice: set[str] = set()

    async def catch_up(self, limit: float = CATCH_UP_SECONDS) -> float:
        """Waits until each replica has all changes that are acknowledged now. Returns how long that took."""
        target = max((seen[-1][1] for seen in self.ledger.seen.values() if seen), default=0)
        begun = time.monotonic()
        took = max(await asyncio.gather(*(self._reach(replica, target, begun) for replica in self.replicas)))
        if took - self.workload.lag.since(begun) > limit:
            self.ledger.violation(f"a replica had change {target} only after {took:.1f} s")
        return took

    async def _reach(self, replica: Replica, target: int, begun: float) -> float:
        client = Client(replica.port)
        try:
            while time.monotonic() - begun < 60:
                try:
                    response = await client.ask("GET", "/healthz", patience=5)
                except BrokenError:
                    continue
                self.ledger.note(response.replica, response.state)
                if response.state >= target:
                    return time.monotonic() - begun
                await asyncio.sleep(0.005)
            self.ledger.violation(f"{replica.name} does not get change {target}\n{replica.log_end(10)}")
            return 60.0
        finally:
            client.close()

    async def verify(self) -> None:
        """Checks everything on each replica, while no administrator changes anything."""
        async with AsyncExitStack() as stack:
            for lock in self.workload.changing.values():
                await stack.enter_async_context(lock)
            await self.catch_up()
            await asyncio.gather(*(self._verify(replica) for replica in self.replicas))
        self.judge_journal()

    async def _verify(self, replica: Replica) -> None:
        client = Client(replica.port, KEY)
        try:
            await self._lists(client, replica)
            await self._keys(replica)
        except BrokenError as error:
            self.ledger.violation(f"{replica.name} did not answer the checker: {error}")
        finally:
            client.close()

    async def _lists(self, client: Client, replica: Replica) -> None:
        denied, toolset = self.ledger.policy.latest, self.ledger.toolset.latest
        for path, expected in (("/openapi.json", frozenset(SERVER_OF)), (f"/toolsets/{TOOLSET}/openapi.json", toolset)):
            response = await client.ask("GET", path)
            found = published(response.json()) if response.is_fine else frozenset()
            self.checks += 1
            if found != expected - denied:
                about = f"{path} at {replica.name} with state {response.state}"
                self.ledger.violation(f"{about} lists {sorted(found)}, expected {sorted(expected - denied)}")
        for tool in denied:
            call = Call(f"check-{replica.name}-{self.checks}", tool, is_refused=True)
            self.ledger.calls[call.id] = call
            response = await client.ask("POST", f"/{SERVER_OF[tool]}/{tool}", {"id": call.id})
            self.checks += 1
            if response.status != 404:
                self.ledger.violation(f"a call of {tool}, which is denied, got {response.status} at {replica.name}")

    async def _keys(self, replica: Replica) -> None:
        revoked = self.ledger.revoked_keys()
        for key in [*self.ledger.active_keys(), *self.random.sample(revoked, min(REVOKED, len(revoked)))]:
            await self.workload.try_key(replica, key)
            self.checks += 1

    async def lost(self) -> Counter[str]:
        """How many entries the replicas say that they could not write, since their last start."""
        found = Counter[str]()
        for replica in self.replicas:
            client = Client(replica.port, ADMIN)
            for line in (await client.ask("GET", "/metrics")).body.decode().splitlines():
                name, _, value = line.partition(" ")
                if name in ("toolsieve_audit_entries_lost_total", "toolsieve_events_lost_total"):
                    found[name] += int(float(value))
            client.close()
        return found

    async def audited(self, action: str) -> int:
        """How many successes of this action the audit log contains."""
        client, count, before = Client(self.replicas[0].port, ADMIN), 0, ""
        while True:
            path = f"/v1/admin/audit?action={action}&limit=1000{before}"
            page = (await client.ask("GET", path)).json()
            count += len(page["entries"])
            if not page["next"]:
                client.close()
                return count
            before = f"&before={page['next']}"

    def judge_journal(self) -> None:
        """Each acknowledged call ran once, each other call at most once, and a refused one never."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        ran = Counter(call for call, _ in lines)
        for call, count in ran.items():
            known = self.ledger.calls.get(call)
            if count > 1 and call not in self._twice:
                self._twice.add(call)
                self.ledger.violation(f"{call} ran {count} times")
            if known is None:
                self.ledger.violation(f"{call} ran, but nobody called it")
            elif known.is_refused:
                self.ledger.violation(f"{call} of {known.tool} ran although it was refused")
        for one in self.ledger.calls.values():
            if one.is_acknowledged and one.id not in ran:
                self.ledger.violation(f"{one.id} of {one.tool} was acknowledged, but never ran")
        self.checks += len(self.ledger.calls)
