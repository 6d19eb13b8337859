"""`smart_select_tools` with a real model: over HTTP, and over MCP."""

import json
from collections.abc import Callable

import requests
from answers import grammar, one_of, verdict
from programs import NAMES, Service
from wire import Wire

TASK = "Find the emails of Ada in the inbox and write their text into a file"
# The words are the model's own.
REASONED = ['{"tools": [{"name": ', one_of(NAMES), ', "reason": "', "([a-zA-Z ]{5,60})", '"}]}']


def test_the_models_choice_and_reasons_are_the_answer(service: Service, wire: Wire) -> None:
    wire.grammar = grammar(*REASONED)
    selection = service.smart_select(TASK)
    (exchange,) = wire.exchanges
    (said,) = json.loads(exchange.said)["tools"]
    assert (selection.provider, selection.warnings) == ("configured", [])
    assert selection.names == [said["name"]]
    assert selection.reasons == [" ".join(said["reason"].split()) or "chosen by the language model"]
    (tool,) = selection.tools
    assert f"{tool['server']}__{tool['tool']}" == said["name"]

    assert exchange.task == TASK
    assert set(exchange.catalogue) == set(NAMES)
    assert '"reason"' in exchange.system
    assert service.judged() == {"answered": 1}


def test_it_is_the_same_over_mcp(service: Service, wire: Wire) -> None:
    wire.grammar = grammar(*REASONED)
    call = {"name": "smart_select_tools", "arguments": {"task": TASK}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream"}
    answer = requests.post(f"{service.url}/mcp?mode=smart", json=message, headers=headers, timeout=180).json()
    text = json.loads(answer["result"]["content"][0]["text"])
    assert [tool["name"] for tool in text["tools"]] == verdict(wire.last.said, NAMES, len(NAMES))[0]
    assert text["provider"] == "configured"


def test_a_free_answer_counts_only_if_it_has_the_requested_form(service: Service, wire: Wire) -> None:
    selection = service.smart_select(TASK, limit=5)
    (exchange,) = wire.exchanges
    names, problem = verdict(exchange.said, list(exchange.catalogue), 5)
    print(f"the model wrote: {exchange.said!r}")
    if problem is None:
        assert (selection.names, selection.provider, selection.warnings) == (names, "configured", [])
    else:
        assert (selection.names, selection.provider) == (service.search(TASK, 5), "heuristic")
        assert selection.warnings == [f"configured did not choose: its answer was {problem}"]


def test_a_wrong_answer_falls_back_to_search(service: Service, wire: Wire) -> None:
    wire.grammar = grammar('{"tools": ["every', "([a-z]{3,8})", '"]}')
    selection = service.smart_select(TASK, limit=5)
    assert (selection.names, selection.provider) == (service.search(TASK, 5), "heuristic")
    assert selection.warnings == ["configured did not choose: its answer was a tool that was not in the catalogue"]
    assert all(reason.startswith("fits by meaning and words") for reason in selection.reasons)
    assert service.judged() == {"failed": 1}


def test_both_ways_share_one_circuit_breaker(start: Callable[..., Service], wire: Wire) -> None:
    service = start(wire.url)
    wire.grammar = grammar('{"tools": []}')
    for number in range(3):
        service.filter(f"send email number {number}")
    selection = service.smart_select(TASK)
    assert "failed several times in a row" in selection.warnings[0]
    assert service.judged() == {"failed": 3, "left_out": 1}
