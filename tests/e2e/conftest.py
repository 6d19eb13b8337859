"""
One Open WebUI, one Toolsieve and one scripted model for all scenarios; every scenario begins with the same settings.

    export TOOLSIEVE_BIN=target/release/toolsieve
    TOOLSIEVE_QUICKSTART_CONFIG="$("$TOOLSIEVE_BIN" quickstart --install-only | tail -n 1)" tests/e2e/run
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import openwebui
from model import ScriptedModel
from openwebui import VERSION
from toolsieve import Toolsieve
from weather import WeatherServer

FUNCTION = "toolsieve"
OURS = "server:toolsieve"
WEATHER = "server:weather"
FILTER_SOURCE = Path(__file__).resolve().parents[2] / "webui-filter" / "filter.py"


# The first version that asks filters before a model call.
REQUEST_HOOK = (0, 11, 2)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "since(*numbers): the first version of Open WebUI that can do this")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what this version of Open WebUI can't do."""
    for item in items:
        for mark in item.iter_markers("since"):
            if mark.args > VERSION:
                since = ".".join(map(str, mark.args))
                item.add_marker(pytest.mark.skip(reason=f"Open WebUI can do this from {since} on"))


class World:
    """Everything that runs, and the administrator who installed Toolsieve into Open WebUI."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.model = ScriptedModel()
        stack.callback(self.model.stop)
        self.weather = WeatherServer()
        stack.callback(self.weather.stop)
        self.toolsieve = Toolsieve(folder)
        stack.callback(self.toolsieve.stop)
        self.toolsieve.start()
        program, self.open_webui_url = openwebui.start(folder, self.model.url)
        stack.callback(program.stop)

        self.admin = openwebui.Client.sign_up(self.open_webui_url)
        self.user = self.admin.add_user("somebody")
        self.admin.set_tool_servers([openwebui.connection("weather", self.weather.url)])
        self.before = self.admin.tool_servers()
        self.install_output = self.install()
        self._servers = self.admin.tool_servers()
        # What a message costs is measured elsewhere; here, a slow machine shall not look like a service that is down.
        self.admin.set_valves(FUNCTION, {**self.admin.valves(FUNCTION), "timeout": 6})
        self._valves = self.admin.valves(FUNCTION)
        # All functions that Toolsieve publishes, those of its own included.
        self.published = self.toolsieve.operations()

    def install(self, *more: str) -> str:
        """`toolsieve openwebui install`, as the README has it."""
        done = self.try_to_install(*more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_to_install(self, *more: str) -> CompletedProcess[str]:
        where = ["--url", self.open_webui_url, "--token", self.admin.token]
        ours = ["--toolsieve-url", self.toolsieve.url, "--key", self.toolsieve.key]
        return self.toolsieve.openwebui("install", *where, *ours, *more)

    def uninstall(self) -> str:
        done = self.toolsieve.openwebui("uninstall", "--url", self.open_webui_url, "--token", self.admin.token)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def doctor(self, *more: str) -> tuple[int, dict[str, Any]]:
        """What `toolsieve doctor` finds in Open WebUI: the exit code, and the checks by their subjects."""
        where = ["--open-webui", self.open_webui_url, "--open-webui-token", self.admin.token]
        done = self.toolsieve.run("doctor", "--json", *where, *more)
        return done.returncode, {check["subject"]: check for check in json.loads(done.stdout)["checks"]}

    def reset(self) -> None:
        """Back to what the installer left."""
        self.model.forget()
        self.admin.set_tool_servers(self._servers)
        if FUNCTION not in self.admin.function_ids():
            self.install()
        self.admin.set_valves(FUNCTION, self._valves)

    def until_asked(self) -> None:
        """The filter leaves a service alone for some seconds that did not answer."""
        self.reset()
        end = time.monotonic() + 60
        while True:
            self.model.forget()
            self.admin.ask("what time is it in Tokyo", [OURS])
            if 0 < len(self.of_ours(self.model.requests[-1].tools)) < len(self.published):
                return
            assert time.monotonic() < end, "the filter asks no more"
            time.sleep(0.5)

    def set(self, **valves: Any) -> None:
        self.admin.set_valves(FUNCTION, {**self._valves, **valves})

    def of_ours(self, names: list[str]) -> list[str]:
        """Those of a request's functions that Toolsieve published."""
        return [name for name in names if name in self.published]


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, tmp_path_factory.mktemp("e2e"))


@pytest.fixture
def world(running: World) -> World:
    running.reset()
    return running
