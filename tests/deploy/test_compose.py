"""`deploy/compose.replicas.yaml` and `deploy/haproxy.cfg`, without Docker: whether they fit together.

The secrets are made by the commands in `deploy/README.md`. The health checks run against a small server.
"""

import http.server
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.replicas.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
REPLICAS = {name: service for name, service in SERVICES.items() if name.startswith("replica-")}
HAPROXY = (ROOT / "deploy/haproxy.cfg").read_text()
# Where each health check asks.
PORTS = {"replica-1": 8000, "load-balancer": 8080, "qdrant": 6333}


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def secrets_of(service: dict[str, Any]) -> dict[str, str]:
    """A service's secrets, by name, with their paths in the container."""
    listed = [{"source": entry} if isinstance(entry, str) else entry for entry in service.get("secrets", [])]
    return {entry["source"]: entry.get("target", f"/run/secrets/{entry['source']}") for entry in listed}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the commands in the README make, without the change of owner, which needs root."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "deploy/README.md").read_text(), re.MULTILINE | re.DOTALL)
    (commands,) = [block for block in blocks if "deploy/secrets" in block and "openssl" in block]
    commands, changes = re.subn(r"^sudo chown 10001 toolsieve\.\*", "true", commands, flags=re.MULTILINE)
    assert changes == 1
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "deploy").mkdir()
    (folder / "deploy/mcp.example.json").write_bytes((ROOT / "deploy/mcp.example.json").read_bytes())
    subprocess.run(["/bin/bash", "-euc", commands], cwd=folder, check=True)
    return folder / "deploy/secrets"


def test_all_services_are_checked_restarted_and_reachable() -> None:
    assert len(REPLICAS) == 3
    assert SERVICES.keys() - REPLICAS.keys() == {"load-balancer", "postgres", "qdrant"}
    for name, service in SERVICES.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name
        assert set(service["networks"]) <= COMPOSE["networks"].keys(), name
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"load-balancer": ["127.0.0.1:8080:8080"]}
    assert not set(SERVICES["postgres"]["networks"]) & set(SERVICES["load-balancer"]["networks"])


def test_what_is_declared_is_used_and_what_is_used_is_declared() -> None:
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    files = {mount for mount in mounts if mount.startswith(".")}
    named = [mount for mount in mounts if not mount.startswith(".")]
    assert sorted(named) == sorted(COMPOSE["volumes"]), "no two services share a volume"
    assert all((ROOT / "deploy" / file).exists() for file in files - {"./mcp.json"})
    used = {name for service in SERVICES.values() for name in secrets_of(service)}
    assert used == COMPOSE["secrets"].keys()


def test_the_replicas_differ_only_in_their_names_and_folders() -> None:
    def without_name(name: str, service: dict[str, Any]) -> str:
        return yaml.safe_dump(service).replace(name, "replica")

    assert len({without_name(name, service) for name, service in REPLICAS.items()}) == 1
    for name, service in REPLICAS.items():
        assert service["environment"]["TOOLSIEVE_HTTP__REPLICA"] == name
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_the_commands_make_all_secrets_and_nobody_else_can_read_them(secrets: Path) -> None:
    declared = {name: entry["file"] for name, entry in COMPOSE["secrets"].items()}
    assert declared == {name: f"./secrets/{name}" for name in declared}
    assert {file.name for file in secrets.iterdir()} == declared.keys()
    assert {file.stat().st_mode & 0o777 for file in secrets.iterdir()} == {0o600}
    assert secrets.stat().st_mode & 0o777 == 0o700

    address = (secrets / "toolsieve.database_url").read_text().strip()
    variables = SERVICES["postgres"]["environment"]
    password = (secrets / "postgres_password").read_text().strip()
    assert address == f"postgres://{variables['POSTGRES_USER']}:{password}@postgres:5432/{variables['POSTGRES_DB']}"
    assert variables["POSTGRES_PASSWORD_FILE"] == secrets_of(SERVICES["postgres"])["postgres_password"]
    # Qdrant reads this file after its own configuration.
    assert secrets_of(SERVICES["qdrant"]) == {"qdrant.yaml": "/qdrant/config/local.yaml"}
    key = (secrets / "toolsieve.qdrant_api_key").read_text().strip()
    assert yaml.safe_load((secrets / "qdrant.yaml").read_text()) == {"service": {"api_key": key}}


@pytest.mark.parametrize("left_out", ["", "toolsieve.secrets_key", "toolsieve.qdrant_api_key"])
def test_the_service_accepts_what_a_replica_gets(left_out: str, secrets: Path, tmp_path: Path) -> None:
    replica = REPLICAS["replica-1"]
    command, *arguments = replica["command"]
    assert command == "serve"
    credentials = tmp_path / "secrets"
    credentials.mkdir()
    for name in secrets_of(replica):
        if name != left_out:
            (credentials / name).write_bytes((secrets / name).read_bytes())
            (credentials / name).chmod(0o600)
    servers = tmp_path / "mcp.json"
    servers.write_text(
        '{"mcpServers": {"notes": {"type": "http", "url": "https://notes.example.org/mcp", "auth": "oauth"}}}'
    )
    environment = {
        name: re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", value) for name, value in replica["environment"].items()
    } | {"CREDENTIALS_DIRECTORY": str(credentials), "HOME": str(tmp_path), "TOOLSIEVE_HOST": "0.0.0.0"}  # noqa: S104
    checked = subprocess.run(
        [os.environ["TOOLSIEVE_BIN"], "check", *(word.replace("/etc/toolsieve", str(tmp_path)) for word in arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # Without this key, no sign-in could be stored.
    assert (checked.returncode == 0) == (left_out != "toolsieve.secrets_key"), checked.stderr
    if not left_out:
        assert "warning" not in checked.stderr


def test_the_load_balancer_knows_the_replicas_and_keeps_only_sessions() -> None:
    servers = re.findall(r"^ +server (\S+) (\S+)$", HAPROXY, re.MULTILINE)
    assert servers == [(name, f"{name}:8000") for name in REPLICAS]
    assert "option httpchk GET /readyz\n" in HAPROXY
    assert set(re.findall(r"^ +stick match (\S+)$", HAPROXY, re.MULTILINE)) == {
        "req.hdr(mcp-session-id)",
        "req.cook(toolsieve_ui)",
    }
    # A killed replica may have run the call already, so only requests that have not been sent are repeated.
    assert re.findall(r"^ +retry-on (.+)$", HAPROXY, re.MULTILINE) == ["conn-failure"]
    assert "\n    option forwardfor\n" in HAPROXY
    (subnet,) = [entry["subnet"] for entry in COMPOSE["networks"]["front"]["ipam"]["config"]]
    for replica in REPLICAS.values():
        assert replica["environment"]["TOOLSIEVE_HTTP__TRUSTED_PROXIES"] == subnet


def test_no_request_is_lost_when_a_replica_stops() -> None:
    (line,) = re.findall(r"^ +default-server .+$", HAPROXY, re.MULTILINE)
    found = re.search(r"inter (\d+)s fall (\d+) ", line)
    assert found is not None
    noticed = int(found[1]) * int(found[2])
    (patience,) = re.findall(r"^ +timeout server (\d+)s$", HAPROXY, re.MULTILINE)
    for replica in REPLICAS.values():
        delay = int(replica["environment"]["TOOLSIEVE_HTTP__SHUTDOWN_DELAY_SECONDS"])
        calls = int(replica["environment"]["TOOLSIEVE_HTTP__SHUTDOWN_TIMEOUT_SECONDS"])
        assert delay > noticed + 1, "HAProxy still sends requests when the replica stops listening"
        assert int(patience) > calls
        patience_of_docker = seconds(replica["stop_grace_period"])
        assert patience_of_docker >= delay + calls + 20, "Docker kills it before its records are stored"


@pytest.fixture
def server() -> Iterator[tuple[int, dict[str, int]]]:
    """The port of a server that returns a status on `/readyz`, and the status, which a test can change."""
    answer = {"status": 200}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer["status"] if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(b"HTTP/1.1 200 in the body counts for nothing\n" if answer["status"] != 200 else b"ready")

        def log_message(self, *_arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_port, answer
        serving.shutdown()


@pytest.mark.parametrize("name", PORTS)
def test_a_health_check_passes_only_if_the_service_is_ready(name: str, server: tuple[int, dict[str, int]]) -> None:
    port, answer = server
    _, *command = SERVICES[name]["healthcheck"]["test"]
    assert sum(f":{PORTS[name]}/" in word or f"/{PORTS[name]} " in word for word in command) == 1
    command = [word.replace(str(PORTS[name]), str(port)) for word in command]

    def passes() -> bool:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0

    assert passes()
    answer["status"] = 503
    assert not passes()
    command = [word.replace(str(port), "1") for word in command]
    assert not passes(), "nothing listens there"
