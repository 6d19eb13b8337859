"""Where Toolsieve with mcpo's command line is meant to differ from mcpo, as its users asked for."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import requests
from processes import Program, free_port, until

from conftest import config
from pair import KEY, TOOLSIEVE, Pair, command, servers
from test_same import BEARER, is_open


def test_one_document_holds_all_tools(with_file: Pair) -> None:
    ours, theirs = with_file.document("/openapi.json")
    assert theirs["paths"] == {}
    assert "/time/get_current_time" in ours["paths"]
    assert "/every%20thing/echo" in ours["paths"]
    answer = requests.post(
        with_file.urls[0] + "/time/get_current_time", json={"timezone": "UTC"}, headers=BEARER, timeout=60
    )
    assert answer.json()["timezone"] == "UTC"


def test_constraints_of_tools_survive(single: Pair) -> None:
    ours, theirs = single.document("/openapi.json")
    path = "/get-annotated-message"
    schema = ours["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["messageType"]["enum"] == ["error", "success", "debug"]
    assert "enum" not in json.dumps(theirs["components"])


def test_resources_are_not_lost(single: Pair) -> None:
    ours, theirs = single.call("/get-resource-links", {"count": 2}, key=None)
    assert "demo://" not in theirs.text
    assert ours.text.count("demo://") >= 2
    ours, theirs = single.call("/get-resource-reference", {"resourceType": "Text", "resourceId": 1}, key=None)
    assert "not supported" in theirs.text
    assert "not supported" not in ours.text
    assert "This is a plaintext resource" in ours.text


def test_an_error_of_a_tool_is_told_in_its_own_words(with_file: Pair) -> None:
    ours, theirs = with_file.call("/time/get_current_time", {"timezone": "Nowhere/Atall"})
    assert theirs.status_code == 500
    assert theirs.json()["detail"]["error"].startswith("500: {'message'"), "wrapped twice"
    assert (ours.status_code, ours.json()["code"]) == (502, "tool_error")
    assert "Nowhere/Atall" in ours.json()["detail"]
    assert "{" not in ours.json()["detail"]


def test_what_is_no_json_is_told_apart(with_file: Pair) -> None:
    headers = {**BEARER, "Content-Type": "application/json"}
    ours, theirs = with_file.ask("POST", "/time/get_current_time", data="{", headers=headers)
    assert (ours.status_code, theirs.status_code) == (400, 422)


def test_without_a_key_nobody_learns_which_tools_there_are(with_file: Pair) -> None:
    ours, theirs = with_file.ask("POST", "/time/nothing", json={})
    assert (ours.status_code, theirs.status_code) == (401, 404)


def test_a_prefix_is_reached_without_the_path_of_the_proxy_too(strict: Pair) -> None:
    ours, theirs = strict.ask("GET", "/pre/time/openapi.json", headers=BEARER)
    assert (ours.status_code, theirs.status_code) == (200, 404)


def test_the_page_to_try_tools_needs_no_other_host(with_file: Pair) -> None:
    ours, theirs = with_file.ask("GET", "/time/docs")
    assert "cdn." in theirs.text
    assert "//" not in ours.text.replace("<!--", "").replace("-->", "")
    script = requests.get(ours.url + "swagger-initializer.js", timeout=60).text
    assert ours.url.endswith("/time/docs/")
    assert '"../openapi.json"' in script


def test_headers_of_callers_reach_the_server(tmp_path: Path) -> None:
    port = free_port()
    rules = {"enabled": True, "whitelist": ["X-User-*", "Authorization"], "blacklist": ["x-user-secret"]}
    entry = {
        "type": "streamable-http",
        "url": f"http://127.0.0.1:{port}/mcp",
        "headers": {"X-Fixed": "1"},
        "client_header_forwarding": rules,
    }
    file = config(tmp_path / "headers.json", {"headers": entry})
    with ExitStack() as stack:
        remote = Program(
            [sys.executable, Path(__file__).with_name("headers_server.py"), str(port)], log=tmp_path / "remote.log"
        )
        stack.callback(remote.stop)
        until(lambda: is_open(port), 60, "the MCP server listens")
        pair = Pair(stack, tmp_path / "headers", ["-k", KEY, "-c", file], ready=["/headers/openapi.json"])
        sent = {**BEARER, "X-User-Id": "u1", "X-User-Secret": "s", "X-Other": "o", "Connection": "close"}
        ours, theirs = (answer.json() for answer in pair.ask("POST", "/headers/headers", json={}, headers=sent))
        assert ours["x-fixed"] == theirs["x-fixed"] == "1"
        assert "x-user-id" not in theirs
        assert ours["x-user-id"] == "u1"
        # The key is ours, not the caller's: it stays here although it is named.
        assert not {"authorization", "x-user-secret", "x-other"} & set(ours)


def test_a_server_that_was_down_at_the_start_is_there_once_it_is_up(tmp_path: Path) -> None:
    program = tmp_path / "late"
    file = config(tmp_path / "late.json", {"late": {"command": str(program)}, **servers("time")})
    with ExitStack() as stack:
        pair = Pair(stack, tmp_path / "late_pair", ["-c", file], ready=["/time/openapi.json"])
        ours, theirs = pair.ask("GET", "/late/openapi.json")
        assert (ours.status_code, ours.headers.get("retry-after")) == (503, "2")
        assert (theirs.status_code, theirs.json()["paths"]) == (200, {}), "an empty document, which callers keep"
        program.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in command("time")) + "\n")
        program.chmod(0o755)
        until(lambda: pair.ask("GET", "/late/openapi.json")[0].status_code == 200, 60, "the server is connected")
        assert pair.ask("GET", "/late/openapi.json")[1].json()["paths"] == {}


def test_a_name_that_is_ours_is_changed_and_said(tmp_path: Path) -> None:
    file = config(tmp_path / "names.json", {"docs": servers("time")["time"]})
    with ExitStack() as stack:
        pair = Pair(stack, tmp_path / "names", ["-c", file], ready=["/openapi.json", "/docs-server/openapi.json?ours"])
        ours, theirs = pair.ask("POST", "/docs/get_current_time", json={"timezone": "UTC"})
        assert (ours.status_code, theirs.status_code) == (404, 200)
        answer = requests.post(pair.urls[0] + "/docs-server/get_current_time", json={"timezone": "UTC"}, timeout=60)
        assert answer.status_code == 200
        said = pair.logs[0].read_text()
        assert "docs-server" in said
        for danger in ("other machines reach", "any site", "whole environment", "anyone who can reach"):
            assert danger in said, said


def test_the_doctor_computes_what_a_running_mcpo_publishes(with_file: Pair, file: str, tmp_path: Path) -> None:
    def doctor(*more: str) -> dict[str, object]:
        line = [
            TOOLSIEVE,
            "doctor",
            "--from-mcpo",
            file,
            "--json",
            "--port",
            "0",
            "--data-dir",
            tmp_path / "data",
            *more,
        ]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        report: dict[str, object] = json.loads(done.stdout)
        return report

    live, computed = doctor("--mcpo-url", with_file.urls[1]), doctor()
    assert live["fine"] is True
    assert live["mcpo"] == computed["mcpo"], "what is computed is what mcpo publishes"
    by_server = {server["server"]: server for server in live["mcpo"]}
    assert by_server["every thing"]["common"] > 5
    assert any("enum" in tool["gained"] for tool in by_server["every thing"]["changed"])
    for server in by_server.values():
        assert server["only_mcpo"] == server["only_toolsieve"] == []
        assert not any(tool["lost"] or tool["lost_parameters"] or "operation_id" in tool for tool in server["changed"])
