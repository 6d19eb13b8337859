"""The MCP server that the conformance suite asks for, over standard streams: its tools, prompts and resources.

Written against the specification, without an SDK, so that nothing but Toolsieve stands between it and the suite.
"""

import json
import sys
import threading
import time

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
TEXT_URI, BINARY_URI, WATCHED_URI = (
    "test://static-text",
    "test://static-binary",
    "test://watched-resource",
)

writing = threading.Lock()
waiting: dict[str, tuple[threading.Event, dict]] = {}


def send(message: dict) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def notify(method: str, params: dict) -> None:
    send({"method": method, "params": params})


def ask(method: str, params: dict) -> dict:
    """Asks the client, and waits for its result."""
    number = f"q{time.monotonic_ns()}"
    event: threading.Event = threading.Event()
    answer: dict = {}
    waiting[number] = (event, answer)
    send({"id": number, "method": method, "params": params})
    event.wait(30)
    if "error" in answer:
        raise ToolError(answer["error"].get("message", "refused"))
    return answer.get("result", {})


class ToolError(Exception):
    """Becomes a result that tells an error."""


class RequestError(Exception):
    """Becomes an error of the protocol: code, message."""


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def image() -> dict:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def form(properties: dict, required: list[str] | None = None) -> dict:
    return {"type": "object", "properties": properties, "required": required or []}


def logging_tool(_: dict, __: dict) -> list[dict]:
    for words in (
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ):
        notify(
            "notifications/message",
            {"level": "info", "logger": "conformance", "data": words},
        )
        time.sleep(0.05)
    return [text("Logged three times.")]


def progress_tool(_: dict, meta: dict) -> list[dict]:
    for step in (0, 50, 100):
        if "progressToken" in meta:
            notify(
                "notifications/progress",
                {
                    "progressToken": meta["progressToken"],
                    "progress": step,
                    "total": 100,
                },
            )
        time.sleep(0.05)
    return [text("Done.")]


def error_tool(_: dict, __: dict) -> list[dict]:
    raise ToolError("This tool intentionally returns an error for testing")


def sampling_tool(arguments: dict, _: dict) -> list[dict]:
    messages = [{"role": "user", "content": text(arguments["prompt"])}]
    result = ask("sampling/createMessage", {"messages": messages, "maxTokens": 100})
    return [text(f"LLM response: {result['content']['text']}")]


def elicit(message: str, schema: dict) -> list[dict]:
    result = ask("elicitation/create", {"message": message, "requestedSchema": schema})
    return [
        text(
            f"Elicitation completed: action={result['action']}, content={json.dumps(result.get('content'))}"
        )
    ]


def defaults_tool(_: dict, __: dict) -> list[dict]:
    return elicit(
        "Check the values",
        form(
            {
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {
                    "type": "string",
                    "enum": ["active", "inactive", "pending"],
                    "default": "active",
                },
                "verified": {"type": "boolean", "default": True},
            }
        ),
    )


def enums_tool(_: dict, __: dict) -> list[dict]:
    options, titled = ["option1", "option2", "option3"], ["value1", "value2", "value3"]
    words = ["First Option", "Second Option", "Third Option"]
    constants = [
        {"const": value, "title": title}
        for value, title in zip(titled, words, strict=True)
    ]
    return elicit(
        "Choose",
        form(
            {
                "untitledSingle": {"type": "string", "enum": options},
                "titledSingle": {"type": "string", "oneOf": constants},
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {
                    "type": "array",
                    "items": {"type": "string", "enum": options},
                },
                "titledMulti": {"type": "array", "items": {"anyOf": constants}},
            }
        ),
    )


def elicitation_tool(arguments: dict, _: dict) -> list[dict]:
    person = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return elicit(arguments["message"], form(person, ["username", "email"]))


def embedded(uri: str, kind: str, words: str) -> dict:
    return {
        "type": "resource",
        "resource": {"uri": uri, "mimeType": kind, "text": words},
    }


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}}
STRING = {"type": "string"}
# Name → what it says of itself, its schema, what it does.
TOOLS = {
    "test_simple_text": (
        "Returns a text",
        NOTHING,
        lambda *_: [text("This is a simple text response for testing.")],
    ),
    "test_image_content": ("Returns an image", NOTHING, lambda *_: [image()]),
    "test_audio_content": (
        "Returns a sound",
        NOTHING,
        lambda *_: [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    ),
    "test_embedded_resource": (
        "Returns a resource",
        NOTHING,
        lambda *_: [
            embedded(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )
        ],
    ),
    "test_multiple_content_types": (
        "Returns several things",
        NOTHING,
        lambda *_: [
            text("Multiple content types test:"),
            image(),
            embedded(
                "test://mixed-content-resource",
                "application/json",
                '{"test":"data","value":123}',
            ),
        ],
    ),
    "test_tool_with_logging": ("Logs while it works", NOTHING, logging_tool),
    "test_tool_with_progress": ("Tells of its progress", NOTHING, progress_tool),
    "test_error_handling": ("Fails", NOTHING, error_tool),
    "test_sampling": (
        "Asks the model",
        form({"prompt": STRING}, ["prompt"]),
        sampling_tool,
    ),
    "test_elicitation": (
        "Asks the user",
        form({"message": STRING}, ["message"]),
        elicitation_tool,
    ),
    "test_elicitation_sep1034_defaults": ("Asks with defaults", NOTHING, defaults_tool),
    "test_elicitation_sep1330_enums": ("Asks for choices", NOTHING, enums_tool),
    "json_schema_2020_12_tool": (
        "Tool with JSON Schema 2020-12 features",
        SCHEMA_2020_12,
        lambda *_: [text("ok")],
    ),
    "test_custom_headers": (
        "Takes an argument from a header",
        form(
            {"region": {"type": "string", "x-mcp-header": "Region"}, "query": STRING},
            ["region"],
        ),
        lambda arguments, _: [text(json.dumps(arguments))],
    ),
}
PROMPTS = [
    {"name": "test_simple_prompt", "description": "A simple prompt"},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with arguments",
        "arguments": [
            {"name": "arg1", "description": "First test argument", "required": True},
            {"name": "arg2", "description": "Second test argument", "required": True},
        ],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with a resource",
        "arguments": [
            {
                "name": "resourceUri",
                "description": "URI of the resource",
                "required": True,
            }
        ],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with an image"},
]
RESOURCES = [
    {"uri": TEXT_URI, "name": "Static text", "mimeType": "text/plain"},
    {"uri": BINARY_URI, "name": "Static image", "mimeType": "image/png"},
    {"uri": WATCHED_URI, "name": "Watched", "mimeType": "text/plain"},
]
TEMPLATES = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "Data of an id",
        "mimeType": "application/json",
    }
]


def prompt(params: dict) -> dict:
    given = params.get("arguments") or {}
    match params["name"]:
        case "test_simple_prompt":
            content = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            content = [
                text(
                    f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
                )
            ]
        case "test_prompt_with_embedded_resource":
            content = [
                embedded(
                    given.get("resourceUri", TEXT_URI),
                    "text/plain",
                    "Embedded resource content for testing.",
                ),
                text("Please process the embedded resource above."),
            ]
        case "test_prompt_with_image":
            content = [image(), text("Please analyze the image above.")]
        case name:
            raise RequestError(-32602, f"Unknown prompt: {name}")
    return {"messages": [{"role": "user", "content": part} for part in content]}


def read(uri: str) -> dict:
    if uri == BINARY_URI:
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if uri in (TEXT_URI, WATCHED_URI):
        return {
            "contents": [
                {
                    "uri": uri,
                    "mimeType": "text/plain",
                    "text": "This is the content of the static text resource.",
                }
            ]
        }
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        words = json.dumps(
            {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        )
        return {
            "contents": [{"uri": uri, "mimeType": "application/json", "text": words}]
        }
    raise RequestError(-32002, f"Resource not found: {uri}")


def call(params: dict) -> dict:
    if params["name"] not in TOOLS:
        raise RequestError(-32602, f"Unknown tool: {params['name']}")
    try:
        return {
            "content": TOOLS[params["name"]][2](
                params.get("arguments") or {}, params.get("_meta") or {}
            )
        }
    except ToolError as error:
        return {"content": [text(str(error))], "isError": True}


def answer(method: str, params: dict) -> dict:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {
                    "tools": {},
                    "prompts": {},
                    "resources": {},
                    "completions": {},
                    "logging": {},
                },
                "serverInfo": {"name": "conformance-server", "version": "1.0.0"},
            }
        case "tools/list":
            return {
                "tools": [
                    {"name": name, "description": words, "inputSchema": schema}
                    for name, (words, schema, _) in TOOLS.items()
                ]
            }
        case "tools/call":
            return call(params)
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "prompts/get":
            return prompt(params)
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": TEMPLATES}
        case "resources/read":
            return read(params["uri"])
        case "completion/complete":
            values = [
                value
                for value in ("paris", "park", "party", "testing")
                if value.startswith(params["argument"]["value"])
            ]
            return {
                "completion": {"values": values, "total": len(values), "hasMore": False}
            }
        case "ping":
            return {}
    raise RequestError(-32601, f"Method not found: {method}")


def handle(message: dict) -> None:
    try:
        send(
            {
                "id": message["id"],
                "result": answer(message["method"], message.get("params") or {}),
            }
        )
    except RequestError as error:
        code, words = error.args
        send({"id": message["id"], "error": {"code": code, "message": words}})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            event, slot = waiting.pop(message["id"])
            slot.update(message)
            event.set()
        elif "id" in message:
            threading.Thread(target=handle, args=(message,), daemon=True).start()


main()
