#!/usr/bin/env python3
"""An MCP server over standard streams that lists the tools of a JSON file and answers every call with its arguments.

    python3 benches/replay_server.py TOOLS.json

The file holds a list of tools as `tools/list` gives them, or an object with such a list as `tools`.
"""

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, params: dict[str, Any], tools: list[Any]) -> Any:
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-11-25"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "replay", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": tools}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
    return {} if method == "ping" else None


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    tools = found["tools"] if isinstance(found, dict) else found
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, tools)
        outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
