#!/usr/bin/env python3
"""Fills a data folder with a program of an earlier version, and writes its database as SQL text.

    make.py PROGRAM TEST_STDIO_SERVER > 0.1.0.sql

Starts the program, changes everything that people can change over its interfaces, calls tools, and stops it. README.md says
which program has written the file in this folder. Needs Python 3.11 and nothing else.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

KEY = "the-service-key"
ADMIN = "the-admin-key"
SECRETS_KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="


class Service:
    """The running program."""

    def __init__(self, program: str, server: str, folder: Path) -> None:
        token = {"TOKEN": "{{secret.token}}"}
        servers = {
            "box": {"command": server},
            "time": {"command": server, "args": ["list=time"]},
            "mine": {"command": server, "args": ["list=small"], "env": token},
        }
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        words = ["serve", "--config", str(folder / "mcp.json"), "--data-dir", str(folder / "data"), "--port", "0"]
        environment = {
            "PATH": os.environ["PATH"],
            "TOOLSIEVE_API_KEY": KEY,
            "TOOLSIEVE_ADMIN_KEY": ADMIN,
            "TOOLSIEVE_SECRETS_KEY": SECRETS_KEY,
            "TOOLSIEVE_ACCESS__TRUST_USERS": "true",
            "TOOLSIEVE_SELECTION__STATIC_SHARE": "0.5",
        }
        self.process = subprocess.Popen([program, *words], env=environment, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        for line in self.process.stderr:
            if found := re.search(r"address=(\S+)", line):
                self.url = f"http://{found[1]}"
                break
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        for _ in range(600):
            state = self.request("GET", "/readyz", key=ADMIN)
            index = state["index"]
            if state["tools"] and all(server["phase"] == "connected" for server in state["servers"]) and index["embedded"] == state["tools"]:
                return
            time.sleep(0.1)
        raise SystemExit(f"the service is not ready: {state}")

    def request(self, method: str, path: str, body: object = None, key: str = KEY, **headers: str) -> dict:
        """Sends a request and returns the body. Only `/readyz` may fail."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            if path == "/readyz":
                return json.loads(error.read())
            raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0


def fill(service: Service) -> dict[str, str]:
    """Writes rows of every kind. Returns what the database doesn't contain."""
    request = service.request
    key = request("POST", "/v1/admin/keys", {"name": "ci", "groups": ["staff"]}, ADMIN)["key"]
    revoked = request("POST", "/v1/admin/keys", {"name": "old"}, ADMIN)
    request("DELETE", f"/v1/admin/keys/{revoked['id']}", key=ADMIN)
    rules = {"rules": [{"effect": "block", "tools": ["process"]}, {"effect": "block", "tags": ["risky"], "principals": ["key:ci"]}]}
    request("PUT", "/v1/admin/policy", rules, ADMIN)
    request("PUT", "/v1/admin/toolsets/clock", {"tools": ["time__get_current_time"], "description": "What time it is"}, ADMIN)
    request("PUT", "/v1/admin/tools/time/convert_time", {"tags": ["risky"], "synonyms": ["world clock"]}, ADMIN)
    request("PUT", "/v1/admin/tools/box/echo", {"pinned": True}, ADMIN)
    known = request("GET", "/v1/admin/tools/time/get_current_time", key=ADMIN)
    request("POST", "/v1/admin/tools/time/get_current_time/approve", {"fingerprint": known["definition"]["fingerprint"]}, ADMIN)
    text = {"context": "Tells the hour anywhere on earth", "queries": ["how late is it in Lima?"]}
    request("PUT", "/v1/admin/enrichment/time/get_current_time", text, ADMIN)
    session = request("POST", "/v1/sessions", {"toolsets": ["clock"], "ttl_seconds": 86400}, key)
    request("PUT", "/v1/secrets/mine/token", {"value": "anna's own token"}, X_OpenWebUI_User_Id="anna")
    for chat in ["one", "two", "three", "four"]:
        message = {"messages": [{"role": "user", "content": "what time is it in Lima?"}], "chat_id": chat, "limit": 2}
        selection = request("POST", "/v1/filter", message)
        request("POST", "/box/echo", {"text": "hello"}, X_OpenWebUI_Chat_Id=chat)
        verdict = {"selection_id": selection["selection_id"], "tool": "time__get_current_time", "verdict": "helpful"}
        request("POST", "/v1/feedback", verdict)
    request("POST", "/v1/tools/search", {"queries": ["send it again"]}, X_OpenWebUI_Chat_Id="one")
    request("POST", "/v1/toolsets/load", {"toolsets": ["clock"]}, X_OpenWebUI_Chat_Id="two")
    request("POST", "/box/echo", {"text": "hello"}, key)
    return {"key": key, "session": session["id"]}


def dump(database: Path, facts: dict[str, str]) -> None:
    """Prints the database as SQL text, without the vectors of the gate's examples."""
    connection = sqlite3.connect(database)
    pragmas = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "auto_vacuum", "user_version")}
    print("-- Written by make.py; README.md describes this file.")
    for name, value in facts.items():
        print(f"-- {name}: {value}")
    for name, value in pragmas.items():
        print(f"PRAGMA {name} = {value};")
    # Vectors are a cache, and most of the text. A few stay.
    connection.execute("DELETE FROM vector WHERE rowid NOT IN (SELECT rowid FROM vector ORDER BY text_hash LIMIT 5)")
    for statement in connection.iterdump():
        print(statement)


def main() -> None:
    program, server = (str(Path(word).resolve()) for word in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        service = Service(program, server, Path(folder))
        try:
            facts = fill(service)
        finally:
            service.stop()
        facts["installation"] = (Path(folder) / "data/installation").read_text().strip()
        facts["program"] = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        dump(Path(folder) / "data/toolsieve.db", facts)


if __name__ == "__main__":
    main()
