"""`rerank` of `POST /v1/filter` with a real model."""

import pytest
from answers import grammar, one_of, verdict
from programs import NAMES, TOOLS, Service
from wire import Wire

# An odd text, which must reach the model as it is.
MESSAGE = 'send Zoë an email: "the café\'s closed" 🙂\nand nothing else'


def unlikely(service: Service, message: str) -> list[str]:
    """The tools that rank last, or not at all, without a model: no ranking begins with them."""
    ranked = service.filter(message, rerank="off").names
    assert len(ranked) > 1, "the message must need a tool, and not one tool alone"
    ranked += [name for name in NAMES if name not in ranked]
    return ranked[len(ranked) // 2 :]


def test_what_the_model_chooses_is_chosen(service: Service, wire: Wire) -> None:
    last = unlikely(service, MESSAGE)
    assert wire.exchanges == [], "rerank is off"
    # The model may choose any of them.
    wire.grammar = grammar('{"tools": [', one_of(last), "]}")
    selection = service.filter(MESSAGE)
    said = verdict(wire.last.said, NAMES, len(NAMES))[0]
    assert len(said) == 1
    assert selection.names == said, wire.last.said
    assert selection.reasons == ["chosen by a language model (rank 1)"]
    assert selection.warnings == []
    assert service.judged() == {"answered": 1}

    again = service.filter(MESSAGE)
    assert (again.names, len(wire.exchanges)) == (selection.names, 1), "the answer is cached"
    assert service.judged() == {"answered": 1}


def test_the_request_holds_the_task_and_the_catalogue_and_nothing_more(service: Service, wire: Wire) -> None:
    wire.grammar = grammar('{"tools": [', one_of(NAMES), "]}")
    service.filter(MESSAGE)
    request = wire.last
    assert (request.path, request.authorization, request.status) == ("/v1/chat/completions", None, 200)
    # No mode for JSON and no limits: not every endpoint has them.
    assert set(request.body) == {"model", "messages", "stream"}
    assert (request.body["model"], request.body["stream"]) == ("smollm2-135m-instruct", False)
    assert request.task == MESSAGE
    assert set(request.catalogue) == set(NAMES)
    assert request.catalogue["mail__send_email"] == TOOLS["mail"]["send_email"]
    # The model has read it.
    assert request.answer["usage"]["prompt_tokens"] > len(request.user) / 8


def test_several_tools_keep_the_models_order_and_the_limit_holds(service: Service, wire: Wire) -> None:
    first, second = unlikely(service, MESSAGE)[:2]
    wire.grammar = grammar('{"tools": [', one_of([second]), ", ", one_of([first]), "]}")
    selection = service.filter(MESSAGE)
    assert selection.names == [second, first]
    assert selection.reasons == [f"chosen by a language model (rank {rank})" for rank in (1, 2)]

    limited = service.filter(MESSAGE, limit=1)
    assert "at most 1," in wire.last.system
    assert "more tools than requested" in limited.warnings[0]
    assert limited.names == service.filter(MESSAGE, rerank="off", limit=1).names
    assert service.judged() == {"answered": 1, "failed": 1}


@pytest.mark.parametrize(
    "message",
    ["what time is it in Tokyo?", "wake me at six and mail Ada that I am late", "rename notes.txt to old.txt"],
)
def test_a_free_answer_counts_only_if_it_has_the_requested_form(service: Service, wire: Wire, message: str) -> None:
    """The model writes what it likes. Whatever this is, the service must judge it as the documentation says."""
    selection = service.filter(message)
    (exchange,) = wire.exchanges
    names, problem = verdict(exchange.said, list(exchange.catalogue), len(exchange.catalogue))
    print(f"the model wrote: {exchange.said!r}")
    if problem is None:
        assert (selection.names, selection.warnings) == (names, [])
        assert service.judged() == {"answered": 1}
    else:
        assert selection.names == service.filter(message, rerank="off").names
        (warning,) = selection.warnings
        assert warning == f"chosen without the language model (configured): its answer was {problem}"
        assert service.judged() == {"failed": 1}


# In words of the model's own, wherever a form leaves it some.
WORDS = "([a-zA-Z ,.]{10,40})"
WRONG = {
    "prose instead of JSON": grammar("The best tool is ", WORDS),
    "JSON in a code fence": grammar('```json\n{"tools": [', one_of(NAMES), "]}\n```"),
    "JSON of a different form": grammar('{"tool": ', one_of(NAMES), "}"),
    "no tool at all": grammar('{"tools": []}'),
    "a tool that was not in the catalogue": grammar('{"tools": ["mail__', "([a-z]{4,9})", '_everything"]}'),
    "a duplicate tool": grammar('{"tools": [', one_of(NAMES[:1]), ", ", one_of(NAMES[:1]), "]}"),
}


@pytest.mark.parametrize("problem", WRONG)
def test_an_answer_in_a_wrong_form_is_rejected(service: Service, wire: Wire, problem: str) -> None:
    wire.grammar = WRONG[problem]
    selection = service.filter(MESSAGE)
    (exchange,) = wire.exchanges
    assert verdict(exchange.said, NAMES, len(NAMES)) == ([], problem), f"the model wrote {exchange.said!r}"
    assert selection.warnings == [f"chosen without the language model (configured): its answer was {problem}"]
    assert selection.names == service.filter(MESSAGE, rerank="off").names
    assert service.judged() == {"failed": 1}
    assert exchange.said not in service.log(), "answers are not logged"


def test_after_three_failures_in_a_row_the_model_is_left_out(service: Service, wire: Wire) -> None:
    wire.grammar = grammar('{"tools": []}')
    messages = [f"send an email to {name}" for name in ("Ada", "Ben", "Cleo", "Dora")]
    warnings = [service.filter(message).warnings for message in messages]
    assert ["no tool at all" in text for (text,) in warnings] == [True, True, True, False]
    assert "failed several times in a row" in warnings[3][0]
    assert len(wire.exchanges) == 3
    assert service.judged() == {"failed": 3, "left_out": 1}
