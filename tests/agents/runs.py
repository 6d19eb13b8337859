"""Runs an agent at several addresses, and summarizes what it did."""

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from processes import Program, until
from toolsieve import Toolsieve

from agents import Agent, Place
from recorder import Recorder
from script import OWN_SEARCH, TOOL, ModelRequest, Transcript
from stub_model import StubModel

# Much more than an agent needs, so that a busy machine fails no test.
RUN_SECONDS = 600
# How long the model waits for the client to list its tools again.
LISTING_SECONDS = 10
VERSION = "io.modelcontextprotocol/protocolVersion"


@dataclass
class Run:
    """What an agent did with one prompt."""

    exit_code: int
    output: str
    transcript: Transcript
    recorder: Recorder

    @property
    def protocol(self) -> str:
        greetings = self.recorder.messages("initialize")
        if greetings:
            return str(greetings[-1].answer["result"]["protocolVersion"])
        return str(self.recorder.messages("tools/list")[0].params["_meta"][VERSION])

    @property
    def listed(self) -> list[str]:
        """The first list that Toolsieve gave."""
        return [tool["name"] for tool in self.recorder.messages("tools/list")[0].answer["result"]["tools"]]

    @property
    def called(self) -> list[str]:
        """The tools that Toolsieve was asked to call."""
        return [message.params["name"] for message in self.recorder.messages("tools/call")]

    @property
    def way(self) -> str:
        """The way to the tool that worked in the end."""
        steps = [name for name in ("find_tools", "load_toolset") if name in self.called]
        return " → ".join([f"`{name}`" for name in steps] + ["the tool" if TOOL in self.called else "`run_tool`"])

    def offered(self) -> list[str]:
        """The listed tools of which the first request to the model says the definition or the name."""
        request = self.transcript.steps[0].request
        return [name for name in self.listed if has(request, name)]


def has(request: ModelRequest, name: str) -> bool:
    # Some clients allow fewer characters in names.
    plain = re.sub(r"\W", "_", name)
    offers = (re.sub(r"\W", "_", offer.name) for offer in request.offers)
    is_named = request.offer(OWN_SEARCH) is not None and f"__{plain}\n" in re.sub(r"[^\w\n]", "_", request.texts + "\n")
    return is_named or any(offer == plain or offer.endswith(f"_{plain}") for offer in offers)


@dataclass
class Observed:
    agent: Agent
    alone: Run
    in_session: Run
    full: Run

    @property
    def row(self) -> "Row":
        first = self.alone.transcript.steps[0].request
        follows = any(run.recorder.lists_after_a_change for run in (self.alone, self.in_session))
        return Row(
            client=f"{self.agent.name} {self.agent.version}",
            transport="streamable HTTP",
            protocol=self.alone.protocol,
            lists="with definitions" if first.offer("find_tools") else "by name",
            follows="yes" if follows else "no",
            alone=self.alone.way,
            in_session=self.in_session.way,
            full=f"{len(self.full.offered())} of {len(self.full.listed)}",
        )


@dataclass(frozen=True)
class Row:
    """A row of the table in the documentation, in the order of its columns."""

    client: str
    transport: str
    protocol: str
    lists: str
    follows: str
    alone: str
    in_session: str
    full: str

    def __str__(self) -> str:
        return f"| {' | '.join(asdict(self).values())} |"


def observe(agent: Agent, toolsieve: Toolsieve, folder: Path) -> Observed:
    session = toolsieve.post("/v1/sessions", {"servers": toolsieve.servers})["url"]
    paths = {"alone": "/mcp", "in_session": f"{session}/mcp", "full": "/mcp?mode=full"}
    observed = Observed(agent, **{name: run(agent, toolsieve, path, folder / name) for name, path in paths.items()})
    results = Path(os.environ["AGENTS_FOLDER"], "results.json")
    rows = json.loads(results.read_text()) if results.exists() else {}
    rows[agent.package] = asdict(observed.row)
    results.write_text(json.dumps(rows, indent=2, ensure_ascii=False))
    return observed


def run(agent: Agent, toolsieve: Toolsieve, path: str, folder: Path) -> Run:
    recorder = Recorder(toolsieve.url)

    def wait_for_a_list() -> None:
        with suppress(AssertionError):
            until(lambda: recorder.lists_after_a_change > 0, LISTING_SECONDS, "the client does not list again")

    model = StubModel(agent.wire, wait_for_a_list)
    home, work, log = folder / "home", folder / "work", folder / "log"
    for needed in (home / "tmp", work):
        needed.mkdir(parents=True)
    at = Place(home, recorder.url + path, toolsieve.key, model.url)
    command, variables = agent.prepare(at)
    environment = [f"{name}={value}" for name, value in {**agent.environment(at), **variables}.items()]
    # The variables of whoever runs the tests stay outside: they may name accounts and proxies.
    program = Program(["nice", "-n", "10", "env", "-i", *environment, *command], log=log, cwd=work)
    try:
        exit_code = program.wait_for_end(RUN_SECONDS)
    finally:
        program.stop()
        model.stop()
        recorder.stop()
    return Run(exit_code, program.log_end(1000), model.transcript, recorder)
