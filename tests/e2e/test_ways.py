"""
The ways to put Toolsieve into Open WebUI, and what each narrows in which mode: the table of `webui-filter/README.md`.

Each passes in every version that there is a list of requirements for: `run --version 0.10.2`.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

import openwebui
from conftest import OURS, REQUEST_HOOK, World
from model import ANSWER, Call
from openwebui import VERSION

TIME = "what is the local time in Tokyo"
TIME_TOOL = "time__get_current_time"
GIT_TOOL = "git__git_log"
THANKS = "thank you, that was kind"
FIND_THE_LOG = Call("find_tools", {"queries": ["commit log of a git repository"], "limit": 5})
META = ["find_tools", "describe_tools", "run_tool"]
has_request_hook = VERSION >= REQUEST_HOOK


def one_connection(_: World) -> list[str]:
    """What the installer registers: all tools, narrowed by the filter's `request` hook."""
    return [OURS]


def toolsets(world: World) -> list[str]:
    """Several connections, each to some of the tools; the filter's `inlet` hook chooses among them."""
    register(
        world,
        *(
            openwebui.connection(f"only_{server}", f"{world.toolsieve.url}/{server}", key=world.toolsieve.key)
            for server in ("time", "git")
        ),
    )
    world.set(connections=json.dumps({"server:only_time": "/time", "server:only_git": "/git"}))
    return ["server:only_time", "server:only_git"]


def mcp(world: World) -> list[str]:
    """A connection over MCP; the `inlet` hook has the service choose, and the service lists what it chose."""
    world.install("--mcp")
    return ["server:mcp:toolsieve"]


def meta(world: World) -> list[str]:
    """A connection that publishes three meta-tools; the `request` hook binds what the model finds."""
    url, key = world.toolsieve.url, world.toolsieve.key
    register(world, openwebui.connection("meta", url, key=key, path="openapi.json?mode=meta"))
    world.set(connections=json.dumps({"server:meta": "/"}))
    return ["server:meta"]


def dynamic(world: World) -> list[str]:
    """A connection whose model loads whole toolsets; the `request` hook binds them."""
    world.install("--mode", "dynamic")
    return [OURS]


def register(world: World, *connections: dict[str, Any]) -> None:
    world.admin.set_tool_servers([*world.admin.tool_servers(), *connections])


def chat(world: World, tool_ids: list[str]) -> None:
    world.admin.ask(TIME, tool_ids)


def prompt_mode(world: World, tool_ids: list[str]) -> None:
    world.admin.ask(TIME, tool_ids, params={"function_calling": "legacy"})


def api(world: World, tool_ids: list[str]) -> None:
    world.admin.ask_api(TIME, tool_ids)


# What the model is shown of the tool for the message, and of one for another topic.
NARROWED, EVERYTHING, META_TOOLS = (True, False), (True, True), (False, False)
WAYS: dict[Callable[[World], list[str]], dict[Callable[[World, list[str]], None], tuple[bool, bool]]] = {
    one_connection: {
        chat: NARROWED if has_request_hook else EVERYTHING,
        prompt_mode: EVERYTHING,
        api: NARROWED if has_request_hook else EVERYTHING,
    },
    toolsets: {chat: NARROWED, prompt_mode: NARROWED, api: NARROWED},
    # A script's call has no message that a list could be for.
    mcp: {chat: NARROWED, prompt_mode: NARROWED, api: EVERYTHING},
    meta: {chat: META_TOOLS, prompt_mode: META_TOOLS, api: META_TOOLS},
    dynamic: {chat: META_TOOLS, prompt_mode: META_TOOLS, api: META_TOOLS},
}


@pytest.mark.parametrize("mode", [chat, prompt_mode, api], ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_the_model_is_shown(
    world: World, way: Callable[[World], list[str]], mode: Callable[[World, list[str]], None]
) -> None:
    mode(world, way(world))
    assert world.model.requests
    shown = "\n".join(json.dumps(request.body) for request in world.model.requests)
    assert "find_tools" in shown or way is toolsets
    assert (TIME_TOOL in shown, GIT_TOOL in shown) == WAYS[way][mode]


class TestMcp:
    PREFIX = "toolsieve_"

    def test_a_tool_runs_and_the_chats_tools_stay(self, world: World) -> None:
        tool_ids = mcp(world)
        world.model.on(TIME, Call(self.PREFIX + TIME_TOOL, {"timezone": "Asia/Tokyo"}))
        answer = world.admin.ask(TIME, tool_ids)
        first, second = world.model.seen(TIME)
        assert answer.content.endswith(ANSWER)
        assert "Asia/Tokyo" in second.results[0], "the tool really ran"
        assert second.tools == first.tools
        world.admin.ask("show me the commit log of the git repository", tool_ids, after=answer)
        shown = world.model.requests[-1].tools
        assert self.PREFIX + TIME_TOOL in shown
        assert self.PREFIX + GIT_TOOL in shown
        assert len([name for name in shown if "__" in name]) <= 20

    def test_what_it_found_runs_through_run_tool(self, world: World) -> None:
        find = Call(self.PREFIX + FIND_THE_LOG.name, FIND_THE_LOG.arguments)
        arguments = {"repo_path": "/nowhere", "max_count": 1}
        world.model.on(THANKS, find, Call(self.PREFIX + "run_tool", {"name": GIT_TOOL, "arguments": arguments}))
        world.admin.ask(THANKS, mcp(world))
        first, _, last = world.model.seen(THANKS)
        assert self.PREFIX + GIT_TOOL not in first.tools
        assert GIT_TOOL in last.results[0]
        assert "/nowhere" in last.results[1], "the tool itself was reached"

    def test_installing_says_where_it_is_of_use(self, world: World) -> None:
        for options, warns in ((["--mcp"], has_request_hook), ([], not has_request_hook)):
            done = world.try_to_install(*options)
            assert done.returncode == 0, done.stderr
            assert ("--mcp" in done.stderr) == warns, done.stderr

    def test_without_the_service_the_chat_goes_on(self, world: World) -> None:
        tool_ids = mcp(world)
        world.toolsieve.stop()
        try:
            assert world.admin.ask(TIME, tool_ids).content == ANSWER
        finally:
            world.toolsieve.start()
            world.until_asked()


class TestMetaTools:
    def test_in_a_new_chat_there_are_three_tools(self, world: World) -> None:
        world.admin.ask(TIME, meta(world))
        (request,) = world.model.seen(TIME)
        assert [name for name in request.tools if name in {*world.published, *META}] == META

    def test_a_found_tool_runs_through_run_tool_everywhere(self, world: World) -> None:
        run = Call("run_tool", {"name": TIME_TOOL, "arguments": {"timezone": "Asia/Tokyo"}})
        world.model.on(TIME, run)
        world.admin.ask(TIME, meta(world))
        assert "Asia/Tokyo" in world.model.seen(TIME)[-1].results[0]

    @pytest.mark.since(*REQUEST_HOOK)
    def test_what_it_found_is_bound_at_the_next_call(self, world: World) -> None:
        arguments = {"repo_path": "/nowhere", "max_count": 1}
        world.model.on(THANKS, FIND_THE_LOG, Call(GIT_TOOL, arguments))
        tool_ids = meta(world)
        answer = world.admin.ask(THANKS, tool_ids)
        first, second, third = world.model.seen(THANKS)
        assert answer.content.endswith(ANSWER)
        found = [tool["name"] for tool in json.loads(second.results[0])["tools"]]
        assert GIT_TOOL in found
        assert not set(found) & set(first.tools)
        assert second.tools[: len(first.tools)] == first.tools, "only appended, for the provider's prompt cache"
        assert set(found) <= set(second.tools)
        definition = next(one for one in second.definitions if one["function"]["name"] == GIT_TOOL)
        assert "repo_path" in definition["function"]["parameters"]["properties"]
        assert "/nowhere" in third.results[1], "Open WebUI executed it, and the server's own words came back"
        assert third.tools == second.tools
        # In the next message it is there from the start.
        world.admin.ask("and once more", tool_ids, after=answer)
        again = world.model.seen("and once more")[0]
        assert again.tools == third.tools

    @pytest.mark.since(*REQUEST_HOOK)
    def test_a_script_that_found_a_tool_gets_it_too(self, world: World) -> None:
        tool_ids = meta(world)
        call = {"id": "c1", "type": "function", "function": {"name": "find_tools", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": THANKS},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"tools": [{"name": GIT_TOOL}]})},
        ]
        world.admin.ask_api(THANKS, tool_ids, messages=messages)
        assert world.model.requests[-1].tools == [*META, GIT_TOOL]

    @pytest.mark.since(0, 12, 0)
    def test_with_approval_of_each_tool_call(self, world: World) -> None:
        """An approved call runs in a new request of Open WebUI, in which it has to be bound anew."""
        world.model.on(THANKS, FIND_THE_LOG, Call(GIT_TOOL, {"repo_path": "/nowhere"}))
        with world.admin.chat_setting("ENABLE_TOOL_PERMISSIONS"):
            searching = world.admin.ask(THANKS, meta(world), params={"tool_approval_mode": "ask"})
            calling = world.admin.approve(searching)
            assert calling.waiting
            assert calling.waiting != searching.waiting
            answer = world.admin.approve(calling)
        assert answer.content.endswith(ANSWER)
        assert "/nowhere" in world.model.seen(THANKS)[-1].results[1]


@pytest.mark.since(*REQUEST_HOOK)
class TestDynamic:
    LOAD = Call("load_toolset", {"toolset": "git"})
    UNLOAD = Call("unload_toolset", {"toolset": "git"})
    LOG = Call(GIT_TOOL, {"repo_path": "/nowhere", "max_count": 1})

    def test_a_loaded_toolset_is_bound_and_stays_in_the_chat(self, world: World) -> None:
        world.model.on(THANKS, self.LOAD, self.LOG)
        tool_ids = dynamic(world)
        answer = world.admin.ask(THANKS, tool_ids)
        first, second, third = world.model.seen(THANKS)
        loaded = json.loads(second.results[0])["tools"]
        assert loaded == [name for name in world.published if name.startswith("git__")]
        assert not set(loaded) & set(first.tools)
        assert second.tools[: len(first.tools)] == first.tools, "only appended, for the provider's prompt cache"
        assert set(loaded) <= set(second.tools)
        assert "/nowhere" in third.results[1], "Open WebUI executed it, and the server's own words came back"
        world.admin.ask("and once more", tool_ids, after=answer)
        assert set(loaded) <= set(world.model.seen("and once more")[0].tools)

    def test_an_unloaded_toolset_is_gone(self, world: World) -> None:
        world.model.on(THANKS, self.LOAD, self.LOG)
        tool_ids = dynamic(world)
        answer = world.admin.ask(THANKS, tool_ids)
        world.model.on("not any more", self.UNLOAD)
        answer = world.admin.ask("not any more, please", tool_ids, after=answer)
        before, after = world.model.seen("not any more")
        assert GIT_TOOL in before.tools
        assert not [name for name in after.tools if name.startswith("git__")]
        world.admin.ask("and once more", tool_ids, after=answer)
        assert GIT_TOOL not in world.model.seen("and once more")[0].tools
