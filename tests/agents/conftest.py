"""
Real agents at the built service: each with a stub of its model, and a recorder between the agent and Toolsieve.

    export TOOLSIEVE_BIN=target/release/toolsieve
    TOOLSIEVE_QUICKSTART_CONFIG="$("$TOOLSIEVE_BIN" quickstart --install-only | tail -n 1)" tests/agents/run
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Toolsieve and other programs are started in the same way in all our tests in Python.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from toolsieve import Toolsieve

from agents import AGENTS, HERE, Agent
from runs import Observed, observe


@pytest.fixture(scope="session")
def toolsieve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolsieve]:
    """A service with many tools: the quickstart's real servers, and a server that lists the tools of our scenarios."""
    folder = tmp_path_factory.mktemp("toolsieve")
    scenarios = json.loads((HERE.parent / "data/scenario_servers.json").read_text())
    tools = folder / "tools.json"
    tools.write_text(json.dumps([tool for server in scenarios.values() for tool in server["tools"]]))
    servers = json.loads(Path(os.environ["TOOLSIEVE_QUICKSTART_CONFIG"]).read_text())["mcpServers"]
    replay = HERE.parents[1] / "benches/replay_server.py"
    servers["more"] = {"command": sys.executable, "args": ["-S", str(replay), str(tools)]}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLSIEVE_QUICKSTART_CONFIG", str(config))
        service = Toolsieve(folder)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="session", params=AGENTS, ids=lambda agent: agent.name)
def observed(
    request: pytest.FixtureRequest, toolsieve: Toolsieve, tmp_path_factory: pytest.TempPathFactory
) -> Observed:
    """What an agent did at each address. Its runs serve all tests."""
    agent: Agent = request.param
    return observe(agent, toolsieve, tmp_path_factory.mktemp("agent"))
