"""The programs of the suite: Prometheus, and the service on real MCP servers."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
import yaml
from processes import Program, answers, free_port

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy/monitoring"
ALERTS = MONITORING / "alerts.yaml"
START_SECONDS = 60
REQUEST_SECONDS = 30
# In the file, periods are minutes, because Prometheus usually scrapes every 15 s or more. Here it scrapes every second.
PERIOD = "20s"


def example(name: str) -> Path:
    return Path(os.environ["TEST_SERVERS_FOLDER"]).resolve() / name


def stdio(*words: str) -> dict[str, object]:
    return {"command": str(example("test-stdio-server")), "args": list(words)}


def promtool(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs promtool. Its output is that of both streams."""
    command = [Path(os.environ["PROMETHEUS_FOLDER"]) / "promtool", *arguments]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, input=text, text=True, timeout=60, check=False, **streams)


def rules() -> list[dict[str, Any]]:
    """All alerts, in the order of the file."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


class Service:
    """Toolsieve. It can be stopped."""

    def __init__(self, folder: Path, key: str, servers: Mapping[str, object], settings: str = "") -> None:
        folder.mkdir()
        self.key = key
        self.folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.instance = f"127.0.0.1:{port}"
        config, settings_file = folder / "mcp.json", folder / "toolsieve.toml"
        config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        settings_file.write_text(settings, encoding="utf-8")
        self._command: list[str | Path] = [os.environ["TOOLSIEVE_BIN"], "serve", "--config", config]
        self._command += ["--settings", settings_file, "--data-dir", folder / "data", "--port", str(port)]
        self._program: Program | None = None

    def start(self) -> None:
        environment = {"TOOLSIEVE_API_KEY": self.key, "TOOLSIEVE_ADMIN_KEY": self.key[::-1]}
        self._program = Program(self._command, log=self.folder / "toolsieve.log", env=environment)
        self._program.wait_until(lambda: answers(f"{self.url}/readyz"), START_SECONDS, "Toolsieve is not ready")

    def stop(self) -> None:
        if self._program:
            self._program.stop()

    def send(self, path: str, body: Mapping[str, Any], key: str | None = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return requests.post(self.url + path, json=body, headers=headers, timeout=REQUEST_SECONDS)

    def administer(self, path: str, body: Mapping[str, Any]) -> requests.Response:
        return self.send(path, body, self.key[::-1])

    def filter(self, message: str, **more: object) -> dict[str, Any]:
        response = self.send("/v1/filter", {"messages": [{"role": "user", "content": message}], **more})
        assert response.ok, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def metrics(self) -> str:
        headers = {"Authorization": f"Bearer {self.key}"}
        return requests.get(f"{self.url}/metrics", headers=headers, timeout=REQUEST_SECONDS).text


class Prometheus:
    """Prometheus with the example configuration, scaled to seconds."""

    def __init__(self, folder: Path, key: str, targets: Sequence[str]) -> None:
        folder.mkdir()
        key_file = folder / "key"
        key_file.write_text(key, encoding="utf-8")
        (folder / "alerts.yaml").write_text(in_seconds(ALERTS.read_text(encoding="utf-8")), encoding="utf-8")
        config = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8"))
        assert [ROOT / "deploy" / file for file in config["rule_files"]] == [ALERTS]
        config["rule_files"] = ["alerts.yaml"]
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["authorization"]["credentials_file"] = str(key_file)
        job["static_configs"] = [{"targets": list(targets)}]
        self.config = folder / "prometheus.yml"
        self.config.write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [Path(os.environ["PROMETHEUS_FOLDER"]) / "prometheus", f"--config.file={self.config}"]
        command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
        self._program = Program(command, log=folder / "prometheus.log", cwd=folder)

    def wait(self) -> None:
        self._program.wait_until(lambda: answers(f"{self.url}/-/ready"), START_SECONDS, "Prometheus is not ready")

    def stop(self) -> None:
        self._program.stop()

    def get(self, path: str, **parameters: str) -> Any:
        response = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=REQUEST_SECONDS)
        answer = response.json()
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def history(self, expression: str, start: float, end: float) -> list[list[float]]:
        """The values of each series in this time."""
        period = {"start": str(start), "end": str(end), "step": "1"}
        found = self.get("query_range", query=expression, **period)["result"]
        return [[float(value) for _, value in series["values"]] for series in found]

    def label_values(self, variable: str) -> list[str]:
        """Evaluates Grafana's `label_values(series, label)`."""
        matched = re.fullmatch(r"label_values\((.+), (\w+)\)", variable)
        assert matched, variable
        series = self.get("series", **{"match[]": matched[1]})
        return sorted({one[matched[2]] for one in series if matched[2] in one})

    def firing(self) -> list[dict[str, Any]]:
        return [alert for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"]


def in_seconds(text: str) -> str:
    """The rules with shorter periods, and without pending alerts."""
    text, periods = re.subn(r"\[\d+[mhd]\]", f"[{PERIOD}]", text)
    text, delays = re.subn(r"^ +for: .*\n", "", text, flags=re.MULTILINE)
    assert periods
    assert delays
    return text
