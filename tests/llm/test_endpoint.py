"""What a real model's server does when it is slow, gone, too small or locked."""

import json
import time
from collections.abc import Callable

from answers import grammar, one_of, verdict
from programs import HERE, NAMES, Model, Service
from wire import Wire

MESSAGE = "send an email to Ada"
# Without a deadline, an answer that never ends takes this model minutes.
DEADLINE_MS = 400
PATIENCE_SECONDS = 120


def test_a_slow_model_costs_the_deadline_and_is_not_kept_busy(
    start_model: Callable[..., Model], start: Callable[..., Service]
) -> None:
    model = start_model("--never-ends", "--most-tokens=-1")
    service = start(model.url, timeout_ms=DEADLINE_MS, smart_select_timeout_ms=DEADLINE_MS)
    began = time.monotonic()
    selection = service.filter(MESSAGE)
    took = time.monotonic() - began
    assert DEADLINE_MS / 1000 <= took < PATIENCE_SECONDS
    assert selection.warnings == ["chosen without the language model (configured): it did not answer in time"]
    assert selection.names == service.filter(MESSAGE, rerank="off").names

    model.wait_until_idle(PATIENCE_SECONDS)
    assert model.prompt_tokens() > 0, "the request never reached the model"

    selected = service.smart_select(MESSAGE)
    assert selected.provider == "heuristic"
    assert selected.warnings == ["configured did not choose: it did not answer in time"]
    model.wait_until_idle(PATIENCE_SECONDS)
    assert service.judged() == {"timed_out": 2}


def test_a_model_that_stops_is_missed_and_used_again_when_it_is_back(
    start_model: Callable[..., Model], start: Callable[..., Service]
) -> None:
    model = start_model()
    service = start(model.url)
    model.stop()
    selection = service.filter(MESSAGE)
    assert selection.warnings == ["chosen without the language model (configured): it can't be reached"]
    assert selection.names == service.filter(MESSAGE, rerank="off").names
    assert service.judged() == {"failed": 1}
    model.start()
    again = service.filter(MESSAGE)
    assert not any("can't be reached" in warning for warning in again.warnings)
    assert model.prompt_tokens() > 0


def test_a_catalogue_beyond_the_models_context_is_a_refusal(
    start_model: Callable[..., Model], start: Callable[..., Service]
) -> None:
    service = start(start_model("--context", "256").url)
    selection = service.filter(MESSAGE)
    assert selection.warnings == [
        "chosen without the language model (configured): it rejected the request with HTTP status 400"
    ]
    assert selection.names == service.filter(MESSAGE, rerank="off").names


def test_a_server_can_enforce_the_form_of_answers(
    start_model: Callable[..., Model], start: Callable[..., Service], record: Callable[[Model], Wire]
) -> None:
    """As the page on language models suggests. The service sends no schema; the model is bound by its own server."""
    page = (HERE.parents[1] / "docs/src/how-to/language-models.md").read_text(encoding="utf-8")
    schema = page.split("--json-schema '", 1)[1].split("'", 1)[0]
    # More tokens than the schema allows characters, so that no answer is cut.
    wire = record(start_model("--json-schema", schema, "--most-tokens", "800"))
    service = start(wire.url)
    for ask in (service.filter, service.smart_select):
        selection = ask(MESSAGE)
        tools = json.loads(wire.last.said)["tools"]
        assert tools
        assert all(isinstance(name, str) for name in tools)
        names, problem = verdict(wire.last.said, NAMES, len(NAMES))
        assert (problem in selection.warnings[0]) if problem else (selection.names == names)


def test_the_key_goes_to_the_model(
    start_model: Callable[..., Model], start: Callable[..., Service], record: Callable[[Model], Wire]
) -> None:
    wire = record(start_model("--api-key", "the-right-key"))
    wire.grammar = grammar('{"tools": [', one_of(NAMES), "]}")
    service = start(wire.url, api_key="the-right-key")
    assert service.filter(MESSAGE).warnings == []
    assert wire.last.authorization == "Bearer the-right-key"
    assert service.judged() == {"answered": 1}


def test_a_wrong_key_is_named(start_model: Callable[..., Model], start: Callable[..., Service]) -> None:
    model = start_model("--api-key", "the-right-key")
    service = start(model.url, api_key="a-wrong-key")
    selection = service.filter(MESSAGE)
    assert selection.warnings == ["chosen without the language model (configured): it rejected the key"]
    assert "a-wrong-key" not in service.log()
    assert service.judged() == {"failed": 1}
