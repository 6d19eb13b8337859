"""
title: Toolsieve
author: Toolsieve contributors
version: 0.2.0
license: Apache-2.0
required_open_webui_version: 0.10.2
description: Shows the model only the tools that a message needs, as selected by a Toolsieve service.
"""

# This file is the complete plugin. Paste it into Open WebUI, or run `toolsieve openwebui install`.
# The functions before `class Filter` work on plain values. `Filter` connects them to Open WebUI's hooks.
#
# Open WebUI shares one instance of the filter between all chats, so the filter stores nothing about chats or people.
# For each event loop, `Link` keeps a connection to the service. On any error, the chat continues with all its tools.
# The filter only narrows the list of tools; the service enforces which tools a user may call.
#
# The parts: names, limits and patterns; texts of the status line; valves; errors and values; connections; definitions;
# the functions of a turn; functions that stay; messages and calls; the conversation; the service's response; selection
# of functions; the connection to the service; valves and language of a user; lookups in Open WebUI; question and
# answer; status line and log; the hooks.

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
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

log = logging.getLogger("toolsieve.filter")

# --- Names, limits and patterns --------------------------------------------------------------------------------------

# The meta-tools, by their public names.
SEARCH_FUNCTION = "find_tools"
RUN_FUNCTION = "run_tool"
DESCRIBE_FUNCTION = "describe_tools"
LOAD_FUNCTION = "load_toolset"
UNLOAD_FUNCTION = "unload_toolset"
SELECT_FUNCTION = "smart_select_tools"
# The results of these functions contain the names of loaded tools.
LOADING_FUNCTIONS = {LOAD_FUNCTION, "enable_tool_group"}
# The results of these functions contain names of tools that the model will probably call.
FINDING_FUNCTIONS = {SEARCH_FUNCTION, DESCRIBE_FUNCTION, SELECT_FUNCTION, *LOADING_FUNCTIONS}
# The first version of Open WebUI with the `request` hook.
REQUEST_HOOK = (0, 11, 2)
LEGACY_MODE = "legacy"
# The key under which the first functions in a turn's registry store the turn, by the address of the service. One
# function would be enough, but another filter may remove it.
TURN = "toolsieve_turn"
MARKED = 10
SERVER_PREFIX = "server:"
MCP_PREFIX = "server:mcp:"
# The list of the tools that Open WebUI's own tool search withholds, in a system prompt.
WITHHELD = re.compile(r"<available_tools>.*?(?:</available_tools>|\Z)", re.DOTALL)

# Chats with this prefix are channels. The pattern is the system prompt with which a model is asked in a thread.
CHANNEL = "channel:"
THREAD = re.compile(
    r"You are (?P<model>.+?), participating in a threaded conversation\..*?Here's the thread history:\n\n\n"
    r"(?P<history>.*)\n\n\nContinue the conversation naturally as ",
    re.DOTALL,
)
AUTHOR = re.compile(r"(?P<name>[^\n:]{1,100}): ")

# What the service gets of a conversation: the number of turns before the message, and characters of the message and of
# each other text.
TURNS = 6
PROMPT_CHARACTERS = 6000
OLDER_CHARACTERS = 1500
# The service rejects a larger `limit`, and more names in `keep`.
MOST_TOOLS = 128
MOST_KEPT = 1000
# Maximum number of names in `disclose`.
MOST_DISCLOSED = 200
# Maximum size of a response, and maximum value of the valve `timeout`, in seconds.
ANSWER_BYTES = 4 * 1024 * 1024
LONGEST_TIMEOUT = 10.0
# Number of parts into which a timeout is divided; see `within`.
SLICES = 10
# How long the filter sends no requests after a failure, in seconds: the first pause and the longest pause.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 30.0
# How long an unused connection stays open, in seconds, and the maximum number of offers that the service has cached.
KEPT_IDLE = 60.0
MOST_OFFERS = 512
# Minimum number of names for which a hash is sent instead. Shorter lists are sent every time.
LONG_OFFER = 64
# The header in which the service expects the signed user. Open WebUI can use another name for other servers.
SIGNED_USER = "X-OpenWebUI-User-Jwt"
# Open WebUI's own tools have this type in a turn's registry, and a terminal's tools have the other.
BUILTIN = "builtin"
TERMINAL = "terminal"
# Open WebUI's own tool search, without which deferred functions could not be called.
CALL_FUNCTION = "call_tool"
OWN_SEARCH = {"search_tools", CALL_FUNCTION}
# The service reads the first sentence of a description.
DESCRIPTION_CHARACTERS = 400
# How much of each prompt is searched for names of functions.
INSTRUCTION_CHARACTERS = 50_000
MOST_SEARCHES = 16
MOST_JUDGED = 1000
# The text with which Open WebUI sends images from tools as a user's message.
IMAGES_TEXT = "Here are the images from the tool results"
# The list of attached files that Open WebUI puts before a message.
ATTACHED = re.compile(r"\A<attached_files>\n.*?\n</attached_files>\s*", re.DOTALL)
DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}  # noqa: S104 (compared with, never bound)

# A JSON object.
Body = dict[str, Any]
Emitter = Callable[[Body], Awaitable[Any]]
T = TypeVar("T")

# Functions that a person chose, and that therefore stay, by what was chosen. Open WebUI offers some of them only then.
CHOSEN_FEATURES = {
    "memory": ("*_memory", "*_memories", "*_memory_*"),
    "web_search": ("search_web", "fetch_url"),
    "image_generation": ("generate_image", "edit_image"),
    "code_interpreter": ("execute_code",),
    "voice": ("play_animation",),
}
CHOSEN_KNOWLEDGE = ("*_knowledge", "*_knowledge_*", "*_chat_files", "view_file", "kb_exec")
CHOSEN_ITEMS = {
    "note": ("*_note", "*_notes", "*_note_*", *CHOSEN_KNOWLEDGE),
    "chat": ("search_chats", "view_chat"),
    "file": ("*_chat_files", "view_file"),
    "image": (),
}
# The list of skills that the model can open, in a system prompt.
LISTED_SKILLS = "<available_skills>"
CHOSEN_SKILLS = ("view_skill", "read_skill_file", "grep_skill_files", "update_skill_files")


# --- Texts of the status line ----------------------------------------------------------------------------------------


class StatusLines(NamedTuple):
    """The status line in one language."""

    some_tools: str
    no_tool_needed: str
    switched_off: str
    no_answer: str
    no_tools: str
    failed: str


STATUS = {
    "ar": StatusLines(
        "{shown} من أصل {all} أداة",
        "لا حاجة إلى أي أداة: {shown} من أصل {all}",
        "اختيار الأدوات متوقف: كل الأدوات متاحة",
        "Toolsieve لا يستجيب: كل الأدوات متاحة",
        "أدوات Toolsieve غير متاحة",
        "Toolsieve لا يختار الأدوات: {error}",
    ),
    "cs": StatusLines(
        "{shown} z {all} nástrojů",
        "Není potřeba žádný nástroj: {shown} z {all}",
        "Výběr nástrojů je vypnutý: k dispozici jsou všechny",
        "Toolsieve neodpovídá: k dispozici jsou všechny nástroje",
        "Nástroje Toolsieve nejsou k dispozici",
        "Toolsieve nevybírá nástroje: {error}",
    ),
    "de": StatusLines(
        "{shown} von {all} Werkzeugen",
        "Kein Werkzeug nötig: {shown} von {all}",
        "Die Werkzeugauswahl ist ausgeschaltet: alle stehen bereit",
        "Toolsieve antwortet nicht: alle Werkzeuge stehen bereit",
        "Die Werkzeuge von Toolsieve sind nicht verfügbar",
        "Toolsieve wählt keine Werkzeuge aus: {error}",
    ),
    "el": StatusLines(
        "{shown} από τα {all} εργαλεία",
        "Δεν χρειάζεται εργαλείο: {shown} από τα {all}",
        "Η επιλογή εργαλείων είναι ανενεργή: όλα είναι διαθέσιμα",
        "Το Toolsieve δεν αποκρίνεται: όλα τα εργαλεία είναι διαθέσιμα",
        "Τα εργαλεία του Toolsieve δεν είναι διαθέσιμα",
        "Το Toolsieve δεν επιλέγει εργαλεία: {error}",
    ),
    "en": StatusLines(
        "{shown} of {all} tools",
        "No tool needed: {shown} of {all} tools",
        "Tool selection is switched off: all tools are on offer",
        "Toolsieve does not answer: all tools are on offer",
        "Toolsieve's tools are not available",
        "Toolsieve isn't selecting tools: {error}",
    ),
    "es": StatusLines(
        "{shown} de {all} herramientas",
        "No hace falta ninguna herramienta: {shown} de {all}",
        "La selección de herramientas está desactivada: todas están disponibles",
        "Toolsieve no responde: todas las herramientas están disponibles",
        "Las herramientas de Toolsieve no están disponibles",
        "Toolsieve no está seleccionando herramientas: {error}",
    ),
    "fi": StatusLines(
        "{shown}/{all} työkalua",
        "Työkalua ei tarvita: {shown}/{all}",
        "Työkalujen valinta on pois päältä: kaikki ovat käytettävissä",
        "Toolsieve ei vastaa: kaikki työkalut ovat käytettävissä",
        "Toolsieven työkalut eivät ole käytettävissä",
        "Toolsieve ei valitse työkaluja: {error}",
    ),
    "fr": StatusLines(
        "{shown} sur {all} outils",
        "Aucun outil nécessaire : {shown} sur {all}",
        "La sélection des outils est désactivée : tous sont disponibles",
        "Toolsieve ne répond pas : tous les outils sont disponibles",
        "Les outils de Toolsieve ne sont pas disponibles",
        "Toolsieve ne sélectionne pas les outils : {error}",
    ),
    "he": StatusLines(
        "{shown} מתוך {all} כלים",
        "אין צורך בכלי: {shown} מתוך {all}",
        "בחירת הכלים כבויה: כל הכלים זמינים",
        "Toolsieve לא מגיב: כל הכלים זמינים",
        "הכלים של Toolsieve אינם זמינים",
        "Toolsieve לא בוחר כלים: {error}",
    ),
    "hi": StatusLines(
        "{all} में से {shown} टूल",
        "किसी टूल की ज़रूरत नहीं: {all} में से {shown}",
        "टूल चयन बंद है: सभी टूल उपलब्ध हैं",
        "Toolsieve जवाब नहीं दे रहा है: सभी टूल उपलब्ध हैं",
        "Toolsieve के टूल उपलब्ध नहीं हैं",
        "Toolsieve टूल नहीं चुन रहा है: {error}",
    ),
    "it": StatusLines(
        "{shown} su {all} strumenti",
        "Nessuno strumento necessario: {shown} su {all}",
        "La selezione degli strumenti è disattivata: sono tutti disponibili",
        "Toolsieve non risponde: tutti gli strumenti sono disponibili",
        "Gli strumenti di Toolsieve non sono disponibili",
        "Toolsieve non seleziona gli strumenti: {error}",
    ),
    "ja": StatusLines(
        "{all} 個中 {shown} 個のツール",
        "ツールは不要です: {all} 個中 {shown} 個",
        "ツールの選択はオフです。すべてのツールを使えます",
        "Toolsieve が応答しません。すべてのツールを使えます",
        "Toolsieve のツールは使えません",
        "Toolsieve がツールを選択していません: {error}",
    ),
    "ko": StatusLines(
        "도구 {all}개 중 {shown}개",
        "필요한 도구 없음: {all}개 중 {shown}개",
        "도구 선택이 꺼져 있습니다. 모든 도구를 사용할 수 있습니다",
        "Toolsieve가 응답하지 않습니다. 모든 도구를 사용할 수 있습니다",
        "Toolsieve의 도구를 사용할 수 없습니다",
        "Toolsieve가 도구를 선택하지 않고 있습니다: {error}",
    ),
    "nl": StatusLines(
        "{shown} van {all} tools",
        "Geen tool nodig: {shown} van {all}",
        "De toolselectie staat uit: alle tools zijn beschikbaar",
        "Toolsieve reageert niet: alle tools zijn beschikbaar",
        "De tools van Toolsieve zijn niet beschikbaar",
        "Toolsieve selecteert geen tools: {error}",
    ),
    "pl": StatusLines(
        "{shown} z {all} narzędzi",
        "Żadne narzędzie nie jest potrzebne: {shown} z {all}",
        "Wybór narzędzi jest wyłączony: dostępne są wszystkie",
        "Toolsieve nie odpowiada: dostępne są wszystkie narzędzia",
        "Narzędzia Toolsieve są niedostępne",
        "Toolsieve nie wybiera narzędzi: {error}",
    ),
    "pt": StatusLines(
        "{shown} de {all} ferramentas",
        "Nenhuma ferramenta necessária: {shown} de {all}",
        "A seleção de ferramentas está desativada: todas estão disponíveis",
        "O Toolsieve não responde: todas as ferramentas estão disponíveis",
        "As ferramentas do Toolsieve não estão disponíveis",
        "O Toolsieve não está selecionando ferramentas: {error}",
    ),
    "ru": StatusLines(
        "Инструменты: {shown} из {all}",
        "Инструменты не нужны: {shown} из {all}",
        "Выбор инструментов выключен: доступны все",
        "Toolsieve не отвечает: доступны все инструменты",
        "Инструменты Toolsieve недоступны",
        "Toolsieve не выбирает инструменты: {error}",
    ),
    "sv": StatusLines(
        "{shown} av {all} verktyg",
        "Inget verktyg behövs: {shown} av {all}",
        "Verktygsvalet är avstängt: alla verktyg är tillgängliga",
        "Toolsieve svarar inte: alla verktyg är tillgängliga",
        "Toolsieves verktyg är inte tillgängliga",
        "Toolsieve väljer inga verktyg: {error}",
    ),
    "th": StatusLines(
        "{shown} จาก {all} เครื่องมือ",
        "ไม่ต้องใช้เครื่องมือ: {shown} จาก {all}",
        "ปิดการเลือกเครื่องมืออยู่ จึงใช้ได้ทุกเครื่องมือ",
        "Toolsieve ไม่ตอบสนอง จึงใช้ได้ทุกเครื่องมือ",
        "ใช้เครื่องมือของ Toolsieve ไม่ได้",
        "Toolsieve ไม่ได้เลือกเครื่องมือ: {error}",
    ),
    "tr": StatusLines(
        "{all} araçtan {shown} tanesi",
        "Araç gerekmiyor: {all} araçtan {shown} tanesi",
        "Araç seçimi kapalı: tüm araçlar kullanılabilir",
        "Toolsieve yanıt vermiyor: tüm araçlar kullanılabilir",
        "Toolsieve'in araçları kullanılamıyor",
        "Toolsieve araç seçmiyor: {error}",
    ),
    "uk": StatusLines(
        "Інструменти: {shown} з {all}",
        "Інструменти не потрібні: {shown} з {all}",
        "Вибір інструментів вимкнено: доступні всі",
        "Toolsieve не відповідає: доступні всі інструменти",
        "Інструменти Toolsieve недоступні",
        "Toolsieve не вибирає інструменти: {error}",
    ),
    "zh": StatusLines(
        "{all} 个工具中的 {shown} 个",
        "不需要工具：{all} 个中的 {shown} 个",
        "工具选择已关闭：所有工具均可用",
        "Toolsieve 没有响应：所有工具均可用",
        "Toolsieve 的工具不可用",
        "Toolsieve 没有选择工具：{error}",
    ),
    "zh-hant": StatusLines(
        "{all} 個工具中的 {shown} 個",
        "不需要工具：{all} 個中的 {shown} 個",
        "工具選擇已關閉：所有工具均可使用",
        "Toolsieve 沒有回應：所有工具均可使用",
        "Toolsieve 的工具無法使用",
        "Toolsieve 沒有選擇工具：{error}",
    ),
}
ENGLISH = "en"
TRADITIONAL_CHINESE = "zh-hant"
# Parts of a page's language that mean traditional characters: the script and regions.
TRADITIONAL = {"hant", "tw", "hk", "mo"}
# Scripts that point to one language, for pages that send no language. Other scripts get English lines.
SCRIPTS = (
    ("uk", "іїєґІЇЄҐ"),
    ("ru", "Ѐ-ӿ"),
    ("ar", "؀-ۿ"),
    ("he", "֐-׿"),
    ("hi", "ऀ-ॿ"),
    ("th", "฀-๿"),
    ("el", "Ͱ-Ͽ"),
    ("ko", "가-힣ᄀ-ᇿ"),
    ("ja", "ぁ-ヿ"),
    ("zh", "一-鿿"),
)


# --- Valves ----------------------------------------------------------------------------------------------------------


class FilterValves(BaseModel):
    """The settings for administrators. All types are simple, because Open WebUI's form edits text and switches."""

    url: str = Field(
        default="http://127.0.0.1:8000",
        description="The address at which Open WebUI reaches the Toolsieve service.",
    )
    key: str = Field(
        default="",
        description="The API key of the Toolsieve service.",
        json_schema_extra={"input": {"type": "password"}},
    )
    connections: str = Field(
        default="",
        description=(
            "Toolsieve's tool servers, as JSON that maps tool ids to paths, such as "
            '{"server:toolsieve": "/", "server:mail": "/toolsets/mail", "server:mcp:toolsieve": "/mcp"}. '
            "If empty, the filter finds the tool servers in Open WebUI that have the address above."
        ),
    )
    limit: int = Field(default=10, description="Maximum number of newly selected tools per message.")
    token_budget: int = Field(
        default=0,
        description="Maximum number of tokens in the definitions of newly selected tools. 0 means no limit.",
    )
    timeout: float = Field(
        default=1.5,
        description="How long a message waits for the service, in seconds. After that, it keeps all tools.",
    )
    narrow: Literal["ours", "builtin", "all"] = Field(
        default="builtin",
        description=(
            "Which functions the filter may remove: only Toolsieve's (ours), also Open WebUI's own tools such as notes "
            "and calendar (builtin), or also those of other tool servers (all)."
        ),
    )
    always_keep: str = Field(
        default="search_web, fetch_url",
        description="Functions that the filter never removes: comma-separated names or patterns, such as github__*.",
    )
    auto_enable: bool = Field(
        default=False,
        description="Switch on relevant tool servers in chats without tools, if the user may use these servers.",
    )
    status: bool = Field(
        default=False,
        description='Show a line such as "7 of 214 tools" above the answer, in the language of the page.',
    )
    priority: int = Field(default=0, description="Position of this filter; filters with lower numbers run first.")

    @field_validator("connections", mode="before")
    @classmethod
    def _connections_as_text(cls, value: object) -> object:
        return json.dumps(value) if isinstance(value, dict) else value


class FilterUserValves(BaseModel):
    """The settings that each user can change."""

    narrowing: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether Toolsieve selects the tools for your messages (auto), or the model gets them all (off).",
    )
    status: Literal["default", "on", "off"] = Field(
        default="default",
        description=(
            "Whether a line above the answer shows how many tools were selected. By default, the administrator decides."
        ),
    )
    llm_api_key: str = Field(
        default="",
        description=(
            "Your own API key for Gemini, OpenAI or Anthropic. If it is unclear which tools your message needs, a "
            "small model of this provider helps to select them. The model receives your message, and the names and "
            "first words of tools. Toolsieve doesn't store your key."
        ),
        json_schema_extra={"input": {"type": "password"}},
    )


# --- Errors and values -----------------------------------------------------------------------------------------------


class FilterError(Exception):
    """The service's response is unusable. The message contains no secrets and no text of users, so it can be logged."""


class ValveError(FilterError):
    """A valve can't be read."""


class AwayError(FilterError):
    """The service doesn't respond, or the filter sent no request because the service recently didn't respond."""

    def __init__(self, text: str = "", *, is_news: bool = False) -> None:
        super().__init__(text)
        # Whether this failure has not been reported yet.
        self.is_news = is_news


class Answer(NamedTuple):
    """A selection: public names of functions in order, and the tool ids if the request contained tool ids."""

    names: list[str]
    tool_ids: list[str] | None
    definitions: Sequence[Body] = ()
    # The hash of the offered names that the service has cached.
    offer: str | None = None
    # Functions that don't belong to the service and stay.
    others: Sequence[str] = ()
    needs_tool: bool = True
    # Whether this version of the service judges Open WebUI's own tools by family.
    judges_families: bool = False


class Turn(NamedTuple):
    """
    The functions that Open WebUI offers in a turn's first model call. The turn's own functions store this value.

    Later calls in the turn start from the first call's narrowed list. Functions that another filter has removed must
    stay removed.
    """

    connections: dict[str, str]
    groups: list[str]
    # The service's functions in the registry, with their public names.
    owned: dict[str, str]
    # The service's functions that are offered to the model, in Open WebUI's order.
    offered: list[str]
    # Functions that no tool server publishes, and that were added because the model found them.
    bound: list[str]
    # The offered and added functions by their public names; see `functions_by_name`.
    by_name: tuple[dict[str, str], dict[str, list[str]]]
    # For each tool id that publishes only meta-tools: its function that runs any tool.
    running: dict[str, str]
    # The definitions of foreign functions that the service may judge, by name.
    judged: dict[str, Body]
    # For each search: those of these functions that it brought back.
    brought: dict[str, list[str]]
    # The functions in the last list that was narrowed in this turn, in order.
    shown: list[str]
    # What the model has unloaded and not found again. Open WebUI may summarize the messages that say so in mid-turn.
    unloaded: set[str]


class Asking(NamedTuple):
    """A question to the service about one model call, and what else decides about its functions."""

    question: Body
    # The names on offer, and the definitions of those functions that the service judges.
    names: list[str]
    judged: list[Body]
    # The names of the judged functions, and of those that stay without a judgement.
    asked: set[str]
    staying: set[str]
    # Public names of the tools that the model found in this turn.
    found: list[str]
    # What the model has searched for, by the ids of the calls.
    searches: dict[str, list[str]]


# --- Connections -----------------------------------------------------------------------------------------------------


def parse_connections(text: str) -> dict[str, str]:
    """Parse the map from tool ids to paths. Raise `FilterError` if the text is neither empty nor a JSON object."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        raise ValveError("the valve 'connections' is not JSON") from None
    if not isinstance(value, dict):
        raise ValveError("the valve 'connections' is not a JSON object")
    return {str(tool_id): path if isinstance(path, str) and path else "/" for tool_id, path in value.items()}


def parse_list(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", ",").split(",") if item.strip()]


def connection_id(connection: Mapping[str, Any], index: int) -> str:
    """Return the id that Open WebUI gives to a configured tool server."""
    info = connection.get("info")
    chosen = info.get("id") if isinstance(info, Mapping) else None
    return f"{MCP_PREFIX if connection.get('type') == 'mcp' else 'server:'}{chosen or index}"


def document_url(connection: Mapping[str, Any]) -> str:
    """Return the URL of a tool server's document, which need not be below the server's URL. MCP servers have none."""
    if connection.get("type") == "mcp":
        return str(connection.get("url") or "")
    path = str(connection.get("path") or "openapi.json")
    return path if "://" in path else str(connection.get("url") or "").rstrip("/") + "/" + path.lstrip("/")


def path_below(url: str, service: str) -> str | None:
    """Return the path of the document within the service, or `None` if the document belongs to another service."""
    try:
        ours, other = urlsplit(service.strip().rstrip("/")), urlsplit(url.strip())
        ports = [part.port or DEFAULT_PORTS.get(part.scheme) for part in (ours, other)]
    except ValueError:
        return None
    same_host = ours.hostname == other.hostname or {ours.hostname, other.hostname} <= LOOPBACK
    path = other.path.removesuffix("openapi.json").rstrip("/")
    if not other.hostname or ours.scheme != other.scheme or not same_host or ports[0] != ports[1]:
        return None
    if path != ours.path and not path.startswith(ours.path + "/"):
        return None
    return path.removeprefix(ours.path) or "/"


def connections_below(configured: Iterable[Any], service: str, key: str = "") -> dict[str, str]:
    """
    Find the service's own tool servers in Open WebUI's configuration, in the format of the `connections` valve.

    With a key, omit those that have another one.
    """
    found = {}
    for index, connection in enumerate(configured):
        if isinstance(connection, Mapping) and connection.get("type", "openapi") in ("openapi", "mcp"):
            path = path_below(document_url(connection), service)
            has_other_key = bool(key and connection.get("key")) and connection.get("key") != key
            if path is not None and not has_other_key:
                found[connection_id(connection, index)] = path
    return found


# --- Texts and definitions -------------------------------------------------------------------------------------------


def text_of(content: object) -> str:
    """Return the text of a message, which may be a string or a list of parts. Images and other parts are ignored."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def said_text(content: object) -> str:
    """Return the text of a user's message, without the list of attached files that Open WebUI puts before it."""
    return ATTACHED.sub("", text_of(content))


def function_name(definition: object) -> str:
    """Return the name in a function definition, in either of the formats that providers use."""
    if not isinstance(definition, dict):
        return ""
    function = definition.get("function")
    name = (function if isinstance(function, dict) else definition).get("name")
    return name if isinstance(name, str) else ""


def function_names(definitions: Sequence[Any]) -> list[str]:
    """Return the names in all definitions. Thousands of definitions in the usual format must be processed quickly."""
    try:
        names = [definition["function"]["name"] for definition in definitions]
    except (KeyError, TypeError, IndexError):
        names = [None]
    return names if {str}.issuperset(map(type, names)) else [function_name(definition) for definition in definitions]


# --- The functions of a turn -----------------------------------------------------------------------------------------


def published_name(name: str, prefix: str, registry: Mapping[str, Any]) -> str:
    """Return a function's public name. Open WebUI adds a prefix if another tool already has the same name."""
    while name.startswith(prefix) and name.removeprefix(prefix) in registry:
        name = name.removeprefix(prefix)
    return name


def owned_functions(registry: Mapping[str, Any], connections: Mapping[str, str]) -> dict[str, str]:
    """Return the service's functions in a turn, with their public names."""
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


def service_address(url: str) -> str:
    """Return an address that is the same in all spellings that `path_below` treats alike."""
    try:
        parts = urlsplit(url.strip().rstrip("/"))
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return url
    return f"{parts.scheme}://{'localhost' if host in LOOPBACK else host}:{port}{parts.path}"


def turn_of(registry: Mapping[str, Any], service: str) -> Turn | None:
    """
    Return the turn that these functions store, or `None` before the turn's first model call.

    A turn may contain functions from two services.
    """
    address = service_address(service)
    for entry in registry.values():
        if isinstance(entry, dict) and address in entry.get(TURN, {}):
            turn: Turn = entry[TURN][address]
            return turn
    return None


def disclosing_functions(registry: Mapping[str, Any], owned: Mapping[str, str]) -> dict[str, str]:
    """
    Return the function that runs any tool, for each tool id that publishes only meta-tools.

    If a tool id publishes all tools, a missing function was removed on purpose.
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
    """Return the functions that were called over MCP, with their public names. Open WebUI adds the server's id."""
    prefixes = [tool_id.removeprefix(MCP_PREFIX) + "_" for tool_id in connections if tool_id.startswith(MCP_PREFIX)]
    return {
        name: name.removeprefix(prefix)
        for name in called_functions(messages)
        for prefix in prefixes
        if name.startswith(prefix)
    }


# --- Functions that stay without a judgement -------------------------------------------------------------------------


def chosen_patterns(metadata: Mapping[str, Any], prompts: Iterable[str]) -> list[str]:
    """
    Return patterns of the functions that a person chose for this chat or model, other than by a tool server.

    Open WebUI lists all skills that the user may use in a system prompt, even if nobody chose them.
    """
    features = metadata.get("features")
    on = features if isinstance(features, Mapping) else {}
    patterns = [pattern for name, chosen in CHOSEN_FEATURES.items() if on.get(name) for pattern in chosen]
    model = metadata.get("model")
    for key in ("info", "meta"):
        model = model.get(key) if isinstance(model, Mapping) else None
    of_model = model.get("knowledge") if isinstance(model, Mapping) else None
    for items in (metadata.get("files"), metadata.get("folder_knowledge"), of_model):
        for item in items if isinstance(items, list) else []:
            kind = item.get("type") if isinstance(item, Mapping) else None
            patterns += CHOSEN_ITEMS.get(kind, CHOSEN_KNOWLEDGE) if isinstance(kind, str) else CHOSEN_KNOWLEDGE
    if metadata.get("skill_ids") or any(LISTED_SKILLS in prompt for prompt in prompts):
        patterns += CHOSEN_SKILLS
    return list(dict.fromkeys(patterns))


def names_in(texts: Iterable[str]) -> set[str]:
    """Return words like the names of functions, which may contain hyphens and periods."""
    words = (word.strip(".-") for text in texts for word in re.findall(r"[\w.-]+", text[:INSTRUCTION_CHARACTERS]))
    # A dash or a period can also be punctuation.
    parts = (part for word in words for part in (word, *word.split("."), *re.split("[.-]", word)))
    return {part for part in parts if "_" in part or "-" in part}


def system_prompts(messages: Sequence[Any]) -> list[str]:
    """Return the system prompts so far. With Open WebUI's own tool search, they name all tools that it withholds."""
    known = (message for message in messages if isinstance(message, Mapping) and message.get("role") == "system")
    return [text_of(message.get("content")) for message in known]


def prompt_of_model(metadata: Mapping[str, Any]) -> str:
    """
    Return the model's own system prompt, which Open WebUI adds after this hook, with that of the chat.

    The latter may contain the list of Open WebUI's own tool search, which names all tools that it withholds.
    """
    prompt = metadata.get("base_system_prompt")
    return WITHHELD.sub("", prompt) if isinstance(prompt, str) else ""


def last_message(messages: Sequence[Any]) -> str:
    """Return the text of the user's last message, or an empty one."""
    start = turn_start(messages)
    message = messages[start] if 0 <= start < len(messages) else None
    return said_text(message.get("content")) if isinstance(message, Mapping) else ""


def judged_functions(
    registry: Mapping[str, Any], offered: Iterable[str], owned: Mapping[str, str], narrow: str
) -> dict[str, Body]:
    """
    Return short definitions of the foreign functions that the service may judge, by name.

    A terminal is switched on for the chat, so its functions stay. Without the search function, the model couldn't get
    functions back, so nothing is judged.
    """
    if narrow == "ours" or SEARCH_FUNCTION not in owned.values():
        return {}
    judged: dict[str, Body] = {}
    for name in dict.fromkeys(offered):
        entry = registry.get(name)
        spec = entry.get("spec") if isinstance(entry, Mapping) else None
        if name in owned or name in OWN_SEARCH or not isinstance(entry, Mapping) or not isinstance(spec, Mapping):
            continue
        server = entry.get("server")
        is_terminal = entry.get("type") == TERMINAL or (isinstance(server, Mapping) and server.get("is_terminal"))
        if entry.get("type") == BUILTIN or (narrow == "all" and not is_terminal):
            description = spec.get("description")
            text = description[:DESCRIPTION_CHARACTERS] if isinstance(description, str) else ""
            judged[name] = {"name": name, "description": text}
    return dict(itertools.islice(judged.items(), MOST_JUDGED))


# --- Messages and calls ----------------------------------------------------------------------------------------------


def searches(messages: Sequence[Any]) -> dict[str, list[str]]:
    """Return what the model has searched for in the current turn, by the ids of the calls."""
    found: dict[str, list[str]] = {}
    for message in messages[turn_start(messages) :]:
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        for call in calls if isinstance(calls, list) else []:
            name, arguments = called_function(call)
            if not isinstance(call, Mapping) or not named_among(name, (SEARCH_FUNCTION, SELECT_FUNCTION)):
                continue
            arguments = parsed_arguments(arguments)
            if arguments is not None:
                queries = arguments.get("queries")
                texts = [*(queries if isinstance(queries, list) else [queries]), arguments.get("task")]
                found[str(call.get("id"))] = [
                    shortened(text, OLDER_CHARACTERS) for text in texts if isinstance(text, str) and text
                ]
    return found


def with_brought(
    messages: Sequence[Any], brought: Mapping[str, Sequence[str]], judged: Mapping[str, Body]
) -> list[Any]:
    """Return the messages with these functions added to the results of the searches that brought them back."""
    changed = list(messages)
    # Some models use the same ids of calls in every turn.
    for index in range(turn_start(messages), len(messages)):
        message = messages[index]
        names = brought.get(str(message.get("tool_call_id"))) if isinstance(message, Mapping) else None
        if not names:
            continue
        try:
            result = json.loads(text_of(message.get("content")))
        except ValueError:
            continue
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            known = set(result_names(message))
            new = [name for name in names if name not in known]
            added = [{"name": name, "summary": judged[name]["description"].split("\n")[0]} for name in new]
            content = json.dumps({**result, "tools": [*added, *result["tools"]]}, ensure_ascii=False)
            changed[index] = {**message, "content": content}
    return changed


def parsed_arguments(arguments: object) -> Mapping[str, Any] | None:
    """Return a call's arguments, which models write as JSON or as an object; `None` if they are broken."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None
    return value if isinstance(value, Mapping) else None


def called_function(call: object) -> tuple[str, object]:
    """
    Return the name of the function that a call runs, and its arguments, which may be broken.

    With Open WebUI's own tool search, the model calls withheld functions by `call_tool`.
    """
    name = function_name(call)
    function = call.get("function") if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if name == CALL_FUNCTION and (wrapped := parsed_arguments(arguments)):
        inner = wrapped.get("tool_name")
        if isinstance(inner, str) and inner:
            return inner, wrapped.get("params")
    return name, arguments


def tool_calls(message: object) -> list[tuple[str, str]]:
    """Return the id and the function name of each call in an assistant's message."""
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(calls, list):
        return []
    pairs = ((call.get("id"), called_function(call)[0]) for call in calls if isinstance(call, Mapping))
    return [(str(call_id), name) for call_id, name in pairs if name]


def called_functions(messages: Sequence[Any]) -> list[str]:
    """Return all functions that were called in the chat, oldest first."""
    return list(dict.fromkeys(name for message in messages for _, name in tool_calls(message)))


def is_from_user(messages: Sequence[Any], index: int) -> bool:
    """
    Return whether a person wrote this message. Open WebUI also uses user messages for images from tools.

    If a person stops an answer after a call, their next message, perhaps with an image, follows the call's result too.
    """
    message = messages[index] if index < len(messages) else None
    if not isinstance(message, Mapping) or message.get("role") != "user":
        return False
    content, before = message.get("content"), messages[index - 1] if index else None
    if not isinstance(content, list) or not isinstance(before, Mapping) or before.get("role") != "tool":
        return True
    text = text_of(content)
    return bool(text) and not text.startswith(IMAGES_TEXT)


def turn_start(messages: Sequence[Any]) -> int:
    """Return the index of the last message that a person wrote, with which the current turn begins."""
    return next((i for i in reversed(range(len(messages))) if is_from_user(messages, i)), 0)


def begins_answer(messages: Sequence[Any], metadata: Mapping[str, Any]) -> bool:
    """
    Return whether this is the first model call after a person's message.

    While a person approves a call, the messages don't contain it.
    """
    return turn_start(messages) >= len(messages) - 1 and not metadata.get("tool_approval_resume")


def results_of(messages: Sequence[Any], functions: Iterable[str]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """
    Yield the results of calls of these functions, each with its index and the function.

    Some models use the same ids of calls several times in a chat, so a result belongs to the last call with its id.
    """
    asked: dict[str, str] = {}
    for index, message in enumerate(messages):
        asked |= tool_calls(message)
        if isinstance(message, Mapping) and message.get("role") == "tool":
            function = named_among(asked.get(str(message.get("tool_call_id")), ""), functions)
            if function:
                yield index, function, message


def found_and_unloaded(messages: Sequence[Any]) -> tuple[list[str], set[str]]:
    """
    Return the public names of found tools in the current turn, best first, and of unloaded tools in the chat.

    An unloaded tool doesn't count as found until the model finds it again. Then it doesn't count as unloaded any more.
    """
    start = turn_start(messages)
    found: dict[str, None] = {}
    unloaded: set[str] = set()
    for index, function, message in results_of(messages, (*FINDING_FUNCTIONS, UNLOAD_FUNCTION)):
        if function == UNLOAD_FUNCTION:
            unloaded.update(names := result_names(message))
            for name in names:
                found.pop(name, None)
        elif index > start or unloaded:
            unloaded.difference_update(names := result_names(message))
            found |= dict.fromkeys(names) if index > start else {}
    return list(found), unloaded


def loaded_and_unloaded(messages: Sequence[Any]) -> tuple[list[str], set[str]]:
    """Return the public names of the tools that the model loaded in the chat, and of those that it unloaded since."""
    loaded: dict[str, None] = {}
    unloaded: set[str] = set()
    for _, function, message in results_of(messages, (*LOADING_FUNCTIONS, UNLOAD_FUNCTION)):
        names = result_names(message)
        if function == UNLOAD_FUNCTION:
            unloaded.update(names)
            for name in names:
                loaded.pop(name, None)
        else:
            unloaded.difference_update(names)
            loaded |= dict.fromkeys(names)
    return list(loaded), unloaded


def without_unloaded(messages: Sequence[Any], owned: Mapping[str, str]) -> list[Any]:
    """
    Return the messages without the calls of tools that the model unloaded after these calls.

    The service keeps tools that the chat has called, so these calls would bring the tools back.
    """
    results = results_of(messages, (UNLOAD_FUNCTION,))
    unloaded = {name: index for index, _, message in results for name in result_names(message)}
    if not unloaded:
        return list(messages)

    def stays(index: int, call: object) -> bool:
        name, _ = called_function(call)
        return index > unloaded.get(owned.get(name, name), -1)

    return [
        {**message, "tool_calls": [call for call in message["tool_calls"] if stays(index, call)]}
        if tool_calls(message)
        else message
        for index, message in enumerate(messages)
    ]


def named_among(name: str, functions: Iterable[str]) -> str | None:
    """Return which of these functions has this name. Open WebUI adds a prefix if two connections have the same one."""
    return next((one for one in functions if name == one or name.endswith("_" + one)), None)


def result_names(message: Mapping[str, Any]) -> list[str]:
    """Return the names of tools in a call's result, where each tool is a string or an object."""
    try:
        result = json.loads(text_of(message.get("content")))
    except ValueError:
        return []
    tools = result.get("tools") if isinstance(result, dict) else None
    names = (
        tool if isinstance(tool, str) else function_name(tool) for tool in (tools if isinstance(tools, list) else [])
    )
    return [name for name in names if name]


# --- The conversation ------------------------------------------------------------------------------------------------


def shortened(text: str, longest: int) -> str:
    """Return the beginning and the end of a long text, because one of them usually contains the request."""
    return text if len(text) <= longest else f"{text[: longest // 2]}\n…\n{text[-(longest // 2) :]}"


def conversation(messages: Sequence[Any], prompt: str | None, owned: Mapping[str, str]) -> list[Body]:
    """
    Return the last turns with their texts and calls, but without arguments and results.

    `prompt` is the user's last message as typed. Open WebUI may have added documents to the message in `messages`. If
    the provider stores the conversation, `messages` contains only the answer so far. If a script sends nothing but
    instructions, these are the message.
    """
    if not messages:
        return []
    start = turn_start(messages)
    starts = [index for index in range(start + 1) if is_from_user(messages, index)]
    turns: list[Body] = []
    if prompt and not starts:
        turns.append({"role": "user", "content": shortened(prompt, PROMPT_CHARACTERS)})
    for index in range(starts[-TURNS] if len(starts) > TURNS else 0, len(messages)):
        message = messages[index]
        if is_from_user(messages, index):
            text = (prompt if index == start else None) or said_text(message.get("content"))
            longest = PROMPT_CHARACTERS if index == start else OLDER_CHARACTERS
            turns.append({"role": "user", "content": shortened(text, longest)})
        elif isinstance(message, Mapping) and message.get("role") == "assistant":
            turn: Body = {"role": "assistant", "content": shortened(text_of(message.get("content")), OLDER_CHARACTERS)}
            calls = [
                {"id": call_id, "type": "function", "function": {"name": owned.get(name, name), "arguments": "{}"}}
                for call_id, name in tool_calls(message)
            ]
            turns.append({**turn, "tool_calls": calls} if calls else turn)
    instructions = "" if turns else text_of(messages[-1].get("content") if isinstance(messages[-1], Mapping) else None)
    return turns or [{"role": "user", "content": shortened(instructions, PROMPT_CHARACTERS)}]


def typed_prompt(metadata: Mapping[str, Any]) -> str | None:
    """
    Return the user's last message as typed, or `None` if it is unknown.

    When an answer with images from tools is continued, Open WebUI confuses the message with these images. If the person
    attached an image, Open WebUI takes the list of attached files for the message.
    """
    prompt = metadata.get("base_user_prompt")
    if not isinstance(prompt, str) or prompt.startswith(IMAGES_TEXT):
        return None
    typed = said_text(prompt)
    if typed or not prompt:
        return typed
    message = metadata.get("user_message")
    content = message.get("content") if isinstance(message, Mapping) else None
    return content if isinstance(content, str) else None


def with_instruction(
    messages: Sequence[Any], metadata: Mapping[str, Any], prompt: str | None
) -> tuple[Sequence[Any], str | None]:
    """
    Return the conversation and the user's last message. If an answer is written again with an instruction, such as "Add
    Details", the instruction is part of the message that the answer is for.

    Open WebUI sends the instruction as a message after that answer. Alone, it selects tools that nobody needs.
    """
    start = turn_start(messages)
    answered = next((i for i in reversed(range(start)) if is_from_user(messages, i)), None)
    if answered is None or not metadata.get("regeneration_message_id"):
        return messages, prompt
    instruction = prompt or said_text(messages[start].get("content"))
    return [*messages[:answered], *messages[start:]], f"{said_text(messages[answered].get('content'))}\n{instruction}"


def thread_before(messages: Sequence[Any], metadata: Mapping[str, Any], prompt: str) -> tuple[list[Body], str] | None:
    """
    Return the last turns in a channel's thread before this message, and the message without its author and its mention.

    Return `None` outside channels. In channels, Open WebUI sends only the last message as a message, and the thread in
    a system prompt: each text after its author's name, even the last one.
    """
    chat_id = metadata.get("chat_id")
    if not isinstance(chat_id, str) or not chat_id.startswith(CHANNEL):
        return None
    thread = next(filter(None, map(THREAD.search, system_prompts(messages))), None)
    if thread is None:
        return None
    model, history = thread["model"], thread["history"].removesuffix(prompt)
    paragraphs = history.split("\n\n")
    # An answer may contain a paragraph such as "Note: …". So a name begins a new text only if it is known for sure, or
    # if it begins several paragraphs.
    begun = Counter(found["name"] for paragraph in paragraphs if (found := AUTHOR.match(paragraph)))
    names = {model, *(found["name"] for text in (history, prompt) if (found := AUTHOR.match(text)))}
    names.update(name for name, times in begun.items() if times > 1)

    def parted(text: str) -> tuple[str, str]:
        author = AUTHOR.match(text)
        return (author["name"], text[author.end() :]) if author and author["name"] in names else ("", text)

    def spoken(text: str) -> str:
        rest = text.strip().removeprefix(model)
        return rest.lstrip(" ,:") or text if rest[:1] in {" ", ",", ":"} else text.strip()

    said: list[tuple[str, str]] = []
    for paragraph in paragraphs:
        name, text = parted(paragraph)
        if name or not said:
            said.append((name, text))
        else:
            said[-1] = (said[-1][0], f"{said[-1][1]}\n\n{text}")
    turns = [
        {"role": "assistant", "content": shortened(text.strip(), OLDER_CHARACTERS)}
        if name == model
        else {"role": "user", "content": shortened(spoken(text), OLDER_CHARACTERS)}
        for name, text in said[-2 * TURNS :]
        if text.strip()
    ]
    return turns, spoken(parted(prompt)[1])


def said_so_far(
    messages: Sequence[Any], metadata: Mapping[str, Any], prompt: str | None, owned: Mapping[str, str]
) -> list[Body]:
    """Return the conversation, in a channel with the thread before it."""
    thread = thread_before(messages, metadata, prompt or last_message(messages))
    if thread is None:
        return conversation(*with_instruction(messages, metadata, prompt), owned)
    before, typed = thread
    return [*before, *conversation(messages, typed, owned)]


def lasting_chat_id(chat_id: object) -> str | None:
    """
    Return the chat's id if it identifies a single, permanent conversation.

    API calls have no chat id. The id of a temporary chat identifies a browser session with several chats, and a
    channel contains many topics. For these, the service uses only the messages.
    """
    if not isinstance(chat_id, str) or chat_id.startswith(("local:", "temporary:", CHANNEL)):
        return None
    return chat_id or None


# --- The service's response ------------------------------------------------------------------------------------------


def parse_answer(value: object) -> Answer:
    """Parse the service's response. Raise `FilterError` if it has an unexpected format."""
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
    # The service's tools have a server, and its meta-tools have no "__" in their names. All other names belong to
    # other tool servers, or to tools that the service no longer has.
    known = [function_name(tool) for tool in value["tools"] if tool.get("server") or "__" not in function_name(tool)]
    others = [function_name(tool) for tool in value["tools"] if not tool.get("server")]
    return Answer(
        known,
        tool_ids,
        usable,
        offer if isinstance(offer, str) else None,
        others,
        value.get("needs_tool") is not False,
        "needs_tool" in value,
    )


def is_definition(value: object) -> bool:
    """Return whether Open WebUI can run a function with this definition."""
    function = value.get("function") if isinstance(value, Mapping) else None
    parameters = function.get("parameters") if isinstance(function, Mapping) else None
    return bool(function_name(value)) and isinstance(parameters, dict)


# --- Selecting functions ---------------------------------------------------------------------------------------------


def functions_by_name(owned: Mapping[str, str], offered: Iterable[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """
    Return the first function for each public name, and all further functions with the same name.

    If two connections publish the same tool, it is used once. Meta-tools such as `find_tools` are used from each
    connection.
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
    """Return the offered functions with these public names, in the order of `names`."""
    first, more = by_name
    known = [name for name in dict.fromkeys(names) if name in first]
    return [function for name in known for function in (first[name], *more.get(name, ()))]


def kept_always(offered: Iterable[str], owned: Mapping[str, str], patterns: Sequence[str]) -> list[str]:
    if not patterns:
        return []
    matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
    return [function for function in offered if matches(function) or matches(owned[function])]


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return kept_always(names, {name: name for name in names}, patterns)


def bind(registry: Body, turn: Turn, definitions: Iterable[Body]) -> None:
    """
    Add functions to the turn's registry that their tool server doesn't publish.

    Open WebUI runs functions in the registry. Each added function calls the tool server's own `run_tool`, with the
    server's address, key and headers. A name that is already in use is not added.
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
    """Return a function that runs one tool, made from the function that runs any tool."""

    async def call(**arguments: Any) -> Any:
        return await run(name=name, arguments=arguments)

    return call


def narrowed_tools(
    tools: Iterable[tuple[str, Body]],
    registry: Mapping[str, Any],
    narrowed: Container[str],
    wanted: Iterable[str],
    shown: Iterable[str],
) -> list[Body]:
    """
    Return the new list of definitions: first all functions that are not `narrowed`, and then the wanted ones.

    The wanted functions keep the order in which the turn's previous call has `shown` them, so that the provider's
    prompt cache stays valid.
    """
    present: Body = {}
    others = []
    for name, tool in tools:
        if name in narrowed:
            present[name] = tool
        else:
            others.append(tool)
    order = [name for name in dict.fromkeys(wanted) if name in present or (name in narrowed and name in registry)]
    place = {name: index for index, name in enumerate(shown)}
    order.sort(key=lambda name: place.get(name, len(place)))
    return others + [present.get(name) or {"type": "function", "function": registry[name]["spec"]} for name in order]


# --- The connection to the service -----------------------------------------------------------------------------------


class Pause:
    """
    Sends no requests for a while if the service doesn't respond, so that not every message has to wait.

    After a pause, one request tries the service, and all other requests are skipped until it has finished. Each failed
    attempt doubles the next pause. Any response ends the pauses.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.until = 0.0
        self.trying = False
        self.answered = float("-inf")

    def keeps_away(self, now: float) -> bool:
        """Return whether a request must be skipped. The first request after a pause is sent, as an attempt."""
        if not self.seconds:
            return False
        if self.trying or now < self.until:
            return True
        self.trying = True
        return False

    def end(self, now: float) -> bool:
        """Note a response. Return whether there was a pause."""
        lasted = bool(self.seconds)
        self.seconds, self.trying, self.answered = 0.0, False, now
        return lasted

    def begin(self, asked: float, now: float, *, tried: bool) -> float:
        """Note a request without a response. Return the length of the new pause in seconds, or 0 if there is none."""
        # The service has responded to another request since, or this request was sent before the pause.
        if self.answered > asked or (self.seconds and not tried):
            return 0.0
        self.seconds = min(max(2 * self.seconds, FIRST_PAUSE), LONGEST_PAUSE)
        self.until, self.trying = now + self.seconds, False
        return self.seconds


class Link:
    """
    A connection to one service, for one event loop, and the state of this service.

    It also stores the hashes of name lists that the service has cached. It stores no data about chats or people.
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
        self,
        valves: FilterValves,
        question: Body,
        user: Mapping[str, Any],
        names: Sequence[str] | None = None,
        definitions: Sequence[Body] = (),
    ) -> Answer:
        """
        Send `POST /v1/filter`, with the offered names and definitions if there are any. Every failure raises an
        exception, which the caller handles.
        """
        asked = time.monotonic()
        if self._pause.keeps_away(asked):
            raise AwayError
        tries = self._pause.trying
        self._asking += 1
        try:
            exchange = self._exchange(headers_of(valves, user), question, names, definitions)
            status, raw = await within(wait_at_most(valves), exchange)
        except (TimeoutError, OSError, self._client.ClientConnectionError) as error:
            raise self._away(error, asked, tried=tries) from error
        except FilterError:
            self._answered()
            raise
        finally:
            if tries:  # Regardless of the result, another request may try now.
                self._pause.trying = False
            self._asking -= 1
            if self._is_retired and not self._asking:
                await self._session.close()
        self._answered()
        answer = answer_of(status, raw)
        if answer.offer:  # Earlier versions of the service don't return this member.
            while len(self._offers) >= MOST_OFFERS:
                del self._offers[next(iter(self._offers))]
            self._offers[answer.offer] = None
        return answer

    def _answered(self) -> None:
        if self._pause.end(time.monotonic()):
            log.info("Toolsieve filter: the service answers again")

    def _away(self, error: Exception, asked: float, *, tried: bool) -> AwayError:
        """Return the error for a request without a response. Only the first one in an outage is reported."""
        was_away = bool(self._pause.seconds)
        pause = self._pause.begin(asked, time.monotonic(), tried=tried)
        soon = f"; it is left alone for {pause:.0f} s" if pause else ""
        return AwayError(f"no answer from the service ({type(error).__name__}){soon}", is_news=not was_away)

    async def retire(self) -> None:
        """Close the connection as soon as no request is waiting for a response."""
        self._is_retired = True
        if not self._asking:
            await self._session.close()

    async def _exchange(
        self, headers: Body, question: Body, names: Sequence[str] | None, definitions: Sequence[Body]
    ) -> tuple[int, bytes]:
        """
        Send only the hash of the names if the service has cached them, and otherwise both the hash and the names.
        Definitions are always sent.
        """
        if names is None:
            return await self._post(headers, question)
        if len(names) < LONG_OFFER:
            return await self._post(headers, {**question, "tools": [*names, *definitions]})
        offer = offer_hash(names)
        if offer in self._offers:
            more = {"tools": definitions} if definitions else {}
            status, answer = await self._post(headers, {**question, "offer": offer, **more})
            if status != 409:
                return status, answer
            self._offers.pop(offer, None)
        return await self._post(headers, {**question, "offer": offer, "tools": [*names, *definitions]})

    async def _post(self, headers: Body, question: Body) -> tuple[int, bytes]:
        data = json.dumps(question).encode()
        gone = (self._client.ServerDisconnectedError, self._client.ClientOSError, ConnectionError)
        try:
            return await self._send(self._session, headers, data)
        except self._client.ClientConnectorError:
            raise
        except gone:
            # The service closed a pooled connection at the same moment. The other pooled connections may be closed too.
            async with self._open() as session:
                return await self._send(session, headers, data)

    async def _send(self, session: Any, headers: Body, data: bytes) -> tuple[int, bytes]:
        """Return the status and the body of a response. A response that is too long raises an error."""
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
        """Open a client without cookies and without a timeout of its own, because `within` limits the time."""
        client = self._client
        return client.ClientSession(
            connector=client.TCPConnector(keepalive_timeout=KEPT_IDLE),
            cookie_jar=client.DummyCookieJar(),
            timeout=client.ClientTimeout(total=None),
        )


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """
    Return the result of the work, or raise `TimeoutError` after this time.

    Only time in which the event loop is free counts. With many users, Open WebUI can keep the event loop busy for
    seconds. A simple timeout would then discard responses that have already arrived.
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
    """Close the client of a discarded filter. Open WebUI creates a new filter when the function's code changes."""

    def close() -> None:
        closing = session.close()
        with contextlib.suppress(StopIteration, RuntimeError):
            closing.send(None)  # This closes the client. Nothing waits for the end of its connections.
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
    """Return the proxy for an address from the environment. The lookup is slower than a request, so it runs once."""
    address = urlsplit(url)
    if not address.hostname or urllib.request.proxy_bypass(address.hostname):
        return None
    return urllib.request.getproxies().get(address.scheme)


def offer_hash(names: Sequence[str]) -> str:
    """Return the hash by which the service identifies a list of names."""
    return "sha256:" + hashlib.sha256("\n".join(names).encode()).hexdigest()


def filter_url(valves: FilterValves) -> str:
    url = valves.url.strip().rstrip("/")
    if not url.lower().startswith(("http://", "https://")):
        raise ValveError("the valve 'url' doesn't begin with http:// or https://")
    return url + "/v1/filter"


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
    """Return the selection in a response, or raise `FilterError` if it contains none."""
    if status != 200:
        valve = "key" if status in (401, 403) else "url" if 300 <= status < 400 or status in (404, 405) else ""
        raise FilterError(f"HTTP {status} (is the valve '{valve}' right?)" if valve else f"HTTP {status}")
    try:
        return parse_answer(json.loads(answer))
    except ValueError:
        raise FilterError("the answer is not JSON (is the valve 'url' right?)") from None


# --- Valves and language of a user -----------------------------------------------------------------------------------


def own_valve(user: Mapping[str, Any], name: str) -> str:
    """Return one of the user's own settings, or an empty text if there is none."""
    valves = user.get("valves")
    value = valves.get(name) if isinstance(valves, Mapping) else getattr(valves, name, None)
    return value.strip() if isinstance(value, str) else ""


def wants_all(user: Mapping[str, Any]) -> bool:
    """Return whether the user has switched the selection of tools off."""
    return own_valve(user, "narrowing") == "off"


def wants_status(user: Mapping[str, Any], valves: FilterValves) -> bool:
    own = own_valve(user, "status")
    return own == "on" if own in ("on", "off") else valves.status


def language_of(metadata: Mapping[str, Any], messages: Sequence[Any]) -> str:
    """
    Return the language of the user's page, or English if there is no line in this language.

    If the page sends no language, return one that the script of the user's last message points to.
    """
    variables = metadata.get("variables")
    locale = variables.get("{{USER_LANGUAGE}}") if isinstance(variables, Mapping) else None
    if isinstance(locale, str) and locale.strip():
        language, *more = re.split("[-_]", locale.strip().lower())
        if language == "zh" and "hans" not in more and not TRADITIONAL.isdisjoint(more):
            return TRADITIONAL_CHINESE
        return language if language in STATUS else ENGLISH
    start = turn_start(messages)
    last = messages[start] if start < len(messages) else None
    # Open WebUI may have added documents to the message.
    typed = typed_prompt(metadata) or (last.get("content") if isinstance(last, Mapping) else "")
    text = said_text(typed)[:PROMPT_CHARACTERS]
    return next((name for name, letters in SCRIPTS if re.search(f"[{letters}]", text)), ENGLISH)


def own_llm_key(user: Mapping[str, Any]) -> str:
    """Return the user's own key for a language model, or an empty text if there is no key that a header can contain."""
    key = own_valve(user, "llm_api_key")
    return key if key.isascii() and key.isprintable() and " " not in key else ""


def signed_user(user: Mapping[str, Any]) -> str:
    """
    Return the user's identity as signed by Open WebUI, in the same form as for tool servers.

    Return an empty text if Open WebUI doesn't forward or sign users. The service then uses the user in the request's
    body.
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
    """Return the time limit for a hook in seconds, for the request and for lookups in Open WebUI's database."""
    return wait_at_most(valves) + 0.5


# --- Lookups in Open WebUI -------------------------------------------------------------------------------------------


async def configured_connections(request: Any) -> list[Any]:
    """Return the tool servers registered in Open WebUI, or none if this version stores them elsewhere."""
    try:
        config = importlib.import_module("open_webui.models.config").Config
        found = await config.get("tool_server.connections", [])
    except Exception:  # Before 0.12, the application object contained the configuration.
        config = getattr(getattr(getattr(request, "app", None), "state", None), "config", None)
        found = getattr(config, "TOOL_SERVER_CONNECTIONS", [])
    return found if isinstance(found, list) else []


async def connections_of(valves: FilterValves, request: Any) -> dict[str, str]:
    """
    Return the service's tool ids: those in the valve, and those whose address in Open WebUI matches.

    Beside those in the valve, a connection with another key may have other tools, which the valve's key must not judge.
    """
    named = parse_connections(valves.connections)
    found = connections_below(await configured_connections(request), valves.url, valves.key if named else "")
    return {**found, **{tool_id: path_over(tool_id, path, found) for tool_id, path in named.items()}}


def path_over(tool_id: str, path: str, found: Mapping[str, str]) -> str:
    """Return the path in the valve, or the right one if the valve has the path of a document for an MCP connection."""
    address = path.split("?")[0].rstrip("/")
    if not tool_id.startswith(MCP_PREFIX) or address.endswith("/mcp"):
        return path
    return found.get(tool_id) or address.removesuffix("openapi.json").rstrip("/") + "/mcp"


async def usable_connections(connections: Mapping[str, str], user: Mapping[str, Any], request: Any) -> dict[str, str]:
    """Return our enabled connections that this user may use, or none if Open WebUI can't check this."""
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
    # With MCP connections too, all tools would appear twice.
    documents = {tool_id: path for tool_id, path in usable.items() if not tool_id.startswith(MCP_PREFIX)}
    return documents or usable


def narrows_later(body: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Return whether the `request` hook narrows this message's functions: in newer versions, for native calls."""
    parameters = (body.get("params"), metadata.get("params"))
    if LEGACY_MODE in (part.get("function_calling") for part in parameters if isinstance(part, Mapping)):
        return False
    try:
        version = str(importlib.import_module("open_webui.env").VERSION)
        return tuple(int(part) for part in version.split(".")[:3]) >= REQUEST_HOOK
    except Exception:
        return False


async def group_names(user: Mapping[str, Any]) -> list[str]:
    """Return the names of the user's groups, or none if this version of Open WebUI doesn't provide them."""
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


# --- Question and answer ---------------------------------------------------------------------------------------------


def question_about(
    valves: FilterValves,
    connections: Mapping[str, str],
    messages: list[Body],
    user: Mapping[str, Any],
    groups: list[str],
    metadata: Mapping[str, Any],
    model: object,
) -> Body:
    """Build the body of `POST /v1/filter`, without the offered functions. Unknown values are omitted."""
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


def what_to_ask(
    valves: FilterValves, turn: Turn, present: Sequence[str], body: Body, user: Mapping[str, Any], metadata: Body
) -> Asking:
    """Return the question for a model call. Notes in the turn what the model has unloaded."""
    owned, judged = turn.owned, turn.judged
    messages = body.get("messages") or []
    remaining = without_unloaded(messages, owned)
    called, chosen_by_caller = called_functions(remaining), function_name(body.get("tool_choice"))
    prompts, always = system_prompts(messages), parse_list(valves.always_keep)
    named = names_in([prompt_of_model(metadata)])
    stay = {
        *called,
        chosen_by_caller,
        *matching(judged, [*always, *chosen_patterns(metadata, prompts)]),
        *(named | names_in([*prompts, last_message(messages)]) if judged else ()),
    }
    definitions = {name: definition for name, definition in judged.items() if name not in stay}
    staying = [name for name in judged if name in stay and (name in present or name in called)]
    foreign = [name for name in (*present, *staying) if name and name not in owned and name not in definitions]

    found, unloaded = found_and_unloaded(messages)
    turn.unloaded.difference_update(found)
    turn.unloaded.update(unloaded)
    turn.unloaded.difference_update(called)  # The model has called these again.

    said = said_so_far(remaining, metadata, typed_prompt(metadata), owned)
    question = question_about(valves, turn.connections, said, user, turn.groups, metadata, body.get("model"))
    question["tool_ids"] = list(metadata.get("tool_ids") or [])
    if turn.running:
        hidden = [name for name in called if name not in metadata["tools"]]
        known = [*hidden, *turn.bound, *found]
    else:  # These are offered, and join the chat's tools.
        known = [name for name in found if name in turn.by_name[0]]
    disclosed = [name for name in dict.fromkeys(known) if name not in turn.unloaded]
    if turn.running or disclosed:
        question["disclose"] = disclosed[:MOST_DISCLOSED]
    offered = dict.fromkeys([*turn.offered, *turn.bound])
    kept_by_us = [
        *kept_always(offered, owned, always),
        *(name for name in offered if name in named or owned[name] in named),
        *(name for name in called if name in offered),
        *([chosen_by_caller] if chosen_by_caller in offered else []),
        # Open WebUI may have summarized the messages in which the model found these.
        *[name for name in turn.shown if name in owned and owned[name] not in turn.unloaded][-MOST_TOOLS:],
    ]
    if kept_by_us:  # The service checks whether they still exist and whether the user may use them.
        question["keep"] = list(dict.fromkeys(owned[name] for name in kept_by_us))[:MOST_KEPT]
    searched = searches(messages) if definitions else {}
    if definitions:
        question["narrow_foreign"] = True
        texts = [text for queries in searched.values() for text in queries]
        question |= {"searched": texts[-MOST_SEARCHES:]} if texts else {}
    names = list(dict.fromkeys([*(owned[name] for name in turn.offered), *foreign]))
    return Asking(question, names, list(definitions.values()), set(definitions), set(staying), found, searched)


def what_to_offer(turn: Turn, asking: Asking, answer: Answer | None, present: Sequence[str]) -> list[str]:
    """
    Return the functions to offer, in order; only those of the service and those that it may judge.

    Without an answer, those of the previous call stay, and tools that the model has found are added. Open WebUI's own
    tools have one order, so that a call moves none of them, for the provider's prompt cache.
    """
    before = turn.shown or present
    if answer is None:
        answered = [name for name in before if name in turn.owned]
        fitting = asking.asked.intersection(before)
    else:
        answered = with_published_names(answer.names, turn.by_name)
        # Earlier versions of the service judge these functions like any others, and may drop those that are needed.
        fitting = asking.asked.intersection(answer.others if answer.judges_families else present)
    # An unload in a session that names no chat doesn't change the chat's tools, so the answer still has them.
    gone = turn.unloaded.intersection(turn.bound)
    answered = [name for name in answered if name not in gone]
    # What an earlier call of the turn had stays, so that the list only grows.
    stay = fitting | asking.asked.intersection(turn.shown) | asking.staying
    found = with_published_names(asking.found, turn.by_name)
    return [*answered, *found, *(name for name in turn.judged if name in stay)]


# --- Status line and log ---------------------------------------------------------------------------------------------


def has_direct(registry: Mapping[str, Any], service: str) -> bool:
    """Return whether some of these functions come from a user's own connection to the service."""
    direct = (entry.get("server") for entry in registry.values() if isinstance(entry, dict) and entry.get("direct"))
    return any(
        path_below(document_url(server), service) is not None for server in direct if isinstance(server, Mapping)
    )


def tool_servers_of(registry: Mapping[str, Any]) -> list[str]:
    """Return the tool servers of a turn's functions, starting with those that look like Toolsieve."""
    found: dict[str, set[str]] = {}
    for name, entry in registry.items():
        tool_id = entry.get("tool_id") if isinstance(entry, dict) else None
        if isinstance(tool_id, str) and tool_id.startswith(SERVER_PREFIX):
            found.setdefault(tool_id, set()).add(name.removeprefix(tool_id.removeprefix(SERVER_PREFIX) + "_"))
    return sorted(found, key=lambda tool_id: not {SEARCH_FUNCTION, RUN_FUNCTION} <= found[tool_id])


def failure_line(error: FilterError, lines: StatusLines) -> str | None:
    """Return the status line for an error, or `None` for an outage that was reported before."""
    if isinstance(error, AwayError):
        return lines.no_answer if error.is_news else None
    return lines.failed.format(error=error)


def note(error: Exception) -> None:
    """Log one line without addresses, secrets or text from the chat."""
    if isinstance(error, AwayError) and not error.is_news:
        return
    why = str(error) if isinstance(error, FilterError) else type(error).__name__
    log.warning("Toolsieve filter: %s; the tools stay as they are", why)


# --- Open WebUI's hooks ----------------------------------------------------------------------------------------------


class Filter:
    """Open WebUI's hooks. Open WebUI replaces `valves` before each hook, so every hook first copies it."""

    Valves = FilterValves
    UserValves = FilterUserValves

    def __init__(self) -> None:
        self.valves = FilterValves()
        self._links: dict[asyncio.AbstractEventLoop, Link] = {}
        # The last settings that matched a tool server in Open WebUI, and the last settings that matched none.
        self._fitting: tuple[str, str] | None = None
        self._unfitting: tuple[str, str] | None = None

    async def inlet(
        self,
        body: Body,
        __user__: Body | None = None,
        __metadata__: Body | None = None,
        __request__: Any = None,
    ) -> Body:
        """Select the tool servers, once per message. This works in every mode of function calling."""
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
        """Select the functions, before every model call and also after tool calls."""
        valves = self.valves
        metadata = __metadata__ or {}
        status = None
        try:
            narrowing = self._narrow(valves, body, __user__ or {}, metadata, __request__)
            status = await within(hook_limit(valves), narrowing)
        except Exception as error:
            note(error)
            messages = body.get("messages") or []
            # Later calls of the turn keep the previous list.
            if isinstance(error, FilterError) and begins_answer(messages, metadata):
                status = failure_line(error, STATUS[language_of(metadata, messages)])
        # API calls have no chat in which to show the status.
        if status and wants_status(__user__ or {}, valves) and __event_emitter__ and metadata.get("chat_id"):
            try:
                await __event_emitter__({"type": "status", "data": {"description": status, "done": True}})
            except Exception as error:
                note(error)
        return body

    async def _ask(
        self,
        valves: FilterValves,
        question: Body,
        user: Body,
        names: Sequence[str] | None = None,
        definitions: Sequence[Body] = (),
    ) -> Answer:
        """Send a request over this event loop's connection. Drop connections to other addresses and of closed loops."""
        loop, url = asyncio.get_running_loop(), filter_url(valves)
        link = self._links.get(loop)
        if link is None or link.url != url:
            for ended in [known for known in self._links if known.is_closed()]:
                del self._links[ended]
            self._links[loop], before = Link(url), link
            if before is not None:
                await before.retire()
        return await self._links[loop].ask(valves, question, user, names, definitions)

    async def _tool_ids(
        self, valves: FilterValves, body: Body, user: Body, metadata: Body, request: Any
    ) -> list[str] | None:
        """
        Return the new list of tool ids for this message, or `None` if nothing changes.

        Where the `request` hook follows, only MCP connections are left out: the hook chooses among the functions of all
        others, and the model can search all of them in this turn.
        """
        if body.get("tools") is not None:  # Open WebUI ignores tool ids if the caller sends its own tools.
            return None
        chosen = [tool_id for tool_id in body.get("tool_ids") or [] if isinstance(tool_id, str)]
        messages = body.get("messages") or []
        if not messages:
            return None
        # Scripts that use the API have no session, and don't expect tools that they didn't request.
        nothing_on = not chosen and not metadata.get("tool_servers") and bool(metadata.get("session_id"))
        automatic = valves.auto_enable and nothing_on
        # After this hook, Open WebUI lists each MCP server's tools. The service then lists the selection made here.
        over_mcp = [tool_id for tool_id in chosen if tool_id.startswith(MCP_PREFIX)]
        if not automatic and (wants_all(user) or (len(chosen) < 2 and not over_mcp)):
            return None
        connections = await connections_of(valves, request)
        if automatic:
            named = {tool_id: connections[tool_id] for tool_id in parse_connections(valves.connections)}
            connections = await usable_connections(named or connections, user, request)
        ours = list(connections) if automatic else [tool_id for tool_id in chosen if tool_id in connections]
        if len(ours) < (1 if automatic or connections.keys() & set(over_mcp) else 2):
            return None
        documents = [tool_id for tool_id in ours if not tool_id.startswith(MCP_PREFIX)]
        later = documents if narrows_later(body, metadata) else []
        if automatic and (wants_all(user) or len(later) == len(ours)):
            return ours
        if len(later) == len(ours):
            return None
        owned = names_over_mcp(messages, connections)
        said = said_so_far(without_unloaded(messages, owned), metadata, None, owned)
        question = question_about(valves, connections, said, user, await group_names(user), metadata, body.get("model"))
        answer = await self._ask(valves, {**question, "tool_ids": ours if automatic else chosen}, user)
        if answer.tool_ids is None:
            raise FilterError("the answer has no tool ids")
        kept = {*later, *answer.tool_ids}
        return [tool_id for tool_id in chosen or ours if tool_id not in ours or tool_id in kept]

    async def _turn(
        self, valves: FilterValves, registry: Body, present: list[str], user: Body, metadata: Body, request: Any
    ) -> Turn | None:
        """Return the functions in a turn's first model call, or `None` if none of them belongs to the service."""
        every = await connections_of(valves, request)
        # MCP tools were already narrowed when Open WebUI listed them.
        connections = {tool_id: path for tool_id, path in every.items() if not tool_id.startswith(MCP_PREFIX)}
        owned = owned_functions(registry, connections)
        if not owned:
            return None
        # Open WebUI's own tool search withholds definitions, but these functions are offered too.
        on_offer = {*present, *(metadata.get("deferred_tools") or [])}
        offered = [name for name in owned if name in on_offer]
        running = disclosing_functions(registry, owned)
        turn = Turn(
            # A found tool belongs to the first connection that reaches it, and only these can run it.
            connections=dict(sorted(connections.items(), key=lambda connection: connection[0] not in running)),
            groups=await group_names(user),
            owned=owned,
            offered=offered,
            bound=[],
            by_name=functions_by_name(owned, offered),
            running=running,
            judged=judged_functions(registry, [*present, *sorted(on_offer - set(present))], owned, valves.narrow),
            brought={},
            shown=[],
            unloaded=set(),
        )
        for name in itertools.islice(owned, MARKED):
            registry[name].setdefault(TURN, {})[service_address(valves.url)] = turn
        return turn

    async def _narrow(self, valves: FilterValves, body: Body, user: Body, metadata: Body, request: Any) -> str | None:
        """Narrow `body["tools"]`. Return the status line in a turn's first model call."""
        tools, registry = body.get("tools"), metadata.get("tools")
        params = metadata.get("params")
        if not isinstance(tools, list) or not tools or not isinstance(registry, dict):
            return None
        if isinstance(params, dict) and params.get("function_calling") == LEGACY_MODE:
            return None
        present = function_names(tools)
        messages = body.get("messages") or []
        lines = STATUS[language_of(metadata, messages)]
        if wants_all(user):
            await self._bind_loaded(valves, body, registry, user, metadata, request)
            begins = begins_answer(messages, metadata)
            is_ours = begins and owned_functions(registry, await connections_of(valves, request))
            return lines.switched_off if is_ours else None
        turn = turn_of(registry, valves.url)
        first = turn is None
        if turn is None:
            turn = await self._turn(valves, registry, present, user, metadata, request)
        if turn is None:
            if not begins_answer(messages, metadata):
                return None
            missing = await self._has_missing(valves, registry, metadata, request)
            return lines.no_tools if missing else await self._unmatched(valves, registry, request, lines)

        asking = what_to_ask(valves, turn, present, body, user, metadata)
        answer: Answer | None = None
        failure: Exception | None = None
        try:
            answer = await self._ask(valves, asking.question, user, asking.names, asking.judged)
            bind(registry, turn, answer.definitions)
        except Exception as error:
            found = with_published_names(asking.found, turn.by_name)
            if first or (not turn.shown and set(found) <= set(present)):
                raise
            answer, failure = None, error
        wanted = what_to_offer(turn, asking, answer, present)
        before = turn.shown or present
        back = [name for name in wanted if name in asking.asked and name not in before]
        if asking.searches and back:
            turn.brought.setdefault(list(asking.searches)[-1], []).extend(back)
        if turn.brought:
            body["messages"] = with_brought(messages, turn.brought, turn.judged)
        named = zip(present, tools, strict=True)
        kept = narrowed_tools(named, registry, {*turn.owned, *turn.judged}, wanted, turn.shown)
        turn.shown[:] = function_names(kept)
        if kept:
            body["tools"] = kept
        else:  # Some providers reject an empty list, and these two members without a list.
            for key in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(key, None)
        if failure:
            raise failure
        # After a call that a person had to approve, the functions are new and the turn is not.
        if not first or not begins_answer(messages, metadata):
            return None
        all_offered = {*present, *turn.offered, *turn.bound, *turn.judged}
        line = lines.some_tools if answer is None or answer.needs_tool else lines.no_tool_needed
        return line.format(shown=len(kept), all=len(all_offered))

    async def _bind_loaded(
        self, valves: FilterValves, body: Body, registry: Body, user: Body, metadata: Body, request: Any
    ) -> None:
        """Add the tools that the model has loaded. The service gets their names, but no text and no id of the chat."""
        loaded, unloaded = loaded_and_unloaded(body.get("messages") or [])
        present = function_names(body["tools"])
        turn = turn_of(registry, valves.url)
        if turn is None and loaded:
            turn = await self._turn(valves, registry, present, user, metadata, request)
        if turn is None or not turn.running:
            return
        turn.unloaded.difference_update(loaded)
        turn.unloaded.update(unloaded)
        missing = [name for name in loaded if name not in registry]
        if missing:
            nothing = [{"role": "user", "content": ""}]
            question = question_about(valves, turn.connections, nothing, user, turn.groups, {}, body.get("model"))
            question["tool_ids"] = list(metadata.get("tool_ids") or [])
            question["disclose"] = missing[:MOST_DISCLOSED]
            answer = await self._ask(valves, question, user, [turn.owned[name] for name in turn.offered])
            bind(registry, turn, answer.definitions)
        # Open WebUI may have summarized the messages in which the model loaded them.
        wanted = [name for name in turn.bound if name not in turn.unloaded]
        body["tools"] = narrowed_tools(zip(present, body["tools"], strict=True), registry, turn.bound, wanted, present)

    async def _has_missing(self, valves: FilterValves, registry: Body, metadata: Body, request: Any) -> bool:
        """Return whether the chat has the service's tools on, but Open WebUI could not read them."""
        # A user's own connection has the same functions, and replaces those of an administrator's connection.
        if has_direct(registry, valves.url):
            return False
        # Functions of MCP servers don't say where they come from.
        ids = [tool_id for tool_id in metadata.get("tool_ids") or [] if isinstance(tool_id, str)]
        chosen = [tool_id for tool_id in ids if not tool_id.startswith(MCP_PREFIX)]
        present = {entry.get("tool_id") for entry in registry.values() if isinstance(entry, dict)}
        missing = {tool_id for tool_id in chosen if tool_id not in present}
        return bool(missing) and not missing.isdisjoint(await connections_of(valves, request))

    async def _unmatched(self, valves: FilterValves, registry: Body, request: Any, lines: StatusLines) -> str | None:
        """
        Report settings that match none of Open WebUI's tool servers. Log once what to set, and return a status line.
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
                "Toolsieve filter: nothing is narrowed, because the valve '%s' matches no tool server of Open WebUI. "
                "Set 'url' to the address that Toolsieve's connection has in Open WebUI, or 'connections' to "
                '{"%s": "/"}',
                valve,
                servers[0],
            )
        return lines.failed.format(error=f"the valve '{valve}' matches no tool server")
