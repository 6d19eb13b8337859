"""What a real Open WebUI's own tools cost with the filter, and how they come back."""

import json
from collections.abc import Iterator

import pytest

from conftest import FUNCTION, OURS, WEATHER, World
from model import Call, Request
from weather import TOOL

pytestmark = pytest.mark.since(0, 12, 0)

TIME = "what time is it in Tokyo"
NOTE = "find the note with the wifi password"
NOTES = {"search_notes", "view_note", "write_note", "replace_note_content"}
SEARCH = "find_tools"
# What Open WebUI 0.12.4 adds to an administrator's chat.
OWN_TOOLS = 28


def of_open_webui(world: World, request: Request) -> set[str]:
    return {name for name in request.tools if name not in world.published and name != TOOL}


def letters(request: Request) -> int:
    """The length of the definitions of a model call, as compact JSON. English has about four letters a token."""
    return len(json.dumps(request.definitions, separators=(",", ":"), ensure_ascii=False))


@pytest.fixture
def own_valves(world: World) -> Iterator[World]:
    yield world
    for client in (world.admin, world.user):
        client.set_own_valves(FUNCTION, {})


def test_the_first_call_costs_less(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    calls: dict[str, list[Request]] = {}
    for narrow in ("ours", "builtin"):
        world.set(narrow=narrow)
        world.model.forget()
        for text in (TIME, NOTE, "thank you, that was kind"):
            world.admin.ask(text, [OURS])
        calls[narrow] = list(world.model.requests)
    before, after = calls["ours"], calls["builtin"]
    assert [len(of_open_webui(world, request)) for request in before] == [OWN_TOOLS] * 3
    for with_all, narrowed in zip(before, after, strict=True):
        with capsys.disabled():
            print(f"\n{narrowed.text}: {letters(with_all)} letters of definitions, narrowed {letters(narrowed)}")
        assert letters(narrowed) < letters(with_all) - 5_000
    assert of_open_webui(world, after[2]) == set()


def test_a_message_that_needs_a_note_keeps_the_family(world: World) -> None:
    world.admin.ask(NOTE, [OURS])
    (request,) = world.model.seen(NOTE)
    assert set(request.tools) >= NOTES
    assert "create_automation" not in request.tools


def test_in_another_language(world: World) -> None:
    text = "erinner mich morgen um 9 an die Waschmaschine"
    world.admin.ask(text, [OURS])
    (request,) = world.model.seen(text)
    assert {"create_calendar_event", "delete_calendar_event", "get_current_timestamp"} <= set(request.tools)
    assert not NOTES & set(request.tools)


def test_attached_knowledge_keeps_its_tools(world: World) -> None:
    text = "why is the sea salty"
    with world.admin.model_with_knowledge("with-handbook"):
        world.admin.ask(text, [OURS], model_id="with-handbook")
    (request,) = world.model.seen(text)
    kept = of_open_webui(world, request)
    assert {"list_knowledge", "query_knowledge_files", "view_knowledge_file"} <= kept
    assert not NOTES & kept


def test_listed_skills_can_be_opened(world: World) -> None:
    """Regression: Open WebUI listed the skill in the system prompt, and the model could not open it."""
    text = "why is the sea salty"
    skill = {"id": "brand-voice", "name": "Brand voice", "description": "Our tone.", "content": "# Voice\nBe brief."}
    world.admin.post("/api/v1/skills/create", {**skill, "is_active": True, "access_grants": []})
    try:
        world.model.on(text, Call("view_skill", {"id": "brand-voice"}))
        world.admin.ask(text, [OURS])
    finally:
        world.admin.delete("/api/v1/skills/id/brand-voice/delete")
    first, second = world.model.seen(text)
    assert "<id>brand-voice</id>" in first.system
    assert "view_skill" in first.tools
    assert "Be brief." in second.results[0]


def test_a_search_brings_left_out_ones_back_at_the_next_call(world: World) -> None:
    text = "thank you, that was kind"
    search = Call(SEARCH, {"queries": ["search the user's notes"], "limit": 5})
    world.model.on(text, search, Call("search_notes", {"query": "wifi"}))
    world.admin.ask(text, [OURS])
    before, after, *rest = world.model.seen(text)
    assert "search_notes" not in before.tools
    assert set(after.tools) >= NOTES
    assert after.tools[: len(before.tools)] == before.tools, "only appended, for the provider's prompt cache"
    found = [tool["name"] for tool in json.loads(after.results[0])["tools"]]
    assert set(found) >= NOTES, "the result of the search names them"
    assert [request.calls for request in rest] == [2], "it was called by its own name"
    assert "not found" not in rest[0].results[1].lower()
    assert set(rest[0].tools) >= NOTES


def test_what_a_chat_used_stays(world: World) -> None:
    world.model.on(NOTE, Call("search_notes", {"query": "wifi"}))
    answer = world.admin.ask(NOTE, [OURS])
    for request in world.model.seen(NOTE):
        assert set(request.tools) >= NOTES
    text = "why is the sea salty"
    world.admin.ask(text, [OURS], after=answer)
    assert set(world.model.seen(text)[0].tools) >= NOTES


def test_the_valve_narrows_other_servers_too(world: World) -> None:
    world.set(narrow="all")
    world.admin.ask("thank you, that was kind", [OURS, WEATHER])
    (request,) = world.model.requests
    assert TOOL not in request.tools
    assert SEARCH in request.tools


def test_a_person_can_switch_narrowing_off(own_valves: World) -> None:
    world = own_valves
    world.set(status=True)
    world.admin.set_own_valves(FUNCTION, {"narrowing": "off"})
    answer = world.admin.ask(TIME, [OURS], language="fr-FR")
    (request,) = world.model.seen(TIME)
    assert world.of_ours(request.tools) == world.published
    assert len(of_open_webui(world, request)) == OWN_TOOLS
    assert answer.statuses == ["La sélection des outils est désactivée : tous sont disponibles"]
    world.model.forget()
    world.user.ask(TIME, [OURS])
    assert len(world.of_ours(world.model.seen(TIME)[0].tools)) < len(world.published), "others are not affected"


def test_the_status_line_is_a_persons_own(own_valves: World) -> None:
    world = own_valves
    world.set(status=False)
    world.admin.set_own_valves(FUNCTION, {"status": "on"})
    answer = world.admin.ask("danke!", [OURS], language="de-DE")
    (request,) = world.model.seen("danke!")
    (line,) = answer.statuses
    assert line.startswith(f"Kein Werkzeug nötig: {len(request.tools)} von ")
    world.set(status=True)
    world.admin.set_own_valves(FUNCTION, {"status": "off"})
    assert world.admin.ask(TIME, [OURS]).statuses == []
