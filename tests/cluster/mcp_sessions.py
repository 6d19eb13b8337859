"""Calls in sessions of MCP's older era. A session ends with its replica, and the client begins a new one."""

import json
import time
from typing import Any

from wire import Client, Response
from workload import Workload

VERSION = "2025-06-18"
PATH = "/mcp?mode=full"


class McpCaller:
    """A client with a session. It calls tools, as the callers over plain HTTP do."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.session = workload, ""

    async def call(self, client: Client) -> None:
        ledger = self.workload.ledger
        if not self.session and not await self._begin(client):
            return
        call, server = self.workload.new_call()
        kind = f"mcp {server}"
        params = {"name": f"{server}__{call.tool}", "arguments": {"id": call.id}}
        response = await self._send(kind, client, "tools/call", params, number=2)
        if response is None:
            return
        if response.status == 404:
            # The session was one of another replica. The tool has not run.
            self.session, call.is_refused = "", True
            ledger.answered["mcp, session ended"] += 1
            return
        answer = message(response)
        result = answer.get("result") or {}
        if response.status == 200 and "result" in answer and not result.get("isError"):
            self.workload.judge_success(kind, call, response)
        elif response.status == 200 and "error" in answer and "nknown tool" in str(answer["error"]):
            self.workload.judge_refusal(kind, call, response)
        else:
            text = f"{response.status} {str(answer)[:300]}"
            self.workload.fail(kind, time.monotonic(), response.replica, text, is_answered=True)

    async def _begin(self, client: Client) -> bool:
        info = {"name": "cluster", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        response = await self._send("mcp", client, "initialize", hello, number=1)
        if response is None:
            return False
        if response.status != 200 or "mcp-session-id" not in response.headers:
            text = f"{response.status} {str(response.json())[:200]}"
            self.workload.fail("mcp", time.monotonic(), response.replica, text)
            return False
        self.session = response.headers["mcp-session-id"]
        self.workload.ledger.answered["mcp, session begun"] += 1
        response = await self._send("mcp", client, "notifications/initialized", {})
        return response is not None and response.status == 202

    async def _send(
        self, kind: str, client: Client, method: str, params: dict[str, Any], number: int | None = None
    ) -> Response | None:
        headers = {"MCP-Protocol-Version": VERSION}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            body["id"] = number
        return await self.workload.send(kind, client, "POST", PATH, body, headers=headers)


def message(response: Response) -> dict[str, Any]:
    """The response to the request, which a stream of events may contain."""
    text = response.body.decode(errors="replace")
    events = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    try:
        messages = [json.loads(event) for event in events if event.strip()] or [json.loads(text)]
    except ValueError:
        return {"unreadable": text}
    return next((one for one in messages if "result" in one or "error" in one), {"unreadable": text})
