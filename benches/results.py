#!/usr/bin/env python3
"""Counts what results cost: cl100k tokens of the text that Open WebUI gives the model for the same calls of real servers, with
`calls.compact_results` off and on.

Open WebUI hands a text on as it is. What came as JSON it writes with `json.dumps(result, indent=2, ensure_ascii=False)`, and of a
list only the first item (open_webui/utils/middleware.py, 0.12.4); here a list is counted whole.

    python3 -m venv ~/.cache/toolsieve-benches/tokens
    ~/.cache/toolsieve-benches/tokens/bin/pip install bpe-openai
    ~/.cache/toolsieve-benches/tokens/bin/python benches/results.py --toolsieve target/release/toolsieve \\
        --config ~/.cache/toolsieve/quickstart/mcp.json
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import bpe_openai
from services import finish, is_live, machine, table, toolsieve

ENTITIES = [
    {"name": f"person {number}", "entityType": "person", "observations": [f"lives in town {number}", "likes tea"]} for number in range(20)
]
SERVERS = 5


def calls(folder: str) -> list[tuple[str, dict[str, Any]]]:
    """Name of the operation and arguments, as a model would send them."""
    return [
        ("memory__create_entities", {"entities": ENTITIES}),
        ("memory__read_graph", {}),
        ("memory__search_nodes", {"query": "town 1"}),
        ("time__get_current_time", {"timezone": "Europe/Rome"}),
        ("time__convert_time", {"source_timezone": "Europe/Rome", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("filesystem__directory_tree", {"path": folder}),
        ("filesystem__list_directory", {"path": folder}),
        ("everything__get-structured-content", {"location": "New York"}),
    ]


def written(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, indent=2, ensure_ascii=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolsieve", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True, help="the quickstart's servers")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    vocabulary = bpe_openai.get_encoding("cl100k_base")
    servers = json.loads(options.config.read_text())["mcpServers"]
    files = servers["filesystem"]["args"][-1]
    counts: dict[str, list[int]] = {}
    for switch in ("false", "true"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            servers["memory"]["env"]["MEMORY_FILE_PATH"] = str(folder / "memory.jsonl")
            config = folder / "mcp.json"
            config.write_text(json.dumps({"mcpServers": servers}))
            with toolsieve(options.toolsieve, config, folder, {"TOOLSIEVE_CALLS__COMPACT_RESULTS": switch}) as service:
                service.wait(lambda: is_live(service, SERVERS))
                service.wait(lambda: len(service.ask("GET", "/openapi.json")[1]["paths"]) > 40)
                for operation, arguments in calls(files):
                    status, result = service.ask("POST", f"/{operation.replace('__', '/')}", arguments)
                    if status != 200:
                        raise SystemExit(f"{operation}: {status} {result}")
                    counts.setdefault(operation, []).append(len(vocabulary.encode(written(result))))
    rows: list[list[Any]] = [[name, before, after, f"{1 - after / before:.0%}"] for name, (before, after) in counts.items()]
    before, after = (sum(count[at] for count in counts.values()) for at in (0, 1))
    rows.append(["all", before, after, f"{1 - after / before:.0%}"])
    report = {"machine": machine(), "tokens": counts}
    finish(report, table(["call", "as Open WebUI writes it", "compact", "saved"], rows), options.json)


if __name__ == "__main__":
    main()
