"""Tests of the connection to the service: connection reuse, the hash of the names, and outages."""

import asyncio
import gc
import hashlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from conftest import SOURCE, OpenWebUI, load, selection
from test_hooks import OTHERS, OURS, USER, Turn, definitions, registry

MANY = [f"server{number // 20}__tool_{number}" for number in range(200)]


class Wire:
    """
    An HTTP server on a free port that records its connections and keeps them open.

    `answer` creates the response from the request: an object, or a status with an object. `None` means no response.
    """

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.connections = 0
        self.open = 0
        self.headers: list[str] = []
        self.answer: Callable[[dict[str, Any]], Any] = lambda question: self.selection(question)
        self.known: set[str] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = self._run(self._listen(0))
        self.url = f"http://127.0.0.1:{self.port}"

    def selection(self, question: dict[str, Any]) -> Any:
        """Respond like a service that caches offers."""
        offer = question.get("offer")
        if offer and "tools" in question:
            self.known.add(offer)
        elif offer and offer not in self.known:
            return 409, {"code": "offer_unknown"}
        return {**selection("server1__tool_20", "time__now"), **({"offer": offer} if offer else {})}

    def hang_up(self) -> None:
        """Close every connection, as services do with idle connections and proxies with all."""
        self._run(self._hang_up())

    def stop(self) -> None:
        """Stop listening."""
        self._run(self._stop())

    def start_again(self) -> None:
        self._run(self._listen(self.port))

    def end(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def _hang_up(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _stop(self) -> None:
        self._server.close()
        await self._hang_up()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self._writers.add(writer)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next(
                    int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")
                )
                question = json.loads(await reader.readexactly(length))
                self.headers.append(head)
                self.questions.append(question)
                reply = self.answer(question)
                if reply is None:
                    await reader.read()
                    return
                status, content = reply if isinstance(reply, tuple) else (200, reply)
                raw = json.dumps(content).encode()
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nSet-Cookie: who=anna\r\n"
                    f"Content-Length: {len(raw)}\r\n\r\n".encode()
                    + raw
                )
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self._writers.discard(writer)
            writer.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    running = Wire()
    yield running
    running.end()


@pytest.fixture(autouse=True)
def _installed(open_webui: OpenWebUI) -> None:
    open_webui.groups = ["staff"]


def turn_of(plugin: ModuleType, wire: Wire, names: list[str] | None = None, **valves: Any) -> Turn:
    """Return a turn that offers these functions."""
    turn = Turn(plugin, wire, **valves)  # type: ignore[arg-type]
    if names:
        turn.metadata["tools"] = registry(sieve=names)
        turn.body["tools"] = definitions(*names, *OTHERS)
    return turn


def next_turn(before: Turn, plugin: ModuleType, wire: Wire, names: list[str] | None = None, **valves: Any) -> Turn:
    """Return a turn in another chat, on the same instance."""
    turn = turn_of(plugin, wire, names, **valves)
    turn.filter, before.filter.valves = before.filter, turn.filter.valves
    return turn


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


async def until_later(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


class TestManyTools:
    def test_thousands_do_not_hold_up_everybody(self, plugin: ModuleType, wire: Wire) -> None:
        """Regression: the work grew quadratically. With 20,000 functions, Open WebUI was blocked for 1.7 s."""

        class Counted(str):
            compared = 0

            def __eq__(self, other: object) -> bool:
                Counted.compared += 1
                return str.__eq__(self, other)

            __hash__ = str.__hash__

        names = [Counted(f"server__tool_{number}") for number in range(2_000)]
        turn = turn_of(plugin, wire, list(names))
        # Equal names in different objects, as a JSON parser creates them.
        turn.body["tools"] = definitions(*(Counted(name) for name in names))
        wire.answer = lambda _: selection("server__tool_7")
        assert turn.names() == ["server__tool_7"]
        assert Counted.compared < 50 * len(names), "a few looks at each name, however many there are"

    def test_a_turn_is_looked_at_once(self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI) -> None:
        """Later model calls send a new request, but use the groups and connections of the turn."""
        turn = turn_of(plugin, wire, MANY)
        turn.names()
        open_webui.groups = ["others"]
        turn.called("server1__tool_20", "{}")
        turn.names()
        assert [question["user"]["groups"] for question in wire.questions] == [["staff"], ["staff"]]


class TestOffer:
    def test_names_are_sent_once(self, plugin: ModuleType, wire: Wire) -> None:
        async def turns() -> list[list[str] | None]:
            turn = turn_of(plugin, wire, MANY)
            found = [await turn.model_call()]
            turn.called("server1__tool_20", "{}")
            found.append(await turn.model_call())
            found.append(await next_turn(turn, plugin, wire, MANY).model_call())
            return found

        assert asyncio.run(turns()) == [[*OTHERS, "server1__tool_20"]] * 3
        first, second, third = wire.questions
        offer = "sha256:" + hashlib.sha256("\n".join([*MANY, *OTHERS]).encode()).hexdigest()
        assert (first["offer"], first["tools"]) == (offer, [*MANY, *OTHERS])
        assert second["offer"] == third["offer"] == offer
        assert "tools" not in second
        assert "tools" not in third
        assert len(json.dumps(third)) < 1_000

    def test_a_service_that_forgot_is_told_again(self, plugin: ModuleType, wire: Wire) -> None:
        """The service was restarted, or is another replica."""

        async def turns() -> list[list[str] | None]:
            turn = turn_of(plugin, wire, MANY)
            await turn.model_call()
            wire.known.clear()
            found = [await next_turn(turn, plugin, wire, MANY).model_call()]
            found.append(await next_turn(turn, plugin, wire, MANY).model_call())
            return found

        assert asyncio.run(turns()) == [[*OTHERS, "server1__tool_20"]] * 2
        assert ["tools" in question for question in wire.questions] == [True, False, True, False]

    def test_a_service_that_knows_no_offers_gets_names_each_time(self, plugin: ModuleType, wire: Wire) -> None:
        wire.answer = lambda _: selection("server1__tool_20")

        async def turns() -> None:
            turn = turn_of(plugin, wire, MANY)
            await turn.model_call()
            await next_turn(turn, plugin, wire, MANY).model_call()

        asyncio.run(turns())
        assert [question["tools"] for question in wire.questions] == [[*MANY, *OTHERS]] * 2

    def test_other_tools_are_another_offer(self, plugin: ModuleType, wire: Wire) -> None:
        async def turns() -> None:
            turn = turn_of(plugin, wire, MANY)
            await turn.model_call()
            await next_turn(turn, plugin, wire, MANY[1:]).model_call()

        asyncio.run(turns())
        assert [question["tools"][0] for question in wire.questions] == [MANY[0], MANY[1]]

    def test_a_few_names_go_along(self, plugin: ModuleType, wire: Wire) -> None:
        asyncio.run(turn_of(plugin, wire).model_call())
        assert wire.questions[0]["tools"] == [*OURS, *OTHERS]
        assert "offer" not in wire.questions[0]


class TestConnection:
    def test_is_kept(self, plugin: ModuleType, wire: Wire) -> None:
        """Regression: every request opened a new connection, which over HTTPS needs a TLS handshake."""

        async def turns() -> None:
            turn = turn_of(plugin, wire)
            await turn.model_call()
            await next_turn(turn, plugin, wire).model_call()
            turn.called("time__now", "{}")
            await turn.model_call()

        asyncio.run(turns())
        assert (wire.connections, len(wire.questions)) == (1, 3)

    def test_nothing_of_one_person_goes_along_with_another(self, plugin: ModuleType, wire: Wire) -> None:
        async def turns() -> None:
            turn = turn_of(plugin, wire)
            turn.user = {**USER, "valves": plugin.Filter.UserValves(llm_api_key="AIza1")}
            await turn.model_call()
            await next_turn(turn, plugin, wire).model_call()

        asyncio.run(turns())
        assert "AIza1" in wire.headers[0]
        assert "AIza1" not in wire.headers[1]
        assert not any("cookie" in head.lower() for head in wire.headers)

    def test_closed_while_idle_another_is_opened(
        self, plugin: ModuleType, wire: Wire, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def turns() -> list[list[str] | None]:
            turn = turn_of(plugin, wire)
            found = [await turn.model_call()]
            wire.hang_up()
            found.append(await next_turn(turn, plugin, wire).model_call())
            # The connection closes when the request arrives, without a response. The filter could not know this before.
            answer, wire.answer = wire.answer, lambda _: wire._loop.call_soon(hang_up_once) and None
            writers = wire._writers

            def hang_up_once() -> None:
                wire.answer = answer
                for writer in list(writers):
                    writer.close()

            found.append(await next_turn(turn, plugin, wire).model_call())
            return found

        assert asyncio.run(turns()) == [[*OTHERS, "time__now"]] * 3
        assert len(wire.questions) == 4, "asked twice, and no more often"
        assert caplog.records == []

    def test_who_always_hangs_up_is_asked_twice(self, plugin: ModuleType) -> None:
        accepted = []
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    accepted.append(connection.recv(10))
                    connection.close()

            threading.Thread(target=serve, daemon=True).start()
            turn = Turn(plugin, type("At", (), {"url": f"http://127.0.0.1:{listener.getsockname()[1]}"})())
            assert turn.names() == [*OURS, *OTHERS]
            assert len(accepted) == 2
            listener.shutdown(socket.SHUT_RDWR)

    def test_another_address_is_another_connection(self, plugin: ModuleType, wire: Wire) -> None:
        other = Wire()

        async def turns() -> None:
            turn = turn_of(plugin, wire)
            await turn.model_call()
            await next_turn(turn, plugin, other).model_call()
            await until_later(lambda: wire.open == 0, "the first one is closed")

        try:
            asyncio.run(turns())
            assert (wire.connections, other.connections) == (1, 1)
        finally:
            other.end()

    def test_an_address_that_changes_does_not_cut_off_who_waits(self, plugin: ModuleType, wire: Wire) -> None:
        other, go_on = Wire(), threading.Event()
        wire.answer = lambda _: go_on.wait(5) and selection("time__now")

        async def turns() -> list[str] | None:
            turn = turn_of(plugin, wire)
            waiting = asyncio.create_task(turn.model_call())
            await until_later(lambda: bool(wire.questions), "asked")
            await next_turn(turn, plugin, other).model_call()
            go_on.set()
            narrowed = await waiting
            await until_later(lambda: wire.open == 0, "closed when the last one had its answer")
            return narrowed

        try:
            assert asyncio.run(turns()) == [*OTHERS, "time__now"]
        finally:
            other.end()

    def test_each_event_loop_has_its_own(self, plugin: ModuleType, wire: Wire) -> None:
        turn = turn_of(plugin, wire)
        assert turn.names() == [*OTHERS, "time__now"]
        later = next_turn(turn, plugin, wire)
        assert later.names() == [*OTHERS, "time__now"]
        assert len(later.filter._links) == 1, "nothing is left of a loop that has ended"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_a_forked_worker_has_its_own(self, plugin: ModuleType, wire: Wire) -> None:
        turn = turn_of(plugin, wire)

        async def before_and_after() -> int:
            await turn.model_call()
            if (child := os.fork()) == 0:
                # Workers use a different event loop in the same process.
                asyncio.events._set_running_loop(None)
                try:
                    names = next_turn(turn, plugin, wire).names()
                    os._exit(0 if names == [*OTHERS, "time__now"] else 1)
                finally:
                    os._exit(2)
            ended = await asyncio.to_thread(os.waitpid, child, 0)
            assert await next_turn(turn, plugin, wire).model_call() == [*OTHERS, "time__now"]
            return os.waitstatus_to_exitcode(ended[1])

        assert asyncio.run(before_and_after()) == 0
        assert wire.connections == 2, "the parent's own went on"

    def test_a_new_version_of_the_plugin_leaves_none_open(self, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
        """Open WebUI discards the old instance when the function is updated."""

        async def updated() -> None:
            turn = turn_of(load(SOURCE.read_text(encoding="utf-8")), wire)
            await turn.model_call()
            assert wire.open == 1
            del turn
            gc.collect()
            await until_later(lambda: wire.open == 0, "closed with its filter")

        asyncio.run(updated())
        assert caplog.records == [], "no complaint about an unclosed session"

    def test_a_proxy_is_asked_where_the_environment_names_one(
        self, plugin: ModuleType, wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", wire.url)
        monkeypatch.setenv("no_proxy", "localhost")
        turn = Turn(plugin, type("At", (), {"url": "http://toolsieve.example:8000"})())
        assert turn.names() == [*OTHERS, "time__now"]
        assert wire.headers[0].startswith("POST http://toolsieve.example:8000/v1/filter ")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert turn_of(plugin, wire).names() == [*OTHERS, "time__now"]
        assert wire.headers[1].startswith("POST /v1/filter ")


class TestAway:
    @pytest.fixture
    def fresh(self) -> ModuleType:
        return load(SOURCE.read_text(encoding="utf-8"))

    def test_ten_rounds_wait_once(self, plugin: ModuleType, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
        """Regression: each of ten model calls waited for the full timeout, which took 15 s for one message."""
        wire.answer = lambda _: None

        async def rounds() -> list[list[str] | None]:
            turn = turn_of(plugin, wire, timeout=0.2)
            found = [await turn.model_call()]
            for _ in range(9):
                turn.called("time__now", "{}")
                found.append(await turn.model_call())
            await next_turn(turn, plugin, wire).model_call()
            return found

        assert asyncio.run(rounds()) == [[*OURS, *OTHERS]] * 10
        assert len(wire.questions) == 1
        assert len(caplog.records) == 1, "said once, not by each model call"
        assert "no answer from the service (TimeoutError)" in caplog.text
        assert "left alone for 5 s" in caplog.text
        assert "tools stay as they are" in caplog.text

    def test_who_switched_the_status_on_reads_it_once(self, plugin: ModuleType, wire: Wire) -> None:
        wire.stop()
        told = []

        async def messages() -> None:
            turn = turn_of(plugin, wire, status=True)
            for _ in range(3):
                await turn.model_call()
                told.append([status["data"]["description"] for status in turn.statuses])
                turn = next_turn(turn, plugin, wire, status=True)

        asyncio.run(messages())
        assert told == [["Toolsieve does not answer: all tools are on offer"], [], []]

    def test_a_pause_grows_and_the_first_answer_ends_it(self, plugin: ModuleType) -> None:
        pause = plugin.Pause()
        lengths = []
        now = 0.0
        for _ in range(5):
            assert not pause.keeps_away(now)
            pause.begin(now, now, tried=pause.trying)
            lengths.append(pause.until - now)
            assert pause.keeps_away(pause.until - 0.001)
            now = pause.until
        assert lengths == [5, 10, 20, 30, 30]
        assert not pause.keeps_away(now), "one may try"
        assert pause.keeps_away(now), "and all others pass by as long as it does"
        assert pause.end(now)
        assert not pause.keeps_away(now)
        assert not pause.end(now), "nothing to tell of where there was no pause"

    def test_who_was_asked_before_the_pause_makes_it_no_longer(self, plugin: ModuleType) -> None:
        """If a hundred requests wait at the same time, they all fail at the same time."""
        pause = plugin.Pause()
        assert [pause.begin(0, 1, tried=False) for _ in range(100)] == [5, *[0] * 99]

    def test_where_others_are_answered_there_is_no_pause(self, plugin: ModuleType) -> None:
        """A request with the user's own language model may take longer than others."""
        pause = plugin.Pause()
        pause.end(0.5)
        assert pause.begin(0, 1.5, tried=False) == 0
        assert not pause.keeps_away(1.6)

    def test_a_service_that_is_back_narrows_again(
        self, fresh: ModuleType, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        wire.stop()
        skipped = 0.0
        clock = time.monotonic

        async def messages() -> list[list[str] | None]:
            nonlocal skipped
            turn = turn_of(fresh, wire)
            found = [await turn.model_call()]
            wire.start_again()
            found.append(await next_turn(turn, fresh, wire).model_call())
            skipped += 6
            monkeypatch.setattr(fresh, "time", type("Time", (), {"monotonic": lambda: clock() + skipped}))
            found += await asyncio.gather(*(next_turn(turn, fresh, wire).model_call() for _ in range(3)))
            found.append(await next_turn(turn, fresh, wire).model_call())
            return found

        whole, narrowed = [*OURS, *OTHERS], [*OTHERS, "time__now"]
        with caplog.at_level(logging.INFO, logger="toolsieve.filter"):
            assert asyncio.run(messages()) == [whole, whole, narrowed, whole, whole, narrowed]
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        assert "answers again" in caplog.text

    def test_a_stopped_try_lets_the_next_one_try(
        self, fresh: ModuleType, wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wire.stop()
        clock = time.monotonic

        async def messages() -> list[str] | None:
            turn = turn_of(fresh, wire)
            await turn.model_call()
            monkeypatch.setattr(fresh, "time", type("Time", (), {"monotonic": lambda: clock() + 6}))
            wire.start_again()
            answer, wire.answer = wire.answer, lambda _: None
            trying = asyncio.create_task(next_turn(turn, fresh, wire).model_call())
            await until_later(lambda: bool(wire.questions), "one tries")
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)
            wire.answer = answer
            return await next_turn(turn, fresh, wire).model_call()

        assert asyncio.run(messages()) == [*OTHERS, "time__now"]

    def test_an_error_is_an_answer(self, plugin: ModuleType, wire: Wire) -> None:
        """Such an error takes no time, and the next request may succeed."""
        wire.answer = lambda _: (500, {})

        async def messages() -> list[str] | None:
            turn = turn_of(plugin, wire)
            await turn.model_call()
            wire.answer = wire.selection
            return await next_turn(turn, plugin, wire).model_call()

        assert asyncio.run(messages()) == [*OTHERS, "time__now"]

    def test_another_address_is_asked_at_once(self, plugin: ModuleType, wire: Wire) -> None:
        """After an administrator corrects the address, there is no pause."""
        other = Wire()
        wire.stop()

        async def messages() -> list[str] | None:
            turn = turn_of(plugin, wire)
            await turn.model_call()
            return await next_turn(turn, plugin, other).model_call()

        try:
            assert asyncio.run(messages()) == [*OTHERS, "time__now"]
        finally:
            other.end()


class TestWaiting:
    def test_a_busy_event_loop_does_not_count(self, plugin: ModuleType, wire: Wire) -> None:
        """With many users, Open WebUI is busy for longer than the timeout, although the response has arrived."""

        async def busy() -> list[list[str] | None]:
            turn = turn_of(plugin, wire, timeout=0.3)
            others = [next_turn(turn, plugin, wire, timeout=0.3) for _ in range(20)]
            tasks = [asyncio.create_task(one.model_call()) for one in [turn, *others]]
            for _ in range(3):
                await asyncio.sleep(0.001)
                time.sleep(0.5)  # noqa: ASYNC251 (as Open WebUI does)
            return await asyncio.gather(*tasks)

        assert asyncio.run(busy()) == [[*OTHERS, "time__now"]] * 21

    def test_what_is_given_up_is_stopped(self, plugin: ModuleType) -> None:
        stopped = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.append(True)

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                await plugin.within(0.05, work())
            await asyncio.sleep(0)

        asyncio.run(give_up())
        assert stopped == [True]


class TestUnmatched:
    """Tests of tool servers whose address has several names."""

    def turn(self, plugin: ModuleType, wire: Wire, **valves: Any) -> Turn:
        return turn_of(plugin, wire, **{"connections": "", "status": True, **valves})

    def test_it_says_what_to_set(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Regression: with different host names for the service, nothing was narrowed, and nothing was logged."""
        open_webui.connect("server:weather", "http://weather.example")
        open_webui.connect("server:sieve", f"http://host.docker.internal:{wire.port}")
        turn = self.turn(plugin, wire)
        assert turn.names() == [*OURS, *OTHERS]
        turn.called("time__now", "{}")
        assert turn.names() == [*OURS, *OTHERS]
        again = next_turn(turn, plugin, wire, connections="", status=True)
        again.names()
        assert wire.questions == []
        assert len(caplog.records) == 1, "once, and not by each message"
        assert "the valve 'url' matches no tool server of Open WebUI" in caplog.text
        assert """'connections' to {"server:sieve": "/"}""" in caplog.text
        told = ["Toolsieve isn't selecting tools: the valve 'url' matches no tool server"]
        for one in (turn, again):
            assert [status["data"]["description"] for status in one.statuses] == told

    def test_a_mistyped_connection_too(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI, caplog: pytest.LogCaptureFixture
    ) -> None:
        open_webui.connect("server:sieve", f"http://host.docker.internal:{wire.port}")
        turn = self.turn(plugin, wire, connections={"server:seive": "/"})
        assert turn.names() == [*OURS, *OTHERS]
        assert "the valve 'connections' matches no tool server" in caplog.text
        # The settings are correct now.
        right = next_turn(turn, plugin, wire, connections={"server:sieve": "/"})
        assert right.names() == [*OTHERS, "time__now"]

    def test_connections_are_found_by_their_address_beside_those_in_the_valve(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI
    ) -> None:
        """Regression: with the installer's connection in the valve, one made by hand showed all tools."""
        open_webui.connect("server:sieve", wire.url)
        turn = self.turn(plugin, wire, connections={"server:toolsieve": "/"})
        assert turn.names() == [*OTHERS, "time__now"]
        assert wire.questions[0]["connections"] == {"server:sieve": "/", "server:toolsieve": "/"}

    def test_a_connection_with_another_key_beside_those_in_the_valve_stays_whole(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI
    ) -> None:
        open_webui.connect("server:sieve", wire.url, key="another-key")
        turn = self.turn(plugin, wire, connections={"server:toolsieve": "/"})
        assert set(turn.names() or []) == {*OURS, *OTHERS}

    def test_a_valve_that_cannot_be_read_is_shown(self, plugin: ModuleType, wire: Wire) -> None:
        turn = self.turn(plugin, wire, connections="{'server:sieve': '/'}")
        assert turn.names() == [*OURS, *OTHERS]
        told = [status["data"]["description"] for status in turn.statuses]
        assert told == ["Toolsieve isn't selecting tools: the valve 'connections' is not JSON"]

    def test_tools_that_open_webui_could_not_read_are_reported(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI
    ) -> None:
        open_webui.connect("server:sieve", wire.url)
        turn = self.turn(plugin, wire)
        turn.metadata |= {"tools": registry(weather=["weather"]), "tool_ids": ["weather", "server:sieve"]}
        turn.body["tools"] = definitions("weather")
        assert turn.names() == ["weather"]
        assert [status["data"]["description"] for status in turn.statuses] == ["Toolsieve's tools are not available"]

    @pytest.mark.parametrize(("address", "missing"), [("", 0), ("/toolsets/mail", 0), ("http://other.example", 1)])
    def test_tools_of_a_users_own_connection_are_not_missing(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI, address: str, missing: int
    ) -> None:
        """Regression: functions of a user's own connection to the service replaced the others, which seemed missing."""
        open_webui.connect("server:sieve", wire.url)
        turn = self.turn(plugin, wire)
        server = {"url": address if "://" in address else wire.url + address, "path": "/openapi.json"}
        direct = {"spec": {"name": "time__now"}, "direct": True, "server": server}
        turn.metadata |= {"tools": {"time__now": direct}, "tool_ids": ["server:sieve"]}
        turn.body["tools"] = definitions("time__now")
        assert turn.names() == ["time__now"]
        assert len(turn.statuses) == missing

    def test_functions_of_an_mcp_connection_are_not_missing(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI
    ) -> None:
        """Open WebUI doesn't say from which MCP server a function is."""
        open_webui.connect("server:mcp:sieve", f"{wire.url}/mcp", path="")
        turn = self.turn(plugin, wire)
        turn.metadata |= {"tools": registry(sieve_time__now=[""]), "tool_ids": ["server:mcp:sieve"]}
        turn.body["tools"] = definitions("sieve_time__now")
        assert (turn.names(), turn.statuses) == (["sieve_time__now"], [])

    def test_a_chat_without_our_tools_is_no_mistake(
        self, plugin: ModuleType, wire: Wire, open_webui: OpenWebUI, caplog: pytest.LogCaptureFixture
    ) -> None:
        open_webui.connect("server:weather", "http://weather.example")
        open_webui.connect("server:sieve", wire.url)
        turn = self.turn(plugin, wire)
        turn.metadata |= {"tools": registry(weather=["weather"]), "tool_ids": ["weather"]}
        turn.body["tools"] = definitions("weather")
        assert turn.names() == ["weather"]
        assert (caplog.records, turn.statuses) == ([], [])

    def test_without_any_tool_server_there_is_nothing_to_say(
        self, plugin: ModuleType, wire: Wire, caplog: pytest.LogCaptureFixture
    ) -> None:
        turn = self.turn(plugin, wire)
        turn.metadata["tools"] = {"search_chats": turn.metadata["tools"]["search_chats"]}
        turn.body["tools"] = definitions("search_chats")
        assert turn.names() == ["search_chats"]
        assert (caplog.records, turn.statuses) == ([], [])
