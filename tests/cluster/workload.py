"""The load: chats, callers, readers of lists, and administrators. Everything goes through the load balancer."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger import Call, Failure, Key, Ledger, Versions
from mcp_server import DESK, LEDGER
from network import Balancer
from programs import ADMIN, KEY, Replica
from wire import BrokenError, Client, Response

MESSAGES = [
    "send an email to Anna about the party",
    "thanks!",
    "what will the weather be in Oslo tomorrow?",
    "translate this letter into French",
    "how many euros are 40 dollars?",
    "set a timer for ten minutes",
    "book a meeting room for Monday, and create an event for it",
    "play something by Nina Simone",
    "write a poem about the sea",
    "write this into the ledger",
]
CHATS, CHATTERS, CALLERS, READERS = 100, 8, 6, 2
# How long each worker pauses on average, in seconds.
PAUSE = 0.15
ADMIN_PAUSE = 0.25
READING_SECONDS = 2.0
# No answer may take longer, whatever is broken.
PROMPT_SECONDS = 5.0
# A request that begins this shortly after a kill may still use a connection to the killed process.
NOTICE_SECONDS = 0.5
ADMIN_PATIENCE = 8.0
# How long after a fault a replica may still refuse changes: its last requests to the database may fail late.
AGAIN_SECONDS = 2.5
TOOLSET = "rotating"
KEPT_KEYS = 12
# A change must be in force everywhere after this time, while nothing is broken.
SPREAD_SECONDS = 0.1
SERVER_OF = dict.fromkeys(DESK, "desk") | dict.fromkeys(LEDGER, "ledger")
# What may be denied. The slow tool never is, so that calls are always under way.
DENIABLE = sorted([*DESK, "write_entry"])


def own_names(names: Iterable[str]) -> frozenset[str]:
    """The tools of the servers among published names. The others are tools for finding tools."""
    return frozenset(name.partition("__")[2] for name in names if "__" in name)


def published(document: Any) -> frozenset[str]:
    return own_names(item["post"]["operationId"] for item in document["paths"].values() if "post" in item)


@dataclass
class Chat:
    messages: list[str] = field(default_factory=list)
    offered: frozenset[str] = frozenset()
    # Whether the last answer had a warning.
    is_degraded: bool = False
    answered: float = 0.0


class Lag:
    """How late this process is, so that its own delays aren't taken for those of the service."""

    STEP = 0.005

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    async def run(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(self.STEP)
            now = time.monotonic()
            self._late.append((now, now - begun - self.STEP))
            del self._late[:-4_000]

    def since(self, begun: float) -> float:
        return max((late for at, late in self._late if at >= begun), default=0.0)


class Workload:
    def __init__(self, ledger: Ledger, balancer: Balancer, replicas: list[Replica], chance: random.Random) -> None:
        self.ledger, self.balancer, self.replicas = ledger, balancer, replicas
        self.random = chance
        self.lag = Lag()
        # The chats that don't wait for an answer.
        self.chats = {f"chat-{number}": Chat() for number in range(CHATS)}
        # Held by an administrator during a change, and by the checker, so that nothing changes under it.
        self.changing = {name: asyncio.Lock() for name in ("policy", "toolset", "keys")}
        # Whether nothing is broken, so that every replica must have a change at once.
        self.is_whole = True
        self.whole_since = 0.0
        self.stopping = False
        self.is_shared_down = False
        self.stdio_killed: dict[str, float] = {}
        self._tag: str | None = None
        self._next = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, more: Sequence[Callable[[Client], Any]]) -> None:
        """Starts the load. `more` are further kinds of it."""
        works: list[Callable[[Client], Any]] = [self.chat for _ in range(CHATTERS)]
        works += [self.call for _ in range(CALLERS)] + [self.read for _ in range(READERS)] + list(more)
        self._tasks = [asyncio.create_task(self.repeat(work, PAUSE)) for work in works]
        for work in (self.change_policy, self.change_toolset, self.change_keys):
            self._tasks.append(asyncio.create_task(self.repeat(work, ADMIN_PAUSE)))
        self._watch = asyncio.create_task(self.lag.run())

    async def stop(self) -> None:
        """Lets what is under way end."""
        self.stopping = True
        done = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                self.ledger.violation(f"a worker of the bed failed: {error!r}")
        self._watch.cancel()

    async def repeat(self, work: Callable[[Client], Any], pause: float) -> None:
        client = Client(self.balancer.port, KEY)
        while not self.stopping:
            # Most clients keep their connection, some don't.
            if self.random.random() < 0.3:
                client.close()
            await work(client)
            await asyncio.sleep(self.random.uniform(0, 2 * pause))
        client.close()

    async def send(
        self, kind: str, client: Client, method: str, path: str, body: Any = None, **more: Any
    ) -> Response | None:
        """Sends a request once, and accounts for it. Without a response, returns nothing."""
        begun = time.monotonic()
        try:
            response = await client.ask(method, path, body, **more)
        except BrokenError as error:
            self.fail(kind, begun, self.balancer.served.get(error.port or 0, "the load balancer"), str(error))
            return None
        ended = time.monotonic()
        self.ledger.latencies[self.ledger.fault, kind].append(ended - begun)
        # Known until the begin is what counts for this request.
        known = self.ledger.known(response.replica, begun)
        if 0 <= response.state < known:
            self.ledger.violation(f"{kind}: the state of {response.replica} went back from {known} to {response.state}")
        self.ledger.note(response.replica, response.state)
        response.headers["bed-known"], response.headers["bed-ended"] = str(known), repr(ended)
        if kind != "change" and ended - begun > PROMPT_SECONDS:
            self.ledger.violation(f"{kind}: {path} took {ended - begun:.1f} s at {response.replica}")
        return response

    def mended(self) -> None:
        """Everything is whole again."""
        self.is_whole, self.whole_since = True, time.monotonic()

    def fail(self, kind: str, begun: float, replica: str, reason: str, *, is_answered: bool = False) -> None:
        """A request failed, perhaps with an answer. In flight at a killed replica or a killed MCP server, it may."""
        now = time.monotonic()
        deaths = [death for one in self.replicas if one.name == replica for death in one.deaths]
        is_allowed = any(begun - NOTICE_SECONDS <= death <= now for death in deaths) and now - begun < PROMPT_SECONDS
        if is_answered and kind.endswith("desk"):
            is_allowed |= now - self.stdio_killed.get(replica, -1e9) < PROMPT_SECONDS
        if is_answered and kind.endswith("ledger"):
            is_allowed |= self.is_shared_down
        if kind == "change":
            # An error of the store is the right answer while it is away.
            is_allowed |= not self.is_whole or now - self.whole_since < AGAIN_SECONDS
            # A change that was running waits until its silent connection is given up, and others wait for it.
            is_allowed |= self.ledger.fault == "failover"
        self.ledger.failures.append(
            Failure(kind, reason, self.ledger.fault, replica, is_allowed, now - self.ledger.began)
        )
        if not is_allowed:
            self.ledger.violation(f"{kind} at {replica} failed after {now - begun:.2f} s: {reason}")

    def versions(self, versions: Versions, response: Response) -> list[frozenset[str]]:
        return versions.possible(int(response.headers["bed-known"]), float(response.headers["bed-ended"]))

    def wrong(self, kind: str, response: Response, text: str) -> None:
        head = response.headers
        about = f"status {response.status} at {response.replica}, state {response.state}, known {head['bed-known']}"
        self.ledger.violation(f"{kind}: {text} ({about})")

    # Chats

    async def chat(self, client: Client) -> None:
        """One turn of a chat. A message is sent again until it is answered, because that is safe."""
        # People read an answer before they write again.
        resting = [name for name, chat in self.chats.items() if time.monotonic() - chat.answered > READING_SECONDS]
        if not resting:
            return
        name = self.random.choice(resting)
        chat = self.chats.pop(name)
        chat.messages = [*chat.messages, self.random.choice(MESSAGES)][-3:]
        body = {"messages": [{"role": "user", "content": text} for text in chat.messages], "chat_id": name, "limit": 4}
        while (response := await self.send("chat", client, "POST", "/v1/filter", body)) is None:
            continue
        self.chats[name] = chat
        self.judge_chat(chat, response)

    def judge_chat(self, chat: "Chat", response: Response) -> None:
        answer = response.json()
        if response.status != 200:
            self.fail("chat", time.monotonic(), response.replica, f"{response.status} {str(answer)[:200]}")
            return
        self.ledger.answered["chat"] += 1
        self.ledger.warned.update(answer["warnings"])
        shown = own_names(tool["name"] for tool in answer["tools"])
        denied = self.versions(self.ledger.policy, response)
        if all(shown & one for one in denied):
            self.wrong("chat", response, f"{sorted(shown)} was offered, denied is {[sorted(one) for one in denied]}")
        # What was denied at times may be missing. A loss costs only the provider's prompt cache, so it is counted.
        lost = chat.offered - shown - frozenset().union(*denied)
        self.ledger.forgotten += bool(lost) and not chat.is_degraded and not answer["warnings"]
        chat.offered, chat.is_degraded, chat.answered = shown, bool(answer["warnings"]), time.monotonic()

    # Calls

    def new_call(self) -> tuple[Call, str]:
        """A call that is sent now, and its server."""
        self._next += 1
        tool = self.random.choice([*DENIABLE, "write_entry", "write_slowly", "write_slowly"])
        call = Call(f"call-{self._next}", tool)
        self.ledger.calls[call.id] = call
        return call, SERVER_OF[tool]

    async def call(self, client: Client) -> None:
        call, server = self.new_call()
        kind = f"call {server}"
        response = await self.send(kind, client, "POST", f"/{server}/{call.tool}", {"id": call.id})
        if response is None:
            return
        if response.status == 200:
            self.judge_success(kind, call, response)
        elif response.status == 404:
            self.judge_refusal(kind, call, response)
        else:
            text = f"{response.status} {str(response.json())[:300]}"
            self.fail(kind, time.monotonic(), response.replica, text, is_answered=True)

    def judge_success(self, kind: str, call: Call, response: Response) -> None:
        call.is_acknowledged = True
        self.ledger.answered[kind] += 1
        if all(call.tool in one for one in self.versions(self.ledger.policy, response)):
            self.wrong(kind, response, f"{call.tool} was called although it is denied")

    def judge_refusal(self, kind: str, call: Call, response: Response) -> None:
        call.is_refused = True
        self.ledger.answered[f"{kind}, denied"] += 1
        if not any(call.tool in one for one in self.versions(self.ledger.policy, response)):
            self.wrong(kind, response, f"{call.tool} is unknown although it is allowed")

    # Lists

    async def read(self, client: Client) -> None:
        path = self.random.choice(["/openapi.json", f"/toolsets/{TOOLSET}/openapi.json", "/v1/tools/search"])
        if path == "/v1/tools/search":
            body = {"queries": [self.random.choice(MESSAGES)], "limit": 10}
            response = await self.send("search", client, "POST", path, body)
        else:
            response = await self.send("document", client, "GET", path)
        if response is None:
            return
        if response.status != 200:
            self.fail(
                "list", time.monotonic(), response.replica, f"{path}: {response.status} {str(response.json())[:200]}"
            )
            return
        self.ledger.answered["list"] += 1
        self.judge_list(path, response)

    def judge_list(self, path: str, response: Response) -> None:
        denied = self.versions(self.ledger.policy, response)
        if path == "/v1/tools/search":
            found = own_names(tool["name"] for tool in response.json()["tools"])
            fits = any(not found & one for one in denied)
        else:
            found = published(response.json())
            whole = [frozenset(SERVER_OF)] if path == "/openapi.json" else self.versions(self.ledger.toolset, response)
            fits = any(found == tools - one for tools in whole for one in denied)
        if not fits:
            self.wrong(
                path, response, f"{sorted(found)} does not fit the rules: denied {[sorted(one) for one in denied]}"
            )

    # Administrators

    async def change_policy(self, client: Client) -> None:
        async with self.changing["policy"]:
            denied = frozenset(self.random.sample(DENIABLE, self.random.randint(0, 3)))
            change = self.ledger.policy.begin(denied)
            body = {"rules": [{"effect": "block", "tools": sorted(denied)}] if denied else []}
            while True:
                headers = {"If-Match": self._tag} if self._tag else {}
                response = await self.admin(client, "PUT", "/v1/admin/policy", body, headers=headers)
                if response is not None and response.is_fine:
                    break
                if response is not None and response.status == 412:
                    # A former attempt was stored, although its outcome was unknown.
                    response = await self.admin(client, "GET", "/v1/admin/policy", None)
                    if response is not None and response.is_fine:
                        self._tag = response.headers["etag"]
            self._tag = response.headers["etag"]
            change.number = response.state
            await self.follow("rule", change.number)

    async def change_toolset(self, client: Client) -> None:
        async with self.changing["toolset"]:
            tools = frozenset(self.random.sample(sorted(SERVER_OF), 6))
            change = self.ledger.toolset.begin(tools)
            change.number = await self.insist(client, "PUT", f"/v1/admin/toolsets/{TOOLSET}", {"tools": sorted(tools)})
            await self.follow("toolset", change.number)

    async def change_keys(self, client: Client) -> None:
        async with self.changing["keys"]:
            active = self.ledger.active_keys()
            if len(active) < KEPT_KEYS and (len(active) < 3 or self.random.random() < 0.6):
                self._next += 1
                response = await self.admin(client, "POST", "/v1/admin/keys", {"name": f"key-{self._next}"})
                # If the outcome is unknown, the key may exist. Nobody knows its secret.
                if response is not None and response.is_fine:
                    body = response.json()
                    key = Key(body["name"], body["id"], body["key"])
                    self.ledger.keys[key.id] = key
                    await self.follow("key", response.state, key)
                return
            key = self.random.choice(active)
            number = await self.insist(client, "DELETE", f"/v1/admin/keys/{key.id}", None)
            key.is_revoked = True
            await self.follow("revocation", number, key)

    async def insist(self, client: Client, method: str, path: str, body: Any) -> int:
        """Repeats a change until it is acknowledged. Returns its number."""
        while True:
            response = await self.admin(client, method, path, body)
            if response is not None and response.is_fine:
                return response.state

    async def admin(self, client: Client, method: str, path: str, body: Any, **more: Any) -> Response | None:
        response = await self.send("change", client, method, path, body, key=ADMIN, patience=ADMIN_PATIENCE, **more)
        if response is None or response.status >= 500:
            if response is not None:
                self.fail(
                    "change", time.monotonic(), response.replica, f"{response.status} {str(response.json())[:200]}"
                )
            # Another replica may be able to store it.
            client.close()
            await asyncio.sleep(0.05)
        elif not response.is_fine and response.status != 412:
            self.ledger.violation(f"change: {method} {path}: {response.status} {str(response.json())[:200]}")
            # Once is enough.
            client.close()
            await asyncio.sleep(PROMPT_SECONDS)
        elif response.is_fine:
            self.ledger.answered["change"] += method != "GET"
        return response

    async def follow(self, what: str, number: int, key: Key | None = None) -> None:
        """Waits until each replica has the change, and looks there for its effect, unless something is broken."""
        if number < 0:
            return
        begun = time.monotonic()
        await asyncio.gather(*(self._arrive(what, replica, number, begun, key) for replica in self.replicas))

    async def _arrive(self, what: str, replica: Replica, number: int, begun: float, key: Key | None) -> None:
        client = Client(replica.port, KEY)
        with contextlib.suppress(BrokenError):
            while self.is_whole:
                response = await client.ask("GET", "/healthz", patience=PROMPT_SECONDS)
                self.ledger.note(response.replica, response.state)
                if response.state >= number:
                    took = time.monotonic() - begun
                    self.ledger.spread.append(took)
                    if took - self.lag.since(begun) > SPREAD_SECONDS and self.is_whole:
                        text = f"{what} {number} was in {replica.name} after {took * 1e3:.0f} ms"
                        self.ledger.late.append(text)
                    break
                await asyncio.sleep(0.002)
            if key and self.is_whole:
                await self.try_key(replica, key)
        client.close()

    async def try_key(self, replica: Replica, key: Key) -> None:
        """A replica that has the number of the change must accept an active key, and refuse a revoked one."""
        source = f"127.1.{self.random.randrange(256)}.{self.random.randrange(1, 255)}"
        one = Client(replica.port, source=source)
        response = await one.ask("GET", "/v1/toolsets", key=key.secret)
        one.close()
        expected = 401 if key.is_revoked else 200
        if response.status != expected:
            kind = "revoked" if key.is_revoked else "active"
            about = f"{replica.name} with state {response.state}"
            self.ledger.violation(f"{about} answers the {kind} key {key.name} with {response.status}")
