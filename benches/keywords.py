#!/usr/bin/env python3
"""What of the servers' input schemas reaches the model: through Toolsieve, and through mcpo, both behind Open WebUI.

    cargo build --release
    python3 benches/keywords.py --lists FOLDER [--json FILE]

FOLDER holds files with tools as `tools/list` gives them. Every file is behind a server that replays it; the documents of
both services go through the converter of the real Open WebUI 0.12.4 (`tests/e2e/install.sh`), and every single statement
of the servers' schemas (this place, this keyword, this value) is looked for in the functions that a model would get.
mcpo is installed as `services.py` says; without it its column is left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from services import (
    MCPO,
    Service,
    finish,
    is_live,
    machine,
    mcpo,
    table,
    toolsieve,
    write_config,
)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/conformance"))

import openwebui
from statements import KEYWORDS, Said, statements

Tools = dict[str, list[dict[str, Any]]]
PATIENCE = 300


def documents(service: Service, names: list[str]) -> dict[str, Any]:
    """Each server's own document; a server that has none has no tools."""
    found = {}
    for name in names:
        status, document = service.ask("GET", f"/{quote(name, safe='')}/openapi.json")
        found[name] = document if status == 200 else {"paths": {}}
    return found


def functions(python: str, found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """What a model gets, by server and path."""
    converted = openwebui.convert(python, found)
    out = {}
    for server, document in found.items():
        by_name = {function["name"]: function for function in converted[server]}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                if function := by_name.get(operation["operationId"]):
                    out[server, path] = function
    return out


def count(lists: Tools, reached: dict[tuple[str, str], dict[str, Any]]) -> tuple[int, Counter[str]]:
    """Tools that reach the model, and of each keyword the statements that do."""
    tools, kept = 0, Counter[str]()
    for server, listed in lists.items():
        for tool in listed:
            function = reached.get((server, f"/{quote(tool['name'], safe='')}")) or reached.get(
                (server, f"/{tool['name']}")
            )
            if function is None:
                continue
            tools += 1
            said = Said(function["parameters"])
            kept.update(
                keyword
                for place, keyword, value in statements(tool["inputSchema"])
                if said.keeps((place, keyword, value))
            )
    return tools, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=Path, required=True, help="folder with lists of tools")
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--mcpo", type=Path, default=MCPO, help="the program; none there: left out")
    parser.add_argument("--json", type=Path, help="write the report here instead of printing it")
    options = parser.parse_args()

    files = {file.stem: file for file in sorted(options.lists.glob("*.json"))}
    lists: Tools = {}
    for name, file in files.items():
        listed = json.loads(file.read_text(encoding="utf-8"))
        lists[name] = listed["tools"] if isinstance(listed, dict) else listed
    python = subprocess.run([ROOT / "tests/e2e/install.sh"], check=True, capture_output=True, text=True).stdout.strip()
    before = Counter(
        keyword for listed in lists.values() for tool in listed for _, keyword, _ in statements(tool["inputSchema"])
    )
    all_tools = sum(map(len, lists.values()))
    report: dict[str, Any] = {
        "machine": machine(),
        "servers": len(lists),
        "tools": all_tools,
        "before": before,
        "after": {},
    }

    replay = ROOT / "benches/replay_server.py"
    servers = {
        name: {"command": sys.executable, "args": ["-S", str(replay), str(file)]} for name, file in files.items()
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_config(folder / "mcp.json", servers)
        with toolsieve(options.toolsieve, config, folder) as service:
            service.wait(lambda: is_live(service, len(servers)), PATIENCE)
            service.wait(lambda: service.ask("GET", "/readyz")[1]["tools"] == all_tools, PATIENCE)
            tools, kept = count(lists, functions(python, documents(service, list(lists))))
            report["after"]["toolsieve"] = {"tools": tools, "kept": kept}
        if options.mcpo.exists():
            with mcpo(options.mcpo, config, folder) as service:
                service.wait(lambda: service.ask("GET", "/openapi.json")[0] == 200, PATIENCE)
                tools, kept = count(lists, functions(python, documents(service, list(lists))))
                report["after"]["mcpo"] = {"tools": tools, "kept": kept}

    ways = list(report["after"])

    def row(what: str, said: int, kept: list[int]) -> list[str]:
        return [what, f"{said:,}", *(f"{number:,} ({number / said:.1%})" for number in kept)]

    rows = [row("tools", all_tools, [report["after"][way]["tools"] for way in ways])]
    rows += [
        row(f"`{keyword}`", before[keyword], [report["after"][way]["kept"][keyword] for way in ways])
        for keyword in KEYWORDS
        if before[keyword]
    ]
    rows.append(row("all statements", before.total(), [report["after"][way]["kept"].total() for way in ways]))
    finish(report, table([f"{len(lists)} servers", "in their schemas", *ways], rows), options.json)


if __name__ == "__main__":
    main()
