"""Published documents: valid OpenAPI 3.1, and kept by Open WebUI as they are."""

from collections import defaultdict
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import openwebui
from conftest import World
from statements import Said, statements

OUR_OWN = {"find_tools", "run_tool"}
# Odd tools of which something is not published as a schema, and why.
NOT_KEPT = {
    "all_of_itself": "what contains itself is published once",
    "deep": "deeper than is published",
    "numbers_by_name": "arguments of any name are published as one argument",
    "odd_values": "a listed value that the type beside it forbids",
    "root_of_alternatives": "required by one alternative only, which the description says",
}


def schema_of(operation: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    return schema


@pytest.fixture(scope="session")
def functions(world: World) -> dict[str, dict[str, Any]]:
    """What a model gets from Open WebUI, by name."""
    converted = openwebui.convert(world.openwebui_python, {"all": world.document})["all"]
    return {function["name"]: function for function in converted}


def test_every_document_is_valid(world: World) -> None:
    for server in world.lists:
        OpenAPIV31SpecValidator(world.get(f"/{server}/openapi.json")).validate()
    OpenAPIV31SpecValidator(world.document).validate()


def test_open_webui_keeps_every_published_tool_as_it_is(world: World, functions: dict[str, dict[str, Any]]) -> None:
    operations = [methods["post"] for methods in world.document["paths"].values()]
    assert len(functions) == len(operations) == sum(map(len, world.lists.values())) + len(OUR_OWN)
    for operation in operations:
        function, schema = functions[operation["operationId"]], schema_of(operation)
        assert function["description"] == operation["description"] != ""
        # Of the root it takes these two; all that lies below has to be the same.
        assert function["parameters"]["properties"] == schema["properties"], operation["operationId"]
        assert function["parameters"].get("required", []) == schema.get("required", []), operation["operationId"]


def test_what_a_server_says_reaches_the_model(world: World, functions: dict[str, dict[str, Any]]) -> None:
    """Statement by statement, of every real tool; of the odd ones only what can't be kept is missing."""
    missing = defaultdict(set)
    count = 0
    for server, tools in world.lists.items():
        for tool in tools:
            said = Said(functions[world.operation(server, tool["name"])["operationId"]]["parameters"])
            for statement in statements(tool["inputSchema"]):
                count += 1
                if not said.keeps(statement):
                    missing[server, tool["name"]].add(statement)
    assert count > 200
    assert {tool: missing[tool] for tool in missing if tool[0] != "odd"} == {}
    assert {name for _, name in missing} == NOT_KEPT.keys(), missing


def test_open_webui_calls_every_kind_of_name(world: World) -> None:
    """Its own caller sends to the path and with the property names that are published."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for tool in world.lists["odd"]:
        schema = tool["inputSchema"]
        if schema.get("required") == ["q"] or tool["name"] == "names_of_properties":
            arguments = {name: f"<{name}>" for name in schema["required"]}
            calls.append((world.operation("odd", tool["name"])["operationId"], arguments))
    assert len(calls) > 20
    answers = openwebui.call(world.openwebui_python, world.url, world.document, calls)
    assert answers == [arguments for _, arguments in calls]
