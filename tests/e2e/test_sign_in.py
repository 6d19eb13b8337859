"""
Two users of Open WebUI sign in to a server, each in their own name.

The server is of the official SDK for Python (`tests/connect/sdk_server.py`). The SDK's version that it needs comes with
Open WebUI 0.12.
"""

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

import openwebui
from conftest import World
from model import Call
from processes import Program, until
from toolsieve import Toolsieve

pytestmark = pytest.mark.since(0, 12)

SERVER = Path(__file__).resolve().parents[1] / "connect" / "sdk_server.py"
TOOL_ID = "server:tickets"
QUESTION = "who am I in the ticket system"
ADMIN_KEY = "admin-key-of-the-sign-ins"


class Signing:
    """A service in front of a server that people sign in to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        addresses = folder / "server.json"
        self._server = Program([sys.executable, SERVER], log=addresses)
        self._server.wait_until(lambda: "}" in addresses.read_text(), 60, "the server does not start")
        text = next(line for line in addresses.read_text().splitlines() if line.startswith("{"))
        self._addresses: dict[str, str] = json.loads(text)
        config = folder / "mcp.json"
        servers = {"tickets": {"type": "http", "url": self._addresses["resource"], "auth": "oauth"}}
        config.write_text(json.dumps({"mcpServers": servers}))
        env = {
            "TOOLSIEVE_SECRETS_KEY": _new_key(),
            "TOOLSIEVE_ACCESS__TRUST_USERS": "true",
            "TOOLSIEVE_ADMIN_KEY": ADMIN_KEY,
            "TOOLSIEVE_CALLS__COMPACT_RESULTS": "false",
            "TOOLSIEVE_LOGGING__LEVEL": "debug",
        }
        self.toolsieve = Toolsieve(folder, config, env)
        self.toolsieve.start()

    def stop(self) -> None:
        self.toolsieve.stop()
        self._server.stop()

    def issued(self) -> list[str]:
        """Every token, code and secret of the authorization server."""
        texts: list[str] = requests.get(f"{self._addresses['issuer']}/control/issued", timeout=10).json()
        return texts

    def audit(self) -> str:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        response = requests.get(f"{self.toolsieve.url}/v1/admin/audit?limit=1000", headers=headers, timeout=10)
        assert response.ok, response.text
        return response.text

    def first_link(self) -> str:
        """A link for a user who asks the service directly."""
        headers = {"Authorization": f"Bearer {self.toolsieve.key}", "X-OpenWebUI-User-Id": "first"}
        link: str = requests.get(f"{self.toolsieve.url}/v1/connections", headers=headers, timeout=10).json()["link"]
        return link

    def sign_in(self, link: str, login: str) -> str:
        """Follows a link, signs in at the authorization server, and returns the text of the link's page."""
        with requests.Session() as browser:
            browser.trust_env = False
            first = page = browser.get(link, timeout=10)
            page = _send(browser, page, login)
            if "0; url=" not in page.text:
                page = _send(browser, page, login)
            page = browser.get(html.unescape(page.text.split("0; url=")[1].split('"')[0]), timeout=10)
            page = _send(browser, page, login)
            assert "<h1>Connected</h1>" in page.text, page.text
            return first.text


def _send(browser: requests.Session, page: requests.Response, login: str) -> requests.Response:
    """Sends the first form of a page."""
    action = re.search(r'action="([^"]+)"', page.text)
    assert action, page.text
    form = page.text.split("<form", 1)[1].split("</form>")[0]
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
    given = {"login": login, "password": "x"} if 'name="login"' in form else {}
    return browser.post(urljoin(page.url, action[1]), data={**fields, **given}, timeout=10)


def _new_key() -> str:
    made = subprocess.run(
        [os.environ["TOOLSIEVE_BIN"], "secrets", "new-key"], capture_output=True, text=True, check=True
    )
    return made.stdout.strip()


@pytest.fixture
def signing(tmp_path: Path) -> Iterator[Signing]:
    started = Signing(tmp_path / "signing")
    try:
        yield started
    finally:
        started.stop()


def result(world: World, name: str, user: openwebui.Client) -> str:
    """Asks with the tool switched on, and returns the tool's result as the model gets it."""
    text = f"{QUESTION}, {name}?"
    before = len(world.model.seen(text))
    user.ask(text, [TOOL_ID])
    return next(request.results[-1] for request in world.model.seen(text)[before:] if request.results)


def test_each_user_signs_in_once_and_calls_in_their_own_name(world: World, signing: Signing) -> None:
    # The server lists its tools only for signed-in users: somebody has signed in before.
    signing.sign_in(signing.first_link(), "first")
    until(lambda: "tickets__whoami" in signing.toolsieve.operations(), 30, "the tool is not published")
    ours: dict[str, Any] = openwebui.connection("tickets", signing.toolsieve.url, key=signing.toolsieve.key)
    world.admin.set_tool_servers([*world.admin.tool_servers(), ours])
    world.model.on(QUESTION, Call("tickets__whoami", {}))
    users = {name: world.admin.add_user(name) for name in ("anna", "bob")}

    shown: list[str] = []
    for name, user in users.items():
        shown.append(result(world, name, user))
        link = re.search(rf"{re.escape(signing.toolsieve.url)}/ui/me\?link=[\w.~-]+", shown[-1])
        assert link, shown[-1]
        assert name in signing.sign_in(link[0], name), "the page names the person"

    with ThreadPoolExecutor(2 * len(users)) as pool:
        asked = [(name, pool.submit(result, world, name, user)) for name, user in 2 * list(users.items())]
        for name, answer in asked:
            shown.append(answer.result())
            assert json.loads(shown[-1])["sub"] == name

    issued = signing.issued()
    assert len(issued) >= 3 * (len(users) + 1), "a code and two tokens each"
    places = {
        "log": signing.toolsieve.log.read_text(errors="replace"),
        "audit log": signing.audit(),
        "results": "\n".join(shown),
        "model": "\n".join(json.dumps(request.body) for request in world.model.requests),
    }
    assert [(place, text[:6]) for place, content in places.items() for text in issued if text in content] == []
