"""What goes wrong. Each fault ends with everything whole again, and returns what it measured."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from checker import CATCH_UP_SECONDS, Checker
from ledger import Key, Ledger
from network import Balancer, Proxy
from programs import (
    ADMIN,
    DELAY_SECONDS,
    DRAIN_SECONDS,
    POLL_SECONDS,
    Postgres,
    Qdrant,
    Replica,
    SharedServer,
    is_gone,
    kill_all,
    until,
)
from wire import BrokenError, Client
from workload import SPREAD_SECONDS, Workload, own_names

SLOW_SECONDS = 0.5
HOUR = 3_600
# Requests that must be answered while something is broken.
PROGRESS = 60
PATIENCE_SECONDS = 60.0
# After a failover, changes that were running wait until their connections count as silent: 3 + 30 + 5 seconds. Others
# of their kind wait with them.
SILENT_SECONDS = 38.0
FAILOVER_SECONDS = 45.0
# A message about tools that are never denied, all of them together. Its words are in their descriptions.
LEDGER_MESSAGE, LEDGER_TOOLS = "write an entry into the accounting ledger", {"write_entry", "write_slowly"}
BY_WORDS = "ranked by words alone"
# How soon a replica must notice that Qdrant is away. How soon it must use Qdrant again: it asks every five seconds,
# waits up to three seconds for changes by administrators to settle, and perhaps builds the index again. On a busy
# machine, a response of Qdrant may take longer than a search waits, and all this happens twice.
NOTICED_SECONDS, MEANING_SECONDS = 5.0, 20.0
# After a fault, changes must arrive at once again within this time.
PROMPT_AGAIN_SECONDS = 5.0


@dataclass
class Bed:
    replicas: list[Replica]
    # From each replica to the database, and to Qdrant.
    proxies: dict[str, Proxy]
    qdrant_proxies: dict[str, Proxy]
    postgres: Postgres
    qdrant: Qdrant
    shared: SharedServer
    balancer: Balancer
    ledger: Ledger
    workload: Workload
    checker: Checker
    # The version that a rolling restart changes to.
    other: Path = Path()
    # The longest partition, and the longest time that other faults last.
    partition_seconds: float = 30.0
    hold_seconds: float = 4.0

    def pick(self) -> Replica:
        return self.workload.random.choice(self.replicas)

    async def progress(self) -> None:
        """Waits until the load has been answered for a while."""
        before = self.ledger.answered.total()
        await until(
            lambda: self.ledger.answered.total() >= before + PROGRESS, PATIENCE_SECONDS, "requests are answered"
        )

    async def hold(self) -> None:
        await asyncio.sleep(self.workload.random.uniform(0.3, 1.0) * self.hold_seconds)
        await self.progress()

    async def wait_balanced(self) -> None:
        await until(
            lambda: len(self.balancer.ready) == len(self.replicas),
            PATIENCE_SECONDS,
            "the load balancer uses all replicas",
        )

    async def create_key(self, client: Client, name: str) -> int | None:
        """Creates a key. Returns the number of this change, or nothing if it is not acknowledged."""
        try:
            response = await client.ask("POST", "/v1/admin/keys", {"name": name}, patience=5)
        except BrokenError:
            return None
        if not response.is_fine or response.state < 0:
            return None
        body = response.json()
        self.ledger.note(response.replica, response.state)
        self.ledger.keys[body["id"]] = Key(body["name"], body["id"], body["key"])
        return response.state

    async def wait_store(self, replica: Replica, limit: float) -> float:
        """Creates a key at this replica as soon as that is possible. Returns how long it took."""
        begun, client = time.monotonic(), Client(replica.port, ADMIN)
        for attempt in itertools.count():
            name = f"stored-{replica.name}-{begun:.3f}-{attempt}"
            if await self.create_key(client, name) is not None or time.monotonic() - begun > PATIENCE_SECONDS:
                break
            await asyncio.sleep(POLL_SECONDS)
        client.close()
        took = time.monotonic() - begun
        if took - self.workload.lag.since(begun) > limit:
            self.ledger.violation(f"{replica.name} stores changes again only {took:.1f} s after the store is back")
        return took

    async def wait_prompt(self) -> float:
        """Waits until changes arrive everywhere at once again: the replicas listen for notifications. Returns how long
        that took."""
        begun = time.monotonic()
        for attempt in itertools.count():
            client = Client(self.pick().port, ADMIN)
            number = await self.create_key(client, f"prompt-{begun:.3f}-{attempt}")
            client.close()
            acknowledged = time.monotonic()
            if number is not None and await self.checker.catch_up() < SPREAD_SECONDS + self.workload.lag.since(
                acknowledged
            ):
                break
            if time.monotonic() - begun > PROMPT_AGAIN_SECONDS:
                self.ledger.violation(
                    f"changes still arrive late {PROMPT_AGAIN_SECONDS:.0f} s after {self.ledger.fault}"
                )
                break
        return time.monotonic() - begun

    async def wait_stores(self, limit: float = CATCH_UP_SECONDS) -> str:
        caught_up, *stored = await asyncio.gather(
            self.checker.catch_up(limit), *(self.wait_store(one, limit) for one in self.replicas)
        )
        return f"changes known after {caught_up:.2f} s, stored again after {max(stored):.2f} s"

    async def rank(self, replica: Replica) -> tuple[bool, str]:
        """Sends a message to this replica. Returns whether it was ranked by meaning, and what was wrong otherwise."""
        client = Client(replica.port, ADMIN)
        body = {"messages": [{"role": "user", "content": LEDGER_MESSAGE}]}
        try:
            response = await client.ask("POST", "/v1/filter", body)
            ready = (await client.ask("GET", "/readyz")).json()
        except BrokenError as error:
            self.ledger.violation(f"{replica.name} did not answer a message: {error}")
            return False, str(error)
        finally:
            client.close()
        answer, state = response.json(), ready["index"]["qdrant"]
        if not response.is_fine or not own_names(tool["name"] for tool in answer["tools"]) & LEDGER_TOOLS:
            self.ledger.violation(f"{replica.name} does not find the ledger: {response.status} {str(answer)[:300]}")
        warnings = [text for text in answer["warnings"] if text.startswith(BY_WORDS)]
        return not warnings and state["searched"], f"{warnings}, {state}"

    async def by_words(self, replicas: Sequence[Replica], seconds: float = NOTICED_SECONDS) -> None:
        """Waits until these replicas rank by words."""
        await asyncio.gather(*(self._ranked(replica, seconds, by_meaning=False) for replica in replicas))

    async def wait_meaning(self, replicas: Sequence[Replica], seconds: float) -> float:
        """Waits until these replicas rank by meaning. Returns how long it took."""
        return max(await asyncio.gather(*(self._ranked(replica, seconds, by_meaning=True) for replica in replicas)))

    async def _ranked(self, replica: Replica, seconds: float, *, by_meaning: bool) -> float:
        begun = time.monotonic()
        while True:
            is_by_meaning, state = await self.rank(replica)
            took = time.monotonic() - begun
            if is_by_meaning == by_meaning:
                return took
            if took - self.workload.lag.since(begun) > seconds:
                way = "meaning" if by_meaning else "words"
                self.ledger.violation(f"{replica.name} does not rank by {way} after {took:.0f} s: {state}")
                return took
            await asyncio.sleep(POLL_SECONDS)


async def kill_replica(bed: Bed) -> str:
    victim = bed.pick()
    victim.kill()
    await until(lambda: victim.name not in bed.balancer.ready, PATIENCE_SECONDS, "the load balancer notices")
    await bed.hold()
    begun = time.monotonic()
    victim.start()
    await victim.wait_ready()
    ready = time.monotonic() - begun
    await bed.wait_balanced()
    return f"{victim.name}, ready again {ready:.1f} s after its start"


async def kill_postgres(bed: Bed) -> str:
    await bed.postgres.crash()
    await bed.hold()
    bed.postgres.start()
    await until(bed.postgres.is_ready, PATIENCE_SECONDS, "PostgreSQL is ready again")
    return await bed.wait_stores()


async def kill_stdio_server(bed: Bed) -> str:
    """Kills the process of the stdio server of one replica. The others have their own."""
    victim = bed.pick()
    pids = victim.stdio_servers()
    if not pids:
        raise RuntimeError(f"{victim.name} has no process of its stdio server")
    bed.workload.stdio_killed[victim.name] = time.monotonic()
    kill_all(pids)
    begun = time.monotonic()
    await until(
        lambda: all(is_gone(pid) for pid in pids) and bool(victim.stdio_servers()),
        PATIENCE_SECONDS,
        "the server is started again",
    )
    took = time.monotonic() - begun
    await victim.wait_ready()
    bed.workload.stdio_killed[victim.name] = time.monotonic()
    await bed.hold()
    return f"at {victim.name}, started again after {took:.1f} s"


async def kill_http_server(bed: Bed) -> str:
    """Kills the server that all replicas share."""
    bed.workload.is_shared_down = True
    bed.shared.kill()
    await bed.hold()
    bed.shared.start()
    before = bed.ledger.answered["call ledger"]
    begun = time.monotonic()
    await until(lambda: bed.ledger.answered["call ledger"] > before, PATIENCE_SECONDS, "the server is called again")
    took = time.monotonic() - begun
    await asyncio.gather(*(replica.wait_ready() for replica in bed.replicas))
    ready = time.monotonic() - begun
    bed.workload.is_shared_down = False
    return f"called again {took:.1f} s after its start, by all replicas after {ready:.1f} s"


Look = Callable[[Sequence[Replica]], Awaitable[None]]


async def cut_off(bed: Bed, proxies: dict[str, Proxy], look: Look | None = None) -> str:
    """Nothing passes between one replica and a server for a while. Looks at the replica soon and at last."""
    victim = bed.pick()
    seconds = bed.workload.random.uniform(0.2, 1.0) * bed.partition_seconds
    is_cut = bed.workload.random.random() < 0.5
    proxy = proxies[victim.name]
    proxy.stall()
    if look:
        await look([victim])
    await asyncio.sleep(seconds)
    await bed.progress()
    if look:
        await look([victim])
    proxy.heal(cut=is_cut)
    return f"{victim.name} for {seconds:.0f} s, old connections {'lost' if is_cut else 'go on'}"


async def partition(bed: Bed) -> str:
    what = await cut_off(bed, bed.proxies)
    return f"{what}: {await bed.wait_stores()}"


async def failover(bed: Bed) -> str:
    """The database moves to another machine: the old connections stay silent for ever, without a reset."""
    begun = time.monotonic()
    for proxy in bed.proxies.values():
        proxy.silence()
    measured = await bed.wait_stores(FAILOVER_SECONDS)
    await asyncio.sleep(max(0.0, begun + SILENT_SECONDS - time.monotonic()))
    await bed.hold()
    return measured


async def slow_store(bed: Bed) -> str:
    for proxy in bed.proxies.values():
        proxy.delay = SLOW_SECONDS
    await bed.hold()
    await bed.hold()
    for proxy in bed.proxies.values():
        proxy.delay = 0.0
    return await bed.wait_stores()


async def kill_qdrant(bed: Bed) -> str:
    """Kills Qdrant, which perhaps comes back without its data."""
    is_lost = bed.workload.random.random() < 0.5
    bed.qdrant.kill()
    await bed.by_words(bed.replicas)
    await bed.hold()
    await bed.by_words(bed.replicas)
    if is_lost:
        bed.qdrant.lose_everything()
    bed.qdrant.start()
    await until(bed.qdrant.is_ready, PATIENCE_SECONDS, "Qdrant is ready again")
    took = await bed.wait_meaning(bed.replicas, MEANING_SECONDS)
    return f"{'without' if is_lost else 'with'} its data, by meaning after {took:.1f} s"


async def partition_qdrant(bed: Bed) -> str:
    what = await cut_off(bed, bed.qdrant_proxies, bed.by_words)
    took = await bed.wait_meaning(bed.replicas, MEANING_SECONDS)
    return f"{what}: by meaning after {took:.1f} s"


async def slow_qdrant(bed: Bed) -> str:
    for proxy in bed.qdrant_proxies.values():
        proxy.delay = SLOW_SECONDS
    await bed.by_words(bed.replicas)
    await bed.hold()
    await bed.by_words(bed.replicas)
    for proxy in bed.qdrant_proxies.values():
        proxy.delay = 0.0
    took = await bed.wait_meaning(bed.replicas, MEANING_SECONDS)
    return f"by meaning after {took:.1f} s"


async def rolling_restart(bed: Bed) -> str:
    """Restarts one replica after the other. No request may fail."""
    before = len(bed.ledger.failures)
    longest = 0.0
    version, bed.other = bed.other, bed.replicas[0].binary
    for replica in bed.replicas:
        begun = time.monotonic()
        code = await replica.stop(DELAY_SECONDS + DRAIN_SECONDS + 10)
        longest = max(longest, time.monotonic() - begun)
        if code != 0:
            bed.ledger.violation(f"{replica.name} ended with {code} after SIGTERM\n{replica.log_end(10)}")
            replica.kill()
        replica.binary = version
        replica.start()
        await replica.wait_ready()
        await bed.wait_balanced()
    failed = bed.ledger.failures[before:]
    if failed:
        bed.ledger.violation(f"{len(failed)} requests failed in a rolling restart: {failed[0]}")
    return f"stopped within {longest:.1f} s"


@contextlib.contextmanager
def filled_disk(bed: Bed) -> Iterator[Replica]:
    victim = next(replica for replica in bed.replicas if replica.has_disk)
    victim.fill_disk()
    try:
        yield victim
    finally:
        victim.empty_disk()


async def full_disk(bed: Bed) -> str:
    with filled_disk(bed) as victim:
        await bed.hold()
    return f"the data folder of {victim.name}"


async def full_disk_without_store(bed: Bed) -> str:
    """Records can be stored neither in the database nor in the data folder."""
    with filled_disk(bed) as victim:
        measured = await kill_postgres(bed)
    return f"{victim.name}: {measured}"


async def clock_jump(bed: Bed) -> str:
    victim = bed.pick()
    hours = bed.workload.random.choice([1, -1])
    victim.move_clock(hours * HOUR)
    await bed.hold()
    victim.move_clock(0)
    return f"{victim.name}: {hours:+d} h, and back"


FAULTS: dict[str, Callable[[Bed], Awaitable[str]]] = {
    "replica killed": kill_replica,
    "PostgreSQL killed": kill_postgres,
    "Qdrant killed": kill_qdrant,
    "stdio server killed": kill_stdio_server,
    "HTTP server killed": kill_http_server,
    "partition": partition,
    "failover": failover,
    "slow store": slow_store,
    "Qdrant partition": partition_qdrant,
    "slow Qdrant": slow_qdrant,
    "rolling restart": rolling_restart,
    "full disk": full_disk,
    "full disk and PostgreSQL killed": full_disk_without_store,
    "clock jump": clock_jump,
}
# Without these, everything stays whole for changes by administrators.
HARMLESS = {
    "stdio server killed",
    "HTTP server killed",
    "Qdrant killed",
    "Qdrant partition",
    "slow Qdrant",
    "clock jump",
    "full disk",
}
# Each run has these, if it has that many faults.
KILLS = ("replica killed", "PostgreSQL killed", "Qdrant killed")
