"""One service on all lists of tools, each behind a server that replays it."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "e2e"))

from processes import Program, free_port  # noqa: E402

START_SECONDS = 120


@dataclass
class World:
    """A running service, the lists behind it and what it publishes of them."""

    url: str
    openwebui_python: str
    # The tools of each server as it lists them.
    lists: dict[str, list[dict[str, Any]]]
    document: dict[str, Any] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        response = requests.get(self.url + path, timeout=30)
        response.raise_for_status()
        return response.json()

    def operation(self, server: str, tool: str) -> dict[str, Any]:
        """The operation of a tool, found by its path."""
        path = f"/{requests.utils.quote(server, safe='')}/{requests.utils.quote(tool, safe='')}"
        operation: dict[str, Any] = self.document["paths"][path]["post"]
        return operation


def lists() -> dict[str, Path]:
    """The files with tools: the odd ones, and those of real servers where there are any."""
    files = [ROOT / "tests/cases/tools/odd.json"]
    if shared := os.environ.get("TOOLSIEVE_SHARED"):
        files += sorted((Path(shared) / "toollists").glob("*.json"))
    return {file.stem: file for file in files}


def tools_of(file: Path) -> list[dict[str, Any]]:
    listed = json.loads(file.read_text(encoding="utf-8"))
    tools: list[dict[str, Any]] = listed["tools"] if isinstance(listed, dict) else listed
    return tools


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    binary = Path(os.environ["TOOLSIEVE_BIN"]).resolve()
    folder = tmp_path_factory.mktemp("conformance")
    files = lists()
    replay = ROOT / "benches/replay_server.py"
    servers = {
        name: {"command": sys.executable, "args": ["-S", str(replay), str(file)]} for name, file in files.items()
    }
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    settings = folder / "toolsieve.toml"
    # Results are compared with the tools' output schemas.
    settings.write_text("[calls]\ncompact_results = false\n")
    port = free_port()
    command: list[str | Path] = [binary, "serve", "--config", config, "--settings", settings]
    command += ["--data-dir", folder / "data"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    found = World(
        f"http://127.0.0.1:{port}", os.environ["OPENWEBUI_PYTHON"], {n: tools_of(f) for n, f in files.items()}
    )
    with ExitStack() as stack:
        program = Program(command, log=folder / "toolsieve.log")
        stack.callback(program.stop)
        program.wait_until(lambda: _is_complete(found), START_SECONDS, "not all tools are published")
        found.document = found.get("/openapi.json")
        yield found


def _is_complete(world: World) -> bool:
    try:
        state = world.get("/readyz")
    except requests.RequestException:
        return False
    return bool(state["tools"] == sum(len(tools) for tools in world.lists.values()))
