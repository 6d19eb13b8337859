"""
One run that all tests look at: a healthy service, another one whose parts fail, and a Prometheus that scrapes both.

    TOOLSIEVE_BIN=… TEST_SERVERS_FOLDER=… tests/monitoring/run
"""

import secrets
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# Starting and stopping programs is the same for all our tests in Python.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from processes import Program, free_port, until

from programs import Prometheus, Service, example, stdio

# The healthy service must have been scraped this often before anything is broken.
CALM_SCRAPES = 15
PATIENCE_SECONDS = 120
WRONG_KEYS = 120

# What the run provokes. test_alerts.py tries all others with recorded series only.
PROVOKED = {
    "ToolsieveNotScraped",
    "ToolsieveServerDown",
    "ToolsieveCallsFail",
    "ToolsieveWrongKeys",
    "ToolsieveRequestsFail",
    "ToolsieveSelectionsSlow",
    "ToolsieveSelectionsDegraded",
    "ToolsieveEmbedderDown",
    "ToolsieveIndexDown",
    "ToolsieveIndexIncomplete",
    "ToolsieveQdrantNodeDown",
    "ToolsieveLanguageModelFails",
    "ToolsieveStoreFails",
    "ToolsieveEventsLost",
    "ToolsieveAuditEntriesLost",
    "ToolsieveDown",
}

WHOLE = """
[selection]
narrow_above_tokens = 0

[limits]
server_exceptions = ["limited=1"]
"""
# All its parts are at addresses where nobody listens, but the language model, which never answers.
BROKEN = """
[selection]
narrow_above_tokens = 0
rerank = "always"

[embedder]
provider = "endpoint"
url = "http://127.0.0.1:{closed}/v1"
model = "none"

[index]
qdrant_url = ["http://127.0.0.1:{closed}"]

[llm]
base_url = "http://127.0.0.1:{silent}/v1"
model = "silent"
timeout_ms = 2000
"""


@dataclass
class Run:
    prometheus: Prometheus
    whole: Service
    broken: Service
    started: float = field(default_factory=time.time)
    ended: float = 0.0
    metrics: str = ""
    # The alerts of the healthy service before anything was broken.
    calm: list[dict[str, Any]] = field(default_factory=list)
    # The alerts that fired at any time.
    fired: dict[str, dict[str, Any]] = field(default_factory=dict)

    def look(self) -> None:
        for alert in self.prometheus.firing():
            self.fired.setdefault(alert["labels"]["alertname"], alert)


def ordinary_traffic(service: Service) -> None:
    """Messages, searches, calls with all outcomes, and feedback."""
    chat = secrets.token_hex(4)
    service.filter("what time is it in Lima?", chat_id=chat)
    service.filter("thanks!", chat_id=chat)
    service.send("/v1/tools/search", {"queries": ["send an email"]})
    service.send("/v1/feedback", {"chat_id": chat, "tool": "tools__echo", "verdict": "missing"})
    service.send("/tools/echo", {"text": "a"})
    service.send("/tools/fail", {})
    service.send("/web/echo", {"text": "a"})
    service.send("/limited/echo", {"text": "a"})
    service.send("/openapi.json", {})


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("monitoring")
    with ExitStack() as stack:
        web_port, closed = free_port(), free_port()
        command = [example("test-http-server"), f"port={web_port}"]
        web = Program(command, log=folder / "web.log")
        stack.callback(web.stop)
        # The kernel accepts connections, but nobody reads from them: a model at the wire that never answers.
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        key = secrets.token_hex(16)
        servers: dict[str, object] = {
            "tools": stdio(),
            "time": stdio("list=time"),
            "mail": stdio("list=mail"),
            "limited": stdio(),
            "web": {"type": "streamable-http", "url": f"http://127.0.0.1:{web_port}/mcp"},
        }
        whole = Service(folder / "whole", key, servers, WHOLE)
        settings = BROKEN.format(closed=closed, silent=silent.getsockname()[1])
        broken = Service(folder / "broken", key, {"tools": stdio(), "mail": stdio("list=mail")}, settings)
        prometheus = Prometheus(folder / "prometheus", key, [whole.instance, broken.instance])
        run = Run(prometheus, whole, broken)
        for program in (whole, broken, prometheus):
            stack.callback(program.stop)

        prometheus.wait()
        until(lambda: bool(prometheus.firing()), PATIENCE_SECONDS, "no alert although nothing is scraped")
        run.look()

        whole.start()
        until(lambda: is_complete(run), PATIENCE_SECONDS, "the healthy service does not come up")
        until(lambda: is_calm(run), PATIENCE_SECONDS, "Prometheus stopped scraping")
        run.metrics = whole.metrics()
        of_whole = {"instance": whole.instance}
        run.calm = [alert for alert in prometheus.firing() if of_whole.items() <= alert["labels"].items()]

        broken.start()
        web.stop()
        damage(broken.folder / "data/toolsieve.db")
        until(lambda: provoke(run), PATIENCE_SECONDS, "not all of what was provoked has fired")
        broken.stop()
        until(lambda: "ToolsieveDown" in look(run), PATIENCE_SECONDS, "no alert although a service is down")
        run.ended = time.time()
        yield run


def look(run: Run) -> set[str]:
    run.look()
    return set(run.fired)


def is_complete(run: Run) -> bool:
    instance = f'instance="{run.whole.instance}"'
    embedded = f"toolsieve_index_embedded_documents{{{instance}}} == toolsieve_catalog_tools"
    return bool(run.prometheus.query(f"{embedded} and toolsieve_catalog_servers == 5"))


def is_calm(run: Run) -> bool:
    """Sends ordinary requests once more. Returns whether Prometheus has seen enough of them."""
    ordinary_traffic(run.whole)
    calls = f'toolsieve_calls_total{{instance="{run.whole.instance}",server="tools",outcome="success"}}'
    return bool(run.prometheus.query(f"count_over_time({calls}[5m]) >= {CALM_SCRAPES}"))


def damage(database: Path) -> None:
    """Drops tables. While the whole file is missing, records wait in the spool and none is lost."""
    with closing(sqlite3.connect(database, timeout=10, isolation_level=None)) as connection:
        for table in ("stored_batch", "api_key"):
            connection.execute(f"DROP TABLE {table}")


def provoke(run: Run) -> bool:
    """Does everything that goes wrong once more. Returns whether all its alerts have fired."""
    missing = PROVOKED - look(run) - {"ToolsieveDown"}
    print("not fired yet:", sorted(missing))
    if not missing:
        return True
    ordinary_traffic(run.whole)
    for number in range(3):
        run.whole.send("/web/echo", {"text": "a"})
        run.broken.filter(f"send an email to Ada, number {number}")
        run.broken.send("/tools/echo", {"text": "a"})
        run.broken.administer("/v1/admin/keys", {"name": f"key-{number}"})
    if "ToolsieveWrongKeys" in missing:
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda number: run.whole.send("/v1/tools/search", {}, f"wrong-{number}"), range(WRONG_KEYS)))
    return False
