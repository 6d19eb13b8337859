"""
Runs inside the environment of the real Open WebUI and does with documents what it does.

Reads a JSON request from standard input and prints the answer as JSON:

    {"documents": {NAME: DOCUMENT, …}}                          → {NAME: [FUNCTION, …], …}
    {"url": …, "document": …, "calls": [[NAME, ARGUMENTS], …]}  → [RESULT, …]
"""

import asyncio
import json
import logging
import sys
from typing import Any

from open_webui.utils.tools import clean_openai_tool_schema, convert_openapi_to_tool_payload, execute_tool_server


def functions(document: dict[str, Any]) -> list[dict[str, Any]]:
    """None where the converter fails: then Open WebUI offers no tool of any server."""
    try:
        return [clean_openai_tool_schema(tool) for tool in convert_openapi_to_tool_payload(document)]
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return []


async def results(request: dict[str, Any]) -> list[Any]:
    server = {"openapi": request["document"]}
    answers = []
    for name, arguments in request["calls"]:
        answer, _ = await execute_tool_server(request["url"], {}, {}, name, arguments, server)
        answers.append(answer)
    return answers


def main() -> None:
    logging.disable(logging.CRITICAL)
    request = json.load(sys.stdin)
    if "calls" in request:
        answer: Any = asyncio.run(results(request))
    else:
        answer = {name: functions(document) for name, document in request["documents"].items()}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
