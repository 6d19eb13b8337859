"""Tests of the filter's functions on plain values, and of the format that Open WebUI requires of a plugin."""

import ast
import re
import sys
from types import ModuleType
from typing import Any, ClassVar

import pytest
from conftest import SOURCE, as_open_webui_reads_it, load

TEXT = SOURCE.read_text(encoding="utf-8")


def call(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": '{"secret": 1}'}}


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str = "", *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {})}


def result(call_id: str, content: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


class TestAsAPlugin:
    def test_front_matter_is_read(self) -> None:
        lines = TEXT.split("\n")
        assert lines[0] == '"""'
        end = lines.index('"""', 1)
        matches = [re.match(r"^\s*([a-z_]+):\s*(.*)\s*$", line) for line in lines[1:end]]
        assert all(matches), "one field a line, and nothing else"
        fields = {match[1]: match[2] for match in matches if match}
        assert fields["title"] == "Toolsieve"
        assert fields["required_open_webui_version"] == "0.10.2"
        assert {"author", "version", "description"} <= fields.keys()
        assert "requirements" not in fields, "Open WebUI would run pip"

    def test_the_version_is_the_services_own(self) -> None:
        manifest = (SOURCE.parents[1] / "Cargo.toml").read_text(encoding="utf-8")
        version = re.search(r'^version = "(.+)"$', manifest, re.MULTILINE)
        assert version is not None
        assert f"\nversion: {version[1]}\n" in TEXT

    def test_text_replacement_changes_nothing(self) -> None:
        assert as_open_webui_reads_it(TEXT) == TEXT

    def test_is_taken_for_a_filter_that_is_always_on(self, plugin: ModuleType) -> None:
        assert hasattr(plugin, "Filter")
        assert not any(hasattr(plugin, other) for other in ("Pipe", "Action", "Event", "Tools"))
        assert not hasattr(plugin.Filter(), "toggle")

    def test_needs_nothing_at_load_but_the_standard_library_and_pydantic(self) -> None:
        imported = set()
        for node in ast.parse(TEXT).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert imported - set(sys.stdlib_module_names) == {"pydantic"}

    def test_loads_without_its_http_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aiohttp", None)
        assert load(TEXT).Filter().valves.limit == 10

    def test_hooks_are_coroutines_with_the_parameters_that_are_injected(self, plugin: ModuleType) -> None:
        import inspect

        injected = {"body", "__user__", "__metadata__", "__request__", "__event_emitter__"}
        for hook in (plugin.Filter().inlet, plugin.Filter().request):
            assert inspect.iscoroutinefunction(hook)
            assert set(inspect.signature(hook).parameters) <= injected

    def test_every_valve_has_a_default_and_a_type_that_the_form_can_edit(self, plugin: ModuleType) -> None:
        properties = plugin.Filter.Valves.model_json_schema()["properties"]
        assert set(properties) == {
            "url",
            "key",
            "connections",
            "limit",
            "token_budget",
            "timeout",
            "narrow",
            "always_keep",
            "auto_enable",
            "status",
            "priority",
        }
        for valve in properties.values():
            assert "default" in valve
            assert valve["description"]
            assert valve["type"] in ("string", "integer", "number", "boolean")
        assert properties["key"]["input"]["type"] == "password"

    def test_valves_take_what_the_form_sends(self, plugin: ModuleType) -> None:
        valves = plugin.Filter.Valves(limit="7", timeout="2.5", connections={"server:a": "/"})
        assert (valves.limit, valves.timeout) == (7, 2.5)
        assert plugin.parse_connections(valves.connections) == {"server:a": "/"}


class TestConnections:
    def test_as_json(self, plugin: ModuleType) -> None:
        assert plugin.parse_connections(' {"server:a": "/", "server:b": "/toolsets/mail", "server:c": null} ') == {
            "server:a": "/",
            "server:b": "/toolsets/mail",
            "server:c": "/",
        }
        assert plugin.parse_connections("") == {}

    @pytest.mark.parametrize("text", ["{", "[]", "server:a", "3"])
    def test_nonsense_is_told(self, plugin: ModuleType, text: str) -> None:
        with pytest.raises(plugin.FilterError, match="connections"):
            plugin.parse_connections(text)

    @pytest.mark.parametrize(
        ("url", "service", "path"),
        [
            ("http://127.0.0.1:8000/openapi.json", "http://127.0.0.1:8000", "/"),
            ("http://localhost:8000/openapi.json", "http://127.0.0.1:8000/", "/"),
            ("http://sieve:8000/toolsets/mail/openapi.json", "http://sieve:8000", "/toolsets/mail"),
            ("https://sieve/a/openapi.json?mode=full", "https://sieve:443/a", "/"),
            ("http://sieve:8000/github/openapi.json", "http://sieve:8000", "/github"),
            ("http://sieve:8001/openapi.json", "http://sieve:8000", None),
            ("https://sieve:8000/openapi.json", "http://sieve:8000", None),
            ("http://sieve/ab/openapi.json", "http://sieve/a", None),
            ("http://other:8000/openapi.json", "http://sieve:8000", None),
            ("http://sieve:port/openapi.json", "http://sieve:8000", None),
            ("/openapi.json", "http://sieve:8000", None),
        ],
    )
    def test_told_apart_by_address(self, plugin: ModuleType, url: str, service: str, path: str | None) -> None:
        assert plugin.path_below(url, service) == path

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("http://localhost:8000/", " http://127.0.0.1:8000", True),
            ("http://[::1]:8000", "http://0.0.0.0:8000", True),
            ("http://Sieve/a", "http://sieve:80/a/", True),
            ("http://sieve:8000", "https://sieve:8000", False),
            ("http://sieve:8000", "http://sieve:8001", False),
            ("http://sieve/a", "http://sieve/b", False),
            ("http://sieve:port", "http://sieve", False),
        ],
    )
    def test_spellings_of_an_address(self, plugin: ModuleType, one: str, other: str, same: bool) -> None:  # noqa: FBT001
        assert (plugin.service_address(one) == plugin.service_address(other)) is same

    def test_found_among_those_configured(self, plugin: ModuleType) -> None:
        configured = [
            {"url": "http://weather:80", "path": "openapi.json", "info": {"id": "weather"}},
            {"url": "http://localhost:8000/", "path": "openapi.json", "info": {"id": "all"}},
            {"url": "http://localhost:8000", "path": "toolsets/mail/openapi.json", "info": None},
            {"url": "", "path": "http://127.0.0.1:8000/git/openapi.json", "info": {"id": "git"}},
            {"url": "http://localhost:8000/mcp", "type": "mcp", "info": {"id": "mcp"}},
            {"url": "http://elsewhere/mcp?mode=message", "type": "mcp", "info": {"id": "theirs"}},
            None,
        ]
        assert plugin.connections_below(configured, "http://127.0.0.1:8000") == {
            "server:all": "/",
            "server:2": "/toolsets/mail",
            "server:git": "/git",
            "server:mcp:mcp": "/mcp",
        }

    @pytest.mark.parametrize(
        ("tool_id", "named", "path"),
        [
            ("server:mcp:sieve", "/", "/mcp"),
            ("server:mcp:sieve", "/openapi.json", "/mcp"),
            ("server:mcp:sieve", "/toolsets/mail/", "/toolsets/mail/mcp"),
            ("server:mcp:sieve", "/s/1/mcp?mode=message", "/s/1/mcp?mode=message"),
            ("server:mcp:known", "/", "/toolsets/git/mcp"),
            ("server:mcp:known", "/mcp", "/mcp"),
            ("server:sieve", "/", "/"),
        ],
    )
    def test_a_documents_path_for_an_mcp_connection_is_mended(
        self, plugin: ModuleType, tool_id: str, named: str, path: str
    ) -> None:
        """Regression: with `/`, the service did not keep the selection for the list of tools, and nothing said so."""
        assert plugin.path_over(tool_id, named, {"server:mcp:known": "/toolsets/git/mcp", "server:sieve": "/x"}) == path

    def test_the_example_of_the_valve_is_right(self, plugin: ModuleType) -> None:
        description = plugin.Filter.Valves.model_json_schema()["properties"]["connections"]["description"]
        example = plugin.parse_connections(re.search("{.*?}", description)[0])  # type: ignore[index]
        assert {plugin.path_over(tool_id, path, {}) == path for tool_id, path in example.items()} == {True}


class TestFunctions:
    def test_owned_by_tool_id_alone(self, plugin: ModuleType) -> None:
        registry: dict[str, Any] = {
            "time__now": {"tool_id": "server:sieve", "spec": {"name": "time__now"}},
            "weather": {"tool_id": "server:weather", "spec": {}},
            "search_chats": {"tool_id": "builtin:search_chats", "spec": {}},
            "mcp_tool": {"type": "mcp", "spec": {}},
            "browser": {"direct": True, "server": {"url": "u"}, "spec": {}},
            "odd": None,
        }
        assert plugin.owned_functions(registry, {"server:sieve": "/"}) == {"time__now": "time__now"}

    def test_the_prefix_of_a_second_connection_is_taken_off(self, plugin: ModuleType) -> None:
        names = ["time__now", "mail_time__now", "mail_mail_time__now", "mail_x__y", "mail__send"]
        registry = {name: {"tool_id": "server:mail", "spec": {}} for name in names}
        published = plugin.owned_functions(registry, {"server:mail": "/"})
        assert published["mail_time__now"] == "time__now"
        assert published["mail_mail_time__now"] == "time__now"
        # These names are published unchanged, even if they start with a prefix.
        assert published["mail_x__y"] == "mail_x__y"
        assert published["mail__send"] == "mail__send"

    def test_a_tool_of_two_connections_is_taken_once_but_both_searches(self, plugin: ModuleType) -> None:
        owned = {
            "a__x": "a__x",
            "find_tools": "find_tools",
            "two_a__x": "a__x",
            "two_find_tools": "find_tools",
            "b__y": "b__y",
        }
        by_name = plugin.functions_by_name(owned, owned)
        assert plugin.with_published_names(["b__y", "find_tools", "a__x", "gone__z", "b__y"], by_name) == [
            "b__y",
            "find_tools",
            "two_find_tools",
            "a__x",
        ]

    @pytest.mark.parametrize(
        ("definition", "name"),
        [
            ({"type": "function", "function": {"name": "a"}}, "a"),
            ({"type": "function", "name": "b"}, "b"),
            ({"type": "web_search"}, ""),
            ({"function": {"name": 3}}, ""),
            ("auto", ""),
            (None, ""),
        ],
    )
    def test_names_in_every_shape(self, plugin: ModuleType, definition: object, name: str) -> None:
        assert plugin.function_name(definition) == name

    def test_always_kept_by_name_or_pattern(self, plugin: ModuleType) -> None:
        owned = {"github__a": "github__a", "two_git__b": "git__b", "time__now": "time__now"}
        assert plugin.kept_always(owned, owned, plugin.parse_list("github__*, git__b,\n nothing")) == [
            "github__a",
            "two_git__b",
        ]

    def test_called_in_the_chat(self, plugin: ModuleType) -> None:
        messages = [
            user("a"),
            assistant("", call("1", "x"), call("2", "y")),
            result("1", ""),
            assistant("", call("3", "x")),
        ]
        assert plugin.called_functions(messages) == ["x", "y"]
        assert plugin.called_functions([{"tool_calls": [None, {"function": None}]}, None]) == []

    @pytest.mark.parametrize(
        ("arguments", "called"),
        [
            ('{"tool_name": "git__log", "params": "{}"}', ("git__log", "{}")),
            ({"tool_name": "git__log", "params": {"path": "."}}, ("git__log", {"path": "."})),
            ('{"tool_name": "git__log"}', ("git__log", None)),
            ('{"tool_name": ""}', ("call_tool", '{"tool_name": ""}')),
            ('{"tool_name": 7}', ("call_tool", '{"tool_name": 7}')),
            ("{", ("call_tool", "{")),
            ("[]", ("call_tool", "[]")),
            (None, ("call_tool", None)),
        ],
    )
    def test_called_through_open_webuis_own_search(
        self, plugin: ModuleType, arguments: object, called: tuple[str, object]
    ) -> None:
        message = assistant("", {"id": "1", "function": {"name": "call_tool", "arguments": arguments}})
        assert plugin.called_function(message["tool_calls"][0]) == called
        assert plugin.tool_calls(message) == [("1", called[0])]
        other = {"function": {"name": "x", "arguments": '{"tool_name": "git__log"}'}}
        assert plugin.called_function(other)[0] == "x"


class TestTheTurn:
    FOUND = '{"tools": [{"name": "git__log", "score": 1}, {"name": "git__diff"}], "next": null}'

    def test_begins_at_the_last_message_of_a_person(self, plugin: ModuleType) -> None:
        text = "Here are the images from the tool results above. Please analyze them."
        picture = user([{"type": "text", "text": text}, {"type": "image_url"}])
        messages = [
            user("old"),
            assistant("done"),
            user("now"),
            assistant("", call("1", "x")),
            result("1", "{}"),
            picture,
        ]
        assert plugin.turn_start(messages) == 2
        assert plugin.turn_start([picture]) == 0
        assert plugin.turn_start([]) == 0
        # If a person stops an answer after a call, their next message follows the result.
        mine = user([{"type": "text", "text": "and this one?"}, {"type": "image_url"}])
        assert plugin.turn_start([*messages[:5], mine]) == 5
        assert plugin.turn_start([*messages, mine]) == 6

    def test_what_a_search_found(self, plugin: ModuleType) -> None:
        messages = [user("a"), assistant("", call("1", "find_tools"), call("2", "x")), result("2", self.FOUND)]
        assert plugin.found_and_unloaded(messages)[0] == [], "another function's result is no search result"
        assert plugin.found_and_unloaded([*messages, result("1", self.FOUND)])[0] == ["git__log", "git__diff"]

    def test_a_search_under_a_prefixed_name_and_in_parts(self, plugin: ModuleType) -> None:
        parts = [{"type": "input_text", "text": self.FOUND}]
        messages = [user("a"), assistant("", call("1", "mail_find_tools")), result("1", parts)]
        assert plugin.found_and_unloaded(messages)[0] == ["git__log", "git__diff"]

    def test_a_result_belongs_to_the_last_call_with_its_id(self, plugin: ModuleType) -> None:
        messages = [
            user("a"),
            assistant("", call("0", "find_tools")),
            result("0", self.FOUND),
            assistant("", call("0", "x")),
            result("0", '{"tools": ["a__b"]}'),
        ]
        assert plugin.found_and_unloaded(messages)[0] == ["git__log", "git__diff"]

    def test_calls_before_an_unload_are_forgotten(self, plugin: ModuleType) -> None:
        messages = [
            user("a"),
            assistant("", call("1", "two_git__log"), call("2", "time__now"), call("3", "unload_toolset")),
            result("1", ""),
            result("3", self.FOUND),
            assistant("", call("4", "git__log"), 7),  # type: ignore[arg-type]
            None,
        ]
        remaining = plugin.without_unloaded(messages, {"two_git__log": "git__log"})
        assert [[name for _, name in plugin.tool_calls(message)] for message in remaining] == [
            [],
            ["time__now", "unload_toolset"],
            [],
            [],
            ["git__log"],
            [],
        ]
        assert len(plugin.tool_calls(messages[1])) == 3, "the chat is unchanged"
        assert plugin.found_and_unloaded(messages) == ([], {"git__log", "git__diff"})

    def test_a_search_of_an_earlier_turn_is_over(self, plugin: ModuleType) -> None:
        messages = [
            user("a"),
            assistant("", call("1", "find_tools")),
            result("1", self.FOUND),
            assistant("ok"),
            user("b"),
        ]
        assert plugin.found_and_unloaded(messages)[0] == []

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"tools": 3}', '{"tools": [null, {"name": 1}]}', None])
    def test_a_broken_result_finds_nothing(self, plugin: ModuleType, content: object) -> None:
        assert (
            plugin.found_and_unloaded([user("a"), assistant("", call("1", "find_tools")), result("1", content)])[0]
            == []
        )


class TestTheConversation:
    def test_says_what_was_said_and_called_and_no_more(self, plugin: ModuleType) -> None:
        messages = [
            {"role": "system", "content": "private instructions"},
            user([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:…"}}]),
            assistant("", call("1", "two_a__x")),
            result("1", "private result"),
            assistant("done"),
            user("<context>private document</context> and now?"),
        ]
        said = plugin.conversation(messages, "and now?", {"two_a__x": "a__x"})
        assert said == [
            {"role": "user", "content": "look"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "a__x", "arguments": "{}"}}],
            },
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "and now?"},
        ]

    def test_the_last_six_turns(self, plugin: ModuleType) -> None:
        messages = [message for number in range(9) for message in (user(f"q{number}"), assistant(f"a{number}"))]
        said = plugin.conversation(messages, None, {})
        assert [turn["content"] for turn in said if turn["role"] == "user"] == [f"q{number}" for number in range(3, 9)]

    def test_the_prompt_stays_the_same_through_a_turn(self, plugin: ModuleType) -> None:
        turn = [user("with documents"), assistant("", call("1", "x")), result("1", "r")]
        picture = user([{"type": "image_url"}])
        said = plugin.conversation([*turn, picture], "typed", {})
        assert [t["content"] for t in said if t["role"] == "user"] == ["typed"]

    def test_a_continued_answer_with_images(self, plugin: ModuleType) -> None:
        """Regression: the text with the images replaced the user's message, because Open WebUI confuses the two."""
        prompt = "Here are the images from the tool results above. Please analyze them."
        assert plugin.typed_prompt({"base_user_prompt": prompt}) is None
        assert plugin.typed_prompt({"base_user_prompt": "typed"}) == "typed"
        assert plugin.language_of({"base_user_prompt": prompt}, [user("привет")]) == "ru"

    def test_attached_files(self, plugin: ModuleType) -> None:
        """Regression: Open WebUI's list of attached files replaced a message with an image, and counted as its text."""
        files = '<attached_files>\n<file type="image" id="1" url="1" name="my_file.png"/>\n</attached_files>\n\n'
        with_image = user([{"type": "text", "text": files}, {"type": "text", "text": "привет"}, {"type": "image_url"}])
        for message in (user(files + "привет"), with_image):
            assert plugin.conversation([message, user("now")], None, {}) == [user("привет"), user("now")]
            assert plugin.last_message([message]) == "привет"
            assert plugin.language_of({}, [message]) == "ru"
        assert plugin.typed_prompt({"base_user_prompt": files + "typed"}) == "typed"
        assert plugin.typed_prompt({"base_user_prompt": files, "user_message": {"content": "typed"}}) == "typed"
        assert plugin.typed_prompt({"base_user_prompt": files}) is None

    @pytest.mark.parametrize("prompt", ["Add Details", None])
    def test_an_instruction_for_another_answer(self, plugin: ModuleType, prompt: str | None) -> None:
        """Regression: the instruction alone was taken for the message, and brought tools for adding details."""
        messages = [
            user("hello"),
            assistant("hi"),
            user("show the log"),
            assistant("", call("1", "x")),
            result("1", "r"),
        ]
        messages += [assistant("done"), user("Add Details")]
        said = plugin.said_so_far(messages, {"regeneration_message_id": "m"}, prompt, {})
        assert said == [user("hello"), assistant("hi"), user("show the log\nAdd Details")]
        assert plugin.said_so_far(messages, {}, prompt, {})[-1] == user("Add Details")

    def test_an_answer_that_the_provider_continues(self, plugin: ModuleType) -> None:
        """Regression: with stored responses, Open WebUI sends the answer so far alone, and the message was missing."""
        messages = [assistant("", call("1", "x")), result("1", "r")]
        said = plugin.conversation(messages, "typed", {})
        assert [turn["role"] for turn in said] == ["user", "assistant"]
        assert said[0]["content"] == "typed"

    @pytest.mark.parametrize("role", ["system", "developer"])
    def test_instructions_alone_are_the_message(self, plugin: ModuleType, role: str) -> None:
        """Regression: the service refused an empty conversation, and the model got all tools."""
        messages = [{"role": role, "content": "Tell the time in Tokyo."}]
        said = plugin.conversation(messages, None, {})
        assert said == [{"role": "user", "content": "Tell the time in Tokyo."}]
        assert plugin.conversation([*messages, assistant("It is")], None, {}) == [
            {"role": "assistant", "content": "It is"}
        ]
        assert plugin.conversation([None], None, {}) == [{"role": "user", "content": ""}]

    def test_long_texts_are_cut_in_the_middle(self, plugin: ModuleType) -> None:
        text = "begin " + "x" * 50_000 + " end"
        older, last = plugin.conversation([user(text), user(text)], None, {})
        assert len(older["content"]) < 1600
        assert len(last["content"]) < 6100
        assert last["content"].startswith("begin")
        assert last["content"].endswith("end")

    @pytest.mark.parametrize(
        ("chat_id", "sent"),
        [("6f1c", "6f1c"), ("", None), (None, None), ("local:abc", None), ("temporary:abc", None), ("channel:1", None)],
    )
    def test_only_a_lasting_chat_has_an_id(self, plugin: ModuleType, chat_id: object, sent: str | None) -> None:
        assert plugin.lasting_chat_id(chat_id) == sent


class TestTheAnswer:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            [],
            "x",
            {},
            {"tool_ids": []},
            {"tools": [], "tool_ids": "all"},
            {"tools": {}, "tool_ids": []},
            {"tools": [3], "tool_ids": []},
            {"tools": [], "tool_ids": [1]},
        ],
    )
    def test_of_another_shape_is_refused(self, plugin: ModuleType, value: object) -> None:
        with pytest.raises(plugin.FilterError, match="not a selection"):
            plugin.parse_answer(value)

    def test_with_fields_of_later_versions_is_read(self, plugin: ModuleType) -> None:
        answer = plugin.parse_answer({"tools": [{"name": "a", "new": 1}], "tool_ids": ["server:a"], "new": {}})
        assert answer[:4] == (["a"], ["server:a"], [], None)

    def test_without_tool_ids_where_none_were_sent(self, plugin: ModuleType) -> None:
        assert plugin.parse_answer({"tools": []})[:4] == ([], None, [], None)


class TestNarrowing:
    REGISTRY: ClassVar[dict[str, Any]] = {
        name: {"spec": {"name": name}} for name in ("a__1", "b__2", "c__3", "d__4", "builtin")
    }
    OWNED: ClassVar[dict[str, str]] = {name: name for name in ("a__1", "b__2", "c__3", "d__4")}

    def tools(self, *names: str) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": name}} for name in names]

    def named(self, tools: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
        return [(tool.get("function", {}).get("name", ""), tool) for tool in tools]

    def test_others_stay_and_ours_follow_in_the_answers_order(self, plugin: ModuleType) -> None:
        tools = [*self.tools("a__1", "b__2", "builtin", "c__3"), {"type": "web_search"}]
        kept = plugin.narrowed_tools(self.named(tools), self.REGISTRY, self.OWNED, ["c__3", "a__1", "c__3"], [])
        assert kept == [tools[2], tools[4], tools[3], tools[0]]

    def test_later_calls_only_append(self, plugin: ModuleType) -> None:
        tools = self.named(self.tools("builtin", "a__1", "c__3"))
        wanted, shown = ["d__4", "a__1", "c__3"], ["builtin", "c__3", "a__1"]
        kept = plugin.narrowed_tools(tools, self.REGISTRY, self.OWNED, wanted, shown)
        assert plugin.function_names(kept) == ["builtin", "c__3", "a__1", "d__4"]

    def test_the_list_is_a_new_one(self, plugin: ModuleType) -> None:
        tools = self.tools("a__1", "b__2")
        before = list(tools)
        assert plugin.narrowed_tools(self.named(tools), self.REGISTRY, self.OWNED, ["a__1"], []) is not tools
        assert tools == before
