"""Asks the real Open WebUI what it makes of a document, and lets it call tools."""

import json
import os
import secrets
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("openwebui_tools.py")


def convert(python: str, documents: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The functions that a model would get of each document."""
    converted: dict[str, list[dict[str, Any]]] = _ask(python, {"documents": documents})
    return converted


def call(python: str, url: str, document: Any, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The results of these calls."""
    results: list[Any] = _ask(python, {"url": url, "document": document, "calls": calls})
    return results


def _ask(python: str, request: object) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "DATA_DIR": folder,
            "WEBUI_SECRET_KEY": secrets.token_hex(24),
            "USE_SLIM_DOCKER": "True",
            # As its own command starts it: its files are in the package.
            "FROM_INIT_PY": "true",
            "OFFLINE_MODE": "True",
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        command = [python, str(SCRIPT)]
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, env=env, timeout=300, check=False
        )
    if done.returncode:
        raise RuntimeError(f"Open WebUI's converter failed:\n{done.stderr[-4000:]}")
    # What Open WebUI prints while it is imported comes before.
    return json.loads(done.stdout[done.stdout.rindex("\n") + 1 :] if "\n" in done.stdout else done.stdout)
