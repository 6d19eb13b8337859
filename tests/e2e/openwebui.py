"""Open WebUI: the real one, started for the tests, and a client that does what its page and its users do."""

import base64
import os
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

import model
from processes import Program, answers, free_port

# Which Open WebUI is installed here, as numbers: `run --version`.
VERSION = tuple(int(part) for part in os.environ.get("OPENWEBUI_VERSION", "0.12.4").split("."))
EVERYBODY = [{"principal_type": "user", "principal_id": "*", "permission": "read"}]
ADMINISTRATORS: list[dict[str, str]] = []
# The first start migrates an empty database.
START_SECONDS = 240
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
ANSWER_SECONDS = 60


def start(folder: Path, provider_url: str) -> tuple[Program, str]:
    """Starts Open WebUI on an empty database; returns it and its URL once it is healthy."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    data = folder / "openwebui"
    data.mkdir()
    env = {
        "DATA_DIR": str(data),
        "WEBUI_SECRET_KEY": secrets.token_hex(24),
        # The official slim mode needs no machine learning library.
        "USE_SLIM_DOCKER": "True",
        "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_OPENAI_API_BASE_URL": provider_url,
        "RAG_OPENAI_API_KEY": "none",
        "AUDIO_STT_ENGINE": "openai",
        # Without the slim mode, before 0.11, this client is the lightest; nothing is stored with it.
        "VECTOR_DB": "qdrant",
        "QDRANT_URI": "http://127.0.0.1:9",
        # Nothing may leave the machine, and nothing but the tests may call the model.
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "ENABLE_VERSION_UPDATE_CHECK": "False",
        "ENABLE_OLLAMA_API": "False",
        "OPENAI_API_BASE_URLS": provider_url,
        "OPENAI_API_KEYS": "none",
        "ENABLE_TITLE_GENERATION": "False",
        "ENABLE_TAGS_GENERATION": "False",
        "ENABLE_FOLLOW_UP_GENERATION": "False",
        "ENABLE_COMMUNITY_SHARING": "False",
        "ANONYMIZED_TELEMETRY": "false",
        "DO_NOT_TRACK": "true",
        "SCARF_NO_ANALYTICS": "true",
        # Every user may use the scripted model.
        "BYPASS_MODEL_ACCESS_CONTROL": "True",
        "ENABLE_API_KEYS": "True",
        # Tool servers learn for whom a call is. Only keys that are trusted may name users.
        "ENABLE_FORWARD_USER_INFO_HEADERS": "True",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    command: list[str | Path] = [
        Path(sys.executable).parent / "open-webui",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    program = Program(command, log=folder / "openwebui.log", env=env, cwd=data)
    try:
        program.wait_until(lambda: answers(f"{url}/health"), START_SECONDS, "Open WebUI is not healthy")
    except BaseException:
        program.stop()
        raise
    return program, url


def connection(
    server_id: str,
    url: str,
    *,
    key: str = "",
    grants: list[dict[str, str]] | None = None,
    path: str = "openapi.json",
) -> dict[str, Any]:
    """A tool server as Open WebUI's administration page saves it."""
    return {
        "url": url,
        "path": path,
        "type": "openapi",
        "auth_type": "bearer" if key else "none",
        "key": key,
        "headers": None,
        "spec_type": "url",
        "spec": "",
        "config": {
            "enable": True,
            "function_name_filter_list": "",
            "access_grants": EVERYBODY if grants is None else grants,
        },
        "info": {"id": server_id, "name": server_id, "description": ""},
    }


class Answered:
    """An answered message of the chat page, or one that waits for the user to approve a tool call."""

    def __init__(self, chat_id: str, message: dict[str, Any]) -> None:
        self.chat_id = chat_id
        self.id: str = message["id"]
        self.content: str = message["content"] or _said(message)
        self.waiting = _waiting_call(message)
        # Open WebUI's own entries have no description.
        history = message.get("statusHistory") or []
        self.statuses = [status["description"] for status in history if "description" in status]


class Client:
    """A signed-in user."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def sign_up(cls, url: str) -> "Client":
        """The first account, which becomes the administrator."""
        form = {"name": "Admin", "email": "admin@example.com", "password": secrets.token_hex(12)}
        return cls(url, _checked(requests.post(f"{url}/api/v1/auths/signup", json=form, timeout=60))["token"])

    def add_user(self, name: str) -> "Client":
        form = {"name": name, "email": f"{name}@example.com", "password": secrets.token_hex(12), "role": "user"}
        return Client(self.url, self.post("/api/v1/auths/add", form)["token"])

    def get(self, path: str) -> Any:
        return _checked(self._session.get(self.url + path, timeout=60))

    def post(self, path: str, body: object = None) -> Any:
        return _checked(self._session.post(self.url + path, json={} if body is None else body, timeout=60))

    def delete(self, path: str) -> Any:
        return _checked(self._session.delete(self.url + path, timeout=60))

    # Administration

    def tool_servers(self) -> list[dict[str, Any]]:
        servers: list[dict[str, Any]] = self.get("/api/v1/configs/tool_servers")["TOOL_SERVER_CONNECTIONS"]
        return servers

    def set_tool_servers(self, servers: list[dict[str, Any]]) -> None:
        self.post("/api/v1/configs/tool_servers", {"TOOL_SERVER_CONNECTIONS": servers})

    @contextmanager
    def chat_setting(self, name: str) -> Iterator[None]:
        """Switches one of the chat settings of the administration page on for a while."""
        path = "/api/v1/chats/config"
        before = self.get(path)
        self.post(path, {**before, name: True})
        try:
            yield
        finally:
            self.post(path, before)

    def function_ids(self) -> list[str]:
        return [function["id"] for function in self.get("/api/v1/functions/")]

    def paste_function(self, function_id: str, source: str) -> None:
        """Adds a function as its author pastes it, switches it on and makes it global."""
        form = {"id": function_id, "name": function_id, "content": source, "meta": {"description": function_id}}
        self.post("/api/v1/functions/create", form)
        self.post(f"/api/v1/functions/id/{function_id}/toggle")
        self.post(f"/api/v1/functions/id/{function_id}/toggle/global")

    def delete_function(self, function_id: str) -> None:
        self.delete(f"/api/v1/functions/id/{function_id}/delete")

    def valves(self, function_id: str) -> dict[str, Any]:
        valves: dict[str, Any] = self.get(f"/api/v1/functions/id/{function_id}/valves")
        return valves

    def set_valves(self, function_id: str, valves: dict[str, Any]) -> None:
        self.post(f"/api/v1/functions/id/{function_id}/valves/update", valves)

    def set_own_valves(self, function_id: str, valves: dict[str, Any]) -> None:
        """Sets a person's own settings of a function."""
        self.post(f"/api/v1/functions/id/{function_id}/valves/user/update", valves)

    @contextmanager
    def model_with_knowledge(self, model_id: str) -> Iterator[None]:
        """Adds a model with an attached knowledge base for a while."""
        base = self.post("/api/v1/knowledge/create", {"name": "Handbook", "description": "Rules of the house"})
        attached = {"type": "collection", "id": base["id"], "name": base["name"]}
        form = {
            "id": model_id,
            "name": model_id,
            "base_model_id": model.NAME,
            "meta": {"knowledge": [attached]},
            "params": {},
        }
        self.post("/api/v1/models/create", form)
        self.get("/api/models?refresh=true")
        try:
            yield
        finally:
            self.post("/api/v1/models/model/delete", {"id": model_id})
            self.get("/api/models?refresh=true")

    # Chatting

    def tool_ids(self) -> list[str]:
        """The tools that this user can switch on."""
        return [tool["id"] for tool in self.get("/api/v1/tools/")]

    def ask_api(self, text: str, tool_ids: list[str], **more: Any) -> dict[str, Any]:
        """A script's call: no session, no chat."""
        messages = [{"role": "user", "content": text}]
        body = {"model": model.NAME, "stream": False, "messages": messages, "tool_ids": tool_ids, **more}
        answer: dict[str, Any] = self.post("/api/chat/completions", body)
        return answer

    def ask(
        self,
        text: str,
        tool_ids: list[str],
        after: Answered | None = None,
        params: dict[str, Any] | None = None,
        model_id: str = model.NAME,
        language: str | None = None,
        files: list[dict[str, Any]] | None = None,
    ) -> Answered:
        """A message as the chat page sends it, in a new chat or `after` an answer; waits for the whole answer."""
        message_id, parent = str(uuid.uuid4()), after.id if after else None
        user_message = {
            "id": str(uuid.uuid4()),
            "parentId": parent,
            "childrenIds": [],
            "role": "user",
            "content": text,
            "timestamp": int(time.time()),
            "models": [model_id],
            "files": files or [],
        }
        body = {
            "stream": True,
            "model": model_id,
            "params": params or {},
            "tool_ids": tool_ids,
            "tool_servers": [],
            "features": {},
            "variables": {"{{USER_LANGUAGE}}": language} if language else {},
            "session_id": f"session-{uuid.uuid4().hex[:10]}",
            "id": message_id,
            "parent_id": parent,
            "user_message": user_message,
            "background_tasks": {},
            **({"chat_id": after.chat_id} if after else {}),
        }
        started = self.post("/api/chat/completions", body)
        return self._answer(started.get("chat_id") or (after.chat_id if after else ""), message_id)

    def upload_image(self) -> dict[str, Any]:
        """Uploads an image of one pixel; returns what the page attaches to a message."""
        picture = {"file": ("picture.png", base64.b64decode(PIXEL), "image/png")}
        form = self._session.post(f"{self.url}/api/v1/files/?process=false", files=picture, timeout=60)
        file_id = _checked(form)["id"]
        return {"type": "image", "id": file_id, "url": file_id, "name": "picture.png", "content_type": "image/png"}

    def approve(self, answer: Answered) -> Answered:
        """Lets the tool call run that an answer waits for; returns the answer as it went on."""
        path = f"/api/v1/chats/{answer.chat_id}/messages/{answer.id}/resolve"
        self.post(path, {"call_id": answer.waiting, "action": "approve"})
        return self._answer(answer.chat_id, answer.id, approved=answer.waiting)

    def _answer(self, chat_id: str, message_id: str, approved: str | None = None) -> Answered:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            messages = self.get(f"/api/v1/chats/{chat_id}")["chat"]["history"]["messages"]
            message = messages.get(message_id, {})
            if message.get("done") or _waiting_call(message) not in (None, approved):
                return Answered(chat_id, message)
            assert time.monotonic() < deadline, f"no answer within {ANSWER_SECONDS} s: {message}"
            time.sleep(0.1)


def _said(message: dict[str, Any]) -> str:
    """The text of an answer where Open WebUI keeps it in parts alone."""
    parts = [part for item in message.get("output") or [] for part in item.get("content") or []]
    return "\n".join(part.get("text", "") for part in parts)


def _waiting_call(message: dict[str, Any]) -> str | None:
    """The tool call that waits for the user's approval."""
    pending = (item for item in message.get("output") or [] if item.get("status") == "pending")
    return next((str(item["call_id"]) for item in pending), None)


def _checked(response: requests.Response) -> Any:
    assert response.status_code < 400, (
        f"{response.request.method} {response.url}: {response.status_code} {response.text[:500]}"
    )
    return response.json()
