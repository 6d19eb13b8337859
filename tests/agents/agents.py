"""The agents: how each is told to use the stub of a model and Toolsieve, and to keep everything on this machine."""

import json
import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from script import PROMPT
from wires import MODEL, Chat, Generate, Messages, Responses, Wire

HERE = Path(__file__).resolve().parent
VERSIONS: dict[str, str] = json.loads((HERE / "package.json").read_text())["dependencies"]
# A key for the stub: agents refuse to start without one.
MODEL_KEY = "no-secret"


@dataclass(frozen=True)
class Place:
    """Where an agent runs: a home of its own, Toolsieve's address and key, and the model's address."""

    home: Path
    mcp_url: str
    key: str
    model_url: str

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


class Agent(ABC):
    name: str
    package: str
    wire: Wire

    @property
    def version(self) -> str:
        return VERSIONS[self.package]

    @abstractmethod
    def prepare(self, at: Place) -> tuple[list[str | Path], dict[str, str]]:
        """Writes the agent's configuration; returns the command for one prompt, and its variables."""

    def environment(self, at: Place) -> dict[str, str]:
        """Nothing of the user's own settings, and folders below the agent's home."""
        folders = {"HOME": str(at.home), "TMPDIR": str(at.home / "tmp")}
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1", **folders}


def installed(*path: str) -> Path:
    folder = os.environ.get("AGENTS_FOLDER")
    assert folder, "start the suite with tests/agents/run, which installs the agents"
    return Path(folder, "node_modules", *path)


def node() -> str:
    found = shutil.which("node")
    assert found, "install Node.js 20 or newer"
    return found


class Codex(Agent):
    name, package, wire = "Codex CLI", "@openai/codex", Responses()

    def prepare(self, at: Place) -> tuple[list[str | Path], dict[str, str]]:
        at.write(
            ".codex/config.toml",
            f"""
model = "{MODEL}"
model_provider = "stub"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[model_providers.stub]
name = "stub"
base_url = "{at.model_url}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
[mcp_servers.toolsieve]
url = "{at.mcp_url}"
bearer_token_env_var = "TOOLSIEVE_KEY"
default_tools_approval_mode = "approve"
""",
        )
        command: list[str | Path] = [node(), installed("@openai", "codex", "bin", "codex.js")]
        command += ["exec", "--skip-git-repo-check", "--json", PROMPT]
        return command, {"MODEL_KEY": MODEL_KEY, "TOOLSIEVE_KEY": at.key, "CODEX_HOME": str(at.home / ".codex")}


class GeminiCli(Agent):
    name, package, wire = "Gemini CLI", "@google/gemini-cli", Generate()

    def prepare(self, at: Place) -> tuple[list[str | Path], dict[str, str]]:
        at.write(
            ".gemini/settings.json",
            {
                "mcpServers": {"toolsieve": {"httpUrl": at.mcp_url, "headers": at.authorization, "trust": True}},
                "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
                "privacy": {"usageStatisticsEnabled": False},
                "telemetry": {"enabled": False},
                "security": {"auth": {"selectedType": "gemini-api-key"}},
            },
        )
        command: list[str | Path] = [node(), installed("@google", "gemini-cli", "bundle", "gemini.js")]
        command += ["--skip-trust", "--output-format", "json", "--model", "gemini-2.5-flash", "--prompt", PROMPT]
        return command, {"GEMINI_API_KEY": MODEL_KEY, "GOOGLE_GEMINI_BASE_URL": at.model_url}


class OpenCode(Agent):
    name, package, wire = "opencode", "opencode-ai", Chat()

    def prepare(self, at: Place) -> tuple[list[str | Path], dict[str, str]]:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{at.model_url}/v1", "apiKey": MODEL_KEY},
            "models": {MODEL: {}},
        }
        mcp = {"type": "remote", "url": at.mcp_url, "headers": at.authorization, "oauth": False}
        config = at.write(
            "opencode.json",
            {
                "provider": {"stub": provider},
                "model": f"stub/{MODEL}",
                "small_model": f"stub/{MODEL}",
                "mcp": {"toolsieve": mcp},
                "autoupdate": False,
                "share": "disabled",
            },
        )
        off = ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"]
        command: list[str | Path] = [installed("opencode-ai", "bin", "opencode.exe")]
        command += ["run", "--format", "json", PROMPT]
        return command, {"OPENCODE_CONFIG": str(config), **{f"OPENCODE_DISABLE_{name}": "1" for name in off}}


class ClaudeCode(Agent):
    name, package, wire = "Claude Code", "@anthropic-ai/claude-code", Messages()

    def prepare(self, at: Place) -> tuple[list[str | Path], dict[str, str]]:
        server = {"type": "http", "url": at.mcp_url, "headers": at.authorization}
        config = at.write("mcp.json", {"mcpServers": {"toolsieve": server}})
        command: list[str | Path] = [installed("@anthropic-ai", "claude-code", "bin", "claude.exe")]
        command += ["--print", "--output-format", "json", "--mcp-config", config, "--strict-mcp-config"]
        command += ["--allowed-tools", "mcp__toolsieve", "--", PROMPT]
        off = ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"]
        off += ["DISABLE_ERROR_REPORTING", "DISABLE_TELEMETRY"]
        return command, {
            "ANTHROPIC_BASE_URL": at.model_url,
            "ANTHROPIC_API_KEY": MODEL_KEY,
            **dict.fromkeys(off, "1"),
        }


AGENTS: list[Agent] = [ClaudeCode(), Codex(), GeminiCli(), OpenCode()]
