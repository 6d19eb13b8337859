"""Tests of the hooks, which run as in Open WebUI, with a service that responds over HTTP."""

import asyncio
import copy
import json
import logging
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import OpenWebUI, Service, selection

OURS = ["time__now", "time__convert", "git__log", "git__diff", "files__read", "find_tools", "run_tool"]
OTHERS = ["weather", "search_chats"]
MINE = {"server:sieve": "/"}
USER = {"id": "u1", "email": "u@example.com", "role": "user", "name": "U", "settings": {"private": 1}}


def definitions(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]


def registry(**tool_ids: list[str]) -> dict[str, Any]:
    return {
        name: {"tool_id": f"server:{tool_id}", "spec": {"name": name, "parameters": {}}, "type": "external"}
        for tool_id, names in tool_ids.items()
        for name in names
    }


class Turn:
    """
    One user message in Open WebUI, with a shared metadata object and a new body for each model call.

    As in Open WebUI, each later call starts from the result of the first one: `body`. `sent` is the last call's result.
    """

    def __init__(self, plugin: ModuleType, service: Service, text: str = "what time is it", **valves: Any) -> None:
        self.filter = plugin.Filter()
        self.plugin = plugin
        self.filter.valves = plugin.Filter.Valves(
            **{"url": service.url, "key": "secret-key", "connections": json.dumps(MINE), "narrow": "ours", **valves}
        )
        self.metadata: dict[str, Any] = {
            "chat_id": "chat-1",
            "message_id": "message-1",
            "session_id": "session-1",
            "tool_ids": ["server:sieve"],
            "tools": registry(sieve=OURS, weather=["weather"])
            | {
                "search_chats": {"tool_id": "builtin:search_chats", "type": "builtin", "spec": {"name": "search_chats"}}
            },
            "params": {"function_calling": "native"},
            "base_user_prompt": text,
        }
        # Open WebUI adds documents to the message, and stores the typed text separately.
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": f"<document>private</document> {text}"}]
        self.body: dict[str, Any] = {"model": "m", "messages": self.messages, "tools": definitions(*OURS, *OTHERS)}
        self.sent: dict[str, Any] = {}
        self.user: dict[str, Any] = USER
        self.statuses: list[dict[str, Any]] = []

    async def emit(self, event: dict[str, Any]) -> None:
        self.statuses.append(event)

    async def model_call(self) -> list[str] | None:
        """Return the functions that the model would see in the next call, or `None` if the body has no `tools`."""
        body = await self.filter.request(
            body={**self.body, "metadata": self.metadata, "messages": list(self.messages)},
            __user__=self.user,
            __metadata__=self.metadata,
            __event_emitter__=self.emit,
        )
        self.body, self.sent = self.body if self.sent else body, body
        return [tool["function"]["name"] for tool in body["tools"]] if "tools" in body else None

    def names(self) -> list[str] | None:
        return asyncio.run(self.model_call())

    def called(self, name: str, result: object) -> None:
        call_id = f"call-{len(self.messages)}"
        function = {"name": name, "arguments": "{}"}
        self.messages += [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {
                "role": "tool",
                "tool_call_id": call_id,
                "content": result if isinstance(result, str) else json.dumps(result),
            },
        ]


@pytest.fixture(autouse=True)
def _installed(open_webui: OpenWebUI) -> None:
    open_webui.groups = ["staff"]


class TestRequest:
    def test_keeps_what_the_answer_names_and_what_is_not_ours(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("time__now", "find_tools")
        assert Turn(plugin, service).names() == ["weather", "search_chats", "time__now", "find_tools"]

    def test_drops_what_the_service_takes_for_foreign(self, plugin: ModuleType, service: Service) -> None:
        """Regression: a removed server's tool stayed in every message while Open WebUI used the old document."""
        answer = selection("time__now", "find_tools")
        answer["tools"][1] = {"name": "find_tools", "score": None, "reason": "search tool"}
        answer["tools"] += [
            {"name": name, "score": None, "reason": "foreign, kept"} for name in ("git__log", "weather")
        ]
        service.answer = lambda _: answer
        assert Turn(plugin, service).names() == ["weather", "search_chats", "time__now", "find_tools"]

    def test_asks_as_the_contract_says(self, plugin: ModuleType, service: Service) -> None:
        Turn(plugin, service, limit=7, token_budget=900).names()
        assert service.paths == ["/v1/filter"]
        assert service.keys == ["Bearer secret-key"]
        assert service.questions == [
            {
                "messages": [{"role": "user", "content": "what time is it"}],
                "connections": MINE,
                "tool_ids": ["server:sieve"],
                "tools": [*OURS, *OTHERS],
                "user": {"id": "u1", "email": "u@example.com", "role": "user", "groups": ["staff"]},
                "chat_id": "chat-1",
                "message_id": "message-1",
                "model": "m",
                "limit": 7,
                "token_budget": 900,
            }
        ]

    def test_the_user_goes_along_as_open_webui_signs_it(
        self, plugin: ModuleType, service: Service, open_webui: OpenWebUI, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = open_webui.sign(monkeypatch, "a.b.c")
        Turn(plugin, service).names()
        assert asked == [{"id": "u1", "email": "u@example.com", "name": "U", "role": "user"}]
        # No signature, no token, two lines, forwarding off, an error: the service uses the user in the body.
        for token, forwards in [("", True), (7, True), ("a\r\nb", True), ("a.b.c", False), (RuntimeError(), True)]:
            open_webui.sign(monkeypatch, token, forwards=forwards)
            Turn(plugin, service).names()
        monkeypatch.delitem(sys.modules, "open_webui.utils.headers")
        Turn(plugin, service).names()
        assert service.signed_users == ["a.b.c", None, None, None, None, None, None]
        assert [question["user"]["id"] for question in service.questions] == ["u1"] * 7

    def test_a_persons_own_llm_key_goes_along_as_a_header_only(
        self, plugin: ModuleType, service: Service, caplog: pytest.LogCaptureFixture
    ) -> None:
        turn = Turn(plugin, service)
        for valves in (
            plugin.Filter.UserValves(llm_api_key=" sk-mine "),
            {"llm_api_key": "sk-mine"},
            plugin.Filter.UserValves(),
            plugin.Filter.UserValves(llm_api_key="two\r\nlines"),
            plugin.Filter.UserValves(llm_api_key="ключ"),
            None,
        ):
            turn.user = {**USER, "valves": valves}
            turn.names()
        assert service.llm_keys == ["sk-mine", "sk-mine", None, None, None, None]
        assert service.keys == ["Bearer secret-key"] * 6
        assert "sk-mine" not in json.dumps(service.questions)
        service.answer = lambda _: (500, {})
        turn.user = {**USER, "valves": plugin.Filter.UserValves(llm_api_key="sk-mine")}
        turn.names()
        assert "HTTP 500" in caplog.text
        assert "sk-mine" not in caplog.text

    def test_an_api_call_has_neither_chat_nor_message(self, plugin: ModuleType, service: Service) -> None:
        turn = Turn(plugin, service, status=True, key="")
        turn.metadata |= {"chat_id": "", "message_id": None, "session_id": None}
        turn.names()
        assert service.keys == [None]
        assert not {"chat_id", "message_id", "token_budget"} & service.questions[0].keys()
        assert turn.statuses == []

    def test_a_continuation_stays_narrow_and_keeps_what_was_called(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("time__now", "time__convert", "find_tools")
        turn = Turn(plugin, service)
        before = turn.names()
        turn.called("time__now", {"time": "12:00"})
        # Even if a later selection omits the called function, it must stay.
        service.answer = lambda _: selection("git__log", "time__convert", "find_tools")
        after = turn.names()
        assert before == ["weather", "search_chats", "time__now", "time__convert", "find_tools"]
        assert after == [*before, "git__log"], "only appended, for the provider's prompt cache"
        first, second = service.questions
        assert second["message_id"] == first["message_id"]
        assert second["tools"] == first["tools"], "what was on offer at the first call, not what was left of it"
        assert second["messages"][0] == first["messages"][0]

    def test_what_find_tools_found_is_bound_at_the_next_call(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("find_tools")
        turn = Turn(plugin, service)
        assert turn.names() == [*OTHERS, "find_tools"]
        turn.called(
            "find_tools", {"tools": [{"name": "git__diff"}, {"name": "git__log"}, {"name": "not__here"}], "next": None}
        )
        assert turn.names() == [*OTHERS, "find_tools", "git__diff", "git__log"]
        assert turn.sent["tools"][-1] == {"type": "function", "function": {"name": "git__log", "parameters": {}}}
        # The service names the called tool first. Open WebUI begins each call with the first call's list.
        turn.called("git__log", "[]")
        assert turn.names() == [*OTHERS, "find_tools", "git__diff", "git__log"], "in the same order"

    def test_what_was_found_joins_the_chats_tools(self, plugin: ModuleType, service: Service) -> None:
        """Regression: what the model found but didn't call was gone with the next message."""
        service.answer = lambda _: selection("find_tools")
        turn = Turn(plugin, service)
        turn.names()
        found = {"tools": [{"name": "git__diff"}, {"name": "git__log"}, {"name": "not__here"}]}
        turn.called("find_tools", found)
        turn.names()
        assert "disclose" not in service.questions[0]
        assert service.questions[1]["disclose"] == ["git__diff", "git__log"]

    @pytest.mark.parametrize(("one", "other"), [("127.0.0.1", "localhost"), ("127.0.0.1", "127.0.0.1")])
    def test_two_copies_of_the_filter_share_a_turn(
        self, plugin: ModuleType, service: Service, open_webui: OpenWebUI, one: str, other: str
    ) -> None:
        """Regression: two copies with different spellings of the address hid from each other what the model found."""
        open_webui.connect("server:sieve", service.url)
        service.answer = lambda _: selection("find_tools")
        turn = Turn(plugin, service, url=service.url.replace("127.0.0.1", one), connections="")
        copy_of_it = plugin.Filter()
        url = service.url.replace("127.0.0.1", other)
        copy_of_it.valves = plugin.Filter.Valves(url=url, narrow="ours", timeout=5)

        async def both() -> list[str]:
            await turn.model_call()
            body = await copy_of_it.request(body=turn.sent, __user__=USER, __metadata__=turn.metadata)
            return [tool["function"]["name"] for tool in body["tools"]]

        assert asyncio.run(both()) == [*OTHERS, "find_tools"]
        turn.body["tools"] = turn.sent["tools"]
        turn.called("find_tools", {"tools": [{"name": "git__diff"}]})
        assert asyncio.run(both()) == [*OTHERS, "find_tools", "git__diff"]

    def test_a_channel_has_its_thread_before_the_message(self, plugin: ModuleType, service: Service) -> None:
        """Regression: in channels, a follow-up had nothing before it, because the thread is in the system prompt."""
        said = [
            "U: helpers needed",
            "U: helper what time is it in Tokyo?",
            "helper: It is noon.\n\nMore: 12:00",
            "U: helper, and in Paris?",
        ]
        thread = "\n\n".join(said)
        prompt = (
            "You are helper, participating in a threaded conversation. Be concise and conversational.Here's the thread "
            f"history:\n\n\n{thread}\n\n\nContinue the conversation naturally as helper, addressing …"
        )
        turn = Turn(plugin, service, said[-1])
        turn.metadata["chat_id"] = "channel:1"
        turn.messages[:] = [{"role": "system", "content": prompt}, {"role": "user", "content": said[-1]}]
        turn.names()
        assert "chat_id" not in service.questions[0]
        assert [(one["role"], one["content"]) for one in service.questions[0]["messages"]] == [
            ("user", "helpers needed"),
            ("user", "what time is it in Tokyo?"),
            ("assistant", "It is noon.\n\nMore: 12:00"),
            ("user", "and in Paris?"),
        ]
        turn.metadata["chat_id"] = "chat-1"
        turn.names()
        assert service.questions[1]["messages"] == [{"role": "user", "content": said[-1]}]

    def test_other_people_in_a_thread_are_not_the_model(self, plugin: ModuleType, service: Service) -> None:
        """Regression: what a third person wrote after an answer counted as a part of the answer."""
        thread = "U: hello\n\nBob: hi\n\nGPT: Done.\n\nNote: all of it\n\nBob: shall we ship?\n\nU: GPT, ship it"
        prompt = (
            f"You are GPT, participating in a threaded conversation. Here's the thread history:\n\n\n{thread}\n\n\n"
            "Continue the conversation naturally as GPT, …"
        )
        turn = Turn(plugin, service, "U: GPT, ship it")
        turn.metadata["chat_id"] = "channel:1"
        turn.messages.insert(0, {"role": "system", "content": prompt})
        turn.names()
        assert [(one["role"], one["content"]) for one in service.questions[0]["messages"]] == [
            ("user", "hello"),
            ("user", "hi"),
            ("assistant", "Done.\n\nNote: all of it"),
            ("user", "shall we ship?"),
            ("user", "ship it"),
        ]

    @pytest.mark.parametrize("prompt", ["", "You are helper, participating in a threaded conversation. Be concise."])
    def test_a_channel_without_a_thread(self, plugin: ModuleType, service: Service, prompt: str) -> None:
        turn = Turn(plugin, service, "U: hello")
        turn.metadata["chat_id"] = "channel:1"
        turn.messages.insert(0, {"role": "system", "content": prompt})
        turn.names()
        assert service.questions[0]["messages"] == [{"role": "user", "content": "U: hello"}]

    def test_a_long_thread_is_cut(self, plugin: ModuleType, service: Service) -> None:
        thread = "\n\n".join(f"U: number {number} {'x' * 5000}" for number in range(50))
        prompt = (
            f"You are m, participating in a threaded conversation. Here's the thread history:\n\n\n{thread}\n\n\n"
            "Continue the conversation naturally as m, …"
        )
        turn = Turn(plugin, service, "U: hello")
        turn.metadata["chat_id"] = "channel:1"
        turn.messages.insert(0, {"role": "system", "content": prompt})
        turn.names()
        messages = service.questions[0]["messages"]
        assert len(messages) == 13
        assert messages[0]["content"].startswith("number 38 ")
        assert all(len(message["content"]) < 1600 for message in messages)

    def test_what_another_filter_took_away_stays_away(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("files__read", "find_tools")
        turn = Turn(plugin, service, always_keep="files__*")
        turn.body["tools"] = definitions("find_tools", "git__log")
        assert turn.names() == ["find_tools"]
        turn.called("find_tools", {"tools": [{"name": "files__read"}, {"name": "git__log"}]})
        assert turn.names() == ["find_tools", "git__log"]
        assert "files__read" not in service.questions[1]["tools"]

    def test_what_open_webuis_own_search_holds_back_is_on_offer(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("git__log", "find_tools")
        turn = Turn(plugin, service)
        turn.metadata["deferred_tools"] = ["git__log", "git__diff", "weather"]
        turn.body["tools"] = definitions("find_tools", "search_tools", "call_tool")
        assert turn.names() == ["search_tools", "call_tool", "git__log", "find_tools"]
        assert service.questions[0]["tools"] == ["git__log", "git__diff", "find_tools", "search_tools", "call_tool"]
        turn.called("find_tools", {"tools": [{"name": "git__diff"}, {"name": "time__now"}]})
        assert turn.names() == ["search_tools", "call_tool", "git__log", "find_tools", "git__diff"]

    def test_calls_through_open_webuis_own_search_count(self, plugin: ModuleType, service: Service) -> None:
        """Regression: what the model found by `call_tool` never appeared, and what it used so didn't stay."""

        def call(name: str, result: object, **params: Any) -> None:
            turn.called("call_tool", result)
            arguments = {"tool_name": name, "params": json.dumps(params)}
            turn.messages[-2]["tool_calls"][0]["function"]["arguments"] = json.dumps(arguments)

        service.answer = lambda _: selection("git__log")
        turn = Turn(plugin, service, narrow="builtin")
        turn.metadata["deferred_tools"] = ["find_tools", "git__log", "git__diff", "time__now", "weather"]
        turn.body["tools"] = definitions("search_tools", "call_tool")
        assert turn.names() == ["search_tools", "call_tool", "git__log"]
        call("find_tools", {"tools": [{"name": "git__diff"}]}, queries=["differences"])
        assert turn.names() == ["search_tools", "call_tool", "git__log", "find_tools", "git__diff"]
        call("time__now", "{}")
        assert turn.names() == ["search_tools", "call_tool", "git__log", "find_tools", "git__diff", "time__now"]
        question = service.questions[2]
        calls = [call["function"]["name"] for message in question["messages"] for call in message.get("tool_calls", [])]
        assert calls == ["find_tools", "time__now"]
        assert {"find_tools", "time__now"} <= set(question["keep"])

    def test_summarized_messages_take_no_tools_away(self, plugin: ModuleType, service: Service) -> None:
        """Regression: Open WebUI can summarize messages in mid-turn, and the tools found there vanished."""
        service.answer = lambda _: selection("time__now", "find_tools")
        turn = Turn(plugin, service)
        turn.names()
        turn.called("find_tools", {"tools": [{"name": "git__log"}, {"name": "git__diff"}, {"name": "files__read"}]})
        before = turn.names() or []
        assert before[-3:] == ["git__log", "git__diff", "files__read"]
        turn.called("git__diff", "{}")
        del turn.messages[1:3]
        service.answer = lambda _: selection("find_tools")
        assert turn.names() == before
        service.denied = {"git__log"}
        assert turn.names() == [name for name in before if name != "git__log"], "the service checks who may use them"
        turn.called("unload_toolset", {"unloaded": "files", "tools": ["files__read"]})
        unloaded = turn.names() or []
        assert "files__read" not in unloaded
        del turn.messages[1:]
        assert turn.names() == unloaded

    def test_the_first_call_may_run_on_a_copy_of_the_body(self, plugin: ModuleType, service: Service) -> None:
        """After an approval, Open WebUI runs the hook on a copy, and then on the full body again."""
        service.answer = lambda _: selection("git__log")
        turn = Turn(plugin, service)
        full = copy.copy(turn.body)
        assert turn.names() == [*OTHERS, "git__log"]
        turn.body = full
        turn.called("time__now", "{}")
        assert turn.names() == [*OTHERS, "git__log", "time__now"]

    def test_always_keep_and_a_forced_choice_stay(self, plugin: ModuleType, service: Service) -> None:
        turn = Turn(plugin, service, always_keep="files__*, run_tool")
        turn.body["tool_choice"] = {"type": "function", "function": {"name": "git__log"}}
        assert turn.names() == [*OTHERS, "files__read", "run_tool", "git__log"]

    def test_nothing_that_the_person_may_not_use_stays(self, plugin: ModuleType, service: Service) -> None:
        """Regression: a called tool that was denied later stayed visible to the model until the end of the chat."""
        service.answer = lambda _: selection("find_tools")
        turn = Turn(plugin, service, always_keep="files__*, run_tool")
        assert turn.names() == [*OTHERS, "find_tools", "files__read", "run_tool"]
        turn.called("git__log", "[]")
        turn.body["tool_choice"] = {"type": "function", "function": {"name": "time__now"}}
        assert turn.names() == [*OTHERS, "find_tools", "files__read", "run_tool", "git__log", "time__now"]
        assert service.questions[1]["keep"] == ["files__read", "run_tool", "git__log", "time__now", "find_tools"]
        service.denied = {"files__read", "git__log", "time__now"}
        assert turn.names() == [*OTHERS, "find_tools", "run_tool"]

    def test_an_outage_brings_back_nothing_that_was_denied(self, plugin: ModuleType, service: Service) -> None:
        """Regression: in an outage during the turn, the model got the functions in `always_keep` without any check."""
        service.answer = lambda _: selection("find_tools")
        service.denied = {"files__read"}
        turn = Turn(plugin, service, always_keep="files__*", status=True)
        assert turn.names() == [*OTHERS, "find_tools"]
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        service.stop()
        assert turn.names() == [*OTHERS, "find_tools", "git__log"]
        assert len(turn.statuses) == 1, "not all tools are on offer, so the line must not say so"

    def test_an_empty_list_is_no_list(self, plugin: ModuleType, service: Service) -> None:
        turn = Turn(plugin, service)
        turn.body |= {"tools": definitions("git__log"), "tool_choice": "auto", "parallel_tool_calls": True}
        assert turn.names() is None
        assert not {"tool_choice", "parallel_tool_calls"} & turn.body.keys()

    def test_names_that_open_webui_prefixed(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("mail__send", "find_tools", "time__now")
        turn = Turn(plugin, service, connections={"server:sieve": "/", "server:mail": "/toolsets/mail"})
        turn.metadata["tools"] |= registry(mail=["mail__send", "mail_find_tools", "mail_time__now"])
        turn.body["tools"] = definitions(*turn.metadata["tools"])
        assert turn.names() == [*OTHERS, "mail__send", "find_tools", "mail_find_tools", "time__now"]
        assert service.questions[0]["tools"] == [*OURS, "mail__send", *OTHERS]
        turn.called("mail_find_tools", {"tools": [{"name": "git__log"}]})
        assert (turn.names() or [])[-1] == "git__log"

    def test_without_the_valve_our_connections_are_found_by_address(
        self, plugin: ModuleType, service: Service, open_webui: OpenWebUI
    ) -> None:
        open_webui.connect("server:weather", "http://weather.example")
        open_webui.connect("server:sieve", service.url.replace("127.0.0.1", "localhost"))
        service.answer = lambda _: selection("time__now")
        assert Turn(plugin, service, connections="").names() == [*OTHERS, "time__now"]
        assert service.questions[0]["connections"] == MINE

    def test_nothing_is_asked_where_nothing_is_ours(self, plugin: ModuleType, service: Service) -> None:
        for change in (
            lambda turn: turn.metadata.pop("tools"),  # with a caller's own `tools`, Open WebUI resolves none
            lambda turn: turn.metadata["params"].update(function_calling="legacy"),
            lambda turn: turn.body.pop("tools"),
            lambda turn: turn.body.update(tools=[]),
            lambda turn: setattr(turn.filter.valves, "connections", '{"server:elsewhere": "/"}'),
        ):
            turn = Turn(plugin, service)
            change(turn)
            before = copy.deepcopy(turn.body)
            turn.names()
            assert {key: turn.body[key] for key in before} == before
            assert ("tools" in turn.body) == ("tools" in before)
        assert service.questions == []

    def test_the_status_line_once_a_message(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection("time__now", "find_tools")
        turn = Turn(plugin, service, status=True)
        turn.names()
        turn.called("time__now", "{}")
        turn.names()
        assert turn.statuses == [{"type": "status", "data": {"description": "4 of 9 tools", "done": True}}]

    def test_a_broken_status_line_costs_nothing(self, plugin: ModuleType, service: Service) -> None:
        async def broken(_: object) -> None:
            raise OSError

        service.answer = lambda _: selection("time__now")
        turn = Turn(plugin, service, status=True)
        turn.emit = broken  # type: ignore[method-assign, assignment]
        assert turn.names() == [*OTHERS, "time__now"]

    def test_chats_at_once_do_not_mix(self, plugin: ModuleType, service: Service) -> None:
        """One instance serves all chats, and Open WebUI replaces its valves between two hooks."""
        wanted = {f"chat-{n}": OURS[n % len(OURS)] for n in range(12)}
        service.answer = lambda question: selection(wanted[question["chat_id"]])
        service.delay = 0.05

        turns = [Turn(plugin, service) for _ in wanted]

        async def all_at_once() -> list[list[str] | None]:
            shared = turns[0].filter
            for turn, chat_id in zip(turns, wanted, strict=True):
                turn.filter = shared
                turn.metadata["chat_id"] = chat_id
            tasks = [asyncio.create_task(turn.model_call()) for turn in turns]
            await asyncio.sleep(0.01)
            shared.valves = plugin.Filter.Valves(url="http://127.0.0.1:9", connections="{}")
            return await asyncio.gather(*tasks)

        assert asyncio.run(all_at_once()) == [[*OTHERS, name] for name in wanted.values()]
        # The instance must not keep data from one message to the next.
        kept = vars(turns[0].filter)
        assert kept.keys() == {"valves", "_links", "_fitting", "_unfitting"}
        for link in kept["_links"].values():
            assert not any(wrote in repr(vars(link)) for wrote in ("chat-1", "u@example.com", "what time is it"))


META = ["find_tools", "describe_tools", "run_tool"]


class TestMetaTools:
    """Tests of a connection that publishes only the meta-tools."""

    def turn(self, plugin: ModuleType, service: Service, *names: str, **valves: Any) -> Turn:
        turn = Turn(plugin, service, **valves)
        self.ran: list[dict[str, Any]] = []

        async def run_tool(**arguments: Any) -> tuple[str, dict[str, str]]:
            self.ran.append(arguments)
            return "done", {}

        turn.metadata["tools"] = registry(sieve=list(names or META))
        turn.metadata["tools"]["run_tool"]["callable"] = run_tool
        turn.body["tools"] = definitions(*turn.metadata["tools"])
        service.answer = self.answer
        return turn

    @staticmethod
    def answer(question: dict[str, Any]) -> dict[str, Any]:
        """Respond like the service: with the offered, the called and the disclosed tools, and with definitions."""
        calls = [call for message in question["messages"] for call in message.get("tool_calls", [])]
        called = [call["function"]["name"] for call in calls] if "disclose" in question else []
        known = [name for name in dict.fromkeys([*question.get("disclose", []), *called]) if "__" in name]
        return {
            **selection(*question["tools"], *known),
            "definitions": [
                {
                    "tool_id": "server:sieve",
                    "function": {"name": name, "description": "d", "parameters": {"type": "object"}},
                }
                for name in known
            ],
        }

    @pytest.mark.parametrize(
        ("function", "result"),
        [
            ("find_tools", {"tools": [{"name": "git__log"}]}),
            ("describe_tools", {"tools": [{"name": "git__log", "parameters": {}}]}),
            ("load_toolset", {"tools": ["git__log"]}),
        ],
    )
    def test_what_was_found_is_bound_and_runs_through_run_tool(
        self, plugin: ModuleType, service: Service, function: str, result: Any
    ) -> None:
        turn = self.turn(plugin, service, *META, "load_toolset")
        assert turn.names() == [*META, "load_toolset"]
        assert service.questions[0]["disclose"] == []
        turn.called(function, result)
        assert turn.names() == [*META, "load_toolset", "git__log"]
        bound = turn.metadata["tools"]["git__log"]
        assert turn.sent["tools"][-1]["function"] == bound["spec"]
        assert bound["spec"] == {"name": "git__log", "description": "d", "parameters": {"type": "object"}}
        assert bound["tool_id"] == "server:sieve"
        assert asyncio.run(bound["callable"](path=".", name="x")) == ("done", {})
        assert self.ran == [{"name": "git__log", "arguments": {"path": ".", "name": "x"}}]
        # In the next call, the function is already present. The offer still contains only the server's own functions.
        turn.called("git__log", "{}")
        assert turn.names() == [*META, "load_toolset", "git__log"]
        assert service.questions[2]["tools"] == [*META, "load_toolset"]
        assert service.questions[2]["disclose"] == ["git__log"]

    def test_loaded_tools_are_bound_for_a_person_who_wants_all(self, plugin: ModuleType, service: Service) -> None:
        turn = self.turn(plugin, service, "find_tools", "load_toolset", "unload_toolset", "run_tool")
        turn.user = {**USER, "valves": {"narrowing": "off"}}
        published = turn.names() or []
        turn.called("find_tools", {"tools": [{"name": "time__now"}]})
        assert turn.names() == published
        assert service.questions == []
        tools = ["git__log", "git__diff"]
        turn.called("load_toolset", {"loaded": ["git"], "tools": tools})
        assert turn.names() == [*published, *tools]
        turn.called("git__log", "{}")
        assert turn.names() == [*published, *tools]
        (question,) = service.questions
        assert question["disclose"] == tools
        assert question["messages"] == [{"role": "user", "content": ""}]
        assert "chat_id" not in question
        turn.called("unload_toolset", {"unloaded": "git", "tools": tools})
        assert turn.names() == published

    @pytest.mark.parametrize("narrowing", ["auto", "off"])
    def test_summarized_messages_change_nothing(self, plugin: ModuleType, service: Service, narrowing: str) -> None:
        """Regression: Open WebUI can summarize messages in mid-turn, and the tools loaded there vanished."""
        turn = self.turn(plugin, service, "find_tools", "load_toolset", "unload_toolset", "run_tool")
        turn.user = {**USER, "valves": {"narrowing": narrowing}}
        published = turn.names() or []
        turn.called("load_toolset", {"loaded": ["git"], "tools": ["git__log", "git__diff"]})
        assert turn.names() == [*published, "git__log", "git__diff"]
        del turn.messages[1:]
        assert turn.names() == [*published, "git__log", "git__diff"]
        turn.called("unload_toolset", {"unloaded": "git", "tools": ["git__log"]})
        assert turn.names() == [*published, "git__diff"]
        del turn.messages[1:]
        assert turn.names() == [*published, "git__diff"]
        turn.called("load_toolset", {"loaded": ["git"], "tools": ["git__log"]})
        assert set(turn.names() or []) == {*published, "git__diff", "git__log"}

    def test_what_was_unloaded_is_gone_until_it_is_found_again(self, plugin: ModuleType, service: Service) -> None:
        turn = self.turn(plugin, service, "find_tools", "load_toolset", "unload_toolset", "run_tool")
        published = turn.names() or []
        turn.called("load_toolset", {"loaded": ["git"], "tools": ["git__log", "git__diff"]})
        assert turn.names() == [*published, "git__log", "git__diff"]
        turn.called("git__log", "{}")
        turn.called("unload_toolset", {"unloaded": "git", "tools": ["git__log", "git__diff"]})
        assert turn.names() == published
        assert service.questions[-1]["disclose"] == []
        turn.called("find_tools", {"tools": [{"name": "git__diff"}]})
        assert turn.names() == [*published, "git__diff"]

    def test_what_was_called_and_then_unloaded_stays_away(self, plugin: ModuleType, service: Service) -> None:
        """Regression: the service keeps called tools, so they were back at once and in every later turn."""
        names = ["find_tools", "load_toolset", "unload_toolset", "run_tool"]
        earlier = self.turn(plugin, service, *names)
        earlier.called("load_toolset", {"loaded": ["git"], "tools": ["git__log", "git__diff"]})
        earlier.called("git__log", "{}")
        earlier.called("unload_toolset", {"unloaded": "git", "tools": ["git__log", "git__diff"]})
        turn = self.turn(plugin, service, *names)
        turn.messages[:0] = [*earlier.messages, {"role": "assistant", "content": "done"}]
        assert turn.names() == names
        assert service.questions[-1]["disclose"] == []
        assert "git__log" not in json.dumps(service.questions[-1]["messages"])
        # A search in a later turn brings it back, and a call keeps it.
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        assert turn.names() == [*names, "git__log"]
        turn.called("git__log", "{}")
        later = self.turn(plugin, service, *names)
        later.messages[:0] = turn.messages
        assert later.names() == [*names, "git__log"]

    def test_what_a_session_unloaded_stays_away(self, plugin: ModuleType, service: Service) -> None:
        """Regression: a session's tools are not the chat's, so unloaded tools came back with the chat's tools."""
        turn = self.turn(plugin, service, "find_tools", "load_toolset", "unload_toolset", "run_tool")
        published = turn.names() or []
        turn.called("load_toolset", {"tools": ["git__log"]})
        turn.names()
        service.answer = lambda question: self.answer({**question, "disclose": ["git__log", *question["disclose"]]})
        turn.called("unload_toolset", {"tools": ["git__log"]})
        assert turn.names() == published
        earlier, service.answer = service.answer, lambda _: (500, {})
        assert turn.names() == published
        service.answer = earlier
        turn.messages.append({"role": "user", "content": "and now?"})
        later = self.turn(plugin, service, *published)
        later.messages, later.filter = turn.messages, turn.filter
        service.answer = lambda question: self.answer({**question, "disclose": ["git__log", *question["disclose"]]})
        assert later.names() == published

    def test_a_connection_that_can_run_found_tools_comes_first(self, plugin: ModuleType, service: Service) -> None:
        """Regression: found tools belonged to a session's connection, which can't run them, and were never added."""
        connections = {"server:s": "/s/1", "server:sieve": "/"}
        turn = self.turn(plugin, service, connections=connections)
        turn.metadata["tools"] = registry(s=["time__now"]) | turn.metadata["tools"]

        def first_one(question: dict[str, Any]) -> dict[str, Any]:
            answer = self.answer(question)
            for definition in answer["definitions"]:
                definition["tool_id"] = next(iter(question["connections"]))
            return answer

        service.answer = first_one
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        assert turn.names() == [*META, "git__log"]
        assert service.questions[0]["connections"] == connections

    def test_the_chats_tools_are_bound_from_the_first_call_on(self, plugin: ModuleType, service: Service) -> None:
        turn = self.turn(plugin, service)
        service.answer = lambda question: self.answer({**question, "disclose": ["git__log", *question["disclose"]]})
        turn.called("git__diff", "{}")
        turn.messages.append({"role": "user", "content": "once more"})
        assert turn.names() == [*META, "git__log", "git__diff"]
        assert service.questions[0]["disclose"] == ["git__diff"]

    def test_a_name_that_something_else_has_stays_with_it(self, plugin: ModuleType, service: Service) -> None:
        turn = self.turn(plugin, service)
        theirs = {"tool_id": "server:weather", "spec": {"name": "git__log"}}
        turn.metadata["tools"]["git__log"] = theirs
        turn.body["tools"] += definitions("git__log")
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        assert turn.names() == ["git__log", *META]
        assert turn.metadata["tools"]["git__log"] == theirs

    def test_where_all_tools_are_published_nothing_comes_back(self, plugin: ModuleType, service: Service) -> None:
        turn = self.turn(plugin, service, "find_tools", "run_tool", "time__now")
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        assert turn.names() == ["find_tools", "run_tool", "time__now"]
        assert "disclose" not in service.questions[0]

    @pytest.mark.parametrize(
        "definition",
        [
            None,
            {"tool_id": "server:sieve"},
            {"tool_id": "server:sieve", "function": {"name": "git__log", "parameters": None}},
            {"tool_id": "server:other", "function": {"name": "git__log", "parameters": {}}},
        ],
    )
    def test_what_cannot_be_run_is_not_bound(self, plugin: ModuleType, service: Service, definition: Any) -> None:
        turn = self.turn(plugin, service)
        service.answer = lambda _: {**selection(*META, "git__log"), "definitions": [definition]}
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        assert turn.names() == META
        assert "git__log" not in turn.metadata["tools"]

    def test_what_was_bound_stays_when_the_service_is_gone(self, plugin: ModuleType, service: Service) -> None:
        turn = self.turn(plugin, service)
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        turn.names()
        service.answer = lambda _: (500, {})
        assert turn.names() == [*META, "git__log"]
        turn.called("git__log", "{}")
        turn.messages.append({"role": "assistant", "content": "one moment"})
        assert turn.names() == [*META, "git__log"]


class TestWhenSomethingFails:
    ANSWERS: dict[str, Any] = {  # noqa: RUF012
        "an error": (500, {"code": "us"}),
        "wrong key": (401, {"code": "unauthorized"}),
        "no such route": (404, b"<html>"),
        "a redirect": (302, b""),
        "no JSON": b"<html>nothing here</html>",
        "another shape": {"tools": "all"},
        "an empty body": b"",
        "a list": [],
        "too long": b'{"tools": [], "tool_ids": [], "x": "' + b"y" * 5_000_000 + b'"}',
    }

    @pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS.keys())
    def test_the_tools_stay_as_they_are(
        self, plugin: ModuleType, service: Service, reply: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        service.answer = lambda _: reply
        turn = Turn(plugin, service, text="my private words")
        with caplog.at_level(logging.DEBUG, logger="toolsieve.filter"):
            assert turn.names() == [*OURS, *OTHERS]
        assert len(caplog.records) == 1
        assert "tools stay as they are" in caplog.text
        assert not any(
            private in caplog.text for private in ("secret-key", "private words", "u@example.com", service.url)
        )
        assert service.paths == ["/v1/filter"], "a redirect is not followed: the key would go along"

    @pytest.mark.parametrize(
        ("reply", "error"),
        [
            ((401, {}), "HTTP 401 (is the valve 'key' right?)"),
            ((429, {}), "HTTP 429"),
            ((302, b""), "HTTP 302 (is the valve 'url' right?)"),
            ((404, {}), "HTTP 404 (is the valve 'url' right?)"),
            (b"<html>", "the answer is not JSON (is the valve 'url' right?)"),
        ],
    )
    def test_the_status_line_says_why(self, plugin: ModuleType, service: Service, reply: Any, error: str) -> None:
        """Regression: if the service refused, the model got all tools and no line said so."""
        service.answer = lambda _: reply
        turn = Turn(plugin, service, status=True)
        turn.names()
        turn.called("time__now", "{}")
        turn.names()
        assert [status["data"]["description"] for status in turn.statuses] == [
            f"Toolsieve isn't selecting tools: {error}"
        ]
        turn.metadata["variables"] = {"{{USER_LANGUAGE}}": "de-DE"}
        turn.messages.append({"role": "user", "content": "und jetzt?"})
        turn.names()
        assert turn.statuses[-1]["data"]["description"] == f"Toolsieve wählt keine Werkzeuge aus: {error}"

    def test_an_address_needs_a_scheme(self, plugin: ModuleType, service: Service) -> None:
        turn = Turn(plugin, service, url=service.url.removeprefix("http://"), status=True)
        assert turn.names() == [*OURS, *OTHERS]
        told = ["Toolsieve isn't selecting tools: the valve 'url' doesn't begin with http:// or https://"]
        assert [status["data"]["description"] for status in turn.statuses] == told

    def test_down(self, plugin: ModuleType, service: Service) -> None:
        service.stop()
        assert Turn(plugin, service).names() == [*OURS, *OTHERS]

    def test_slow(self, plugin: ModuleType, service: Service) -> None:
        service.delay = 3
        turn = Turn(plugin, service, timeout=0.2)
        start = time.monotonic()
        assert turn.names() == [*OURS, *OTHERS]
        assert time.monotonic() - start < 1.5

    @pytest.mark.parametrize(("limit", "sent"), [(0, 1), (-3, 1), (10, 10), (1000, 128)])
    def test_a_limit_that_the_service_would_refuse(
        self, plugin: ModuleType, service: Service, limit: int, sent: int
    ) -> None:
        Turn(plugin, service, limit=limit).names()
        assert service.questions[0]["limit"] == sent

    @pytest.mark.parametrize("valves", [{"url": "no url"}, {"url": ""}, {"connections": "{"}, {"timeout": -1}])
    def test_wrong_valves(self, plugin: ModuleType, service: Service, valves: dict[str, Any]) -> None:
        service.delay = 0.2
        assert Turn(plugin, service, **valves).names() == [*OURS, *OTHERS]

    @pytest.mark.parametrize(
        "damage",
        [
            {"messages": None},
            {"messages": ["?", None, {"role": "user"}, {"role": "assistant", "tool_calls": [{}]}]},
            {"tools": "all"},
            {"tools": [None, 3]},
        ],
    )
    def test_odd_bodies(self, plugin: ModuleType, service: Service, damage: dict[str, Any]) -> None:
        turn = Turn(plugin, service)
        body = {**turn.body, **damage}
        result = asyncio.run(turn.filter.request(body=body, __user__=USER, __metadata__=turn.metadata))
        assert result is body
        asyncio.run(turn.filter.request(body={}, __user__=None, __metadata__=None))
        asyncio.run(turn.filter.inlet(body={"tool_ids": ["server:a", "server:b"]}))

    def test_a_continuation_stays_as_it_was_and_still_binds_what_was_found(
        self, plugin: ModuleType, service: Service
    ) -> None:
        service.answer = lambda _: selection("find_tools", "time__now")
        turn = Turn(plugin, service)
        narrow = turn.names()
        service.answer = lambda _: (503, {})
        turn.called("time__now", "{}")
        assert turn.names() == narrow
        turn.called("find_tools", {"tools": [{"name": "git__log"}]})
        assert turn.names() == [*(narrow or []), "git__log"]

    def test_without_open_webuis_modules_it_narrows_all_the_same(
        self, plugin: ModuleType, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import sys

        for name in [name for name in sys.modules if name.startswith("open_webui")]:
            monkeypatch.setitem(sys.modules, name, None)
        service.answer = lambda _: selection("time__now")
        assert Turn(plugin, service).names() == [*OTHERS, "time__now"]
        assert service.questions[0]["user"]["groups"] == []

    def test_a_chat_that_is_stopped_stops(self, plugin: ModuleType, service: Service) -> None:
        service.delay = 0.5

        async def stopped() -> None:
            task = asyncio.create_task(Turn(plugin, service).model_call())
            await asyncio.sleep(0.1)
            task.cancel()
            await task

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(stopped())


class TestInlet:
    CONNECTIONS: dict[str, str] = {"server:git": "/git", "server:mail": "/toolsets/mail"}  # noqa: RUF012

    def run(self, plugin: ModuleType, service: Service, tool_ids: Any, **valves: Any) -> dict[str, Any]:
        self.body: dict[str, Any] = {
            "model": "m",
            "messages": [{"role": "user", "content": "send a mail"}],
            "tool_ids": tool_ids,
        }
        return self.again(plugin, service, self.body, **valves)

    def again(self, plugin: ModuleType, service: Service, body: dict[str, Any], **valves: Any) -> dict[str, Any]:
        turn = Turn(plugin, service, **{"connections": self.CONNECTIONS, **valves})
        metadata = {"chat_id": "chat-1", "message_id": "message-1", "session_id": "session-1"}
        result: dict[str, Any] = asyncio.run(
            turn.filter.inlet(body=body, __user__=USER, __metadata__=metadata, __request__=None)
        )
        return result

    def test_a_persons_own_llm_key_goes_along(self, plugin: ModuleType, service: Service) -> None:
        turn = Turn(plugin, service, connections=self.CONNECTIONS)
        user = {**USER, "valves": plugin.Filter.UserValves(llm_api_key="AIza1")}
        body = {"messages": [{"role": "user", "content": "send a mail"}], "tool_ids": list(self.CONNECTIONS)}
        asyncio.run(turn.filter.inlet(body=body, __user__=user))
        assert service.llm_keys == ["AIza1"]

    def test_narrows_several_of_ours_and_keeps_others(self, plugin: ModuleType, service: Service) -> None:
        service.answer = lambda _: selection(tool_ids=("server:mail", "server:unasked"))
        chosen = ["server:git", "my_tool", "server:mail", "server:mcp:x"]
        body = self.run(plugin, service, chosen)
        assert body["tool_ids"] == ["my_tool", "server:mail", "server:mcp:x"]
        assert chosen == ["server:git", "my_tool", "server:mail", "server:mcp:x"], (
            "models of one message share the list"
        )
        (question,) = service.questions
        assert question["connections"] == self.CONNECTIONS
        assert question["tool_ids"] == chosen
        assert (question["chat_id"], question["message_id"]) == ("chat-1", "message-1")
        assert "tools" not in question

    @pytest.mark.parametrize(
        ("version", "mode", "left"),
        [
            ("0.12.4", "native", ["server:git", "server:mail"]),
            ("0.12.4", "legacy", ["server:mail"]),
            ("0.11.1", "native", ["server:mail"]),
        ],
    )
    def test_leaves_the_choice_to_the_other_hook(
        self,
        plugin: ModuleType,
        service: Service,
        open_webui: OpenWebUI,
        monkeypatch: pytest.MonkeyPatch,
        version: str,
        mode: str,
        left: list[str],
    ) -> None:
        """Regression: with two toolsets, what the first message didn't name could not be found in its turn."""
        assert open_webui
        monkeypatch.setitem(sys.modules, "open_webui.env", SimpleNamespace(VERSION=version))
        service.answer = lambda _: selection(tool_ids=("server:mail", "server:mcp:b"))
        body = {"messages": [{"role": "user", "content": "send a mail"}], "params": {"function_calling": mode}}
        chosen = ["server:git", "server:mail"]
        assert self.again(plugin, service, {**body, "tool_ids": chosen})["tool_ids"] == left
        assert bool(service.questions) == (left == ["server:mail"])
        over_mcp = {**self.CONNECTIONS, "server:mcp:a": "/mcp", "server:mcp:b": "/mcp"}
        all_on = self.again(plugin, service, {**body, "tool_ids": list(over_mcp)}, connections=over_mcp)
        assert all_on["tool_ids"] == [*left, "server:mcp:b"]

    @pytest.mark.parametrize("chosen", [None, [], ["server:git"], ["my_tool", "server:git", "server:other"]])
    def test_leaves_one_or_none_of_ours_alone(self, plugin: ModuleType, service: Service, chosen: Any) -> None:
        assert self.run(plugin, service, chosen)["tool_ids"] == chosen
        assert service.questions == []

    def test_leaves_a_callers_own_tools_alone(self, plugin: ModuleType, service: Service) -> None:
        body = {"messages": [], "tools": [], "tool_ids": ["server:git", "server:mail"]}
        assert self.again(plugin, service, copy.deepcopy(body), auto_enable=True) == body
        assert service.questions == []

    def test_over_mcp_a_single_one_is_asked_about(self, plugin: ModuleType, service: Service) -> None:
        """The response determines which tools the service lists for this message."""
        service.answer = lambda _: selection(tool_ids=("server:mcp:sieve",))
        connections = {"server:mcp:sieve": "/mcp"}
        body: dict[str, Any] = {
            "messages": [
                {"role": "user", "content": "what time is it"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "1", "function": {"name": "sieve_time__now"}}],
                },
                {"role": "user", "content": "and now?"},
            ],
            "tool_ids": ["my_tool", "server:mcp:sieve"],
        }
        assert self.again(plugin, service, body, connections=connections)["tool_ids"] == ["my_tool", "server:mcp:sieve"]
        (question,) = service.questions
        assert (question["connections"], question["message_id"]) == (connections, "message-1")
        assert question["messages"][1]["tool_calls"][0]["function"]["name"] == "time__now"

    def test_without_messages_nothing_is_asked(
        self, plugin: ModuleType, service: Service, caplog: pytest.LogCaptureFixture
    ) -> None:
        body: dict[str, Any] = {"messages": [], "tool_ids": ["server:git", "server:mail"]}
        assert self.again(plugin, service, copy.deepcopy(body)) == body
        assert service.questions == []
        assert caplog.records == []

    @pytest.mark.parametrize("reply", [(500, {}), {"tools": []}])
    def test_fails_open(self, plugin: ModuleType, service: Service, reply: Any) -> None:
        service.answer = lambda _: reply
        assert self.run(plugin, service, ["server:git", "server:mail"])["tool_ids"] == ["server:git", "server:mail"]


class TestAutoEnable:
    def inlet(
        self,
        plugin: ModuleType,
        service: Service,
        body: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        **valves: Any,
    ) -> Any:
        turn = Turn(plugin, service, **{"connections": "", "auto_enable": True, **valves})
        known = {"chat_id": "chat-1", "message_id": "message-1", "session_id": "session-1"}
        messages = [{"role": "user", "content": "send a mail"}]
        asyncio.run(
            turn.filter.inlet(
                body=(sent := {"messages": messages, **body}),
                __user__=USER,
                __metadata__=known if metadata is None else metadata,
            )
        )
        return sent.get("tool_ids")

    @pytest.fixture(autouse=True)
    def _connected(self, open_webui: OpenWebUI, service: Service) -> None:
        open_webui.connect("server:git", service.url + "/git")
        open_webui.connect("server:mail", service.url + "/toolsets/mail")
        open_webui.connect("server:admins", service.url + "/admins", grant="")
        open_webui.connect("server:off", service.url + "/off", enable=False)
        open_webui.connect("server:foreign", "http://elsewhere.example")
        service.answer = lambda question: selection(tool_ids=tuple(question["tool_ids"][1:]))

    def test_gives_the_relevant_ones_that_the_user_may_use(self, plugin: ModuleType, service: Service) -> None:
        assert self.inlet(plugin, service, {"tool_ids": []}) == ["server:mail"]
        assert self.inlet(plugin, service, {}) == ["server:mail"]
        assert service.questions[0]["tool_ids"] == ["server:git", "server:mail"]
        assert service.questions[0]["connections"] == {"server:git": "/git", "server:mail": "/toolsets/mail"}

    def test_is_off_by_default(self, plugin: ModuleType, service: Service) -> None:
        assert self.inlet(plugin, service, {}, auto_enable=False) is None
        assert service.questions == []

    def test_gives_all_to_a_person_who_switched_narrowing_off(
        self, plugin: ModuleType, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Regression: they got none."""
        monkeypatch.setitem(USER, "valves", plugin.Filter.UserValves(narrowing="off"))
        assert self.inlet(plugin, service, {}) == ["server:git", "server:mail"]
        assert service.questions == []

    def test_only_where_nothing_is_switched_on(self, plugin: ModuleType, service: Service) -> None:
        assert self.inlet(plugin, service, {"tool_ids": ["my_tool"]}) == ["my_tool"]
        assert self.inlet(plugin, service, {}, {"session_id": "s", "tool_servers": [{"url": "u"}]}) is None

    def test_scripts_without_a_session_get_none(self, plugin: ModuleType, service: Service) -> None:
        assert self.inlet(plugin, service, {}, {"session_id": None}) is None

    def test_with_the_valve_only_those_named(self, plugin: ModuleType, service: Service) -> None:
        named = {"server:mail": "/toolsets/mail", "server:admins": "/admins"}
        service.answer = lambda question: selection(tool_ids=tuple(question["tool_ids"]))
        assert self.inlet(plugin, service, {}, connections=named) == ["server:mail"]

    def test_none_when_the_service_is_down(self, plugin: ModuleType, service: Service) -> None:
        service.stop()
        assert self.inlet(plugin, service, {}) is None
