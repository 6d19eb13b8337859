"""Tests of Open WebUI's own tools, of what a person chose, and of a person's own settings."""

import asyncio
import json
import re
from types import ModuleType
from typing import Any

import pytest
from conftest import OpenWebUI, Service, selection
from test_hooks import OURS, USER, Turn, definitions, registry

NOTES = ["search_notes", "view_note", "write_note"]
BUILTINS = [*NOTES, "search_chats", "list_knowledge_bases", "view_skill", "search_web"]


@pytest.fixture(autouse=True)
def _installed(open_webui: OpenWebUI) -> None:
    open_webui.groups = ["staff"]


def builtin(name: str) -> dict[str, Any]:
    spec = {"name": name, "description": f"Does {name}.\nMore.", "parameters": {}}
    return {"tool_id": f"builtin:{name}", "type": "builtin", "spec": spec}


def answer(*names: str, needs_tool: bool = True) -> dict[str, Any]:
    """A selection of this version of the service: its own tools have a server, and others have none."""
    chosen = selection(*names)
    for tool in chosen["tools"]:
        if "__" not in tool["name"]:
            tool["server"] = None
    return {**chosen, "needs_tool": needs_tool}


class OwnTools(Turn):
    """A message in a chat with Open WebUI's own tools."""

    def __init__(self, plugin: ModuleType, service: Service, text: str = "hello", **valves: Any) -> None:
        super().__init__(plugin, service, text, **{"narrow": "builtin", **valves})
        self.metadata["tools"] = registry(sieve=OURS, weather=["weather"]) | {name: builtin(name) for name in BUILTINS}
        self.body["tools"] = definitions(*OURS, "weather", *BUILTINS)


def asked(question: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in question["tools"] if isinstance(tool, dict)]


class TestOpenWebUIsOwnTools:
    def test_only_those_in_the_answer_stay_and_come_last(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("time__now", "find_tools", *NOTES)
        turn = OwnTools(plugin, service)
        assert turn.names() == ["weather", "time__now", "find_tools", *NOTES, "search_web"]
        (question,) = service.questions
        assert question["narrow_foreign"] is True
        assert asked(question) == [*NOTES, "search_chats", "list_knowledge_bases", "view_skill"]
        assert {"name": "view_note", "description": "Does view_note.\nMore."} in question["tools"]
        assert [tool for tool in question["tools"] if isinstance(tool, str)] == [*OURS, "weather", "search_web"]

    def test_a_valve_decides_what_is_narrowed(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools")
        assert OwnTools(plugin, service, narrow="ours").names() == ["weather", *BUILTINS, "find_tools"]
        assert "narrow_foreign" not in service.questions[0]
        assert OwnTools(plugin, service, narrow="all").names() == ["find_tools", "search_web"]
        assert "weather" in asked(service.questions[1])
        assert OwnTools(plugin, service, always_keep="*_note*").names() == ["weather", "find_tools", *NOTES]

    def test_a_terminal_stays(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service, narrow="all")
        turn.metadata["tools"] |= {
            "run_command": {"type": "terminal", "tool_id": "terminal:a", "spec": {"name": "run_command"}},
            "of_browser": {"direct": True, "server": {"is_terminal": True}, "spec": {"name": "of_browser"}},
        }
        turn.body["tools"] += definitions("run_command", "of_browser", "of_a_filter")
        assert turn.names() == ["run_command", "of_browser", "of_a_filter", "find_tools", "search_web"]

    def test_without_the_search_nothing_is_left_out(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("time__now")
        turn = OwnTools(plugin, service)
        del turn.metadata["tools"]["find_tools"]
        turn.body["tools"] = [tool for tool in turn.body["tools"] if tool["function"]["name"] != "find_tools"]
        assert turn.names() == ["weather", *BUILTINS, "time__now"]

    def test_an_earlier_version_of_the_service_leaves_none_out(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("time__now", "find_tools")
        assert OwnTools(plugin, service).names() == ["weather", "time__now", "find_tools", *BUILTINS]

    @pytest.mark.parametrize(
        ("chosen", "stays"),
        [
            ({"files": [{"type": "collection", "id": "k"}]}, ["list_knowledge_bases"]),
            ({"files": [{"type": "note", "id": "n"}]}, [*NOTES, "list_knowledge_bases"]),
            ({"files": [{"type": "chat", "id": "c"}]}, ["search_chats"]),
            ({"files": [{"type": "image", "id": "i"}]}, []),
            ({"files": [{"id": "?"}, 7]}, ["list_knowledge_bases"]),
            ({"folder_knowledge": [{"type": "file", "id": "f"}, {"type": "x"}]}, ["list_knowledge_bases"]),
            ({"model": {"info": {"meta": {"knowledge": [{"type": "collection"}]}}}}, ["list_knowledge_bases"]),
            ({"model": {"info": None}, "files": "?", "features": 7}, []),
            ({"skill_ids": ["s"]}, ["view_skill"]),
            ({"features": {"web_search": True}}, []),
        ],
    )
    def test_what_a_person_chose_stays(
        self, plugin: ModuleType, service: Service, chosen: dict[str, Any], stays: list[str]
    ) -> None:
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service)
        turn.metadata |= chosen
        kept = turn.names() or []
        assert set(kept) == {"weather", "search_web", "find_tools", *stays}
        assert not set(stays) & set(asked(service.questions[0]))

    def test_features_that_are_switched_on_stay(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service, always_keep="")
        own = ["search_web", "add_memory", "search_memories", "execute_code", "generate_image"]
        turn.metadata["tools"] |= {name: builtin(name) for name in own}
        turn.body["tools"] = definitions(*OURS, *own)
        names = ("web_search", "memory", "code_interpreter", "image_generation")
        turn.metadata["features"] = dict.fromkeys(names, True)
        assert turn.names() == ["find_tools", *own]

    def test_what_a_prompt_names_stays(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service, "use view_note, not my_view_note2")
        turn.messages.insert(0, {"role": "system", "content": "Begin with `search_chats`."})
        assert set(turn.names() or []) == {"weather", "search_web", "find_tools", "view_note", "search_chats"}

    def test_what_the_prompt_of_a_model_names_stays(self, plugin: ModuleType, service: Service) -> None:
        """Open WebUI adds this prompt after the hook."""
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service)
        withheld = "<available_tools>\n- time__now: the time\n- view_note: a note\n</available_tools>"
        turn.metadata["base_system_prompt"] = f"Always use `search_chats`,\n{withheld}\nthen git__log."
        names = turn.names() or []
        assert "search_chats" in names
        assert service.questions[0]["keep"] == ["git__log"], "what Open WebUI's tool search lists is no wish"

    @pytest.mark.parametrize("prompt", ["It is <available_skills>\n<skill><id>a</id></skill>\n</available_skills>", ""])
    def test_listed_skills_can_be_opened(self, plugin: ModuleType, service: Service, prompt: str) -> None:
        """Regression: Open WebUI listed all skills of the user, and the model got none of the tools that open them."""
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service)
        skills = ["view_skill", "read_skill_file", "grep_skill_files", "update_skill_files"]
        turn.metadata["tools"] |= {name: builtin(name) for name in skills}
        turn.body["tools"] = definitions(*OURS, "search_chats", *skills)
        turn.messages.insert(0, {"role": "system", "content": prompt})
        assert turn.names() == ["find_tools", *(skills if prompt else [])]

    def test_names_with_hyphens_stay_too(self, plugin: ModuleType, service: Service) -> None:
        """Regression: a tool that a prompt named was left out if its name has a hyphen."""
        tools = ["web__get-page", "web__get_v1.2", "web__search-all"]
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service)
        turn.metadata["tools"] |= registry(sieve=tools)
        turn.body["tools"] += definitions(*tools)
        turn.metadata["base_system_prompt"] = "Use `web__get-page`. Then web__get_v1.2, not web__search-all2."
        turn.names()
        assert service.questions[0]["keep"] == ["web__get-page", "web__get_v1.2"]

    def test_a_call_moves_none_of_them(self, plugin: ModuleType, service: Service) -> None:
        """Regression: after a call, the next message had the called tool before all others."""
        service.answer = lambda _: answer("time__now", "find_tools", *NOTES)
        first = OwnTools(plugin, service)
        before = first.names()
        first.called("view_note", "{}")
        later = OwnTools(plugin, service)
        later.messages[:0] = [*first.messages, {"role": "assistant", "content": "It says: milk."}]
        assert later.names() == before

    def test_what_the_chat_used_stays_where_it_is(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("time__now", "find_tools", *NOTES)
        turn = OwnTools(plugin, service)
        before = turn.names()
        turn.called("view_note", "{}")
        service.answer = lambda _: answer("time__now", "find_tools", "git__log")
        assert turn.names() == [*(before or []), "git__log"], "only appended, for the provider's prompt cache"
        later = OwnTools(plugin, service)
        later.messages[:0] = turn.messages
        service.answer = lambda _: answer("find_tools")
        assert set(later.names() or []) == {"weather", "search_web", "find_tools", "view_note"}

    def test_a_search_brings_them_back(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service)
        before = turn.names() or []
        arguments = json.dumps({"queries": ["the user's notes", 7, ""]})
        turn.called("find_tools", {"tools": [{"name": "git__log"}], "next": None})
        turn.messages[-2]["tool_calls"][0]["function"]["arguments"] = arguments
        service.answer = lambda _: answer("find_tools", *NOTES)
        assert turn.names() == [*before, "git__log", *NOTES]
        assert service.questions[1]["searched"] == ["the user's notes"]
        shown = json.loads(turn.sent["messages"][-1]["content"])
        assert [tool["name"] for tool in shown["tools"]] == [*NOTES, "git__log"]
        assert shown["tools"][1] == {"name": "view_note", "summary": "Does view_note."}
        assert json.loads(turn.messages[-1]["content"])["tools"] == [{"name": "git__log"}], "the chat is unchanged"
        # The result stays the same in later calls, for the provider's prompt cache.
        turn.called("view_note", "{}")
        assert turn.names() == [*before, "git__log", *NOTES]
        assert json.loads(turn.sent["messages"][-3]["content"]) == shown

    def test_only_the_turns_own_results_change(self, plugin: ModuleType, service: Service) -> None:
        """Regression: if a model used the same id in two turns, the result in the earlier turn changed too."""
        service.answer = lambda _: answer("find_tools")
        turn = OwnTools(plugin, service)
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        turn.messages.append({"role": "user", "content": "and my notes?"})
        turn.names()
        turn.called("find_tools", {"tools": [{"name": "git__diff"}]})
        for message in turn.messages:
            for call in message.get("tool_calls", []):
                call |= {"id": "0", "function": {"name": "find_tools", "arguments": '{"queries": "notes"}'}}
            if message["role"] == "tool":
                message["tool_call_id"] = "0"
        service.answer = lambda _: answer("find_tools", "view_note")
        turn.names()
        earlier, found = (json.loads(turn.sent["messages"][index]["content"])["tools"] for index in (2, -1))
        assert [tool["name"] for tool in earlier] == ["git__log"]
        assert [tool["name"] for tool in found] == ["view_note", "git__diff"]

    def test_a_small_list_keeps_its_order(self, plugin: ModuleType, service: Service) -> None:
        """Regression: if all tools stayed, each call of an own tool moved that tool to the front."""
        service.answer = lambda _: answer(*OURS, *NOTES)
        turn = OwnTools(plugin, service)
        before = turn.names()
        turn.called("view_note", "{}")
        assert turn.names() == before

    def test_broken_searches_are_ignored(self, plugin: ModuleType) -> None:
        def call(arguments: object, name: str = "find_tools") -> dict[str, Any]:
            function = {"name": name, "arguments": arguments}
            return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}, 7]}

        user = {"role": "user", "content": "x"}
        for arguments in ("", "[", "[1]", None, 7, '{"queries": 7}', '{"queries": null}'):
            assert not plugin.searches([user, call(arguments)]).get("1")
        found = plugin.searches([user, call({"tool_name": "find_tools", "params": '{"queries": "one"}'}, "call_tool")])
        assert found == {"1": ["one"]}
        assert plugin.searches([user, call('{"queries": "one"}')]) == {"1": ["one"]}
        assert plugin.searches([user, call({"task": "two"})]) == {"1": ["two"]}
        assert plugin.searches([user, {"role": "assistant", "tool_calls": 7}, 7]) == {}
        broken = [{"role": "tool", "tool_call_id": "1", "content": text} for text in ("{", "[]", '{"tools": 7}')]
        judged = {"view_note": {"name": "view_note", "description": ""}}
        assert plugin.with_brought(broken, {"1": ["view_note"]}, judged) == broken

    def test_an_outage_during_a_turn_keeps_them(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools", *NOTES)
        turn = OwnTools(plugin, service)
        turn.names()
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        service.answer = lambda _: answer("find_tools", *NOTES, "search_chats", "time__now")
        before = turn.names() or []
        assert before[-3:] == ["time__now", "git__log", "search_chats"]
        service.answer = lambda _: (500, {})
        turn.called("find_tools", {"tools": [{"name": "git__diff"}]})
        assert turn.names() == [*before, "git__diff"]

    def test_an_outage_at_the_start_keeps_everything(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: (500, {})
        assert OwnTools(plugin, service).names() == [*OURS, "weather", *BUILTINS]

    def test_definitions_go_along_with_a_hash(self, plugin: ModuleType, service: Service) -> None:
        many = [f"time__{number}" for number in range(80)]

        def reply(question: dict[str, Any]) -> dict[str, Any]:
            return {**answer("find_tools", "view_note"), "offer": question["offer"]}

        service.answer = reply
        turn = OwnTools(plugin, service)
        turn.metadata["tools"] |= registry(sieve=many)
        turn.body["tools"] += definitions(*many)

        async def two_calls() -> None:
            await turn.model_call()
            turn.called("time__1", "{}")
            await turn.model_call()

        asyncio.run(two_calls())
        first, second = service.questions
        assert first["offer"] == second["offer"]
        assert len(first["tools"]) == len(second["tools"]) + len(OURS) + len(many) + 2
        assert asked(first) == asked(second) == [tool["name"] for tool in second["tools"]]


class TestAPersonsOwnSettings:
    def test_narrowing_can_be_switched_off(self, plugin: ModuleType, service: Service) -> None:
        for valves in (plugin.Filter.UserValves(narrowing="off"), {"narrowing": "off"}):
            turn = OwnTools(plugin, service, status=True)
            turn.user = {**USER, "valves": valves}
            assert turn.names() == [*OURS, "weather", *BUILTINS]
            assert [status["data"]["description"] for status in turn.statuses] == [plugin.STATUS["en"].switched_off]
            turn.called("time__now", "{}")
            turn.names()
            assert len(turn.statuses) == 1, "once a message"
        assert service.questions == []

    def test_the_status_line_is_a_persons_choice(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("time__now", "find_tools")
        for default, own, shown in (
            (False, "on", True),
            (True, "off", False),
            (True, "default", True),
            (False, "default", False),
        ):
            turn = OwnTools(plugin, service, status=default)
            turn.user = {**USER, "valves": plugin.Filter.UserValves(status=own)}
            turn.names()
            assert bool(turn.statuses) is shown

    @pytest.mark.parametrize(
        ("locale", "text", "line"),
        [
            ("de-DE", "hello", "4 von 15 Werkzeugen"),
            ("pt_BR", "hello", "4 de 15 ferramentas"),
            ("zh-CN", "hello", "15 个工具中的 4 个"),
            ("zh-Hans-HK", "hello", "15 个工具中的 4 个"),
            ("zh-TW", "hello", "15 個工具中的 4 個"),
            ("zh_HK", "hello", "15 個工具中的 4 個"),
            ("zh-Hant", "hello", "15 個工具中的 4 個"),
            ("bg-BG", "здравей", "4 of 15 tools"),
            ("fa-IR", "سلام", "4 of 15 tools"),
            (" ", "привет", "Инструменты: 4 из 15"),
            ("en-US", "привет", "4 of 15 tools"),
            ("xx", "hello", "4 of 15 tools"),
            (None, "привет", "Инструменты: 4 из 15"),
            (None, "привіт", "Інструменти: 4 з 15"),
            (None, "今日は何時", "15 個中 4 個のツール"),
            (None, "你好", "15 个工具中的 4 个"),
            (7, "안녕", "도구 15개 중 4개"),
        ],
    )
    def test_the_status_line_is_in_the_persons_language(
        self, plugin: ModuleType, service: Service, locale: object, text: str, line: str
    ) -> None:
        service.answer = lambda _: answer("time__now", "find_tools")
        turn = OwnTools(plugin, service, text, status=True)
        turn.metadata["variables"] = {"{{USER_LANGUAGE}}": locale} if locale else {}
        turn.names()
        assert [status["data"]["description"] for status in turn.statuses] == [line]

    def test_it_says_if_no_tool_was_needed(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: answer("find_tools", needs_tool=False)
        turn = OwnTools(plugin, service, status=True)
        turn.names()
        assert [status["data"]["description"] for status in turn.statuses] == ["No tool needed: 3 of 15 tools"]

    @pytest.mark.parametrize(
        ("locale", "line"),
        [
            # Regression: "Инструменты не нужны: Инструменты: 3 из 15" and "Aucun outil nécessaire: 3 outils sur 15".
            ("ru-RU", "Инструменты не нужны: 3 из 15"),
            ("fr-FR", "Aucun outil nécessaire : 3 sur 15"),
            ("ja-JP", "ツールは不要です: 15 個中 3 個"),
        ],
    )
    def test_that_line_is_one_sentence_in_every_language(
        self, plugin: ModuleType, service: Service, locale: str, line: str
    ) -> None:
        service.answer = lambda _: answer("find_tools", needs_tool=False)
        turn = OwnTools(plugin, service, status=True)
        turn.metadata["variables"] = {"{{USER_LANGUAGE}}": locale}
        turn.names()
        assert [status["data"]["description"] for status in turn.statuses] == [line]

    def test_switched_off_without_our_tools_says_nothing(self, plugin: ModuleType, service: Service) -> None:
        turn = OwnTools(plugin, service, status=True)
        turn.user = {**USER, "valves": plugin.Filter.UserValves(narrowing="off")}
        turn.metadata["tools"] = {name: entry for name, entry in turn.metadata["tools"].items() if name not in OURS}
        turn.body["tools"] = definitions("weather")
        assert turn.names() == ["weather"]
        assert turn.statuses == []

    def test_an_approved_call_does_not_repeat_the_line(self, plugin: ModuleType, service: Service) -> None:
        """After an approval, Open WebUI builds the functions anew."""
        turn = OwnTools(plugin, service, status=True)
        turn.names()
        assert len(turn.statuses) == 1
        turn.called("time__now", "{}")
        for entry in turn.metadata["tools"].values():
            entry.pop(plugin.TURN, None)
        turn.names()
        assert len(turn.statuses) == 1

    def test_a_call_that_is_being_approved_does_not_repeat_the_line(self, plugin: ModuleType, service: Service) -> None:
        """Regression: Open WebUI runs the hook before the call as well, and its messages don't contain the call yet."""
        turn = OwnTools(plugin, service, status=True)
        turn.metadata["tool_approval_resume"] = None
        turn.names()
        assert len(turn.statuses) == 1
        again = OwnTools(plugin, service, status=True)
        again.metadata["tool_approval_resume"] = "tools"
        again.names()
        assert again.statuses == []

    def test_every_language_has_every_line(self, plugin: ModuleType) -> None:
        assert {"de", "es", "fr", "it", "pt", "nl", "pl", "tr", "ru", "uk", "ar", "hi", "zh", "ja", "ko", "en"} <= set(
            plugin.STATUS
        )
        for language, lines in plugin.STATUS.items():
            assert len(set(lines)) == len(lines), language
            assert all(lines), language
            places = {"some_tools": {"shown", "all"}, "no_tool_needed": {"shown", "all"}, "failed": {"error"}}
            for name, line in lines._asdict().items():
                assert set(re.findall(r"{(\w+)}", line)) == places.get(name, set()), (language, name)
        assert {language for language, _ in plugin.SCRIPTS} <= plugin.STATUS.keys()

    def test_the_settings_can_be_edited_in_the_form(self, plugin: ModuleType) -> None:
        properties = plugin.Filter.UserValves.model_json_schema()["properties"]
        assert set(properties) == {"narrowing", "status", "llm_api_key"}
        for valve in properties.values():
            assert "default" in valve
            assert valve["description"]
            assert valve["type"] == "string"
        assert properties["narrowing"]["enum"] == ["auto", "off"]
