"""What the comparisons share: programs that they start, requests that they send, figures that they read and print.

Everything runs on loopback addresses and free ports. mcpo starts only with the versions of its own lock file:

    python3 -m venv ~/.cache/toolsieve-benches/mcpo
    ~/.cache/toolsieve-benches/mcpo/bin/pip install mcpo==0.0.20 mcp==1.17.0 fastapi==0.116.1 starlette==0.47.2 \\
        pydantic==2.11.7
"""

import contextlib
import http.client
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MCPO = Path("~/.cache/toolsieve-benches/mcpo/bin/mcpo").expanduser()
# Tools of one replayed server.
PER_SERVER = 100
# What made tools are about.
VERBS = ["create", "list", "search", "update", "delete", "get", "move", "export", "archive", "share"]
NOUNS = ["invoice", "ticket", "event", "customer", "photo", "order", "contract", "playlist", "sensor", "recipe"]
PLACES = ["warehouse", "library", "hospital", "school", "kitchen", "garage", "studio", "office", "museum", "port"]
# A message, of 12 word pieces with some words for {}, and one of four clauses.
SENTENCE = "create a new issue in the {} repository about login error"
CLAUSES = "{}, then send an email to the team about it, book a meeting for tomorrow morning and translate the notes into French"
# Clients of MCP must accept both (streamable HTTP).
JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Service:
    """A running HTTP service with a process group of its own; its output goes into a file."""

    def __init__(
        self, command: Sequence[str | Path], port: int, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.port, self.log = port, log
        self.started = time.perf_counter()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 60) -> tuple[int, Any]:
        """Status and body, which is parsed where it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), JSON_HEADERS)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except json.JSONDecodeError:
            return response.status, text

    def wait(self, ready: Callable[[], bool], seconds: float = 120, poll: float = 0.05) -> float:
        """Waits until the service is ready; returns the seconds since it was started."""
        deadline = time.perf_counter() + seconds
        while True:
            if self._process.poll() is not None:
                raise SystemExit(f"a service ended with {self._process.returncode}:\n{self.log_end()}")
            try:
                if ready():
                    return time.perf_counter() - self.started
            except OSError:
                pass
            if time.perf_counter() > deadline:
                raise SystemExit(f"a service was not ready after {seconds} s:\n{self.log_end()}")
            time.sleep(poll)

    def log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def stop(self) -> None:
        """Asks it to end, and ends it and its children after ten seconds."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.kill(self._process.pid, sign)
                try:
                    self._process.wait(10)
                except subprocess.TimeoutExpired:
                    continue
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # children that were left behind


class Wire:
    """The least HTTP client: one open connection, bodies with a Content-Length."""

    def __init__(self, service: Service) -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def filter(self, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Milliseconds, and the answer."""
        text = json.dumps(body).encode()
        head = ["POST /v1/filter HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        request = "\r\n".join([*head, f"Content-Length: {len(text)}", "", ""]).encode() + text
        start = time.perf_counter()
        self.socket.sendall(request)
        answer = self.socket.recv(65536)
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(65536)
        head_end = answer.index(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in answer[:head_end].split(b"\r\n")[1:])
        while len(answer) < head_end + 4 + int(fields[b"content-length"]):
            answer += self.socket.recv(65536)
        took = (time.perf_counter() - start) * 1e3
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer[:500].decode())
        return took, json.loads(answer[head_end + 4 :])


def toolsieve(binary: Path, config: Path, folder: Path, env: Mapping[str, str] | None = None) -> Service:
    """Toolsieve with its defaults, writing into `folder`."""
    port = free_port()
    command: list[str | Path] = [binary, "serve", "--config", config, "--data-dir", folder / "data"]
    command += ["--port", str(port)]
    return Service(command, port, folder / "toolsieve.log", env)


def mcpo(program: Path, config: Path, folder: Path) -> Service:
    """mcpo with its defaults."""
    port = free_port()
    command: list[str | Path] = [program, "--host", "127.0.0.1", "--port", str(port), "--config", config]
    return Service(command, port, folder / "mcpo.log")


def is_live(service: Service, servers: int) -> bool:
    """Whether Toolsieve is connected with so many servers."""
    status, state = service.ask("GET", "/readyz")
    connected = [server for server in state["servers"] if server["phase"] == "connected"]
    return status == 200 and len(connected) == servers


def until_indexed(service: Service, servers: int, tools: int, seconds: float = 300, poll: float = 0.05) -> float:
    """Waits until Toolsieve is connected with so many servers, and has embedded so many tools; returns the seconds since
    it was started."""

    def is_indexed() -> bool:
        return bool(service.ask("GET", "/readyz")[1]["index"]["embedded"] >= tools)

    service.wait(lambda: is_live(service, servers), seconds, poll)
    return service.wait(is_indexed, seconds, poll)


def write_config(path: Path, servers: Mapping[str, Mapping[str, Any]]) -> Path:
    path.write_text(json.dumps({"mcpServers": servers}, indent=2))
    return path


def memory(pid: int) -> dict[str, float]:
    """MiB of a process itself, without its children: all resident, and the anonymous part of it."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|RssAnon|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    return {name: int(found[name]) / 1024 for name in ("RssAnon", "VmRSS", "VmHWM")}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, Any]:
    """What figures depend on."""
    names = re.findall(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
    }


def functions(service: Service, mode: str = "full") -> list[dict[str, Any]] | None:
    """The functions of a document as a model gets them; `None` where there is no such mode."""
    status, document = service.ask("GET", f"/openapi.json?mode={mode}")
    if status != 200:
        return None
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    return [
        {
            "name": operation["operationId"],
            "description": operation["description"],
            "parameters": operation["requestBody"]["content"]["application/json"]["schema"],
        }
        for operation in operations
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table, numbers on the right."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def finish(report: Mapping[str, Any], text: str, path: Path | None) -> None:
    """Prints the table, and the whole report as JSON: to a file if one is given."""
    described = report["machine"]
    print(f"{described['cores']} cores ({described['processor']}), load average {described['load_average']}")
    print(f"\n{text}\n")
    if path:
        path.write_text(json.dumps(report, indent=1) + "\n")
    else:
        print(json.dumps(report))


def real_tools(folder: Path | None) -> list[dict[str, Any]]:
    """The tools of the lists in a folder, each name once."""
    tools: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")) if folder and folder.is_dir() else []:
        for tool in json.loads(path.read_text()).get("tools", []):
            if isinstance(tool, dict) and isinstance(tool.get("inputSchema"), dict):
                tools.setdefault(tool["name"], tool)
    return list(tools.values())


def made_tool(name: str, verb: str, noun: str, place: str) -> dict[str, Any]:
    texts = {parameter: f"The {parameter} of the {noun}" for parameter in ("id", "title", "owner")}
    properties = {parameter: {"type": "string", "description": text} for parameter, text in texts.items()}
    return {
        "name": name.replace(" ", "_"),
        "description": f"{verb.capitalize()} a {noun} of the {place}. Returns the {noun} as JSON.",
        "inputSchema": {"type": "object", "properties": properties, "required": ["id"]},
    }


def made_tools() -> Iterator[dict[str, Any]]:
    for place in PLACES:
        for noun in NOUNS:
            for verb in VERBS:
                yield made_tool(f"{verb}_{place}_{noun}", verb, noun, place)
    for number in range(1_000_000):
        yield {"name": f"extra_{number}", "description": f"Runs the step {number}.", "inputSchema": {"type": "object"}}


def replayed(tools: list[dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Configuration of servers with at most 100 tools each."""
    program = Path(__file__).absolute().with_name("replay_server.py")
    servers = {}
    for start in range(0, len(tools), PER_SERVER):
        path = folder / f"tools{start}.json"
        path.write_text(json.dumps(tools[start : start + PER_SERVER]))
        servers[f"s{start // PER_SERVER}"] = {"command": sys.executable, "args": [str(program), str(path)]}
    return servers
