"""What real agents do with Toolsieve, and whether the documentation says the same."""

from agents import AGENTS, HERE
from runs import Observed, Run
from script import ANSWER, RESULT, TOOL

PAGE = HERE.parents[1] / "docs/src/how-to/mcp-clients.md"
META = ["find_tools", "load_toolset", "unload_toolset", "list_available_toolsets", "enable_tool_group", "run_tool"]


def check(run: Run) -> None:
    """The agent has called the tool, its model has read the real result, and the agent has shown the model's answer."""
    assert run.exit_code == 0, run.output
    assert ANSWER in run.output, run.output
    results = [result.text for result in run.transcript.results]
    assert any(RESULT in result and "time_difference" in result for result in results), (results, run.output)
    assert run.called[0] == "find_tools", run.called
    # Nothing was called that the model did not ask for, and nothing was called twice.
    assert run.called == run.transcript.calls


def test_it_lists_the_short_list_without_a_mode(observed: Observed) -> None:
    assert observed.alone.listed == META
    assert observed.alone.offered() == META
    assert observed.in_session.listed == META
    assert observed.in_session.offered() == META


def test_it_finds_and_calls_a_tool_of_a_long_list(observed: Observed) -> None:
    check(observed.alone)
    assert TOOL in observed.alone.called or "run_tool" in observed.alone.called


def test_it_finds_loads_and_calls_in_a_session(observed: Observed) -> None:
    check(observed.in_session)
    assert "load_toolset" in observed.in_session.called
    follows = observed.in_session.recorder.lists_after_a_change > 0
    assert (TOOL in observed.in_session.called) == follows, "a client that lists its tools again calls the loaded tool"


def test_a_full_list_reaches_the_model(observed: Observed) -> None:
    check(observed.full)
    assert len(observed.full.listed) > 100
    missing = sorted(set(observed.full.listed) - set(observed.full.offered()))
    assert not missing, f"{len(missing)} of {len(observed.full.listed)}"
    assert "run_tool" not in observed.full.called


def rows() -> list[str]:
    """The rows of the table in the documentation, without its head."""
    section = PAGE.read_text(encoding="utf-8").split("## What real clients do", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def test_the_documentation_says_the_same(observed: Observed) -> None:
    row = str(observed.row)
    assert row in rows()


def test_the_documentation_lists_these_clients() -> None:
    assert [row.split("|")[1].strip() for row in rows()] == [f"{agent.name} {agent.version}" for agent in AGENTS]
