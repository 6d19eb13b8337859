"""The programs of the bed: PostgreSQL, Qdrant, the replicas of Toolsieve, and an MCP server that they share."""

import asyncio
import contextlib
import ctypes
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wire import BrokenError, Client

HERE = Path(__file__).resolve().parent
SERVER = HERE / "mcp_server.py"
CLOCK = HERE.parents[1] / "benches/clock.c"
# Cargo's name of the Qdrant node.
QDRANT = "test-qdrant-server"
KEY, ADMIN = "cluster-service-key-of-some-length", "cluster-admin-key-of-some-length"
# The user "nobody". PostgreSQL refuses to run as root.
NOBODY = 65_534
OLDEST_POSTGRES = 15
USER, PASSWORD = "tester", "geheim"
START_SECONDS = 90.0
POLL_SECONDS = 0.02
# After SIGTERM: the load balancer asks every 100 ms, on a busy machine somewhat less often.
DELAY_SECONDS, DRAIN_SECONDS = 2, 10
# How large the small disk is: the index and the files of a few tools need much less.
DISK_BYTES = 64 << 20
PR_SET_PDEATHSIG = 1

SETTINGS = f"""
[http]
replica = "{{name}}"
shutdown_delay_seconds = {DELAY_SECONDS}
shutdown_timeout_seconds = {DRAIN_SECONDS}

[selection]
narrow_above_tokens = 0

[logging]
level = "{{level}}"
"""


class BedError(Exception):
    """The bed can't go on."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Waits for a condition. Returns how long it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - begun


def die_with_parent() -> None:
    """Runs in the new process: it must not survive the bed, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], *, as_nobody: bool = False
) -> subprocess.Popen[bytes]:
    user = NOBODY if as_nobody and os.geteuid() == 0 else None
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd=log.parent,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            preexec_fn=die_with_parent,  # The bed has one thread.
        )


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Postgres:
    """A server with a folder of its own. It runs as a user that is not root."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        found = [path for path in Path("/usr/lib/postgresql").glob("*/bin/postgres") if path.parts[-3].isdigit()]
        newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
        if newest is None or int(newest.parts[-3]) < OLDEST_POSTGRES:
            raise BedError("PostgreSQL 15 or later is missing: apt-get install postgresql")
        self.programs = newest.parent
        self.version = newest.parts[-3]
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}

    def create(self) -> None:
        self.folder.mkdir()
        (self.folder / "password").write_text(PASSWORD)
        self.log.touch()
        if os.geteuid() == 0:
            for path in (self.folder, self.folder / "password", self.log):
                os.chown(path, NOBODY, NOBODY)
        command: list[str | Path] = [
            self.programs / "initdb",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-sync",
            "--username",
            USER,
        ]
        command += ["--pwfile=password", "--pgdata", self.folder / "data"]
        if spawn(command, self.log, self._environment, as_nobody=True).wait():
            raise BedError(f"initdb failed:\n{self.log.read_text()}")

    def start(self) -> None:
        command: list[str | Path] = [self.programs / "postgres", "-D", self.folder / "data"]
        # Without flushes: the machine does not crash, only the server.
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.folder}"]
        settings += ["max_connections=200", "fsync=off", "shared_buffers=64MB"]
        command += [part for setting in settings for part in ("-c", setting)]
        self._process = spawn(command, self.log, self._environment, as_nobody=True)

    @property
    def _pid_file(self) -> Path:
        return self.folder / "data/postmaster.pid"

    def is_ready(self) -> bool:
        try:
            lines = self._pid_file.read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    async def crash(self) -> None:
        """Kills all processes of the server."""
        assert self._process
        pids = [self._process.pid, *children(self._process.pid)]
        kill_all(pids)
        self._process.wait()
        await until(lambda: all(is_gone(pid) for pid in pids), 30, "the processes of PostgreSQL end")
        # A later start may take this file for that of another running server.
        self._pid_file.unlink(missing_ok=True)

    def end(self) -> None:
        if self._process:
            kill_all([self._process.pid, *children(self._process.pid)])
            self._process.wait()


class Qdrant:
    """The Qdrant node of the tests in Rust, as a program. It keeps what it acknowledged, however it ends."""

    def __init__(self, binary: Path, folder: Path) -> None:
        if not binary.is_file():
            raise BedError(f"{binary} is missing: cargo build --release --example {QDRANT}")
        self.binary, self.folder, self.port = binary, folder, free_port()
        self.log = folder.with_name("qdrant.log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = spawn([self.binary, self.folder, str(self.port)], self.log, os.environ)

    def is_ready(self) -> bool:
        if self._process and self._process.poll() is not None:
            raise BedError(f"Qdrant ended with {self._process.returncode}:\n{self.log.read_text()}")
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def lose_everything(self) -> None:
        """As with a new disk. The old one stays until the end, because removing it would delay everything here."""
        self.folder = self.folder.with_name(f"{self.folder.name}-new")


@dataclass
class Replica:
    """One process of Toolsieve, with a data folder of its own. It is started again on the same port."""

    name: str
    folder: Path
    binary: Path
    store_port: int
    servers: Mapping[str, object]
    secrets_key: str
    # Further settings, as TOML.
    settings: str = ""
    port: int = field(default_factory=free_port)
    # The library that moves the clock, if there is a C compiler.
    clock: Path | None = None
    # Whether the data folder is on a disk of its own, which can be filled.
    has_disk: bool = False
    # When it was killed.
    deaths: list[float] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "toolsieve.log"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self, *, small_disk: bool) -> None:
        self.data.mkdir(parents=True)
        (self.folder / "mcp.json").write_text(json.dumps({"mcpServers": self.servers}))
        (self.folder / "toolsieve.toml").write_text(SETTINGS.format(name=self.name, level="info") + self.settings)
        (self.folder / "offset").write_bytes(bytes(8))
        if small_disk and os.geteuid() == 0:
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "cluster", str(self.data)]
            self.has_disk = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def start(self) -> None:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TOOLSIEVE_", "PG", "DATABASE_", "QDRANT_"))
        }
        environment |= {
            "TOOLSIEVE_API_KEY": KEY,
            "TOOLSIEVE_ADMIN_KEY": ADMIN,
            "TOOLSIEVE_SECRETS_KEY": self.secrets_key,
        }
        environment["DATABASE_URL"] = f"postgres://{USER}:{PASSWORD}@127.0.0.1:{self.store_port}/postgres"
        if self.clock:
            environment |= {"LD_PRELOAD": str(self.clock), "SOAK_CLOCK": str(self.folder / "offset")}
        command: list[str | Path] = [
            self.binary,
            "serve",
            "--config",
            self.folder / "mcp.json",
            "--settings",
            self.folder / "toolsieve.toml",
        ]
        command += ["--data-dir", self.data, "--port", str(self.port)]
        self.process = spawn(command, self.log, environment)

    async def wait_ready(self) -> None:
        """Waits until it is ready, and all its servers are connected."""
        client, deadline, state = Client(self.port), time.monotonic() + START_SECONDS, None
        while time.monotonic() < deadline:
            if self.process and self.process.poll() is not None:
                raise BedError(f"{self.name} ended with {self.process.returncode}:\n{self.log_end()}")
            with contextlib.suppress(BrokenError):
                response = await client.ask("GET", "/readyz", key=ADMIN, patience=5)
                state = response.json()
                if response.status == 200 and all(server["phase"] == "connected" for server in state["servers"]):
                    client.close()
                    return
            await asyncio.sleep(POLL_SECONDS)
        raise BedError(f"{self.name} was not ready after {START_SECONDS:.0f} s: {state}\n{self.log_end()}")

    def kill(self) -> None:
        assert self.process
        self.deaths.append(time.monotonic())
        self.process.kill()
        self.process.wait()

    async def stop(self, seconds: float) -> int | None:
        """Asks it to stop. Returns its exit code, or nothing if it did not stop in time."""
        assert self.process
        process = self.process
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await until(lambda: process.poll() is not None, seconds, f"{self.name} stops")
        return process.poll()

    def stdio_servers(self) -> list[int]:
        found = []
        for pid in children(self.process.pid) if self.process else []:
            with contextlib.suppress(OSError):
                if SERVER.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def move_clock(self, seconds: int) -> None:
        with (self.folder / "offset").open("r+b") as file, mmap.mmap(file.fileno(), 8) as offset:
            offset[:8] = struct.pack("q", seconds)

    def fill_disk(self) -> None:
        with (self.data / "filler").open("wb", buffering=0) as out:
            for size in (1 << 20, 4_096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        out.write(b"x" * size)

    def empty_disk(self) -> None:
        (self.data / "filler").unlink()

    def log_end(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def end(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.has_disk:
            self.has_disk = False
            subprocess.run(["umount", "-l", str(self.data)], check=False)  # noqa: S607


def clock_library(folder: Path) -> Path | None:
    compiler = shutil.which("cc")
    if not compiler:
        return None
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, CLOCK, "-ldl"], check=True)
    return library


class SharedServer:
    """An MCP server that all replicas reach over HTTP."""

    def __init__(self, journal: Path, log: Path) -> None:
        self.port = free_port()
        self._journal, self._log = journal, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command: list[str | Path] = [sys.executable, SERVER, "http", self._journal, str(self.port)]
        self._process = spawn(command, self._log, os.environ)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
