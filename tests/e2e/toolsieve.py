"""Toolsieve: the real binary on the real MCP servers of the quickstart."""

import json
import os
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from processes import Program, answers, free_port

START_SECONDS = 120
SETTINGS = """
[selection]
# Single servers are narrowed too, however small they are.
narrow_above_tokens = 0

[learning]
# Tests call tools after messages that need none, which others ask too.
mode = "off"

[toolsets.clock]
servers = ["time"]
"""


class Toolsieve:
    """
    A running service. `TOOLSIEVE_BIN` is the binary, `TOOLSIEVE_QUICKSTART_CONFIG` the file of MCP servers.

    It can be stopped and started again, on the same port and data. With a `config` of its own, it need not list all
    servers at first.
    """

    def __init__(self, folder: Path, config: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self.binary = _from_environment("TOOLSIEVE_BIN", "the built binary")
        quickstart = "a file with the quickstart's mcpServers"
        self.config = config or _from_environment("TOOLSIEVE_QUICKSTART_CONFIG", quickstart)
        self.servers = [] if config else list(json.loads(self.config.read_text(encoding="utf-8"))["mcpServers"])
        self.key = secrets.token_hex(16)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "toolsieve.log"
        self._env = {"TOOLSIEVE_HTTP__PUBLIC_URL": self.url, **env} if env else {}
        self._folder = folder
        self._program: Program | None = None

    def start(self) -> None:
        """Starts the service; returns when every server's tools are published and indexed."""
        place: list[str | Path] = [
            "--data-dir",
            self._folder / "toolsieve-data",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        settings = self._folder / "toolsieve.toml"
        settings.write_text(SETTINGS, encoding="utf-8")
        files = ["--config", self.config, "--settings", settings]
        command: list[str | Path] = [self.binary, "serve", *files, *place, "--api-key", self.key]
        self._program = Program(command, log=self.log, env=self._env)
        try:
            ready = f"{self.url}/readyz"
            self._program.wait_until(lambda: answers(ready), START_SECONDS, "Toolsieve is not ready")
            self._program.wait_until(self._complete, START_SECONDS, f"not all of {self.servers} are indexed")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._program:
            self._program.stop()

    def get(self, path: str) -> Any:
        return self._checked(requests.get(self.url + path, headers=self._authorization, timeout=30))

    def post(self, path: str, body: object) -> Any:
        return self._checked(requests.post(self.url + path, json=body, headers=self._authorization, timeout=30))

    def operations(self, path: str = "/openapi.json") -> list[str]:
        """The operationIds of a document, in its order."""
        document = self.get(path)
        return [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]

    def openwebui(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`toolsieve openwebui <command> …`"""
        return self.run("openwebui", command, *arguments)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command without a terminal, which therefore asks nothing."""
        call = [str(self.binary), *arguments]
        return subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)

    @property
    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def _complete(self) -> bool:
        """Whether every server's tools are published, and found by meaning."""
        operations, state = self.operations(), self.get("/readyz")
        listed = all(any(name.startswith(f"{server}__") for name in operations) for server in self.servers)
        return listed and state["index"]["embedded"] == state["tools"]

    @staticmethod
    def _checked(response: requests.Response) -> Any:
        assert response.ok, f"{response.url}: {response.status_code} {response.text[:500]}"
        return response.json()


def _from_environment(name: str, what: str) -> Path:
    value = os.environ.get(name)
    assert value, f"set {name} to {what}; tests/run does"
    path = Path(value).resolve()
    assert path.is_file(), f"{name}={value} is no file"
    return path
