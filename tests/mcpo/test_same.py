"""Where Toolsieve with mcpo's command line is the same as mcpo."""

import re
import subprocess
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from processes import Program, answers, free_port, until

from pair import KEY, Pair, command

BEARER = {"Authorization": f"Bearer {KEY}"}
WRONG = {"Authorization": "Bearer wrong"}
# "any:the-key", "any:wrong", and no base64.
BASIC = {"Authorization": "Basic YW55OnRoZS1rZXk="}
WRONG_BASIC = {"Authorization": "Basic YW55Ondyb25n"}
BROKEN_BASIC = {"Authorization": "Basic ???"}


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {path: (item["post"]["operationId"], item["post"]["summary"]) for path, item in document["paths"].items()}


@pytest.mark.parametrize(
    ("fixture", "path", "key"),
    [
        ("with_file", "/time/openapi.json", None),
        ("with_file", "/git/openapi.json", None),
        ("with_file", "/every%20thing/openapi.json", None),
        ("strict", "/base/pre/time/openapi.json", KEY),
        ("single", "/openapi.json", None),
    ],
)
def test_documents_name_the_same_things(
    fixture: str, path: str, key: str | None, request: pytest.FixtureRequest
) -> None:
    pair: Pair = request.getfixturevalue(fixture)
    ours, theirs = pair.document(path, key)
    assert ours["openapi"] == theirs["openapi"]
    assert ours["info"] == theirs["info"]
    # A space is written as it is there, which is no address.
    addresses = [server["url"].replace(" ", "%20") for server in theirs.get("servers", [])]
    assert [server["url"] for server in ours.get("servers", [])] == addresses
    assert operations(ours) == operations(theirs)
    assert operations(ours), "there are tools"
    for place, item in theirs["paths"].items():
        assert item["post"]["description"].strip() in ours["paths"][place]["post"]["description"]
        has_parameters = "requestBody" in item["post"]
        published = ours["paths"][place]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert bool(published) == has_parameters, place


def test_a_tool_that_is_switched_off_is_gone(with_file: Pair) -> None:
    ours, theirs = with_file.document("/time/openapi.json")
    assert list(ours["paths"]) == list(theirs["paths"]) == ["/get_current_time"]
    for answer in with_file.call("/time/convert_time", {}):
        assert answer.status_code == 404


def test_flags_name_the_document_of_everything(with_file: Pair) -> None:
    ours, theirs = with_file.document("/openapi.json")
    for document in (ours, theirs):
        assert (document["info"]["title"], document["info"]["version"]) == ("A name", "4.5.6")
    assert theirs["info"]["description"].startswith("What it is")
    assert ours["info"]["description"].startswith("What it is")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/openapi.json", {}, 200),
        ("GET", "/docs", {}, 200),
        ("GET", "/time/openapi.json", {}, 200),
        ("GET", "/time/openapi.json", WRONG, 200),
        ("GET", "/time/docs", {}, 200),
        ("GET", "/nothing/openapi.json", BEARER, 404),
        ("POST", "/time/get_current_time", {}, 401),
        ("POST", "/time/get_current_time", WRONG, 403),
        ("POST", "/time/get_current_time", BASIC, 401),
        ("POST", "/time/get_current_time", BEARER, 200),
        ("POST", "/time/get_current_time", {"Authorization": f"bearer {KEY}"}, 200),
        ("POST", "/time/nothing", BEARER, 404),
        ("POST", "/nothing/get_current_time", BEARER, 404),
        ("GET", "/time/get_current_time", BEARER, 405),
    ],
)
def test_who_is_let_in(with_file: Pair, method: str, path: str, headers: dict[str, str], status: int) -> None:
    for answer in with_file.ask(method, path, headers=headers, json={"timezone": "UTC"} if method == "POST" else None):
        assert answer.status_code == status, answer.url


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/openapi.json", {}, 401),
        ("GET", "/openapi.json", WRONG, 403),
        ("GET", "/openapi.json", BEARER, 200),
        ("GET", "/openapi.json", BASIC, 200),
        ("GET", "/openapi.json", WRONG_BASIC, 403),
        ("GET", "/openapi.json", BROKEN_BASIC, 401),
        ("GET", "/docs", {}, 401),
        ("GET", "/docs", BASIC, 200),
        ("GET", "/base/docs", BASIC, 200),
        ("GET", "/base/openapi.json", BEARER, 200),
        ("GET", "/base/pre/time/openapi.json", {}, 401),
        ("GET", "/base/pre/time/openapi.json", BASIC, 200),
        ("GET", "/base/pre/time/docs", BEARER, 200),
        ("GET", "/time/openapi.json", BEARER, 404),
        ("GET", "/pre/nothing/openapi.json", BEARER, 404),
        ("POST", "/base/pre/time/get_current_time", {}, 401),
        ("POST", "/base/pre/time/get_current_time", BASIC, 401),
        ("POST", "/base/pre/time/get_current_time", WRONG, 403),
        ("POST", "/base/pre/time/get_current_time", BEARER, 200),
        ("POST", "/nothing", {}, 401),
        ("POST", "/nothing", BEARER, 404),
    ],
)
def test_strict_auth_prefix_and_root_path(
    strict: Pair, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    for answer in strict.ask(method, path, headers=headers, json={"timezone": "UTC"} if method == "POST" else None):
        assert answer.status_code == status, (answer.url, answer.text)


@pytest.mark.parametrize(
    ("path", "arguments", "status"),
    [
        ("/echo", {"message": "hi"}, 200),
        ("/echo", {"message": '{"a": 1}'}, 200),
        ("/get-sum", {"a": 1, "b": 2.5}, 200),
        ("/get-tiny-image", {}, 200),
        ("/get-structured-content", {"location": "New York"}, 200),
        ("/get-annotated-message", {"messageType": "error", "includeImage": True}, 200),
        ("/get-sum", {"a": 1}, 422),
        ("/get-sum", {"a": "one", "b": 2}, 422),
        ("/get-sum", [], 422),
        ("/nothing", {}, 404),
        ("/ignored/echo", {"message": "hi"}, 404),
    ],
)
def test_results_are_the_same(single: Pair, path: str, arguments: Any, status: int) -> None:
    ours, theirs = single.call(path, arguments, key=None)
    assert (ours.status_code, theirs.status_code) == (status, status), (ours.text, theirs.text)
    if status == 200:
        assert ours.json() == theirs.json()


@pytest.mark.parametrize("tool", ["text", "json_text", "number", "texts", "mapping"])
def test_results_with_an_output_schema_are_the_same(declared: Pair, tool: str) -> None:
    """Regression: a text came as the JSON text of the object in which FastMCP wraps it."""
    ours, theirs = declared.call(f"/{tool}", {}, key=None)
    assert (ours.status_code, theirs.status_code) == (200, 200), (ours.text, theirs.text)
    assert ours.json() == theirs.json()


def test_variables_reach_the_servers(with_file: Pair) -> None:
    for answer in with_file.call("/every%20thing/get-env", {}):
        variables = answer.json()
        assert variables["FROM_FLAG"] == "of the flag"
        assert variables["FROM_FILE"] == "of the file"
        assert variables["OF_THE_PROCESS"] == "inherited"


@pytest.mark.parametrize("origin", ["https://a.example", "https://b.example", "https://c.example"])
def test_origins(single: Pair, origin: str) -> None:
    allowed = origin != "https://c.example"
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-anything,content-type",
    }
    for answer in single.ask("OPTIONS", "/echo", headers=asked):
        assert (answer.headers.get("access-control-allow-origin") == origin) == allowed, answer.headers
        if allowed:
            assert answer.status_code == 200
            assert "x-anything" in answer.headers["access-control-allow-headers"].lower()
    for answer in single.ask("POST", "/echo", headers={"Origin": origin}, json={"message": "hi"}):
        assert (answer.headers.get("access-control-allow-origin") == origin) == allowed


def certificate(folder: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return str(files[0]), str(files[1])


def test_https(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with ExitStack() as stack:
        arguments = ["-t", cert, "-K", key, "--", *command("time")]
        pair = Pair(stack, tmp_path / "https", arguments, ready=["/openapi.json"], verify=cert)
        ours, theirs = pair.call("/get_current_time", {"timezone": "UTC"}, key=None)
        assert ours.status_code == theirs.status_code == 200
        assert ours.json()["timezone"] == theirs.json()["timezone"] == "UTC"


def test_one_server_over_http(tmp_path: Path) -> None:
    port = free_port()
    node = command("everything")[:-1]
    with ExitStack() as stack:
        remote = Program([*node, "streamableHttp"], log=tmp_path / "remote.log", env={"PORT": str(port)})
        stack.callback(remote.stop)
        until(lambda: not answers(f"http://127.0.0.1:{port}/") and is_open(port), 60, "the MCP server listens")
        headers = '{"X-Anything": "${not a variable}"}'
        arguments = ["--type", "streamable_http", "--header", headers, "--", f"http://127.0.0.1:{port}/mcp"]
        pair = Pair(stack, tmp_path / "http", arguments, ready=["/openapi.json"])
        ours, theirs = pair.document("/openapi.json")
        assert operations(ours) == operations(theirs)
        ours_answer, theirs_answer = pair.call("/echo", {"message": "hi"}, key=None)
        assert ours_answer.json() == theirs_answer.json() == "Echo: hi"


def is_open(port: int) -> bool:
    import socket

    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_every_flag_of_mcpo_is_one_of_ours() -> None:
    from pair import MCPO, TOOLSIEVE

    flag = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
    texts = [
        subprocess.run(
            [program, "-p1", "--help"], stdout=subprocess.PIPE, text=True, check=True, env={"COLUMNS": "300"}
        ).stdout
        for program in (TOOLSIEVE, MCPO)
    ]
    ours, theirs = (set(flag.findall(text)) for text in texts)
    assert "--strict-auth" in theirs
    # Completions of the shell belong to the library of its command line.
    assert theirs - ours - {"--install-completion", "--show-completion"} == set()
