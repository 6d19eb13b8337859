"""The protocols between agents and models: each reads a request, and writes an answer as a stream of events."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from serving import event

from script import ANSWER, Call, ModelRequest, Offer, Result

MODEL = "scripted-model"


class Wire(ABC):
    """A protocol. `number` makes ids unique."""

    # The ends of the paths to which clients send requests for the model.
    paths: tuple[str, ...]

    @abstractmethod
    def read(self, body: dict[str, Any]) -> ModelRequest: ...

    @abstractmethod
    def stream(self, call: Call | None, number: int) -> Iterator[bytes]: ...

    def whole(self, _: dict[str, Any]) -> Any:
        """The answer to a request without a stream, or to one of another kind."""
        return {}


def texts(content: object) -> str:
    """The text in a message's content, however it is packed."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return texts(content["text"]) if "text" in content else json.dumps(content)
    return "\n".join(texts(part) for part in content) if isinstance(content, Iterable) else ""


class Responses(Wire):
    """OpenAI's Responses API, for Codex."""

    paths = ("/responses",)

    def read(self, body: dict[str, Any]) -> ModelRequest:
        offers: list[Offer] = []
        for tool in body.get("tools") or []:
            if tool.get("type") == "namespace":
                offers += [Offer(inner["name"], tool["name"]) for inner in tool["tools"]]
            elif "name" in tool:
                offers.append(Offer(tool["name"]))
        names = {item["call_id"]: item["name"] for item in body["input"] if item.get("type") == "function_call"}
        outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
        return ModelRequest(offers, [Result(names[output["call_id"]], texts(output["output"])) for output in outputs])

    def stream(self, call: Call | None, number: int) -> Iterator[bytes]:
        response = {"id": f"resp_{number}", "object": "response", "model": MODEL, "output": []}
        item: dict[str, Any] = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        if call is None:
            item["content"] = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        else:
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call.tool.name}
            item["arguments"] = json.dumps(call.arguments)
            if call.tool.namespace:
                item["namespace"] = call.tool.namespace
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        for kind, more in (
            ("response.created", {"response": response}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": {**response, "output": [item], "status": "completed", "usage": usage}}),
        ):
            yield event({"type": kind, **more}, kind)


class Chat(Wire):
    """OpenAI's chat completions, for opencode."""

    paths = ("/chat/completions",)

    def read(self, body: dict[str, Any]) -> ModelRequest:
        offers = [Offer(tool["function"]["name"]) for tool in body.get("tools") or []]
        calls = [call for message in body["messages"] for call in message.get("tool_calls") or []]
        names = {call["id"]: call["function"]["name"] for call in calls}
        answers = [message for message in body["messages"] if message["role"] == "tool"]
        return ModelRequest(
            offers, [Result(names[answer["tool_call_id"]], texts(answer["content"])) for answer in answers]
        )

    def stream(self, call: Call | None, number: int) -> Iterator[bytes]:
        delta: dict[str, Any] = {"role": "assistant", "content": None if call else ANSWER}
        if call:
            function = {"name": call.tool.name, "arguments": json.dumps(call.arguments)}
            delta["tool_calls"] = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
        for part, finish in ((delta, None), ({}, "tool_calls" if call else "stop")):
            choice = {"index": 0, "delta": part, "finish_reason": finish}
            chunk = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
            yield event({**chunk, "choices": [choice]})
        yield b"data: [DONE]\n\n"


class Generate(Wire):
    """Gemini's generateContent, for Gemini CLI."""

    paths = (":streamGenerateContent", ":generateContent")

    def read(self, body: dict[str, Any]) -> ModelRequest:
        declared = [tool.get("functionDeclarations") or [] for tool in body.get("tools") or []]
        offers = [Offer(function["name"]) for functions in declared for function in functions]
        parts = [part for content in body["contents"] for part in content.get("parts") or []]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        return ModelRequest(
            offers, [Result(answer["name"], texts(list(answer["response"].values()))) for answer in answers]
        )

    def stream(self, call: Call | None, number: int) -> Iterator[bytes]:
        part: dict[str, Any] = {"text": ANSWER}
        if call:
            part = {"functionCall": {"id": f"call_{number}", "name": call.tool.name, "args": call.arguments}}
        yield event(self._answer(part))

    def whole(self, _: dict[str, Any]) -> Any:
        return self._answer({"text": json.dumps({"reasoning": "", "next_speaker": "user"})})

    @staticmethod
    def _answer(part: dict[str, Any]) -> dict[str, Any]:
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}


class Messages(Wire):
    """Anthropic's Messages API, for Claude Code."""

    paths = ("/messages",)

    def read(self, body: dict[str, Any]) -> ModelRequest:
        offers = [Offer(tool["name"]) for tool in body.get("tools") or []]
        contents = [message["content"] for message in body["messages"]]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
        answers = [block for block in blocks if block["type"] == "tool_result"]
        results = [Result(names[answer["tool_use_id"]], texts(answer["content"])) for answer in answers]
        plain = [content for content in contents if isinstance(content, str)]
        return ModelRequest(offers, results, texts([*plain, *(block for block in blocks if block["type"] == "text")]))

    def stream(self, call: Call | None, number: int) -> Iterator[bytes]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": ANSWER}
        if call:
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.tool.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
        for kind, more in (
            ("message_start", {"message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}),
            ("content_block_start", {"index": 0, "content_block": block}),
            ("content_block_delta", {"index": 0, "delta": delta}),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": stop, "usage": usage}),
            ("message_stop", {}),
        ):
            yield event({"type": kind, **more}, kind)
