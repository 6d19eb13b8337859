"""
title: Toolsieve
author: Toolsieve contributors
version: 0.1.0
license: Apache-2.0
required_open_webui_version: 0.10.2
description: Shows the model only the tools that a message needs. Asks a Toolsieve service before every model call.
"""

# This one file is the whole plugin: it is pasted into Open WebUI, or installed by `toolsieve openwebui install`.
# The functions up to `class Filter` work on plain values, `Filter` glues them to Open WebUI's hooks.
#
# It keeps nothing of chats or people: Open WebUI shares one instance between all chats. What it keeps for each event
# loop, a connection and what goes with it, is in `Link`. Whatever goes wrong, the chat goes on with the tools that it
# had; narrowing is a convenience here, the service enforces what a user may call.

import asyncio
import contextlib
import fnmatch
import hashlib
import importlib
import itertools
import json
import logging
import re
import time
import urllib.request
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

log = logging.getLogger("toolsieve.filter")

SEARCH_FUNCTION = "find_tools"
RUN_FUNCTION = "run_tool"
DESCRIBE_FUNCTION = "describe_tools"
LOAD_FUNCTION = "load_toolset"
UNLOAD_FUNCTION = "unload_toolset"
# Their results name tools that the model is going to need.
FINDING_FUNCTIONS = {SEARCH_FUNCTION, DESCRIBE_FUNCTION, "smart_select_tools", LOAD_FUNCTION, "enable_tool_group"}
LEGACY_MODE = "legacy"
# Under this key the first functions in a turn's own registry carry the turn. One would do; another filter may take it.
TURN = "toolsieve_turn"
MARKED = 10
SERVER_PREFIX = "server:"
MCP_PREFIX = "server:mcp:"

TURNS = 6
PROMPT_CHARACTERS = 6000
OLDER_CHARACTERS = 1500
# The service refuses a larger limit.
MOST_TOOLS = 128
MOST_DISCLOSED = 200
MOST_KEPT = 1000
ANSWER_BYTES = 4 * 1024 * 1024
LONGEST_TIMEOUT = 10.0
# Parts in which a wait is counted, see `within`.
SLICES = 10
# Seconds for which a service that does not answer is left alone: at first, and at most.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 30.0
# Seconds after which an unused connection is closed, and offers that the service is known to remember.
KEPT_IDLE = 60.0
MOST_OFFERS = 512
# Names from which on a hash is sent in their place. Fewer go along each time.
LONG_OFFER = 64
# Under this name the service reads it, whatever Open WebUI calls it elsewhere.
SIGNED_USER = "X-OpenWebUI-User-Jwt"
LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}  # noqa: S104 (compared with, never bound)

Body = dict[str, Any]
Emitter = Callable[[Body], Awaitable[Any]]
T = TypeVar("T")


class FilterValves(BaseModel):
    """What an administrator can set. Plain types only: Open WebUI's form edits every value as text or a switch."""

    url: str = Field(
        default="http://127.0.0.1:8000",
        description="Address of the Toolsieve service, as seen from Open WebUI.",
    )
    key: str = Field(
        default="",
        description="The service's API key.",
        json_schema_extra={"input": {"type": "password"}},
    )
    connections: str = Field(
        default="",
        description=(
            "Which tool servers are Toolsieve's, as JSON: tool id to path, such as "
            '{"server:toolsieve": "/", "server:mail": "/toolsets/mail"}. '
            "Empty: those registered in Open WebUI under the address above."
        ),
    )
    limit: int = Field(default=10, description="At most this many newly chosen tools for a message.")
    token_budget: int = Field(default=0, description="At most this many tokens of tool definitions. 0: no budget.")
    timeout: float = Field(default=1.5, description="Seconds to wait for the service before all tools are kept.")
    always_keep: str = Field(
        default="",
        description="Functions that are never taken away: names or patterns such as github__*, separated by commas.",
    )
    auto_enable: bool = Field(
        default=False,
        description="In a chat with no tool switched on, switch on the relevant tool servers that the user may use.",
    )
    status: bool = Field(default=False, description='Show a line such as "7 of 214 tools" above the answer.')
    priority: int = Field(default=0, description="Order among filters, lowest first.")

    @field_validator("connections", mode="before")
    @classmethod
    def _connections_as_text(cls, value: object) -> object:
        return json.dumps(value) if isinstance(value, dict) else value


class FilterUserValves(BaseModel):
    """What each person can set for herself."""

    llm_api_key: str = Field(
        default="",
        description=(
            "Your own API key for Gemini, OpenAI or Anthropic. With it a small model of that provider helps to choose "
            "tools where your message leaves it open; it sees the message and the names and first words of tools. "
            "The key goes along with each request and is not kept by Toolsieve."
        ),
        json_schema_extra={"input": {"type": "password"}},
    )


class FilterError(Exception):
    """The service's answer cannot be used. The text is safe to log: neither secrets nor anything a user wrote."""


class AwayError(FilterError):
    """The service does not answer, or was not asked because it did not answer shortly before."""

    def __init__(self, text: str = "", *, is_news: bool = False) -> None:
        super().__init__(text)
        # Whether nobody was told yet.
        self.is_news = is_news


class Answer(NamedTuple):
    """What the service decided: published names of functions in the order to offer them, tool ids if it was asked."""

    names: list[str]
    tool_ids: list[str] | None
    definitions: Sequence[Body] = ()
    # The offer that the service remembers.
    offer: str | None = None


class Turn(NamedTuple):
    """
    What Open WebUI put on offer at a turn's first model call. It ends with the turn, whose own functions carry it.

    Later calls of the turn start from the narrowed list, and what another filter took away must stay away.
    """

    # The address of the service, for turns with functions of two.
    service: str
    connections: dict[str, str]
    groups: list[str]
    # The service's functions in the registry, mapped to their published names.
    owned: dict[str, str]
    # Those of them that are on offer, in Open WebUI's order.
    offered: list[str]
    # Those that no tool server publishes, and that were bound because the model found them.
    bound: list[str]
    # What is on offer or bound, by published name, see `functions_by_name`.
    by_name: tuple[dict[str, str], dict[str, list[str]]]
    # For each tool id that publishes meta-tools in the place of the tools, its function that runs any of them.
    running: dict[str, str]


# --- Reading what Open WebUI hands over ------------------------------------------------------------------------------


def parse_connections(text: str) -> dict[str, str]:
    """Tool id to path. Empty when the text is empty; raises `FilterError` when it is no such JSON object."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        raise FilterError("the valve 'connections' is not JSON") from None
    if not isinstance(value, dict):
        raise FilterError("the valve 'connections' is not a JSON object")
    return {str(tool_id): path if isinstance(path, str) and path else "/" for tool_id, path in value.items()}


def parse_list(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", ",").split(",") if item.strip()]


def connection_id(connection: Mapping[str, Any], index: int) -> str:
    """The tool id that Open WebUI gives to a configured tool server."""
    info = connection.get("info")
    chosen = info.get("id") if isinstance(info, Mapping) else None
    return f"{MCP_PREFIX if connection.get('type') == 'mcp' else 'server:'}{chosen or index}"


def document_url(connection: Mapping[str, Any]) -> str:
    """Where Open WebUI fetches a tool server's document: below its URL, or somewhere else altogether. MCP has none."""
    if connection.get("type") == "mcp":
        return str(connection.get("url") or "")
    path = str(connection.get("path") or "openapi.json")
    return path if "://" in path else str(connection.get("url") or "").rstrip("/") + "/" + path.lstrip("/")


def path_below(url: str, service: str) -> str | None:
    """What the document at `url` publishes of the service, as a path; `None` when it is another service's document."""
    try:
        ours, other = urlsplit(service.strip().rstrip("/")), urlsplit(url.strip())
        ports = [part.port or {"http": 80, "https": 443}.get(part.scheme) for part in (ours, other)]
    except ValueError:
        return None
    same_host = ours.hostname == other.hostname or {ours.hostname, other.hostname} <= LOOPBACK
    path = other.path.removesuffix("openapi.json").rstrip("/")
    if not other.hostname or ours.scheme != other.scheme or not same_host or ports[0] != ports[1]:
        return None
    if path != ours.path and not path.startswith(ours.path + "/"):
        return None
    return path.removeprefix(ours.path) or "/"


def connections_below(configured: Iterable[Any], service: str) -> dict[str, str]:
    """Which of Open WebUI's configured tool servers are the service's own, as the `connections` valve has them."""
    found = {}
    for index, connection in enumerate(configured):
        if isinstance(connection, Mapping) and connection.get("type", "openapi") in ("openapi", "mcp"):
            path = path_below(document_url(connection), service)
            if path is not None:
                found[connection_id(connection, index)] = path
    return found


def text_of(content: object) -> str:
    """The text of a message, which comes as a string or in parts; pictures and the like are left out."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def function_name(definition: object) -> str:
    """The name in a function definition, in either of the shapes that providers take."""
    if not isinstance(definition, dict):
        return ""
    function = definition.get("function")
    name = (function if isinstance(function, dict) else definition).get("name")
    return name if isinstance(name, str) else ""


def function_names(definitions: Sequence[Any]) -> list[str]:
    """The name in each definition. There are thousands at each message: where all have the usual shape, it is quick."""
    try:
        names = [definition["function"]["name"] for definition in definitions]
    except (KeyError, TypeError, IndexError):
        names = [None]
    return names if {str}.issuperset(map(type, names)) else [function_name(definition) for definition in definitions]


def published_name(name: str, prefix: str, registry: Mapping[str, Any]) -> str:
    """The name that the service published. Open WebUI prefixes it when another tool already has that name."""
    while name.startswith(prefix) and name.removeprefix(prefix) in registry:
        name = name.removeprefix(prefix)
    return name


def owned_functions(registry: Mapping[str, Any], connections: Mapping[str, str]) -> dict[str, str]:
    """Functions of a turn that are the service's, mapped to their published names."""
    prefixes = {tool_id: tool_id.removeprefix(SERVER_PREFIX) + "_" for tool_id in connections}
    owned = {}
    for name, entry in registry.items():
        try:
            tool_id, spec = entry["tool_id"], entry["spec"]
        except (KeyError, TypeError):
            continue
        if (prefix := prefixes.get(tool_id)) is not None and isinstance(spec, dict):
            owned[name] = published_name(name, prefix, registry) if name.startswith(prefix) else name
    return owned


def turn_of(registry: Mapping[str, Any], service: str) -> Turn | None:
    """The turn that these functions carry; `None` before its first model call."""
    for entry in registry.values():
        if isinstance(entry, dict) and TURN in entry and entry[TURN].service == service:
            turn: Turn = entry[TURN]
            return turn
    return None


def disclosing_functions(registry: Mapping[str, Any], owned: Mapping[str, str]) -> dict[str, str]:
    """
    For each tool id that publishes meta-tools in the place of the tools: its function that runs any of them.

    Where all tools are published, a function that is not there was taken away on purpose.
    """
    leading = (DESCRIBE_FUNCTION, LOAD_FUNCTION)
    describing = {registry[name]["tool_id"] for name, published in owned.items() if published in leading}
    running = {registry[name]["tool_id"]: name for name, published in owned.items() if published == RUN_FUNCTION}
    return {
        tool_id: name
        for tool_id, name in running.items()
        if tool_id in describing and callable(registry[name].get("callable"))
    }


def names_over_mcp(messages: Sequence[Any], connections: Mapping[str, str]) -> dict[str, str]:
    """Functions that were called over MCP, mapped to published names: Open WebUI puts the server's id in front."""
    prefixes = [tool_id.removeprefix(MCP_PREFIX) + "_" for tool_id in connections if tool_id.startswith(MCP_PREFIX)]
    return {
        name: name.removeprefix(prefix)
        for name in called_functions(messages)
        for prefix in prefixes
        if name.startswith(prefix)
    }


def tool_calls(message: object) -> list[tuple[str, str]]:
    """Id and function name of each call in an assistant message."""
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(calls, list):
        return []
    pairs = ((call.get("id"), function_name(call)) for call in calls if isinstance(call, Mapping))
    return [(str(call_id), name) for call_id, name in pairs if name]


def called_functions(messages: Sequence[Any]) -> list[str]:
    """Every function that was called in the chat, oldest first."""
    return list(dict.fromkeys(name for message in messages for _, name in tool_calls(message)))


def is_from_user(messages: Sequence[Any], index: int) -> bool:
    """Whether a person wrote this message. Open WebUI shows pictures that tools return in user messages, too."""
    message = messages[index] if index < len(messages) else None
    if not isinstance(message, Mapping) or message.get("role") != "user":
        return False
    before = messages[index - 1] if index else None
    return not (
        isinstance(message.get("content"), list) and isinstance(before, Mapping) and before.get("role") == "tool"
    )


def turn_start(messages: Sequence[Any]) -> int:
    """Where the current turn begins: at the last message that a person wrote."""
    return next((i for i in reversed(range(len(messages))) if is_from_user(messages, i)), 0)


def is_first_call(messages: Sequence[Any]) -> bool:
    """Whether the model has not been called yet since the last message that a person wrote."""
    return turn_start(messages) >= len(messages) - 1


def found_and_unloaded(messages: Sequence[Any]) -> tuple[list[str], list[str]]:
    """
    Published names that searches and the like returned in the current turn, best first, and those that were unloaded.

    What is unloaded is not found any more, until it is found again.
    """
    turn = messages[turn_start(messages) :]
    asked = {
        call_id: named_among(name, {*FINDING_FUNCTIONS, UNLOAD_FUNCTION})
        for message in turn
        for call_id, name in tool_calls(message)
    }
    found: dict[str, None] = {}
    unloaded: dict[str, None] = {}
    for message in turn:
        function = asked.get(str(message.get("tool_call_id"))) if isinstance(message, Mapping) else None
        if function and message.get("role") == "tool":
            into, out_of = (unloaded, found) if function == UNLOAD_FUNCTION else (found, unloaded)
            for name in result_names(message):
                into[name] = None
                out_of.pop(name, None)
    return list(found), list(unloaded)


def named_among(name: str, functions: Iterable[str]) -> str | None:
    """Which of these functions it is. Open WebUI puts a prefix in front where two connections have the same."""
    return next((one for one in functions if name == one or name.endswith("_" + one)), None)


def result_names(message: Mapping[str, Any]) -> list[str]:
    """The names of tools in the result of a call: alone, or in an object each."""
    try:
        result = json.loads(text_of(message.get("content")))
    except ValueError:
        return []
    tools = result.get("tools") if isinstance(result, dict) else None
    names = (
        tool if isinstance(tool, str) else function_name(tool) for tool in (tools if isinstance(tools, list) else [])
    )
    return [name for name in names if name]


def shortened(text: str, longest: int) -> str:
    """The beginning and the end of a long text: what is asked stands at one of the two."""
    return text if len(text) <= longest else f"{text[: longest // 2]}\n…\n{text[-(longest // 2) :]}"


def conversation(messages: Sequence[Any], prompt: str | None, owned: Mapping[str, str]) -> list[Body]:
    """
    The last turns as the service needs them: what was said and what was called, no results, no arguments.

    `prompt` is the last user message as it was typed; by now documents may have been added to the one in `messages`.
    """
    if not messages:
        return []
    start = turn_start(messages)
    starts = [index for index in range(start + 1) if is_from_user(messages, index)]
    turns: list[Body] = []
    for index in range(starts[-TURNS] if len(starts) > TURNS else 0, len(messages)):
        message = messages[index]
        if is_from_user(messages, index):
            text = prompt or text_of(message.get("content")) if index == start else text_of(message.get("content"))
            longest = PROMPT_CHARACTERS if index == start else OLDER_CHARACTERS
            turns.append({"role": "user", "content": shortened(text, longest)})
        elif isinstance(message, Mapping) and message.get("role") == "assistant":
            turn: Body = {"role": "assistant", "content": shortened(text_of(message.get("content")), OLDER_CHARACTERS)}
            calls = [
                {"id": call_id, "type": "function", "function": {"name": owned.get(name, name), "arguments": "{}"}}
                for call_id, name in tool_calls(message)
            ]
            turns.append({**turn, "tool_calls": calls} if calls else turn)
    return turns


def lasting_chat_id(chat_id: object) -> str | None:
    """
    The chat's id if it names one conversation that lasts.

    API calls have none. A temporary chat's id names the browser session, which holds one such chat after another,
    and a channel holds many topics: for these the service goes by the messages alone.
    """
    if not isinstance(chat_id, str) or chat_id.startswith(("local:", "temporary:", "channel:")):
        return None
    return chat_id or None


def parse_answer(value: object) -> Answer:
    """Reads the service's answer; raises `FilterError` when it has another shape."""
    refused = FilterError("the answer is not a selection")
    if not isinstance(value, Mapping) or not isinstance(value.get("tools"), list):
        raise refused
    names = [function_name(tool) for tool in value["tools"]]
    tool_ids = value.get("tool_ids")
    as_asked = tool_ids is None or (
        isinstance(tool_ids, list) and all(isinstance(tool_id, str) for tool_id in tool_ids)
    )
    if not all(names) or not as_asked:
        raise refused
    definitions, offer = value.get("definitions"), value.get("offer")
    usable = [one for one in definitions if is_definition(one)] if isinstance(definitions, list) else []
    # Tools of the service come with their server, and meta-tools have no "__". The rest belongs to others, or to
    # nobody: the service does not know such a tool any more.
    known = [function_name(tool) for tool in value["tools"] if tool.get("server") or "__" not in function_name(tool)]
    return Answer(known, tool_ids, usable, offer if isinstance(offer, str) else None)


def is_definition(value: object) -> bool:
    """Whether Open WebUI can execute a function that is defined so."""
    function = value.get("function") if isinstance(value, Mapping) else None
    parameters = function.get("parameters") if isinstance(function, Mapping) else None
    return bool(function_name(value)) and isinstance(parameters, dict)


# --- Deciding --------------------------------------------------------------------------------------------------------


def functions_by_name(owned: Mapping[str, str], offered: Iterable[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """
    By published name the first function on offer that carries it, and the others.

    A tool that two connections publish is the same tool and is taken once; a function such as `find_tools`, which
    each connection has for itself, is taken from each.
    """
    first: dict[str, str] = {}
    more: dict[str, list[str]] = {}
    for function in offered:
        name = owned[function]
        if first.setdefault(name, function) is not function and "__" not in name:
            more.setdefault(name, []).append(function)
    return first, more


def with_published_names(
    names: Iterable[str], by_name: tuple[Mapping[str, str], Mapping[str, Sequence[str]]]
) -> list[str]:
    """The functions on offer that carry these published names, in the order of `names`."""
    first, more = by_name
    known = [name for name in dict.fromkeys(names) if name in first]
    return [function for name in known for function in (first[name], *more.get(name, ()))]


def kept_always(offered: Iterable[str], owned: Mapping[str, str], patterns: Sequence[str]) -> list[str]:
    if not patterns:
        return []
    matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
    return [function for function in offered if matches(function) or matches(owned[function])]


def bind(registry: Body, turn: Turn, definitions: Iterable[Body]) -> None:
    """
    Puts functions into the turn's registry that their tool server does not publish.

    Open WebUI executes what is there, and each of them runs through the tool server's own function for that: with its
    address, key and headers. A name that something else has stays with it.
    """
    for definition in definitions:
        name, runner = function_name(definition), turn.running.get(definition.get("tool_id") or "")
        if runner not in registry or name in registry:
            continue
        runs = registry[runner]
        spec = {"description": "", **definition["function"], "name": name}
        registry[name] = {**runs, "spec": spec, "callable": bound(runs["callable"], name)}
        turn.owned[name] = name
        turn.bound.append(name)
        turn.by_name[0].setdefault(name, name)


def bound(run: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Awaitable[Any]]:
    """The function that runs any tool, as one that runs this tool."""

    async def call(**arguments: Any) -> Any:
        return await run(name=name, arguments=arguments)

    return call


def narrowed_tools(
    tools: Iterable[tuple[str, Body]],
    registry: Mapping[str, Any],
    owned: Mapping[str, str],
    wanted: Iterable[str],
    *,
    fresh: bool,
) -> list[Body]:
    """
    A new list of definitions, out of names and definitions: what is not ours as it stands, then what is wanted of ours.

    Ours come last and keep the order that an earlier call of the turn gave them, so that a provider's prompt cache
    holds; a `fresh` list has Open WebUI's order, which means nothing.
    """
    present: Body = {}
    others = []
    for name, tool in tools:
        if name in owned:
            present[name] = tool
        else:
            others.append(tool)
    order = [name for name in dict.fromkeys(wanted) if name in present or (name in owned and name in registry)]
    if not fresh:
        place = {name: index for index, name in enumerate(present)}
        order.sort(key=lambda name: place.get(name, len(place)))
    ours = [present.get(name) or {"type": "function", "function": registry[name]["spec"]} for name in order]
    return others + ours


# --- Talking to the service and to Open WebUI ------------------------------------------------------------------------


class Pause:
    """
    Leaves a service alone that does not answer: no message waits for it again and again.

    While a pause lasts nobody asks. After it one question tries, and all others pass by until its answer is there. Each
    try that fails makes the next pause twice as long; the first answer, whatever it says, ends all of it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.until = 0.0
        self.trying = False
        self.answered = float("-inf")

    def keeps_away(self, now: float) -> bool:
        """Whether a question must not be asked. After a pause the first one may, and is the one that tries."""
        if not self.seconds:
            return False
        if self.trying or now < self.until:
            return True
        self.trying = True
        return False

    def end(self, now: float) -> bool:
        """Notes an answer; returns whether there was a pause."""
        lasted = bool(self.seconds)
        self.seconds, self.trying, self.answered = 0.0, False, now
        return lasted

    def begin(self, asked: float, now: float, *, tried: bool) -> float:
        """Notes that a question got no answer; returns the seconds of the pause, 0 where none begins anew."""
        # Others were answered meanwhile, so the service is there; or this was asked before the pause.
        if self.answered > asked or (self.seconds and not tried):
            return 0.0
        self.seconds = min(max(2 * self.seconds, FIRST_PAUSE), LONGEST_PAUSE)
        self.until, self.trying = now + self.seconds, False
        return self.seconds


class Link:
    """
    The way to one service on one event loop: a connection that is kept, and whether the service is away.

    It also holds the hashes of the lists of names that the service remembers. Of what was said in a chat and of who
    said it, nothing is kept.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = importlib.import_module("aiohttp")
        self._session = self._open()
        self._proxy = proxy_for(url)
        self._pause = Pause()
        self._offers: dict[str, None] = {}
        self._asking = 0
        self._is_retired = False
        weakref.finalize(self, close_behind, self._session, asyncio.get_running_loop())

    async def ask(
        self, valves: FilterValves, question: Body, user: Mapping[str, Any], names: Sequence[str] | None = None
    ) -> Answer:
        """
        One `POST /v1/filter`, with the names on offer if there are any. Raises on every failure; the caller decides
        what a failure means.
        """
        asked = time.monotonic()
        if self._pause.keeps_away(asked):
            raise AwayError
        tries = self._pause.trying
        self._asking += 1
        try:
            exchange = self._exchange(headers_of(valves, user), question, names)
            status, raw = await within(wait_at_most(valves), exchange)
        except (TimeoutError, OSError, self._client.ClientConnectionError) as error:
            raise self._away(error, asked, tried=tries) from error
        except FilterError:
            self._answered()
            raise
        finally:
            if tries:  # Whatever came of it, somebody else may try now.
                self._pause.trying = False
            self._asking -= 1
            if self._is_retired and not self._asking:
                await self._session.close()
        self._answered()
        answer = answer_of(status, raw)
        if answer.offer:  # A service that does not know of offers says nothing of them.
            while len(self._offers) >= MOST_OFFERS:
                del self._offers[next(iter(self._offers))]
            self._offers[answer.offer] = None
        return answer

    def _answered(self) -> None:
        if self._pause.end(time.monotonic()):
            log.info("Toolsieve filter: the service answers again")

    def _away(self, error: Exception, asked: float, *, tried: bool) -> AwayError:
        """What a question without an answer means. Said once, and not by each message of a pause."""
        was_away = bool(self._pause.seconds)
        pause = self._pause.begin(asked, time.monotonic(), tried=tried)
        soon = f"; it is left alone for {pause:.0f} s" if pause else ""
        return AwayError(f"no answer from the service ({type(error).__name__}){soon}", is_news=not was_away)

    async def retire(self) -> None:
        """Closes the connection as soon as nobody waits for an answer."""
        self._is_retired = True
        if not self._asking:
            await self._session.close()

    async def _exchange(self, headers: Body, question: Body, names: Sequence[str] | None) -> tuple[int, bytes]:
        """
        Sends the hash of the names where the service is known to remember them, and hash and names where it is not.
        """
        if names is None:
            return await self._post(headers, question)
        if len(names) < LONG_OFFER:
            return await self._post(headers, {**question, "tools": names})
        offer = offer_hash(names)
        if offer in self._offers:
            status, answer = await self._post(headers, {**question, "offer": offer})
            if status != 409:
                return status, answer
            self._offers.pop(offer, None)
        return await self._post(headers, {**question, "offer": offer, "tools": names})

    async def _post(self, headers: Body, question: Body) -> tuple[int, bytes]:
        data = json.dumps(question).encode()
        gone = (self._client.ServerDisconnectedError, self._client.ClientOSError, ConnectionError)
        try:
            return await self._send(self._session, headers, data)
        except self._client.ClientConnectorError:
            raise
        except gone:
            # A kept connection that was closed at the other end as it was taken. None of the others may be any better.
            async with self._open() as session:
                return await self._send(session, headers, data)

    async def _send(self, session: Any, headers: Body, data: bytes) -> tuple[int, bytes]:
        """Status and body of an answer, which is read up to a limit."""
        posting = session.post(self.url, data=data, headers=headers, proxy=self._proxy, allow_redirects=False)
        async with posting as response:
            answer = bytearray()
            if response.status == 200:
                async for chunk in response.content.iter_chunked(65536):
                    answer += chunk
                    if len(answer) > ANSWER_BYTES:
                        raise FilterError("the answer is too long")
            return response.status, bytes(answer)

    def _open(self) -> Any:
        """A client that keeps no cookies and waits as long as it is let: `within` counts."""
        client = self._client
        return client.ClientSession(
            connector=client.TCPConnector(keepalive_timeout=KEPT_IDLE),
            cookie_jar=client.DummyCookieJar(),
            timeout=client.ClientTimeout(total=None),
        )


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """
    The result of work that may wait for so long; raises `TimeoutError` after it.

    What counts is the time in which the event loop had nothing else to do. Open WebUI keeps it busy for seconds when
    many people write at once, with the answer lying there unread; a clock alone would throw it away.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(SLICES):
            done, _ = await asyncio.wait({task}, timeout=seconds / SLICES)
            if done:
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()


def close_behind(session: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Closes a client whose filter is gone: Open WebUI makes a new one when the function's text changes."""

    def close() -> None:
        closing = session.close()
        with contextlib.suppress(StopIteration, RuntimeError):
            closing.send(None)  # This closes; what is left is to wait for the goodbyes, and nobody does.
        closing.close()

    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if loop.is_running() and here is not loop:
        loop.call_soon_threadsafe(close)
    else:
        close()


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address. Looked up once: it takes longer than a question."""
    address = urlsplit(url)
    if not address.hostname or urllib.request.proxy_bypass(address.hostname):
        return None
    return urllib.request.getproxies().get(address.scheme)


def offer_hash(names: Sequence[str]) -> str:
    """What stands for a list of names at the service."""
    return "sha256:" + hashlib.sha256("\n".join(names).encode()).hexdigest()


def filter_url(valves: FilterValves) -> str:
    return valves.url.strip().rstrip("/") + "/v1/filter"


def headers_of(valves: FilterValves, user: Mapping[str, Any]) -> Body:
    headers = {"Content-Type": "application/json"}
    if key := valves.key.strip():
        headers["Authorization"] = f"Bearer {key}"
    if llm_api_key := own_llm_key(user):
        headers["X-LLM-Api-Key"] = llm_api_key
    if token := signed_user(user):
        headers[SIGNED_USER] = token
    return headers


def answer_of(status: int, answer: bytes) -> Answer:
    """The service's answer; raises `FilterError` where it is none."""
    if status != 200:
        hint = " (is the valve 'key' right?)" if status in (401, 403) else ""
        raise FilterError(f"HTTP {status}{hint}")
    try:
        return parse_answer(json.loads(answer))
    except ValueError:
        raise FilterError("the answer is not JSON") from None


def own_llm_key(user: Mapping[str, Any]) -> str:
    """The person's own key for a language model; empty where there is none that a header can carry."""
    valves = user.get("valves")
    key = valves.get("llm_api_key") if isinstance(valves, Mapping) else getattr(valves, "llm_api_key", None)
    key = key.strip() if isinstance(key, str) else ""
    return key if key.isascii() and key.isprintable() and " " not in key else ""


def signed_user(user: Mapping[str, Any]) -> str:
    """
    The user as Open WebUI signs it for tool servers, so that the service believes both or none.

    Empty where this Open WebUI does not forward users, does not sign them, or is too old to: then the service goes by
    the user in the question.
    """
    try:
        signing = importlib.import_module("open_webui.utils.headers")
        if not user.get("id") or not signing.ENABLE_FORWARD_USER_INFO_HEADERS:
            return ""
        known = {key: user.get(key) or "" for key in ("id", "email", "name", "role")}
        headers = signing.include_user_info_headers({}, SimpleNamespace(**known))
        token = headers.get(signing.FORWARD_USER_INFO_HEADER_JWT)
    except Exception:
        return ""
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""


def wait_at_most(valves: FilterValves) -> float:
    return min(max(valves.timeout, 0.05), LONGEST_TIMEOUT)


def hook_limit(valves: FilterValves) -> float:
    """Seconds for a whole hook: the service's answer and what is looked up in Open WebUI's database before."""
    return wait_at_most(valves) + 0.5


async def configured_connections(request: Any) -> list[Any]:
    """The tool servers registered in Open WebUI; empty where this version keeps them elsewhere."""
    try:
        config = importlib.import_module("open_webui.models.config").Config
        found = await config.get("tool_server.connections", [])
    except Exception:  # Before 0.12 the configuration hung on the application.
        config = getattr(getattr(getattr(request, "app", None), "state", None), "config", None)
        found = getattr(config, "TOOL_SERVER_CONNECTIONS", [])
    return found if isinstance(found, list) else []


async def connections_of(valves: FilterValves, request: Any) -> dict[str, str]:
    """Which tool ids are the service's: as set by the valve, else by the addresses that Open WebUI has."""
    return parse_connections(valves.connections) or connections_below(await configured_connections(request), valves.url)


async def usable_connections(connections: Mapping[str, str], user: Mapping[str, Any], request: Any) -> dict[str, str]:
    """Those of our connections that are enabled and that Open WebUI lets this user have. Empty if it cannot say."""
    try:
        may_use = importlib.import_module("open_webui.utils.access_control").has_connection_access
    except Exception:
        return {}
    person = SimpleNamespace(id=user.get("id"), role=user.get("role"))
    usable = {}
    for index, connection in enumerate(await configured_connections(request)):
        tool_id = connection_id(connection, index)
        enabled = (connection.get("config") or {}).get("enable")
        if tool_id in connections and enabled and await may_use(person, connection):
            usable[tool_id] = connections[tool_id]
    # Over MCP they would be there twice.
    documents = {tool_id: path for tool_id, path in usable.items() if not tool_id.startswith(MCP_PREFIX)}
    return documents or usable


async def group_names(user: Mapping[str, Any]) -> list[str]:
    """Names of the user's groups; empty where this version of Open WebUI does not tell."""
    user_id = user.get("id")
    if not user_id:
        return []
    try:
        groups = importlib.import_module("open_webui.models.groups").Groups
        try:
            found = await groups.get_groups_by_member_id(user_id, include_inherited=True)
        except TypeError:
            found = await groups.get_groups_by_member_id(user_id)
        return [str(group.name) for group in found]
    except Exception:
        return []


def question_about(
    valves: FilterValves,
    connections: Mapping[str, str],
    messages: list[Body],
    user: Mapping[str, Any],
    groups: list[str],
    metadata: Mapping[str, Any],
    model: object,
) -> Body:
    """The request body of `POST /v1/filter`, but for what is on offer. Unknown values are left out."""
    question: Body = {
        "messages": messages,
        "connections": dict(connections),
        "limit": min(max(valves.limit, 1), MOST_TOOLS),
    }
    if user.get("id"):
        known = {key: user.get(key) for key in ("id", "email", "role") if user.get(key)}
        question["user"] = {**known, "groups": groups}
    optional = {
        "chat_id": lasting_chat_id(metadata.get("chat_id")),
        "message_id": metadata.get("message_id"),
        "model": model,
        "token_budget": valves.token_budget if valves.token_budget > 0 else None,
    }
    return {**question, **{key: value for key, value in optional.items() if value}}


def tool_servers_of(registry: Mapping[str, Any]) -> list[str]:
    """The tool servers among what a turn's functions belong to; first those that look like Toolsieve."""
    found: dict[str, set[str]] = {}
    for name, entry in registry.items():
        tool_id = entry.get("tool_id") if isinstance(entry, dict) else None
        if isinstance(tool_id, str) and tool_id.startswith(SERVER_PREFIX):
            found.setdefault(tool_id, set()).add(name.removeprefix(tool_id.removeprefix(SERVER_PREFIX) + "_"))
    return sorted(found, key=lambda tool_id: not {SEARCH_FUNCTION, RUN_FUNCTION} <= found[tool_id])


def note(error: Exception) -> None:
    """One line without addresses, secrets or anything that was said in the chat."""
    if isinstance(error, AwayError) and not error.is_news:
        return
    why = str(error) if isinstance(error, FilterError) else type(error).__name__
    log.warning("Toolsieve filter: %s; the tools stay as they are", why)


# --- Glue ------------------------------------------------------------------------------------------------------------


class Filter:
    """Open WebUI's hooks. It sets `valves` anew before each hook, so every hook works on the value it began with."""

    Valves = FilterValves
    UserValves = FilterUserValves

    def __init__(self) -> None:
        self.valves = FilterValves()
        self._links: dict[asyncio.AbstractEventLoop, Link] = {}
        # The last settings that named a tool server of Open WebUI, and the last that named none, which was logged.
        self._fitting: tuple[str, str] | None = None
        self._unfitting: tuple[str, str] | None = None

    async def inlet(
        self,
        body: Body,
        __user__: Body | None = None,
        __metadata__: Body | None = None,
        __request__: Any = None,
    ) -> Body:
        """Once for each message: which tool servers take part. Works in every mode of function calling."""
        valves = self.valves
        try:
            choosing = self._tool_ids(valves, body, __user__ or {}, __metadata__ or {}, __request__)
            tool_ids = await within(hook_limit(valves), choosing)
            if tool_ids is not None:
                body["tool_ids"] = tool_ids
        except Exception as error:
            note(error)
        return body

    async def request(
        self,
        body: Body,
        __user__: Body | None = None,
        __metadata__: Body | None = None,
        __request__: Any = None,
        __event_emitter__: Emitter | None = None,
    ) -> Body:
        """Before every model call, those after tool calls included: which functions the model sees."""
        valves = self.valves
        metadata = __metadata__ or {}
        status = None
        try:
            narrowing = self._narrow(valves, body, __user__ or {}, metadata, __request__)
            status = await within(hook_limit(valves), narrowing)
        except Exception as error:
            note(error)
            if isinstance(error, AwayError) and error.is_news:
                status = "Toolsieve does not answer: all tools are on offer"
        # API calls have no chat that could show it.
        if status and valves.status and __event_emitter__ and metadata.get("chat_id"):
            try:
                await __event_emitter__({"type": "status", "data": {"description": status, "done": True}})
            except Exception as error:
                note(error)
        return body

    async def _ask(
        self, valves: FilterValves, question: Body, user: Body, names: Sequence[str] | None = None
    ) -> Answer:
        """Over the connection of this event loop. One to another address, or on a loop that has ended, is given up."""
        loop, url = asyncio.get_running_loop(), filter_url(valves)
        link = self._links.get(loop)
        if link is None or link.url != url:
            for ended in [known for known in self._links if known.is_closed()]:
                del self._links[ended]
            self._links[loop], before = Link(url), link
            if before is not None:
                await before.retire()
        return await self._links[loop].ask(valves, question, user, names)

    async def _tool_ids(
        self, valves: FilterValves, body: Body, user: Body, metadata: Body, request: Any
    ) -> list[str] | None:
        """The tool ids for this message as a new list; `None` where nothing is to be changed."""
        if body.get("tools") is not None:  # The caller brought its own; Open WebUI then ignores tool ids.
            return None
        chosen = [tool_id for tool_id in body.get("tool_ids") or [] if isinstance(tool_id, str)]
        messages = body.get("messages") or []
        if not messages:
            return None
        # Scripts that use the API without a session would not expect tools that they did not ask for.
        nothing_on = not chosen and not metadata.get("tool_servers") and bool(metadata.get("session_id"))
        automatic = valves.auto_enable and nothing_on
        # Open WebUI lists the tools of MCP servers for each message, after this: the service lists what it answers now.
        over_mcp = [tool_id for tool_id in chosen if tool_id.startswith(MCP_PREFIX)]
        if not automatic and len(chosen) < 2 and not over_mcp:
            return None
        connections = await connections_of(valves, request)
        if automatic:
            connections = await usable_connections(connections, user, request)
        ours = list(connections) if automatic else [tool_id for tool_id in chosen if tool_id in connections]
        if len(ours) < (1 if automatic or connections.keys() & set(over_mcp) else 2):
            return None
        said = conversation(messages, None, names_over_mcp(messages, connections))
        question = question_about(valves, connections, said, user, await group_names(user), metadata, body.get("model"))
        answer = await self._ask(valves, {**question, "tool_ids": ours if automatic else chosen}, user)
        if answer.tool_ids is None:
            raise FilterError("the answer has no tool ids")
        return [tool_id for tool_id in chosen or ours if tool_id not in ours or tool_id in answer.tool_ids]

    async def _turn(
        self, valves: FilterValves, registry: Body, present: list[str], user: Body, metadata: Body, request: Any
    ) -> Turn | None:
        """What is on offer in a turn, at its first model call. `None` where nothing of it is the service's."""
        every = await connections_of(valves, request)
        # What came over MCP was narrowed when it was listed.
        connections = {tool_id: path for tool_id, path in every.items() if not tool_id.startswith(MCP_PREFIX)}
        owned = owned_functions(registry, connections)
        if not owned:
            return None
        # Open WebUI's own tool search, where it is switched on, holds definitions back: those are on offer, too.
        on_offer = {*present, *(metadata.get("deferred_tools") or [])}
        offered = [name for name in owned if name in on_offer]
        turn = Turn(
            service=valves.url,
            connections=connections,
            groups=await group_names(user),
            owned=owned,
            offered=offered,
            bound=[],
            by_name=functions_by_name(owned, offered),
            running=disclosing_functions(registry, owned),
        )
        for name in itertools.islice(owned, MARKED):
            registry[name][TURN] = turn
        return turn

    async def _narrow(self, valves: FilterValves, body: Body, user: Body, metadata: Body, request: Any) -> str | None:
        """Narrows `body["tools"]`; returns the status line at a turn's first model call."""
        tools, registry = body.get("tools"), metadata.get("tools")
        params = metadata.get("params")
        if not isinstance(tools, list) or not tools or not isinstance(registry, dict):
            return None
        if isinstance(params, dict) and params.get("function_calling") == LEGACY_MODE:
            return None
        present = function_names(tools)
        messages = body.get("messages") or []
        turn = turn_of(registry, valves.url)
        first = turn is None
        if turn is None:
            turn = await self._turn(valves, registry, present, user, metadata, request)
        if turn is None:
            return await self._unmatched(valves, registry, request) if is_first_call(messages) else None

        owned, by_name = turn.owned, turn.by_name
        said = conversation(messages, metadata.get("base_user_prompt"), owned)
        question = question_about(valves, turn.connections, said, user, turn.groups, metadata, body.get("model"))
        question["tool_ids"] = list(metadata.get("tool_ids") or [])
        foreign = [name for name in present if name and name not in owned]
        names = list(dict.fromkeys([*(owned[name] for name in turn.offered), *foreign]))
        found_names, unloaded = found_and_unloaded(messages)
        called = called_functions(messages)
        if turn.running:
            hidden = [name for name in called if name not in registry]
            known = dict.fromkeys([*hidden, *turn.bound, *found_names])
            question["disclose"] = [name for name in known if name not in unloaded][:MOST_DISCLOSED]
        found = with_published_names(found_names, by_name)
        offered = {*turn.offered, *turn.bound}
        chosen_by_caller = function_name(body.get("tool_choice"))
        kept_by_us = [
            *kept_always([*turn.offered, *turn.bound], owned, parse_list(valves.always_keep)),
            *(name for name in called if name in offered and owned[name] not in unloaded),
            *([chosen_by_caller] if chosen_by_caller in offered else []),
        ]
        if kept_by_us:  # Whether the person may use them, and whether they are still there, the service knows.
            question["keep"] = list(dict.fromkeys(owned[name] for name in kept_by_us))[:MOST_KEPT]
        try:
            answer = await self._ask(valves, question, user, names)
            bind(registry, turn, answer.definitions)
            found = with_published_names(found_names, by_name)
            answered = with_published_names(answer.names, by_name)
        except Exception as error:
            if first or set(found) <= set(present):
                raise
            # What the model has searched for is bound without the service, too.
            note(error)
            answered = [*(name for name in present if name in owned), *kept_by_us]

        wanted = [*answered, *found]
        fresh = first or offered <= set(present)
        kept = narrowed_tools(zip(present, tools, strict=True), registry, owned, wanted, fresh=fresh)
        if kept:
            body["tools"] = kept
        else:  # Some providers refuse an empty list, and these two without a list.
            for key in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(key, None)
        ours = sum(function_name(tool) in owned for tool in kept)
        return f"{ours} of {len(offered)} tools" if first else None

    async def _unmatched(self, valves: FilterValves, registry: Body, request: Any) -> str | None:
        """
        Where tool servers are on offer and the settings name none of Open WebUI's: what to set, once in the log, and as
        a status line.
        """
        settings, servers = (valves.url, valves.connections), tool_servers_of(registry)
        if not servers or self._fitting == settings:
            return None
        configured = await configured_connections(request)
        known = {connection_id(one, index) for index, one in enumerate(configured) if isinstance(one, Mapping)}
        if (await connections_of(valves, request)).keys() & known:
            self._fitting = settings
            return None
        valve = "connections" if valves.connections.strip() else "url"
        if self._unfitting != settings:
            self._unfitting = settings
            log.warning(
                "Toolsieve filter: nothing is narrowed, because the valve '%s' names no tool server of Open WebUI. Set "
                "'url' to the address that Toolsieve's connection has in Open WebUI, or 'connections' to "
                '{"%s": "/"}',
                valve,
                servers[0],
            )
        return f"Toolsieve narrows nothing: its valve '{valve}' names no tool server of Open WebUI"
