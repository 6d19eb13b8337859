"""Loads the filter in the same way as Open WebUI, and serves `/v1/filter` from a real HTTP server on a free port."""

import json
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "filter.py"
# Open WebUI replaces these texts everywhere in a plugin, even in comments.
REPLACED = {
    "from utils": "from open_webui.utils",
    "from apps": "from open_webui.apps",
    "from main": "from open_webui.main",
    "from config": "from open_webui.config",
}


def as_open_webui_reads_it(source: str) -> str:
    for old, new in REPLACED.items():
        source = source.replace(old, new)
    return source


def load(source: str) -> types.ModuleType:
    """Run a module from its text, without a file or a package. It is removed from `sys.modules` afterwards."""
    name = f"function_toolsieve_{uuid.uuid4().hex}"
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        exec(as_open_webui_reads_it(source), module.__dict__)
    finally:
        del sys.modules[name]
    return module


@pytest.fixture(scope="session")
def plugin() -> types.ModuleType:
    return load(SOURCE.read_text(encoding="utf-8"))


class Service:
    """
    A fake service that can also return invalid data, errors, no response or a late response.

    `answer` creates the response from the request: an object, raw bytes, or a status with one of these. Names in the
    request's `keep` are added to the selection, except those in `denied`.
    """

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.llm_keys: list[str | None] = []
        self.signed_users: list[str | None] = []
        self.paths: list[str] = []
        self.delay = 0.0
        self.denied: set[str] = set()
        self.answer: Callable[[dict[str, Any]], Any] = lambda _: selection()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.paths.append(self.path)
                service.keys.append(self.headers["Authorization"])
                service.llm_keys.append(self.headers["X-LLM-Api-Key"])
                service.signed_users.append(self.headers["X-OpenWebUI-User-Jwt"])
                service.questions.append(question)
                reply = service.answer(question)
                time.sleep(service.delay)
                status, content = reply if isinstance(reply, tuple) else (200, reply)
                if isinstance(content, dict) and isinstance(content.get("tools"), list):
                    content = with_kept(content, question.get("keep", []), service.denied)
                raw = content if isinstance(content, bytes) else json.dumps(content).encode()
                try:
                    self.send_response(status)
                    if status == 302:
                        self.send_header("Location", "/elsewhere")
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except OSError:
                    pass  # The filter has stopped waiting, as one of the tests expects.

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def with_kept(answer: dict[str, Any], names: list[str], denied: set[str]) -> dict[str, Any]:
    known = {tool.get("name") for tool in answer["tools"] if isinstance(tool, dict)} | denied
    kept = [{"name": name, "server": "s", "tool": name} for name in names if name not in known]
    return {**answer, "tools": [*answer["tools"], *kept]}


def selection(*names: str, tool_ids: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a response with the specified format."""
    tools = [{"name": name, "server": "s", "tool": name, "score": 0.5, "reason": "relevant"} for name in names]
    tokens = {"before": 1000, "after": 100}
    return {
        "selection_id": "1",
        "tool_ids": list(tool_ids),
        "tools": tools,
        "tokens": tokens,
        "warnings": [],
        "took_ms": 1,
    }


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.stop()


class OpenWebUI:
    """The modules of Open WebUI that the filter imports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections: list[dict[str, Any]] = []
        self.groups: list[str] = []
        outer = self

        class Config:
            @staticmethod
            async def get(key: str, default: object = None) -> object:
                assert key == "tool_server.connections"
                return outer.connections or default

        class Groups:
            @staticmethod
            async def get_groups_by_member_id(_user_id: str, include_inherited: bool = False) -> list[object]:  # noqa: FBT001, FBT002
                assert include_inherited
                return [types.SimpleNamespace(name=name) for name in outer.groups]

        async def has_connection_access(user: Any, connection: dict[str, Any]) -> bool:
            grants = connection["config"].get("access_grants")
            return bool(user.role == "admin" or (grants and grants[0]["principal_id"] in ("*", user.id)))

        members_of: dict[str, dict[str, Any]] = {
            "open_webui": {},
            "open_webui.models": {},
            "open_webui.utils": {},
            "open_webui.models.config": {"Config": Config},
            "open_webui.models.groups": {"Groups": Groups},
            "open_webui.utils.access_control": {"has_connection_access": has_connection_access},
        }
        for name, members in members_of.items():
            module = types.ModuleType(name)
            module.__dict__.update(members)
            monkeypatch.setitem(sys.modules, name, module)

    def sign(self, monkeypatch: pytest.MonkeyPatch, token: object, *, forwards: bool = True) -> list[dict[str, object]]:
        """Install the function that creates user headers, and return the users for whom it is called."""
        asked: list[dict[str, object]] = []

        def include_user_info_headers(headers: dict[str, object], user: Any = None) -> dict[str, object]:
            asked.append({**vars(user)})
            if isinstance(token, Exception):
                raise token
            return {**headers, "X-Signed": token} if token else {**headers, "X-OpenWebUI-User-Id": user.id}

        module = types.ModuleType("open_webui.utils.headers")
        module.__dict__.update(
            ENABLE_FORWARD_USER_INFO_HEADERS=forwards,
            FORWARD_USER_INFO_HEADER_JWT="X-Signed",
            include_user_info_headers=include_user_info_headers,
        )
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return asked

    def connect(
        self, tool_id: str, url: str, path: str = "openapi.json", grant: str = "*", key: str = "", **config: Any
    ) -> None:
        grants = [{"principal_type": "user", "principal_id": grant, "permission": "read"}] if grant else []
        self.connections.append(
            {
                "url": url,
                "path": path,
                "key": key,
                "type": "mcp" if tool_id.startswith("server:mcp:") else "openapi",
                "info": {"id": tool_id.removeprefix("server:").removeprefix("mcp:")},
                "config": {"enable": True, "access_grants": grants, **config},
            }
        )


@pytest.fixture
def open_webui(monkeypatch: pytest.MonkeyPatch) -> OpenWebUI:
    return OpenWebUI(monkeypatch)
