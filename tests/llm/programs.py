"""The programs of the suite: the model's server and the service."""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from processes import Program, answers, free_port

HERE = Path(__file__).resolve().parent
REPLAY = HERE.parents[1] / "benches/replay_server.py"
START_SECONDS = 120
REQUEST_SECONDS = 180
# Names that a service publishes of its own.
OURS = ["find_tools", "run_tool"]
# Few tools with short texts: the model reads all of them with each request.
TOOLS = {
    "clock": {
        "current_time": "Get the current time in a city.",
        "set_alarm": "Set an alarm for a time of the day.",
        "start_timer": "Start a timer that rings after some minutes.",
    },
    "mail": {
        "send_email": "Send an email to one or several people.",
        "search_inbox": "Search the inbox for emails.",
        "delete_email": "Move an email to the trash.",
    },
    "files": {
        "read_file": "Read the text of a file.",
        "move_file": "Move or rename a file.",
    },
}
NAMES = [f"{server}__{tool}" for server, tools in TOOLS.items() for tool in tools]


class Model:
    """The model's server. It can be stopped, and started again on the same port."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, HERE / "model_server.py", "--port", str(self.port), *arguments]
        self._log = folder / f"model-{self.port}.log"
        self._program: Program | None = None

    def start(self) -> None:
        # The tests shall not take the machine from those that measure time.
        self._program = Program(["nice", "-n", "10", *self._command], log=self._log)
        self._program.wait_until(lambda: answers(f"{self.url}/health"), START_SECONDS, "the model is not ready")

    def stop(self) -> None:
        if self._program:
            self._program.stop()

    def wait_until_idle(self, seconds: float) -> None:
        """Waits until the model works on no request. This must be long before it would be done by itself."""
        deadline = time.monotonic() + seconds
        while any(slot["is_processing"] for slot in requests.get(f"{self.url}/slots", timeout=30).json()):
            assert time.monotonic() < deadline, f"the model works on an abandoned request, even after {seconds} s"
            # llama.cpp looks for closed connections once it had no other request for a second.
            time.sleep(3)

    def prompt_tokens(self) -> int:
        """How many tokens of requests it has read so far."""
        text = requests.get(f"{self.url}/metrics", timeout=30).text
        (line,) = [line for line in text.splitlines() if line.startswith("llamacpp:prompt_tokens_total ")]
        return int(float(line.split()[1]))


class Service:
    """Toolsieve on the servers above, with a model."""

    def __init__(self, folder: Path, model_url: str, settings: Mapping[str, object]) -> None:
        folder.mkdir()
        servers = {}
        for server, tools in TOOLS.items():
            listed = [
                {"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in tools.items()
            ]
            path = folder / f"{server}.json"
            path.write_text(json.dumps(listed))
            servers[server] = {"command": sys.executable, "args": ["-S", str(REPLAY), str(path)]}
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        # Plenty of time, unless a test sets less: machines that run tests are slow.
        llm = {"timeout_ms": 60_000, "smart_select_timeout_ms": 120_000, **settings}
        llm |= {"base_url": f"{model_url}/v1", "model": "smollm2-135m-instruct"}
        # The lists are narrowed, however small they are.
        lines = ["[selection]", "narrow_above_tokens = 0"]
        lines += ["[llm]", *(f"{name} = {json.dumps(value)}" for name, value in llm.items())]
        settings_file = folder / "toolsieve.toml"
        settings_file.write_text("\n".join(lines))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command: list[str | Path] = [os.environ["TOOLSIEVE_BIN"], "serve", "--config", config]
        command += ["--settings", settings_file, "--data-dir", folder / "data", "--port", str(port)]
        self._program = Program(command, log=folder / "toolsieve.log")

    def wait(self) -> None:
        self._program.wait_until(self._is_complete, START_SECONDS, "not all tools are published")

    def stop(self) -> None:
        self._program.stop()

    def log(self) -> str:
        text: str = self._program.log_end(1000)
        return text

    def post(self, path: str, body: object) -> Any:
        response = requests.post(self.url + path, json=body, timeout=REQUEST_SECONDS)
        assert response.ok, f"{path}: {response.status_code} {response.text[:500]}"
        return response.json()

    def filter(self, message: str, rerank: str = "always", **more: object) -> "Selection":
        body = {"messages": [{"role": "user", "content": message}], "rerank": rerank, **more}
        return Selection(self.post("/v1/filter", body))

    def smart_select(self, task: str, **more: object) -> "Selection":
        return Selection(self.post("/v1/tools/smart_select", {"task": task, **more}))

    def search(self, text: str, limit: int) -> list[str]:
        found = self.post("/v1/tools/search", {"queries": [text], "limit": limit})
        return [tool["name"] for tool in found["tools"]]

    def judged(self) -> dict[str, int]:
        """The requests to models that the service pays, by outcome. Those that never occurred are left out."""
        start, end = 'toolsieve_judge_requests_total{outcome="', '",paid_by="service"} '
        metrics = requests.get(f"{self.url}/metrics", timeout=30).text
        lines = [line for line in metrics.splitlines() if start in line and end in line]
        assert lines, "the service publishes no such metric"
        counts = [line.removeprefix(start).split(end) for line in lines]
        return {outcome: int(count) for outcome, count in counts if int(count)}

    def _is_complete(self) -> bool:
        try:
            state = requests.get(f"{self.url}/readyz", timeout=30).json()
        except requests.RequestException:
            return False
        return bool(state["index"]["embedded"] == len(NAMES) and state["ready"])


class Selection:
    """An answer of the service: the tools without its own ones, and the warnings."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.tools: list[dict[str, Any]] = [tool for tool in answer["tools"] if tool["name"] not in OURS]
        self.names: list[str] = [tool["name"] for tool in self.tools]
        self.reasons: list[str] = [tool["reason"] for tool in self.tools]
        self.warnings: list[str] = answer["warnings"]
        self.provider: str | None = answer.get("provider")
