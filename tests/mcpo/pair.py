"""Toolsieve and mcpo, started with the same arguments, and asked the same."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
from processes import Program, answers, free_port

KEY = "the-key"
START_SECONDS = 120
MCPO = Path(sys.executable).with_name("mcpo")
TOOLSIEVE = Path(os.environ["TOOLSIEVE_BIN"])


def servers(*names: str) -> dict[str, Any]:
    """Entries of the quickstart's servers, as its file has them."""
    everything: dict[str, Any] = json.loads(Path(os.environ["TOOLSIEVE_QUICKSTART_CONFIG"]).read_text())["mcpServers"]
    return {name: everything[name] for name in names}


def command(name: str) -> list[str]:
    """The command line of a quickstart server."""
    entry = servers(name)[name]
    return [entry["command"], *entry["args"]]


def wait_for(program: Program, url: str, verify: str | None = None) -> None:
    """Both answer this address once the servers behind them are there."""

    def ready() -> bool:
        if verify is None:
            return answers(url)
        try:
            return requests.get(url, verify=verify, timeout=5).status_code == 200
        except requests.RequestException:
            return False

    program.wait_until(ready, START_SECONDS, f"{url} answers")


class Pair:
    """
    The two, on ports of their own.

    `ready` is a path below which both answer once they are ready; `key` is the one to ask with.
    """

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        arguments: Sequence[str],
        *,
        ready: Sequence[str],
        env: dict[str, str] | None = None,
        verify: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._verify = verify
        self.ours, self.theirs = free_port(), free_port()
        scheme = "http" if verify is None else "https"
        self.urls = [f"{scheme}://127.0.0.1:{port}" for port in (self.ours, self.theirs)]
        commands = [
            [TOOLSIEVE, "--port", str(self.ours), "--data-dir", folder / "data", *arguments],
            [MCPO, "--port", str(self.theirs), *arguments],
        ]
        programs = []
        for name, line in zip(("toolsieve", "mcpo"), commands, strict=True):
            programs.append(Program(line, log=folder / f"{name}.log", env=env, cwd=folder))
            stack.callback(programs[-1].stop)
        self.logs = [folder / "toolsieve.log", folder / "mcpo.log"]
        for program, url in zip(programs, self.urls, strict=True):
            for path in ready:
                if "?" not in path or program is programs[0]:
                    wait_for(program, url + path.replace("?ours", ""), verify)

    def ask(self, method: str, path: str, **options: Any) -> tuple[requests.Response, requests.Response]:
        """Ours and theirs."""
        options.setdefault("timeout", 60)
        if self._verify is not None:
            options["verify"] = self._verify
        ours, theirs = (requests.request(method, url + path, **options) for url in self.urls)
        return ours, theirs

    def document(self, path: str, key: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        ours, theirs = self.ask("GET", path, headers=headers)
        assert (ours.status_code, theirs.status_code) == (200, 200), (ours.text, theirs.text)
        return ours.json(), theirs.json()

    def call(self, path: str, arguments: Any, key: str | None = KEY) -> tuple[requests.Response, requests.Response]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return self.ask("POST", path, json=arguments, headers=headers)
