#!/usr/bin/env python3
"""Counts what a new chat costs before anybody has said anything: cl100k tokens of the definitions that a model is given.

Tools are those of the *.json files in a folder (`{"tools": […]}`, real servers under their own names), filled up with made
ones to the number asked for, and replayed by real stdio servers behind Toolsieve. A definition is counted as the minified
JSON of its function (`name`, `description`, `parameters`), as providers get it, and each way of listing in every mode that
this Toolsieve has.

With `--open-webui` also Open WebUI's own Tool Search: a real Open WebUI 0.12.4 without any filter, with all tools of the
same Toolsieve, and what its model was sent: definitions, and the list of names that it adds to the system prompt.

    python3 -m venv ~/.cache/toolsieve-benches/tokens
    ~/.cache/toolsieve-benches/tokens/bin/pip install bpe-openai
    ~/.cache/toolsieve-benches/tokens/bin/python benches/tokens.py --toolsieve target/release/toolsieve --tools ../shared/toollists

    python="$(tests/e2e/install.sh)"; "$python" -m pip install bpe-openai
    "$python" benches/tokens.py … --open-webui

Goal: at most 1,700 in meta mode, however many tools there are. Speakeasy publishes 1,600, 1,800, 2,000 and 2,500 for the
first call with its dynamic toolsets at 40, 100, 200 and 400 tools, with tools and a tokenizer of its own, so those figures
can be read beside these and not against them:
https://www.speakeasy.com/blog/how-we-reduced-token-usage-by-100x-dynamic-toolsets-v2
"""

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import bpe_openai
from services import (
    Service,
    finish,
    functions,
    is_live,
    machine,
    made_tools,
    table,
    toolsieve,
    write_config,
)

COUNTS = [40, 100, 200, 400, 2000]
# Modes of the document, then of the list over MCP.
DOCUMENTS = ["full", "dynamic", "smart", "meta"]
LISTS = ["lazy", "dynamic", "meta"]
SPEAKEASY = {40: 1600, 100: 1800, 200: 2000, 400: 2500}
GOAL = 1700
OPEN_WEBUI = "Open WebUI's Tool Search"
MANIFEST = re.compile(r"<available_tools>\n.*?</available_tools>", re.DOTALL)


def counter() -> Callable[[str], int]:
    """Counts cl100k tokens; its vocabulary comes with the package."""
    vocabulary = bpe_openai.get_encoding("cl100k_base")
    return lambda text: len(vocabulary.encode(text))


def minified(definition: Mapping[str, Any]) -> str:
    function = {key: definition[key] for key in ("name", "description", "parameters")}
    return json.dumps(function, ensure_ascii=False, separators=(",", ":"))


def servers_of(folder: Path, count: int) -> dict[str, list[dict[str, Any]]]:
    """Whole servers in an order that is always the same, the last one cut; then made tools up to the number."""
    paths = sorted(folder.glob("*.json"))
    random.Random(0).shuffle(paths)
    servers: dict[str, list[dict[str, Any]]] = {}
    left = count
    for path in paths:
        known = json.loads(path.read_text()).get("tools", [])
        tools = [tool for tool in known if isinstance(tool, dict) and isinstance(tool.get("inputSchema"), dict)][:left]
        if tools:
            servers[path.stem] = tools
            left -= len(tools)
    if left:
        servers["made"] = [tool for _, tool in zip(range(left), made_tools(), strict=False)]
    return servers


def replayed(servers: Mapping[str, list[dict[str, Any]]], folder: Path) -> dict[str, dict[str, Any]]:
    program = Path(__file__).absolute().with_name("replay_server.py")
    entries = {}
    for name, tools in servers.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(tools))
        entries[name] = {"command": sys.executable, "args": [str(program), str(path)]}
    return entries


def of_list(service: Service, mode: str) -> list[dict[str, Any]] | None:
    """The tools that a client of MCP lists; `None` where there is no such mode."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    status, answer = service.ask("POST", f"/mcp?mode={mode}", message)
    if status != 200:
        return None
    return [
        {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "parameters": tool["inputSchema"],
        }
        for tool in answer["result"]["tools"]
    ]


class OpenWebUI:
    """A real one without any filter, with its own tool search and a model that records what it is sent."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))
        import model
        import openwebui

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.provider = model.ScriptedModel()
        stack.callback(self.provider.stop)
        program, url = openwebui.start(folder, self.provider.url)
        stack.callback(program.stop)
        self.connection = openwebui.connection
        self.admin = openwebui.Client.sign_up(url)
        stack.enter_context(self.admin.chat_setting("ENABLE_TOOL_SEARCH"))

    def tokens(self, service: Service, count: Callable[[str], int]) -> int:
        """What the tool search sends to the model for all tools of the service: definitions, and the list of names."""
        self.admin.set_tool_servers([self.connection("all", f"http://127.0.0.1:{service.port}")])
        self.provider.forget()
        self.admin.ask_api("hello", ["server:all"])
        (request,) = self.provider.requests
        if "search_tools" not in request.tools:
            raise SystemExit(f"Open WebUI did not search tools itself: {len(request.tools)} functions")
        manifest = MANIFEST.search(request.system)
        functions = sum(count(minified(definition["function"])) for definition in request.definitions)
        return functions + count(manifest.group() if manifest else "")


def is_complete(service: Service, servers: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Whether all servers are connected and all of their tools are published."""
    if not is_live(service, len(servers)):
        return False
    # With two more: find_tools and run_tool.
    return len(functions(service, "full") or []) == sum(map(len, servers.values())) + 2


def row(name: str, figures: Mapping[int, int | None], counts: Iterable[int]) -> list[str]:
    return [
        name,
        *("–" if (figure := figures.get(number)) is None else f"{figure:,}" for number in counts),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, required=True)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--open-webui", action="store_true")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    count = counter()
    rows: dict[str, dict[int, int | None]] = {}
    with contextlib.ExitStack() as whole:
        open_webui = OpenWebUI(whole) if options.open_webui else None
        for number in options.counts:
            with contextlib.ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                servers = servers_of(options.tools, number)
                config = write_config(folder / "mcp.json", replayed(servers, folder))
                service = stack.enter_context(toolsieve(options.toolsieve.absolute(), config, folder))
                service.wait(lambda service=service, servers=servers: is_complete(service, servers))
                listings = [(f"document, `{mode}`", functions(service, mode)) for mode in DOCUMENTS]
                listings += [(f"MCP, `{mode}`", of_list(service, mode)) for mode in LISTS]
                for name, listed in listings:
                    if listed is not None:
                        rows.setdefault(name, {})[number] = sum(count(minified(function)) for function in listed)
                if open_webui:
                    rows.setdefault(OPEN_WEBUI, {})[number] = open_webui.tokens(service, count)
    worst = max(figure for figure in rows["document, `meta`"].values() if figure is not None)
    lines = [row(name, figures, options.counts) for name, figures in rows.items()]
    lines.append(row("Speakeasy's dynamic toolsets, as published", SPEAKEASY, options.counts))
    text = table(["tools", *(f"{number:,}" for number in options.counts)], lines)
    report = {
        "machine": machine(),
        "tokens": rows,
        "goal": GOAL,
        "reached": worst <= GOAL,
    }
    finish(report, text, options.report)
    if worst > GOAL:
        raise SystemExit(f"meta mode takes {worst} tokens: more than {GOAL}")


if __name__ == "__main__":
    main()
