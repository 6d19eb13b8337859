"""The MCP server that the conformance suite asks for, over standard streams: its tools, prompts and resources.

Written against the specification, without an SDK, so that nothing but Toolsieve stands between it and the suite. It answers in both
eras of the protocol: a request that says its protocol version is of the newer one, all others are of the older one. With `older` or
`newer` behind its name it knows that era alone.
"""

import hashlib
import hmac
import json
import secrets
import sys
import threading
import time
from dataclasses import dataclass

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
TEXT_URI, BINARY_URI, WATCHED_URI = (
    "test://static-text",
    "test://static-binary",
    "test://watched-resource",
)

META = "io.modelcontextprotocol/"
NEWER = "2026-07-28"
KEY = secrets.token_bytes(32)

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
    """Becomes an error of the protocol: code, message, and data where there are any."""


class InputRequired(Exception):
    """Becomes a question in place of a result: the requests by their keys, and a state."""


@dataclass
class Context:
    """What comes with a request beside its arguments."""

    params: dict

    @property
    def meta(self) -> dict:
        return self.params.get("_meta") or {}

    @property
    def is_newer(self) -> bool:
        return f"{META}protocolVersion" in self.meta

    @property
    def capabilities(self) -> dict:
        return self.meta.get(f"{META}clientCapabilities") or {}

    def step(self) -> str | None:
        """The step that the state of the round before names, where it has one of ours."""
        state = self.params.get("requestState")
        if state is None:
            return None
        step, _, mark = state.partition(".")
        if not hmac.compare_digest(mark, signature(step)):
            raise RequestError(-32602, "The state of the request is not what was sent")
        return step

    def learn(
        self, requests: dict[str, tuple[str, dict]], step: str | None = None
    ) -> dict[str, dict]:
        """Asks for all of this, in the way of the era, and returns the answers by their keys."""
        if not self.is_newer:
            return {
                key: ask(method, params) for key, (method, params) in requests.items()
            }
        answers = self.params.get("inputResponses") or {}
        if all(isinstance(answers.get(key), dict) for key in requests):
            return {key: answers[key] for key in requests}
        raise InputRequired(
            {
                key: {"method": method, "params": params}
                for key, (method, params) in requests.items()
            },
            step and f"{step}.{signature(step)}",
        )


def signature(step: str) -> str:
    return hmac.new(KEY, step.encode(), hashlib.sha256).hexdigest()


def elicitation(message: str, schema: dict) -> tuple[str, dict]:
    return "elicitation/create", {"message": message, "requestedSchema": schema}


def sampling(prompt: str, tokens: int = 100) -> tuple[str, dict]:
    messages = [{"role": "user", "content": text(prompt)}]
    return "sampling/createMessage", {"messages": messages, "maxTokens": tokens}


ROOTS = ("roots/list", {})


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def image() -> dict:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def form(properties: dict, required: list[str] | None = None) -> dict:
    return {"type": "object", "properties": properties, "required": required or []}


def logging_tool(_: dict, context: Context) -> list[dict]:
    for words in (
        () if context.is_newer and f"{META}logLevel" not in context.meta else LOGGED
    ):
        notify(
            "notifications/message",
            {"level": "info", "logger": "conformance", "data": words},
        )
        time.sleep(0.05)
    return [text("Logged three times.")]


LOGGED = (
    "Tool execution started",
    "Tool processing data",
    "Tool execution completed",
)


def progress_tool(_: dict, context: Context) -> list[dict]:
    meta = context.meta
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


def error_tool(_: dict, __: Context) -> list[dict]:
    raise ToolError("This tool intentionally returns an error for testing")


def sampling_tool(arguments: dict, context: Context) -> list[dict]:
    result = context.learn({"answer": sampling(arguments["prompt"])})["answer"]
    return [text(f"LLM response: {result['content']['text']}")]


def elicit(context: Context, message: str, schema: dict) -> list[dict]:
    result = context.learn({"answer": elicitation(message, schema)})["answer"]
    return [
        text(
            f"Elicitation completed: action={result['action']}, content={json.dumps(result.get('content'))}"
        )
    ]


def defaults_tool(_: dict, context: Context) -> list[dict]:
    return elicit(
        context,
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


def enums_tool(_: dict, context: Context) -> list[dict]:
    options, titled = ["option1", "option2", "option3"], ["value1", "value2", "value3"]
    words = ["First Option", "Second Option", "Third Option"]
    constants = [
        {"const": value, "title": title}
        for value, title in zip(titled, words, strict=True)
    ]
    return elicit(
        context,
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


def elicitation_tool(arguments: dict, context: Context) -> list[dict]:
    person = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return elicit(context, arguments["message"], form(person, ["username", "email"]))


def name_tool(_: dict, context: Context) -> list[dict]:
    name = elicitation("What is your name?", form({"name": STRING}, ["name"]))
    answer = context.learn({"user_name": name})["user_name"]
    return [text(f"Hello, {(answer.get('content') or {}).get('name')}!")]


def capital_tool(_: dict, context: Context) -> list[dict]:
    question = sampling("What is the capital of France?")
    answer = context.learn({"capital_question": question})["capital_question"]
    return [text(answer["content"]["text"])]


def roots_tool(_: dict, context: Context) -> list[dict]:
    roots = context.learn({"client_roots": ROOTS})["client_roots"]["roots"]
    return [text(", ".join(root["uri"] for root in roots))]


def confirm(context: Context) -> dict:
    """Asks for a confirmation, with a state that nobody can change."""
    question = elicitation("Please confirm", form({"ok": {"type": "boolean"}}, ["ok"]))
    if context.step() is None and context.is_newer:
        context.params.pop("inputResponses", None)
    return context.learn({"confirm": question}, "confirm")["confirm"]


def state_tool(_: dict, context: Context) -> list[dict]:
    confirm(context)
    return [text("state-ok")]


def multiple_tool(_: dict, context: Context) -> list[dict]:
    context.step()
    name = elicitation("What is your name?", form({"name": STRING}, ["name"]))
    greeting = sampling("Generate a greeting", 50)
    requests = {"user_name": name, "greeting": greeting, "client_roots": ROOTS}
    answers = context.learn(requests, "multiple")
    return [text(json.dumps(answers))]


def rounds_tool(_: dict, context: Context) -> list[dict]:
    step = context.step()
    name = elicitation("Step 1: What is your name?", form({"name": STRING}, ["name"]))
    color = elicitation(
        "Step 2: What is your favorite color?", form({"color": STRING}, ["color"])
    )
    if step != "second":
        context.learn({"step1": name}, "first")
    answer = context.learn({"step2": color}, "second")["step2"]
    return [text(f"You like {(answer.get('content') or {}).get('color')}.")]


def capabilities_tool(_: dict, context: Context) -> list[dict]:
    """Asks only for what the client says that it can do."""
    possible = {
        "elicitation": elicitation("Your name?", form({"name": STRING}, ["name"])),
        "sampling": sampling("Generate a greeting", 50),
        "roots": ROOTS,
    }
    able = context.capabilities if context.is_newer else shared
    answers = context.learn(
        {key: asked for key, asked in possible.items() if key in able}
    )
    return [text(json.dumps(answers))]


def missing_tool(_: dict, context: Context) -> list[dict]:
    if context.is_newer and "sampling" not in context.capabilities:
        words = "This tool asks the client's model, and the client does not offer one"
        raise RequestError(-32021, words, {"requiredCapabilities": {"sampling": {}}})
    return capital_tool({}, context)


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
    "test_input_required_result_elicitation": ("Asks for a name", NOTHING, name_tool),
    "test_input_required_result_sampling": (
        "Asks for a capital",
        NOTHING,
        capital_tool,
    ),
    "test_input_required_result_list_roots": ("Asks for roots", NOTHING, roots_tool),
    "test_input_required_result_request_state": (
        "Asks, with a state",
        NOTHING,
        state_tool,
    ),
    "test_input_required_result_multiple_inputs": (
        "Asks for several things at once",
        NOTHING,
        multiple_tool,
    ),
    "test_input_required_result_multi_round": ("Asks twice", NOTHING, rounds_tool),
    "test_input_required_result_tampered_state": (
        "Asks, with a signed state",
        NOTHING,
        state_tool,
    ),
    "test_input_required_result_capabilities": (
        "Asks for what there is",
        NOTHING,
        capabilities_tool,
    ),
    "test_missing_capability": ("Needs a model", NOTHING, missing_tool),
    "test_streaming_elicitation": ("Asks for a name", NOTHING, name_tool),
    "test_logging_tool": ("Logs while it works", NOTHING, logging_tool),
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
    {
        "name": "test_input_required_result_prompt",
        "description": "A prompt that asks for its context",
    },
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


def change(what: str) -> list[dict]:
    """Has one more tool or prompt from now on, and tells so."""
    if what == "tools":
        TOOLS[f"test_extra_{len(TOOLS)}"] = ("One more", NOTHING, lambda *_: [text("")])
    else:
        PROMPTS.append(
            {"name": f"test_extra_{len(PROMPTS)}", "description": "One more prompt"}
        )
    send({"method": f"notifications/{what}/list_changed"})
    return [text("Changed.")]


TOOLS["test_trigger_tool_change"] = (
    "Changes the list of tools",
    NOTHING,
    lambda *_: change("tools"),
)
TOOLS["test_trigger_prompt_change"] = (
    "Changes the list of prompts",
    NOTHING,
    lambda *_: change("prompts"),
)


def prompt(params: dict, context: Context) -> dict:
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
        case "test_input_required_result_prompt":
            schema = form({"context": STRING}, ["context"])
            wanted = elicitation("What context should the prompt use?", schema)
            answer = context.learn({"user_context": wanted})["user_context"]
            words = (answer.get("content") or {}).get("context")
            content = [text(f"Use this context: {words}")]
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


def call(params: dict, context: Context) -> dict:
    if params["name"] not in TOOLS:
        raise RequestError(-32602, f"Unknown tool: {params['name']}")
    try:
        return {
            "content": TOOLS[params["name"]][2](params.get("arguments") or {}, context)
        }
    except ToolError as error:
        return {"content": [text(str(error))], "isError": True}


OFFERED = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
INFO = {"name": "conformance-server", "version": "1.0.0"}
# What the client of the older era has said that it can do.
shared: dict = {}


def answer(method: str, params: dict, context: Context) -> dict:
    match method:
        case "initialize" if "newer" not in sys.argv:
            shared.update(params.get("capabilities") or {})
            version = params["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": OFFERED,
                "serverInfo": INFO,
            }
        case "server/discover" if "older" not in sys.argv:
            return {
                "supportedVersions": [NEWER],
                "capabilities": OFFERED,
                "_meta": {f"{META}serverInfo": INFO},
            }
        case "tools/list":
            return {
                "tools": [
                    {"name": name, "description": words, "inputSchema": schema}
                    for name, (words, schema, _) in list(TOOLS.items())
                ]
            }
        case "tools/call":
            return call(params, context)
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "prompts/get":
            return prompt(params, context)
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": TEMPLATES}
        case "resources/read":
            return read(params["uri"])
        case "resources/subscribe" | "resources/unsubscribe":
            return {}
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


# Results that say how long they hold.
KEPT = ("server/discover", "resources/read")


def handle(message: dict) -> None:
    method, context = message["method"], Context(message.get("params") or {})
    try:
        result = answer(method, context.params, context)
        if context.is_newer:
            result = {"resultType": "complete", **result}
            if method in KEPT or method.endswith("/list"):
                result |= {"ttlMs": 0, "cacheScope": "private"}
        send({"id": message["id"], "result": result})
    except InputRequired as question:
        requests, state = question.args
        result = {"resultType": "input_required", "inputRequests": requests}
        if state:
            result["requestState"] = state
        send({"id": message["id"], "result": result})
    except RequestError as error:
        code, words, *data = error.args
        body = {"code": code, "message": words} | ({"data": data[0]} if data else {})
        send({"id": message["id"], "error": body})


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
