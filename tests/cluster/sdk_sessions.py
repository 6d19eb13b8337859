#!/usr/bin/env python3
"""Clients with the official SDKs, whose replica is killed: what each SDK does, and that nothing runs twice.

    TOOLSIEVE_BIN=… tests/cluster/run sdks

Each client connects to the load balancer while only one replica runs, and calls a tool. Then a second replica starts,
and the first one is killed. The client calls the tool twice more, and then connects anew and calls it once.

- With a protocol version before 2026-07-28, a client has a session. Another replica answers 404 for it, and the tool
  does not run. Each SDK passes this on as an error, for this call and all later ones. A new connection works at once.
- Without a session, the client continues with the other replica, and nothing fails: from 2026-07-28 on, and with
  `mcp.sessions = false`.
"""

import asyncio
import base64
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from network import Balancer
from programs import HERE, KEY, START_SECONDS, Postgres, Replica, SharedServer, until
from wire import Client

STEP_SECONDS = 30.0
PATH = "/mcp?mode=full"
VERSION = "2025-06-18"


@dataclass
class Sdk:
    """A client with an SDK."""

    name: str
    command: list[str | Path]
    era: str
    # What the SDK reports for a session that has ended.
    error: tuple[str, int] | None
    process: asyncio.subprocess.Process | None = None
    session: str = ""

    async def start(self, port: int, log: Path) -> None:
        arguments = [*self.command, f"http://127.0.0.1:{port}{PATH}", KEY, self.era, self.name]
        pipe = asyncio.subprocess.PIPE
        with log.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *map(str, arguments), stdin=pipe, stdout=pipe, stderr=errors
            )
        self.session = (await self.step())["session"]

    async def step(self) -> dict[str, Any]:
        assert self.process
        assert self.process.stdout
        async with asyncio.timeout(STEP_SECONDS):
            line = await self.process.stdout.readline()
        assert line, f"{self.name} has ended"
        step: dict[str, Any] = json.loads(line)
        return step

    async def calls(self) -> None:
        """The next step must be a call that has run."""
        step = await self.step()
        assert step.get("text", "").startswith("done "), f"{self.name}: {step}"

    def go_on(self) -> None:
        assert self.process
        assert self.process.stdin
        self.process.stdin.write(b"\n")

    async def end(self) -> None:
        if self.process:
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()


def sdks() -> list[Sdk]:
    """The clients. tests/cluster/run names the programs that have the SDKs."""
    python_1, python_2, node = (os.environ[name] for name in ("SDKS_PYTHON_1", "SDKS_PYTHON_2", "SDKS_NODE"))
    folder = Path(os.environ["SDKS_FOLDER"])
    scripts = HERE / "sdks"
    return [
        Sdk("python-1", [python_1, scripts / "client_1.py"], "older", ("McpError", 32600)),
        Sdk("python-2", [python_2, scripts / "client_2.py"], "older", ("MCPError", -32600)),
        Sdk("python-2-newer", [python_2, scripts / "client_2.py"], "newer", None),
        Sdk("typescript-sdk", [node, folder / "client.mjs", "sdk"], "older", ("StreamableHTTPError", 404)),
        Sdk("typescript-client", [node, folder / "client.mjs", "client"], "older", ("SdkHttpError", 404)),
        Sdk("typescript-client-newer", [node, folder / "client.mjs", "client"], "newer", None),
    ]


@asynccontextmanager
async def two_replicas(binary: Path, folder: Path, journal: Path, settings: str) -> AsyncIterator[list[Replica]]:
    """Two replicas on one PostgreSQL, of which the first one runs."""
    postgres, shared = Postgres(folder / "postgres"), SharedServer(journal, folder / "ledger.log")
    replicas: list[Replica] = []
    try:
        postgres.create()
        postgres.start()
        shared.start()
        servers = {"ledger": {"type": "streamable-http", "url": f"http://127.0.0.1:{shared.port}/mcp"}}
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        await until(postgres.is_ready, START_SECONDS, "PostgreSQL is ready")
        for name in ("replica-1", "replica-2"):
            replica = Replica(name, folder / name, binary, postgres.port, servers, key, settings)
            replica.prepare(small_disk=False)
            replicas.append(replica)
        replicas[0].start()
        await replicas[0].wait_ready()
        yield replicas
    finally:
        for replica in replicas:
            replica.end()
        postgres.end()
        shared.kill()


async def status(replica: Replica, session: str) -> int:
    """How a replica answers a request in a session."""
    client = Client(replica.port, KEY)
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Session-Id": session}
    response = await client.ask("POST", PATH, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
    client.close()
    return response.status


async def check(binary: Path, folder: Path, *, has_sessions: bool) -> None:
    journal = folder / "journal"
    settings = f"[mcp]\nsessions = {str(has_sessions).lower()}\n"
    async with two_replicas(binary, folder, journal, settings) as (first, second), AsyncExitStack() as stack:
        balancer = Balancer([first, second], lambda *_: None)
        await balancer.start()
        await until(lambda: first.name in balancer.ready, START_SECONDS, "the load balancer uses the first replica")
        clients = sdks()
        for client in clients:
            client.error = client.error if has_sessions else None
            stack.push_async_callback(client.end)
        await asyncio.gather(*(client.start(balancer.port, folder / f"{client.name}.log") for client in clients))
        await asyncio.gather(*(client.calls() for client in clients))

        second.start()
        await second.wait_ready()
        for client in clients:
            assert bool(client.session) == bool(client.error), f"{client.name} has session {client.session!r}"
            if client.session:
                found = await status(first, client.session), await status(second, client.session)
                assert found == (200, 404), f"the replicas answer {found} in the session of {client.name}"
        first.kill()
        await until(lambda: balancer.ready == {second.name}, START_SECONDS, "the load balancer uses only the second")

        await asyncio.gather(*(judge(client) for client in clients))
        ran = Counter(line.split()[0] for line in journal.read_text().splitlines())
        steps = ("first", "second", "third", "fourth")
        expected = {f"{one.name}-{step}" for one in clients for step in (steps[::3] if one.error else steps)}
        assert ran == Counter(expected), f"ran: {dict(ran)}"


async def judge(client: Sdk) -> None:
    """The calls at the second replica, and a new connection to it."""
    for _ in range(2):
        client.go_on()
        if client.error:
            step = await client.step()
            assert (step.get("error"), step.get("code")) == client.error, f"{client.name}: {step}"
        else:
            await client.calls()
    client.go_on()
    begun = time.monotonic()
    session = (await client.step())["session"]
    assert bool(session) == bool(client.error), f"{client.name} has session {session!r}"
    assert not session or session != client.session, f"{client.name} keeps its session"
    await client.calls()
    outcome = "error {} {}".format(*client.error) if client.error else "no error"
    print(f"{client.name}: {outcome}, with a new connection answered after {time.monotonic() - begun:.2f} s")


def main() -> None:
    binary, folder = Path(os.environ["TOOLSIEVE_BIN"]).resolve(), Path(tempfile.mkdtemp(prefix="toolsieve-sdks-"))
    # PostgreSQL runs as another user.
    folder.chmod(0o711)
    is_fine, begun = False, time.monotonic()
    try:
        for has_sessions in (True, False):
            print("with sessions" if has_sessions else "with mcp.sessions = false")
            part = folder / f"sessions-{has_sessions}"
            part.mkdir(mode=0o711)
            asyncio.run(check(binary, part, has_sessions=has_sessions))
        is_fine = True
    finally:
        if is_fine:
            shutil.rmtree(folder)
            print(f"all as expected, {time.monotonic() - begun:.0f} s")
        else:
            print(f"the logs are in {folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
