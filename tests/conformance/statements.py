"""
What a schema says, as single statements that can be counted: at this place, this keyword, this value.

A place is the path of names from the root: `("filter", "[]", "field")`. Alternatives, parts (`allOf`) and references
don't change the place, so a statement is found again wherever a translation puts it. What contains itself is read once.
The root's own keywords are no statements, except `required`: Open WebUI takes nothing else from a root.
"""

from collections.abc import Iterator
from typing import Any

Place = tuple[str, ...]
Statement = tuple[Place, str, Any]

# Of two values at one place, the one nearer to the place counts.
NOTES = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
KEYWORDS = (
    *NOTES,
    *("type", "enum", "const", "format", "pattern", "required", "additionalProperties", "dependentRequired"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "contentEncoding", "contentMediaType"),
)
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


def statements(root: Any) -> Iterator[Statement]:
    yield from _walk(root, root, (), (), set())


def _walk(
    schema: Any, root: Any, place: Place, open_references: tuple[str, ...], noted: set[str]
) -> Iterator[Statement]:
    if not isinstance(schema, dict):
        return
    yield from _own(schema, place, noted)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in open_references:
        yield from _walk(_target(root, reference), root, place, (*open_references, reference), noted)
    for part in _list(schema.get("allOf")):
        yield from _walk(part, root, place, open_references, noted)
    for keyword in ("anyOf", "oneOf"):
        variants = _list(schema.get(keyword))
        several = sum(not _is_null(variant) for variant in variants) > 1
        for variant in variants:
            yield from _walk(variant, root, place, open_references, set() if several else noted)
    for name, inner in _dict(schema.get("properties")).items():
        yield from _walk(inner, root, (*place, name), open_references, set())
    first = schema.get("prefixItems", schema.get("items"))
    for number, inner in enumerate(_list(first)):
        yield from _walk(inner, root, (*place, f"[{number}]"), open_references, set())
    yield from _walk(schema.get("items"), root, (*place, "[]"), open_references, set())
    yield from _walk(schema.get("additionalProperties"), root, (*place, "{}"), open_references, set())
    for pattern, inner in _dict(schema.get("patternProperties")).items():
        yield from _walk(inner, root, (*place, f"{{{pattern}}}"), open_references, set())


def _own(schema: dict[str, Any], place: Place, noted: set[str]) -> Iterator[Statement]:
    for name in _list(schema.get("required")):
        yield place, "required", name
    if not place:
        return
    for keyword in KEYWORDS:
        value = schema.get(keyword)
        if value is None or keyword == "required" or (keyword in NOTES and (keyword in noted or value == "")):
            continue
        if keyword in NOTES:
            noted.add(keyword)
        if keyword == "type":
            for kind in value if isinstance(value, list) else [value]:
                if kind in TYPES:
                    yield place, "type", kind
        elif keyword == "enum":
            for one in _list(value):
                yield place, "enum", one
        elif keyword.startswith("exclusive") and isinstance(value, bool):
            continue  # draft 4: said with minimum or maximum
        elif keyword in ("minimum", "maximum") and schema.get(f"exclusive{keyword.title()}") is True:
            yield place, f"exclusive{keyword.title()}", value
        elif keyword == "additionalProperties":
            if isinstance(value, bool):
                yield place, keyword, value
        else:
            yield place, keyword, value
    if schema.get("nullable") is True:
        yield place, "type", "null"


class Said:
    """What a translated schema says, to find statements in."""

    def __init__(self, schema: Any) -> None:
        self._values: dict[tuple[Place, str], list[Any]] = {}
        for place, keyword, value in statements(schema):
            self._values.setdefault((place, keyword), []).append(value)

    def keeps(self, statement: Statement) -> bool:
        """Whether it is said at the same place: the same value, or a text that holds it."""
        place, keyword, value = statement
        values = self._values.get((place, keyword), [])
        if any(_equal(value, one) for one in values):
            return True
        if keyword == "description":
            return any(str(value).strip() in str(one) for one in values)
        if keyword == "const":
            return any(_equal(value, one) for one in self._values.get((place, "enum"), []))
        if keyword == "enum":
            return any(_equal(value, one) for one in self._values.get((place, "const"), []))
        return False


def _equal(one: Any, other: Any) -> bool:
    """As JSON: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _target(root: Any, reference: str) -> Any:
    if not reference.startswith("#/") and reference != "#":
        return None  # anchors and other resources are not looked for
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
