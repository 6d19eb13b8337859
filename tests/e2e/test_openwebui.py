"""What the model sees when people chat in a real Open WebUI with the filter and all tools of Toolsieve."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

import openwebui
from conftest import FILTER_SOURCE, FUNCTION, OURS, REQUEST_HOOK, WEATHER, World
from model import ANSWER, Call, Request
from processes import free_port
from weather import TOOL

pytestmark = pytest.mark.since(*REQUEST_HOOK)

TIME = "what is the local time in Tokyo"
TIME_TOOLS = {"time__get_current_time", "time__convert_time"}
GIT = "show me the commit log of the git repository"
GIT_TOOL = "git__git_log"
SEARCH = "find_tools"
FIGURES = FILTER_SOURCE.parents[1] / "docs" / "src" / "explanation" / "figures.md"
# The search function and at most five more come on top of what a message is about.
MOST_OTHERS = 5

ASK_THE_TIME = Call("time__get_current_time", {"timezone": "Asia/Tokyo"})


def assert_narrow(world: World, request: Request, about: set[str]) -> None:
    ours = set(world.of_ours(request.tools))
    assert about <= ours, f"what the message is about is missing: {ours}"
    assert SEARCH in ours
    assert len(ours - about - {SEARCH}) <= MOST_OTHERS, f"too many others: {ours}"


class TestAChat:
    def test_without_the_filter_the_model_sees_every_tool(self, world: World) -> None:
        world.admin.post(f"/api/v1/functions/id/{FUNCTION}/toggle")
        try:
            world.admin.ask(TIME, [OURS])
        finally:
            world.admin.post(f"/api/v1/functions/id/{FUNCTION}/toggle")
        (request,) = world.model.seen(TIME)
        assert world.of_ours(request.tools) == world.published
        assert len(world.published) >= 50

    def test_the_model_sees_what_the_message_needs(self, world: World) -> None:
        answer = world.admin.ask(TIME, [OURS])
        (request,) = world.model.seen(TIME)
        assert answer.content == ANSWER
        assert_narrow(world, request, TIME_TOOLS)
        assert "get_current_timestamp" in request.tools, "Open WebUI's own tools for times stay"

    def test_it_stays_narrow_after_a_tool_call(self, world: World) -> None:
        world.model.on(TIME, ASK_THE_TIME)
        answer = world.admin.ask(TIME, [OURS])
        first, second = world.model.seen(TIME)
        assert answer.content.endswith(ANSWER)
        assert "Asia/Tokyo" in second.results[0], "the tool really ran"
        assert_narrow(world, second, TIME_TOOLS)
        assert second.tools[: len(first.tools)] == first.tools, "only appended, for the provider's prompt cache"

    def test_what_find_tools_found_is_there_at_the_next_call(self, world: World) -> None:
        text = "thank you, that was kind"
        search = Call(SEARCH, {"queries": ["commit log of a git repository"], "limit": 5})
        world.model.on(text, search, Call(GIT_TOOL, {"repo_path": ".", "max_count": 1}))
        world.admin.ask(text, [OURS])
        before, after, *rest = world.model.seen(text)
        found = [tool["name"] for tool in json.loads(after.results[0])["tools"]]
        assert GIT_TOOL in found
        assert GIT_TOOL not in before.tools
        assert set(found) <= set(after.tools)
        definition = next(tool for tool in after.definitions if tool["function"]["name"] == GIT_TOOL)
        assert "repo_path" in definition["function"]["parameters"]["properties"]
        assert after.tools[: len(before.tools)] == before.tools
        assert [request.calls for request in rest] == [2], "the found tool was called by its own name"
        assert GIT_TOOL in rest[0].tools

    def test_after_a_change_of_topic_the_new_tools_are_appended(self, world: World) -> None:
        world.model.on(TIME, ASK_THE_TIME)
        first_answer = world.admin.ask(TIME, [OURS])
        world.admin.ask(GIT, [OURS], after=first_answer)
        before, after = world.model.seen(TIME)[-1], world.model.seen(GIT)[0]
        assert GIT_TOOL not in before.tools
        assert GIT_TOOL in after.tools
        ours_before = world.of_ours(before.tools)
        assert world.of_ours(after.tools)[: len(ours_before)] == ours_before

    def test_two_chats_at_once_do_not_mix(self, world: World) -> None:
        def ask(number: int) -> None:
            user = world.admin if number % 4 < 2 else world.user
            user.ask(f"{GIT if number % 2 else TIME}, number {number}.", [OURS])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(8)))
        for number in range(8):
            (request,) = world.model.seen(f"number {number}.")
            assert (GIT_TOOL in request.tools) == bool(number % 2), request.tools
            assert ("time__get_current_time" in request.tools) != bool(number % 2), request.tools

    def test_an_attached_image_changes_nothing(self, world: World) -> None:
        """Regression: the filter read only the list of attached files that Open WebUI puts before the message."""
        world.admin.ask(TIME, [OURS], files=[world.admin.upload_image()])
        (request,) = [request for request in world.model.requests if TIME in json.dumps(request.body)]
        assert_narrow(world, request, TIME_TOOLS)

    def test_a_tool_of_another_server_stays(self, world: World) -> None:
        world.model.on(TIME, ASK_THE_TIME)
        world.admin.ask(TIME, [WEATHER, OURS])
        requests = world.model.seen(TIME)
        assert len(requests) == 2
        for request in requests:
            assert TOOL in request.tools
            assert_narrow(world, request, TIME_TOOLS)

    def test_a_message_that_needs_no_tool_still_has_the_search(self, world: World) -> None:
        text = "thanks!"
        world.admin.ask(text, [OURS])
        (request,) = world.model.seen(text)
        assert_narrow(world, request, set())

    @pytest.mark.since(0, 12, 0)
    def test_with_approval_of_each_tool_call(self, world: World) -> None:
        """An approved call runs in a new request of Open WebUI, which begins with all tools again."""
        world.model.on(TIME, ASK_THE_TIME)
        with world.admin.chat_setting("ENABLE_TOOL_PERMISSIONS"):
            waiting = world.admin.ask(TIME, [OURS], params={"tool_approval_mode": "ask"})
            assert waiting.waiting
            answer = world.admin.approve(waiting)
        before, after = world.model.seen(TIME)
        assert answer.content.endswith(ANSWER)
        assert "Asia/Tokyo" in after.results[0]
        assert_narrow(world, after, TIME_TOOLS)
        assert after.tools == before.tools

    @pytest.mark.since(0, 12, 0)
    def test_with_open_webuis_own_tool_search(self, world: World) -> None:
        """It holds long definitions back; what the message needs is there all the same."""
        with world.admin.chat_setting("ENABLE_TOOL_SEARCH"):
            world.admin.ask(TIME, [OURS])
        (request,) = world.model.seen(TIME)
        assert "search_tools" in request.tools
        assert_narrow(world, request, TIME_TOOLS)

    def test_prompt_mode_is_left_alone(self, world: World) -> None:
        world.admin.ask(TIME, [OURS], params={"function_calling": "legacy"})
        assert all("tools" not in request.body for request in world.model.requests)
        assert any(GIT_TOOL in request.system for request in world.model.requests)


class TestTheApi:
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_call_is_narrowed(self, world: World, stream: bool) -> None:  # noqa: FBT001
        body = {"model": "scripted-model", "messages": [{"role": "user", "content": TIME}], "tool_ids": [OURS]}
        if stream:
            with world.admin._session.post(
                world.open_webui_url + "/api/chat/completions", json={**body, "stream": True}, timeout=60
            ) as response:
                assert "[DONE]" in response.text
        else:
            assert world.admin.ask_api(TIME, [OURS])["choices"][0]["message"]["content"] == ANSWER
        (request,) = world.model.seen(TIME)
        assert_narrow(world, request, TIME_TOOLS)
        assert set(request.tools) <= set(world.published), "an API call has none of Open WebUI's own tools"

    def test_a_callers_own_tools_pass_as_they_are(self, world: World) -> None:
        own = [{"type": "function", "function": {"name": "my_own", "parameters": {"type": "object", "properties": {}}}}]
        world.admin.ask_api(TIME, [OURS], tools=own)
        (request,) = world.model.seen(TIME)
        assert request.definitions == own


class TestValves:
    def test_the_status_line(self, world: World) -> None:
        world.set(status=False)
        assert world.admin.ask(TIME, [OURS]).statuses == []
        world.set(status=True)
        world.model.forget()
        world.model.on(TIME, ASK_THE_TIME)
        answer = world.admin.ask(TIME, [OURS])
        (line,) = answer.statuses
        shown, everything = re.fullmatch(r"(\d+) of (\d+) tools", line).groups()
        assert int(shown) == len(world.model.seen(TIME)[0].tools)
        assert int(everything) >= len(world.published)

    def test_always_keep(self, world: World) -> None:
        world.set(always_keep="memory__*")
        world.admin.ask(TIME, [OURS])
        (request,) = world.model.seen(TIME)
        kept = {name for name in world.published if name.startswith("memory__")}
        assert kept
        assert kept <= set(request.tools)
        assert GIT_TOOL not in request.tools

    def test_auto_enable_in_a_chat_with_no_tool_switched_on(self, world: World) -> None:
        world.admin.ask(TIME, [])
        assert not world.of_ours(world.model.seen(TIME)[0].tools)
        world.set(auto_enable=True)
        for user in (world.admin, world.user):
            world.model.forget()
            user.ask(TIME, [])
            (request,) = world.model.seen(TIME)
            assert_narrow(world, request, TIME_TOOLS)
        world.model.forget()
        world.admin.ask_api(TIME, [])
        assert not world.model.seen(TIME)[0].tools, "scripts get no tools that they did not ask for"

    def test_auto_enable_only_gives_what_the_user_may_use(self, world: World) -> None:
        world.install("--audience", "administrators")
        world.set(auto_enable=True)
        assert OURS not in world.user.tool_ids()
        world.user.ask(TIME, [])
        assert not world.of_ours(world.model.seen(TIME)[0].tools)
        world.model.forget()
        world.admin.ask(TIME, [])
        assert_narrow(world, world.model.seen(TIME)[0], TIME_TOOLS)

    @pytest.mark.parametrize("mode", ["native", "legacy"])
    def test_inlet_narrows_several_connections(self, world: World, mode: str) -> None:
        """In prompt mode, too, where single functions cannot be narrowed."""
        servers = world.admin.tool_servers()
        for server in ("time", "git"):
            servers.append(
                openwebui.connection(f"only_{server}", f"{world.toolsieve.url}/{server}", key=world.toolsieve.key)
            )
        world.admin.set_tool_servers(servers)
        world.set(connections=json.dumps({"server:only_time": "/time", "server:only_git": "/git"}))
        params = {"function_calling": mode}
        world.admin.ask(TIME, ["server:only_time", "server:only_git", WEATHER], params=params)
        seen = "\n".join(json.dumps(request.body) for request in world.model.requests)
        assert "time__get_current_time" in seen
        assert TOOL in seen
        assert GIT_TOOL not in seen


class TestWhenTheServiceIsDown:
    def test_all_tools_reach_the_model(self, world: World) -> None:
        world.set(url=f"http://127.0.0.1:{free_port()}")
        world.model.on(TIME, ASK_THE_TIME)
        answer = world.admin.ask(TIME, [OURS, WEATHER])
        first, second = world.model.seen(TIME)
        assert answer.content.endswith(ANSWER)
        assert world.of_ours(first.tools) == world.published
        assert set(second.tools) == set(first.tools)

    def test_a_wrong_key_narrows_nothing(self, world: World) -> None:
        world.set(key="wrong")
        world.admin.ask(TIME, [OURS])
        assert world.of_ours(world.model.seen(TIME)[0].tools) == world.published

    def test_the_chat_goes_on_without_its_tools_and_with_them_once_it_is_back(self, world: World) -> None:
        world.toolsieve.stop()
        try:
            assert world.admin.ask(TIME, [OURS, WEATHER]).content == ANSWER
            assert TOOL in world.model.seen(TIME)[0].tools
        finally:
            world.toolsieve.start()
        world.model.forget()
        world.admin.ask(TIME, [OURS, WEATHER])
        assert_narrow(world, world.model.seen(TIME)[0], TIME_TOOLS)


class TestToolsets:
    CLOCK = "server:toolsieve-clock"

    def test_a_toolset_is_a_connection_of_its_own(self, world: World) -> None:
        world.install("--toolset", "clock")
        world.model.on(TIME, ASK_THE_TIME)
        answer = world.admin.ask(TIME, [self.CLOCK])
        first, second = world.model.seen(TIME)
        assert answer.content.endswith(ANSWER)
        assert TIME_TOOLS <= set(world.of_ours(first.tools)) <= {*TIME_TOOLS, SEARCH, "run_tool"}
        assert "Asia/Tokyo" in second.results[0], "the tool really ran, below the toolset's address"
        world.admin.ask(GIT, [self.CLOCK])
        assert GIT_TOOL not in world.model.seen(GIT)[0].tools, "what is not in it is not there"

    def test_it_is_narrowed_beside_the_connection_to_everything(self, world: World) -> None:
        world.install("--toolset", "clock")
        world.admin.ask(GIT, [OURS, self.CLOCK])
        (request,) = world.model.seen(GIT)
        assert GIT_TOOL in request.tools
        of_both = [name for name in request.tools if "__" in name]
        # With the tool come others of its server, for the messages to come.
        assert len([name for name in of_both if not name.startswith("git__")]) <= MOST_OTHERS, of_both

    def test_installing_again_keeps_it_and_uninstalling_takes_it_out(self, world: World) -> None:
        world.install("--toolset", "clock")
        servers = world.admin.tool_servers()
        world.install()
        assert world.admin.tool_servers() == servers
        assert [server["info"]["id"] for server in servers[len(world.before) :]] == ["toolsieve", "toolsieve-clock"]
        world.uninstall()
        assert world.admin.tool_servers() == world.before


class TestInstalling:
    def test_again_changes_nothing(self, world: World) -> None:
        servers, valves = world.admin.tool_servers(), world.admin.valves(FUNCTION)
        world.install()
        assert world.admin.tool_servers() == servers
        assert world.admin.valves(FUNCTION) == valves
        assert servers[: len(world.before)] == world.before, "other connections stay as they were"

    def test_it_ends_with_a_test_message(self, world: World) -> None:
        done = world.try_to_install("--message", TIME)
        line = next(line for line in done.stdout.splitlines() if line.startswith("Test message"))
        counts = r"the model would get (\d+) of (\d+) functions \([\d,]+ of [\d,]+ tokens\)"
        found = re.fullmatch(rf'Test message "{TIME}": {counts}: (.+)', line)
        assert found, done.stdout
        assert int(found[1]) == len(found[3].split(", "))
        assert int(found[2]) == len(world.published)
        assert set(found[3].split(", ")) >= TIME_TOOLS
        world.admin.ask(TIME, [OURS])
        (request,) = world.model.seen(TIME)
        assert set(found[3].split(", ")) <= set(world.of_ours(request.tools)), "the model really gets them"
        assert "Next step" in done.stdout

    def test_without_a_message_it_asks_for_a_tool(self, world: World) -> None:
        assert re.search(
            r'^Test message ".+": the model would get \d+ of \d+ functions', world.install_output, re.MULTILINE
        )

    def test_the_status_line_is_on_and_auto_enable_is_off(self, world: World) -> None:
        assert "status line: on" in world.install_output
        assert "auto_enable: off, as before" in world.install_output
        world.uninstall()
        world.install()
        valves = world.admin.valves(FUNCTION)
        assert valves["status"] is True
        assert "auto_enable" not in valves, "nobody has decided"
        world.uninstall()
        world.install("--no-status-line", "--auto-enable")
        valves = world.admin.valves(FUNCTION)
        assert "status" not in valves
        assert valves["auto_enable"] is True

    def test_again_it_keeps_what_an_administrator_switched(self, world: World) -> None:
        world.set(status=False, auto_enable=True)
        world.install()
        valves = world.admin.valves(FUNCTION)
        assert (valves["status"], valves["auto_enable"]) == (False, True)
        world.install("--status-line", "--no-auto-enable")
        valves = world.admin.valves(FUNCTION)
        assert (valves["status"], valves["auto_enable"]) == (True, False)

    def test_a_service_that_nobody_reaches_is_a_failure(self, world: World) -> None:
        away = f"http://127.0.0.1:{free_port()}"
        where = ["--url", world.open_webui_url, "--token", world.admin.token]
        done = world.toolsieve.openwebui("install", *where, "--toolsieve-url", away)
        assert done.returncode == 1
        assert away in done.stderr
        assert "--test-url" in done.stderr
        done = world.toolsieve.openwebui("install", *where, "--toolsieve-url", away, "--no-test")
        assert done.returncode == 0, done.stderr

    def test_the_test_message_can_go_to_another_address(self, world: World) -> None:
        """Open WebUI in a container reaches the service at an address that this machine may not know."""
        away = f"http://127.0.0.1:{free_port()}"
        where = ["--url", world.open_webui_url, "--token", world.admin.token, "--key", world.toolsieve.key]
        done = world.toolsieve.openwebui("install", *where, "--toolsieve-url", away, "--test-url", world.toolsieve.url)
        assert done.returncode == 0, done.stderr
        assert "Test message" in done.stdout
        assert "could not read" in done.stderr, "Open WebUI itself doesn't reach it"

    def test_uninstall_takes_out_exactly_ours(self, world: World) -> None:
        said = world.uninstall()
        assert world.admin.tool_servers() == world.before
        assert world.admin.function_ids() == []
        assert f"removed ({OURS})" in said
        assert "stays" in said
        assert "was not registered" in world.uninstall()

    def test_a_wrong_token_is_told(self, world: World) -> None:
        for token in ("nonsense", world.user.token):
            where = ["--url", world.open_webui_url, "--token", token, "--toolsieve-url", world.toolsieve.url]
            done = world.toolsieve.openwebui("install", *where, "--key", world.toolsieve.key)
            assert done.returncode == 1
            assert "token" in done.stderr
            assert token not in done.stderr

    def test_pasting_one_url_and_one_file_is_enough(self, world: World) -> None:
        """Without the installer: which connections are ours is told by their address."""
        world.uninstall()
        server = openwebui.connection("pasted", world.toolsieve.url, key=world.toolsieve.key)
        world.admin.set_tool_servers([*world.before, server])
        world.admin.paste_function("pasted", FILTER_SOURCE.read_text(encoding="utf-8"))
        try:
            world.admin.set_valves("pasted", {"url": world.toolsieve.url, "key": world.toolsieve.key})
            world.admin.ask(TIME, ["server:pasted", WEATHER])
        finally:
            world.admin.delete_function("pasted")
        (request,) = world.model.seen(TIME)
        assert_narrow(world, request, TIME_TOOLS)
        assert TOOL in request.tools


class TestTheDoctor:
    def test_a_complete_installation_is_fine(self, world: World) -> None:
        code, checks = world.doctor()
        assert code == 0, checks
        assert {check["level"] for check in checks.values()} == {"fine"}
        assert list(checks) == ["Open WebUI", OURS, "filter", "status line", "auto_enable", "test message"]
        assert checks["status line"]["finding"] == "on"
        assert "the model would get" in checks["test message"]["finding"]

    def test_it_sees_what_an_administrator_changed(self, world: World) -> None:
        world.set(status=False, auto_enable=True, url=f"http://127.0.0.1:{free_port()}")
        code, checks = world.doctor("--test-url", world.toolsieve.url)
        assert code == 0, checks
        assert checks["status line"]["finding"].startswith("off")
        assert checks["auto_enable"]["finding"] == "on"
        assert checks["filter"]["level"] == "warning"

    def test_a_filter_that_is_off_is_a_problem(self, world: World) -> None:
        world.admin.post(f"/api/v1/functions/id/{FUNCTION}/toggle")
        try:
            code, checks = world.doctor()
        finally:
            world.admin.post(f"/api/v1/functions/id/{FUNCTION}/toggle")
        assert code == 1
        assert checks["filter"]["level"] == "problem"
        assert "enable it" in checks["filter"]["remedy"]

    def test_nothing_installed_is_a_problem(self, world: World) -> None:
        world.uninstall()
        code, checks = world.doctor()
        assert code == 1
        assert [name for name, check in checks.items() if check["level"] == "problem"] == ["tool server", "filter"]
        assert all("openwebui install" in checks[name]["remedy"] for name in ("tool server", "filter"))

    def test_a_wrong_token_is_a_problem(self, world: World) -> None:
        done = world.toolsieve.run(
            "doctor", "--open-webui", world.open_webui_url, "--open-webui-token", world.user.token
        )
        assert done.returncode == 1
        assert "token" in done.stdout
        assert world.user.token not in done.stdout + done.stderr


def test_the_figures_of_the_readme(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A chat of two messages and one tool call: what its tool definitions cost, with the filter and without."""
    chats: dict[str, list[Request]] = {}
    for name, narrowed in (("without the filter", False), ("with the filter", True)):
        world.reset()
        if not narrowed:
            world.set(url=f"http://127.0.0.1:{free_port()}")
        world.model.on(TIME, ASK_THE_TIME)
        answer = world.admin.ask(TIME, [OURS])
        world.admin.ask(GIT, [OURS], after=answer)
        chats[name] = list(world.model.requests)

    page = FIGURES.read_text(encoding="utf-8")
    for name, requests in chats.items():
        tokens = [tokens_of(world, request) for request in requests]
        tools = [len(world.of_ours(request.tools)) for request in requests]
        with capsys.disabled():
            print(f"\n{name}: {tools} tools at the three model calls, {tokens} tokens")
        row = re.search(rf"^\| {name} \| (.+) \| (.+) \|$", page, re.MULTILINE)
        assert row, name
        published = [[int(number.replace(",", "")) for number in cell.split(", ")] for cell in row.groups()]
        assert tools == published[0], name
        # Definitions of the quickstart's servers change a little with their versions.
        assert tokens == pytest.approx(published[1], rel=0.03), name


def tokens_of(world: World, request: Request) -> int:
    """Tokens (cl100k) of the definitions of ours that a model call carried, as the service counts them."""
    ours = world.of_ours(request.tools)
    question = {"messages": [{"role": "user", "content": request.text}], "connections": {OURS: "/"}, "tools": ours}
    before: int = world.toolsieve.post("/v1/filter", question)["tokens"]["before"]
    return before
