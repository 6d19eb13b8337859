"""What the documentation says about the answers of models, written down once more, and grammars for such answers."""

import json
from collections.abc import Sequence


def verdict(said: str, catalogue: Sequence[str], limit: int) -> tuple[list[str], str | None]:
    """The tools that an answer chooses, or none and a part of the warning with which the service rejects it."""
    try:
        answer = json.loads(said)
    except json.JSONDecodeError:
        return [], "JSON in a code fence" if said.strip().startswith("```") else "prose instead of JSON"
    tools = answer.get("tools") if isinstance(answer, dict) else None
    if not isinstance(tools, list):
        return [], "JSON of a different form"
    names: list[str] = []
    for tool in tools:
        item = {"name": tool} if isinstance(tool, str) else tool
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return [], "JSON of a different form"
        if not isinstance(item.get("reason"), str | None):
            return [], "JSON of a different form"
        names.append(item["name"])
    if not names:
        return [], "no tool at all"
    if len(names) > limit:
        return [], "more tools than requested"
    for place, name in enumerate(names):
        if name not in catalogue:
            return [], "a tool that was not in the catalogue"
        if name in names[:place]:
            return [], "a duplicate tool"
    return names, None


def one_of(names: Sequence[str]) -> str:
    """A grammar's rule: one of these names in quotes."""
    return "(" + " | ".join(_literal(json.dumps(name)) for name in names) + ")"


def grammar(*parts: str) -> str:
    """A grammar whose parts follow each other. A part that begins with `(` is a rule, and everything else is text."""
    return "root ::= " + " ".join(part if part.startswith("(") else _literal(part) for part in parts)


def _literal(text: str) -> str:
    return json.dumps(text)
