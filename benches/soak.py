#!/usr/bin/env python3
"""Runs Toolsieve under a mixed load, breaks what is around it, and counts afterwards.

    cargo build --release --locked --examples && cargo build --release --locked
    python3 benches/soak.py --toolsieve target/release/toolsieve --examples target/release/examples \\
        [--quickstart mcp.json] --seconds 2700

Chats ask for tools, callers call them over HTTP and over MCP, clients hang up in the middle. Meanwhile MCP servers are
killed, the configuration changes and is read again (SIGHUP), the disk is full twice, whoever reads the log goes away, and
the clock jumps forward and back. `--quickstart` adds the real MCP servers of `toolsieve quickstart --install-only`.

At the end these must hold, or the exit code is 1; every figure is printed in any case:

- every request was answered, none with an error of ours (500), none with 404 for a tool that is there;
- the audit log, the record of use and the metrics count as many calls as were sent; what could not be written while the disk
  was full is missing in the first two, and counted as lost in the metrics;
- the median of memory (RssAnon) and of open descriptors in the last quarter is at most --growth times that of the second, apart
  from the selections that are remembered meanwhile: the service keeps a fixed number of them, which a short run doesn't reach;
- asked to stop, it stops with exit code 0.

The full disk needs root (it is a small tmpfs), the clock a C compiler; without them that part is left out, which is said.
"""

import argparse
import contextlib
import http.client
import json
import mmap
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from services import JSON_HEADERS, free_port, machine, memory, table

KEY, ADMIN = "soak-service-key-of-some-length", "soak-admin-key-of-some-length"
MESSAGES = [
    "what time is it in Tokyo",
    "thanks!",
    "echo this text back to me",
    "read the file notes.txt",
    "add 2 and 40",
    "and for Paris?",
    "write a poem about the sea",
    "what changed in the repository since yesterday",
    "remember that Anna likes tea",
    "convert 5 pm in Berlin to New York time",
]
CHATS = 100
# What a call of a tool that is there is answered with, whatever its server does.
EXPECTED = {200, 422, 429, 502, 503, 504}
# The service remembers the last selections of two hours: at most this many, of about this size (src/service/records/last_selections.rs).
SELECTIONS, SELECTION_MIB = 20_000, 1.75 / 1024
# A share of the load: how often each kind of request is made.
KINDS = {"chat": 4, "call": 8, "mcp": 4, "search": 1, "document": 1, "hangup": 1}
# When something breaks, as parts of the whole time. The second and the last quarter are compared, so they stay quiet but
# for kills, reloads and hang-ups.
DISK = [(0.12, 0.18), (0.54, 0.60)]
READER_GONE, CLOCK_FORWARD, CLOCK_BACK = 0.51, 0.62, 0.70
JUMP_SECONDS = 3_700
KILL_EVERY, RELOAD_EVERY = 5.0, 4.0
PARTS = ["disk", "log", "clock", "kill", "reload"]


class Load:
    """What was sent, and how it was answered."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.hung_up = 0
        self.wrong: list[str] = []
        self.latencies: list[float] = []
        self.stop = threading.Event()

    def note(self, kind: str, status: int | str, took: float, tool: str | None = None, detail: str = "") -> None:
        with self.lock:
            self.answers[f"{kind} {status}"] += 1
            self.latencies.append(took)
            if tool is not None:
                self.calls[tool] += 1
            is_fine = status in EXPECTED if tool is not None else status in (200, 429)
            if not is_fine:
                self.wrong.append(f"{time.strftime('%H:%M:%S')} {kind} {tool or ''} {status} {detail[:300]}")

    def selections(self) -> int:
        """How many the service remembers."""
        with self.lock:
            return min(self.answers["chat 200"], SELECTIONS)


class Sample(NamedTuple):
    """A moment, as a part of the whole time, and what the service held then; or medians of several."""

    part: float
    memory: float
    descriptors: float
    selections: float


class Client:
    """One connection that stays open, as that of Open WebUI."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=65)

    def ask(
        self, method: str, path: str, body: Any = None, key: str = KEY, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        sent = {**JSON_HEADERS, "Authorization": f"Bearer {key}", **(headers or {})}
        text = None if body is None else json.dumps(body)
        try:
            self.connection.request(method, path, text, sent)
            response = self.connection.getresponse()
            read = response.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        try:
            value = json.loads(read)
        except ValueError:
            value = read.decode(errors="replace")
        return response.status, value, {name.lower(): text for name, text in response.getheaders()}


class Service:
    """The service, its log and its data folder."""

    def __init__(self, options: argparse.Namespace, folder: Path, data: Path, clock: Path | None) -> None:
        self.port, self.folder = free_port(), folder
        settings = folder / "toolsieve.toml"
        settings.write_text("[metrics]\nper_tool = true\n\n[selection]\nnarrow_above_tokens = 0\n")
        environment = {**os.environ, "TOOLSIEVE_API_KEY": KEY, "TOOLSIEVE_ADMIN_KEY": ADMIN}
        if clock:
            environment |= {"LD_PRELOAD": str(clock), "SOAK_CLOCK": str(folder / "offset")}
        command = [str(options.toolsieve), "serve", "--config", str(folder / "mcp.json"), "--settings", str(settings)]
        command += ["--data-dir", str(data), "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )
        self.log = folder / "toolsieve.log"
        self.reading = threading.Event()
        self.reading.set()
        threading.Thread(target=self.read_log, daemon=True).start()

    def read_log(self) -> None:
        """Copies the log until the reader goes away: then the pipe has no other end."""
        pipe = self.process.stderr
        assert pipe is not None
        with self.log.open("wb") as out:
            os.set_blocking(pipe.fileno(), False)
            while self.reading.is_set():
                part = pipe.read(65_536)
                if part == b"":
                    break
                if part is None:
                    time.sleep(0.02)
                    continue
                out.write(part)
                out.flush()
        pipe.close()

    def children(self) -> list[int]:
        found: list[int] = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
        return found

    def sample(self) -> tuple[float, int]:
        """Memory and open descriptors. Nobody but root may look at the latter: the service keeps others out of itself."""
        try:
            descriptors = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        except PermissionError:
            _, text, _ = Client(self.port).ask("GET", "/metrics", key=ADMIN)
            found = [line for line in str(text).splitlines() if line.startswith("process_open_fds ")]
            descriptors = int(float(found[0].split()[1]))
        return memory(self.process.pid)["RssAnon"], descriptors

    def wait_ready(self, servers: int) -> None:
        client, deadline = Client(self.port), time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"the service ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                _, state, _ = client.ask("GET", "/readyz")
                connected = [one for one in state["servers"] if one["phase"] == "connected"]
                if len(connected) >= servers and state["index"].get("embedded") == state["tools"]:
                    return
            time.sleep(0.1)
        raise SystemExit(f"the service was not ready after 120 s:\n{self.log.read_text()[-2000:]}")


def configuration(options: argparse.Namespace, change: int) -> dict[str, Any]:
    """The servers; those that are called never change, two others come, change and go."""
    stdio = str(options.examples / "test-stdio-server")
    servers: dict[str, Any] = {name: {"command": stdio, "args": []} for name in ("one", "two", "three")}
    servers["changing"] = {"command": stdio, "args": [f"list={['time', 'mail', 'files'][change % 3]}"]}
    if change % 2:
        servers["coming"] = {"command": stdio, "args": ["list=mail"]}
    if options.quickstart:
        servers |= json.loads(options.quickstart.read_text())["mcpServers"]
    return servers


def write_servers(options: argparse.Namespace, folder: Path, change: int) -> None:
    """In one step: whoever reads it meanwhile finds the one or the other."""
    written = folder / "mcp.json.new"
    written.write_text(json.dumps({"mcpServers": configuration(options, change)}))
    written.replace(folder / "mcp.json")


def tools(options: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    found: list[tuple[str, str, dict[str, Any]]] = []
    for server in ("one", "two", "three"):
        found += [(server, "echo", {"text": "soak"}), (server, "fail", {}), (server, "huge", {"bytes": 20_000})]
    if options.quickstart:
        found += [("everything", "echo", {"message": "soak"}), ("time", "get_current_time", {"timezone": "Asia/Tokyo"})]
    return found


class Worker(threading.Thread):
    """Makes requests of all kinds at its part of the rate."""

    def __init__(self, number: int, options: argparse.Namespace, service: Service, load: Load, offered: list[str]) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(number)
        self.options, self.service, self.load, self.offered = options, service, load, offered
        self.tools = tools(options)
        self.client, self.session = Client(service.port), ""

    def run(self) -> None:
        pause, due = self.options.workers / self.options.rate, time.monotonic()
        kinds, weights = list(KINDS), list(KINDS.values())
        while not self.load.stop.is_set():
            getattr(self, self.random.choices(kinds, weights)[0])()
            due = max(due + pause, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))

    def send(self, kind: str, method: str, path: str, body: Any, tool: str | None = None) -> Any:
        begun = time.monotonic()
        try:
            status, answer, _ = self.client.ask(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.load.note(kind, type(error).__name__, time.monotonic() - begun, tool, str(error))
            return None
        self.load.note(kind, status, time.monotonic() - begun, tool, str(answer))
        return answer

    def chat(self) -> None:
        turns = self.random.sample(MESSAGES, 3)
        messages = [{"role": "user", "content": turns[0]}, {"role": "assistant", "content": "Done."}]
        messages.append({"role": "user", "content": turns[1]})
        body = {"messages": messages, "tools": self.offered, "chat_id": f"chat-{self.random.randrange(CHATS)}"}
        self.send("chat", "POST", "/v1/filter", body)

    def call(self) -> None:
        server, tool, arguments = self.random.choice(self.tools)
        self.send("call", "POST", f"/{server}/{tool}", arguments, f"{server}/{tool}")

    def search(self) -> None:
        self.send("search", "POST", "/v1/tools/search", {"queries": self.random.sample(MESSAGES, 2), "limit": 5})

    def document(self) -> None:
        self.send("document", "GET", "/openapi.json", None)

    def mcp(self) -> None:
        """A call in a session of the older era; the session is begun again where it is gone."""
        begun = time.monotonic()
        server, tool, arguments = self.random.choice(self.tools)
        try:
            if not self.session:
                info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
                hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}
                _, _, headers = self.client.ask("POST", "/mcp?mode=full", hello)
                self.session = headers.get("mcp-session-id", "")
            params = {"name": f"{server}__{tool}", "arguments": arguments}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            headers = {"mcp-session-id": self.session} if self.session else {}
            status, answer, _ = self.client.ask("POST", "/mcp?mode=full", call, headers=headers)
            if status == 404:
                self.session = ""
                self.load.note("mcp", 200, time.monotonic() - begun)
                return
        except (OSError, http.client.HTTPException) as error:
            self.load.note("mcp", type(error).__name__, time.monotonic() - begun, f"{server}/{tool}", str(error))
            return
        self.load.note("mcp", status, time.monotonic() - begun, f"{server}/{tool}", str(answer))

    def hangup(self) -> None:
        """A client that goes away: in the middle of a head, of a body, or while its call runs."""
        calls = b"POST /one/sleep HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n"
        texts = [calls, calls + b"Content-Length: 40\r\n\r\n{", calls + b"Content-Length: 2\r\n\r\n{}"]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.service.port), 10) as connection:
            connection.sendall(self.random.choice(texts))
            time.sleep(self.random.random() * 0.05)
        with self.load.lock:
            self.load.hung_up += 1


class Breaker(threading.Thread):
    """Kills servers, changes the configuration, and at their times fills the disk, leaves the log and moves the clock."""

    def __init__(self, options: argparse.Namespace, service: Service, data: Path | None, load: Load, clock: bool) -> None:
        super().__init__(daemon=True)
        self.options, self.service, self.data, self.load, self.clock = options, service, data, load, clock
        self.done: Counter[str] = Counter()
        self.samples: list[Sample] = []

    def run(self) -> None:
        begun, change, spoken = time.monotonic(), 0, set[str]()
        next_kill, next_reload, next_sample = KILL_EVERY, RELOAD_EVERY, 0.0
        while not self.load.stop.is_set():
            passed = time.monotonic() - begun
            part = passed / self.options.seconds
            if passed >= next_sample:
                next_sample += 1
                with contextlib.suppress(OSError, KeyError, http.client.HTTPException):
                    self.samples.append(Sample(part, *self.service.sample(), self.load.selections()))
            if passed >= next_kill and "kill" not in self.options.without:
                next_kill += KILL_EVERY
                self.kill()
            if passed >= next_reload and "reload" not in self.options.without:
                next_reload += RELOAD_EVERY
                change += 1
                write_servers(self.options, self.service.folder, change)
                self.service.process.send_signal(signal.SIGHUP)
                self.done["reload"] += 1
            for name, at, act in self.plan():
                if part >= at and name not in spoken:
                    spoken.add(name)
                    act()
                    print(f"{passed:7.0f} s  {name}", flush=True)
            time.sleep(0.05)

    def plan(self) -> Iterator[tuple[str, float, Callable[[], None]]]:
        without = self.options.without
        for number, (start, end) in enumerate(DISK if self.data and "disk" not in without else [], 1):
            yield f"the disk is full ({number})", start, self.fill
            yield f"there is room again ({number})", end, self.empty
        if "log" not in without:
            yield "nobody reads the log", READER_GONE, self.service.reading.clear
        if self.clock and "clock" not in without:
            yield "the clock jumps forward", CLOCK_FORWARD, lambda: self.move(JUMP_SECONDS)
            yield "the clock jumps back", CLOCK_BACK, lambda: self.move(0)

    def kill(self) -> None:
        children = self.service.children()
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(children), signal.SIGKILL)
                self.done["kill"] += 1

    def fill(self) -> None:
        assert self.data
        with (self.data / "filler").open("wb", buffering=0) as out:
            for size in (1 << 20, 4_096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        out.write(b"x" * size)
        self.done["full disk"] += 1

    def empty(self) -> None:
        assert self.data
        (self.data / "filler").unlink()

    def move(self, seconds: int) -> None:
        with (self.service.folder / "offset").open("r+b") as file, mmap.mmap(file.fileno(), 8) as offset:
            offset[:8] = struct.pack("q", seconds)
        self.done["clock jump"] += 1


def audited(service: Service) -> Counter[str]:
    """Calls by tool, as the audit log has them."""
    client, found, before = Client(service.port), Counter[str](), ""
    while True:
        status, page, _ = client.ask("GET", f"/v1/admin/audit?action=call&limit=1000{before}", key=ADMIN)
        if status != 200:
            raise SystemExit(f"the audit log can't be read: {status} {page}")
        found.update(f"{entry['server']}/{entry['tool']}" for entry in page["entries"])
        if not page["next"]:
            return found
        before = f"&before={page['next']}"


def lost(service: Service) -> tuple[int, int]:
    """How many entries of the audit log and how many events the service says it could not write."""
    _, text, _ = Client(service.port).ask("GET", "/metrics", key=ADMIN)
    found = dict(line.rsplit(" ", 1) for line in str(text).splitlines() if line and not line.startswith("#"))
    return tuple(int(float(found[f"toolsieve_{name}_lost_total"])) for name in ("audit_entries", "events"))  # type: ignore[return-value]


def counted(service: Service, names: list[str]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Calls by tool in the audit log, in the record of use and in the metrics."""
    client = Client(service.port)
    _, usage, _ = client.ask("GET", "/v1/admin/usage?since=2001-01-01T00:00:00Z&until=2100-01-01T00:00:00Z&limit=1000", key=ADMIN)
    used = Counter({f"{tool['server']}/{tool['tool']}": tool["called"] for tool in usage["tools"]})
    _, text, _ = client.ask("GET", "/metrics", key=ADMIN)
    metrics = Counter[str]()
    for line in str(text).splitlines():
        if line.startswith("toolsieve_tool_calls_total{"):
            labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].replace('"', "").split(","))
            metrics[f"{labels['server']}/{labels['tool']}"] += int(float(line.rsplit(" ", 1)[1]))
    audit = audited(service)
    return tuple(Counter({name: found[name] for name in names}) for found in (audit, used, metrics))  # type: ignore[return-value]


def preloaded(folder: Path) -> Path | None:
    """The library that moves the clock, where there is a compiler."""
    compiler = shutil.which("cc")
    if not compiler:
        print("The clock does not jump: there is no C compiler.")
        return None
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, Path(__file__).with_name("clock.c"), "-ldl"], check=True)
    (folder / "offset").write_bytes(bytes(8))
    return library


@contextlib.contextmanager
def small_disk(folder: Path, options: argparse.Namespace) -> Iterator[Path | None]:
    """A data folder on a disk that can be filled."""
    data = folder / "data"
    data.mkdir()
    size = (192 << 20) + int(options.seconds * options.rate * 4_000)
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "soak", data], stderr=subprocess.DEVNULL, check=False
    ).returncode == 0
    if not mounted:
        print("The disk does not get full: a tmpfs needs root.")
    try:
        yield data if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", data], check=False)


def stopped(service: Service) -> tuple[int | None, float]:
    begun = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    try:
        return service.process.wait(60), time.monotonic() - begun
    except subprocess.TimeoutExpired:
        service.process.kill()
        return None, time.monotonic() - begun


def quarters(samples: list[Sample]) -> list[Sample]:
    """The medians of each quarter."""
    found = []
    for quarter in range(4):
        of_it = [sample for sample in samples if quarter <= sample.part * 4 < quarter + 1]
        found.append(Sample(*(statistics.median(values) for values in zip(*of_it, strict=True))))
    return found


def run(options: argparse.Namespace, folder: Path) -> list[str]:
    clock = preloaded(folder)
    write_servers(options, folder, 0)
    with small_disk(folder, options) as data:
        service = Service(options, folder, folder / "data", clock)
        try:
            service.wait_ready(len(configuration(options, 0)))
            return loaded(options, service, data, clock is not None)
        finally:
            if service.process.poll() is None:
                service.process.kill()


def loaded(options: argparse.Namespace, service: Service, data: Path | None, clock: bool) -> list[str]:
    _, document, _ = Client(service.port).ask("GET", "/openapi.json")
    offered = [operation["post"]["operationId"] for operation in document["paths"].values() if "post" in operation]
    load = Load()
    breaker = Breaker(options, service, data, load, clock)
    workers = [Worker(number, options, service, load, offered) for number in range(options.workers)]
    begun = time.monotonic()
    for thread in [breaker, *workers]:
        thread.start()
    while time.monotonic() - begun < options.seconds and service.process.poll() is None:
        time.sleep(0.2)
    load.stop.set()
    took, deadline = time.monotonic() - begun, time.monotonic() + 70
    for thread in [*workers, breaker]:
        thread.join(max(0.0, deadline - time.monotonic()))

    problems = []
    if waiting := sum(thread.is_alive() for thread in workers):
        problems.append(f"{waiting} clients still wait for an answer")
    if service.process.poll() is not None:
        return [f"the service ended with {service.process.returncode} after {took:.0f} s: {service.log.read_text()[-1500:]}"]
    names = sorted(load.calls)
    deadline = time.monotonic() + 30
    found: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    while True:
        try:
            found = counted(service, names)
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"what was counted can't be asked for: {error!r}")
            break
        if all(one == load.calls for one in found) or time.monotonic() > deadline:
            break
        time.sleep(1)
    admitted = (0, 0)
    with contextlib.suppress(OSError, http.client.HTTPException):
        admitted = lost(service)
    if any(admitted) and "full disk" not in breaker.done:
        problems.append(f"{admitted[0]} entries of the audit log and {admitted[1]} events were lost without a full disk")
    allowances = zip(("the audit log", "the record of use", "the metrics"), found, (*admitted, 0), strict=True)
    for name, one, allowance in allowances:
        short = load.calls - one
        if one - load.calls or sum(short.values()) > allowance:
            missing = {tool: load.calls[tool] - one[tool] for tool in names if load.calls[tool] != one[tool]}
            problems.append(f"{name} differs from what was sent by {missing}")
    if load.wrong:
        problems.append(f"{len(load.wrong)} requests were answered wrongly, first:\n  " + "\n  ".join(load.wrong[:8]))
    by_quarter = quarters(breaker.samples)
    second, last = by_quarter[1], by_quarter[3]
    remembered = SELECTION_MIB * (last.selections - second.selections)
    for name, growth in (
        ("memory", (last.memory - remembered) / second.memory),
        ("descriptors", last.descriptors / second.descriptors),
    ):
        if growth > options.growth:
            problems.append(f"{name} of the last quarter is {growth:.3f} times that of the second")
    code, stopping = stopped(service)
    if code != 0:
        problems.append(f"asked to stop, it ended with {code} after {stopping:.1f} s")

    requests = sum(load.answers.values())
    latencies = sorted(load.latencies)
    p50, p99 = (latencies[int(len(latencies) * part)] * 1e3 for part in (0.5, 0.99))
    print(f"\n{requests} requests in {took:.0f} s ({requests / took:.0f}/s), p50 {p50:.1f} ms, p99 {p99:.0f} ms; {load.hung_up} hung up")
    print("answers: " + ", ".join(f"{name}: {count}" for name, count in sorted(load.answers.items())))
    print("broken:  " + ", ".join(f"{name}: {count}" for name, count in sorted(breaker.done.items())))
    print(f"stopped with {code} in {stopping:.1f} s\n")
    totals = [sum(one.values()) for one in found]
    print(table(["calls", "sent", "audit", "usage", "metrics"], [["all tools", sum(load.calls.values()), *totals]]))
    print(f"\nlost while the disk was full: {admitted[0]} entries of the audit log, {admitted[1]} events (selections and searches too)")
    rows = [
        [f"{number}", f"{one.memory:.1f}", f"{one.descriptors:.0f}", f"{one.selections:.0f}"]
        for number, one in enumerate(by_quarter, 1)
    ]
    print("\n" + table(["quarter", "RssAnon MiB", "descriptors", "selections remembered"], rows) + "\n")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, required=True)
    parser.add_argument("--examples", type=Path, required=True, help="the folder of the test servers")
    parser.add_argument("--quickstart", type=Path, help="the configuration of the quickstart's servers")
    parser.add_argument("--seconds", type=float, default=2_700)
    parser.add_argument("--rate", type=float, default=200, help="requests a second, all clients together")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--growth", type=float, default=1.02, help="of memory and descriptors, last quarter to second")
    parser.add_argument("--without", choices=PARTS, action="append", default=[], help="break all but this; may be repeated")
    options = parser.parse_args()
    # Whoever ends this ends the service too, and gives the disk back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    described = machine()
    print(f"{described['cores']} cores ({described['processor']}), load average {described['load_average']}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        problems = run(options, Path(folder))
    for problem in problems:
        print(f"problem: {problem}")
    print("The soak found problems." if problems else "The soak found nothing.")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
