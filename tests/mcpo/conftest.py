"""
A real mcpo and the built Toolsieve side by side.

    export TOOLSIEVE_BIN=target/release/toolsieve
    TOOLSIEVE_QUICKSTART_CONFIG="$("$TOOLSIEVE_BIN" quickstart --install-only | tail -n 1)" tests/mcpo/run
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Starting and stopping programs is the same for all our tests in Python.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from pair import KEY, Pair, command, servers


def config(path: Path, entries: dict[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": entries}))
    return str(path)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcpo")


@pytest.fixture(scope="session")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def file(folder: Path) -> str:
    """A file as users have it: several servers, a tool switched off, a key that nobody knows."""
    entries = servers("time", "git", "everything")
    entries["time"]["disabledTools"] = ["convert_time"]
    entries["git"]["note"] = "not ours"
    entries["every thing"] = entries.pop("everything")
    return config(folder / "servers.json", entries)


@pytest.fixture(scope="session")
def with_file(stack: ExitStack, folder: Path, file: str) -> Pair:
    """Servers of a file, with a key; one more variable for them from the command line and from a file."""
    variables = folder / "variables.env"
    variables.write_text("FROM_FILE='of the file'\n")
    arguments = ["--api-key", KEY, "--config", file, "-e", "FROM_FLAG=of the flag", "--env-path", str(variables)]
    arguments += ["--name", "A name", "--description", "What it is", "--version", "4.5.6"]
    ready = [f"/{name}/openapi.json" for name in ("time", "git", "every%20thing")]
    return Pair(stack, folder / "with_file", arguments, ready=ready, env={"OF_THE_PROCESS": "inherited"})


@pytest.fixture(scope="session")
def strict(stack: ExitStack, folder: Path) -> Pair:
    """Everything needs the key, below a prefix, behind a proxy's path."""
    path = config(folder / "time.json", servers("time"))
    arguments = ["-k", KEY, "--strict-auth", "--path-prefix", "pre", "--root-path", "/base", "-c", path]
    pair = Pair(stack, folder / "strict", arguments, ready=[])
    from processes import until

    def ready() -> bool:
        try:
            answers = pair.ask("GET", "/base/pre/time/openapi.json", headers={"Authorization": f"Bearer {KEY}"})
        except OSError:
            return False
        return all(answer.status_code == 200 for answer in answers)

    until(ready, 120, "both serve the document below the prefix")
    return pair


@pytest.fixture(scope="session")
def declared(stack: ExitStack, folder: Path) -> Pair:
    """A server whose tools declare output schemas."""
    line = [sys.executable, str(Path(__file__).with_name("results_server.py"))]
    return Pair(stack, folder / "declared", ["--", *line], ready=["/openapi.json"])


@pytest.fixture(scope="session")
def single(stack: ExitStack, folder: Path) -> Pair:
    """The one server of a command line, without a key, with a list of origins."""
    origins = ["--cors-allow-origins", "https://a.example", "--cors-allow-origins", "https://b.example"]
    arguments = [*origins, "--path-prefix", "ignored", "-n", "A name", "--", *command("everything")]
    return Pair(stack, folder / "single", arguments, ready=["/openapi.json"])
