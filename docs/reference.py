#!/usr/bin/env python3
"""Generates the reference pages from their sources, so that the pages always match the program.

    docs/reference.py --toolsieve target/release/toolsieve            writes docs/src/reference/
    docs/reference.py --toolsieve target/release/toolsieve --check    compares, and exits with code 1 if a page differs

Settings come from `src/settings/defaults.toml`, commands from the program's `--help`, routes from
`openapi/service.json`, and error codes from the table in `src/http/problem/code.rs`. Needs Python 3.11 and
nothing else.
"""

import argparse
import difflib
import http
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/src/reference"
METHODS = ("get", "put", "post", "delete", "patch")


class UnreadableError(Exception):
    """A source has an unexpected format."""


def page(title: str, source: str, introduction: str, body: list[str]) -> str:
    """Builds a page with a title and a note that the page is generated."""
    note = f"<!-- Generated from {source} by docs/reference.py. Change the source, and run the script again. -->"
    lines = [f"# {title}", "", note, "", introduction, "", *body]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


# Matches code in plain text: variables, placeholders, flags, paths and names with an underscore.
CODE = re.compile(
    r"""\$?\$?\{+[^{}]+\}+ | \$\$\{
    | \b[A-Z]+(?:_+[A-Z]+)+(?:=\S*\w)?
    | (?<![\w/.-])/[a-z][\w/{}?=-]*(?:\.json)?
    | (?<![\w-])--[a-z][a-z-]*
    | (?<![\w./])[a-z]\w*(?:\.[a-z]\w*)*_\w*(?:\.[a-z]\w*)*""",
    re.VERBOSE,
)


def prose(text: str, links: Mapping[str, str] | None = None) -> str:
    """Converts plain text to Markdown: marks code, and links the names in `links`."""

    def marked(found: re.Match[str]) -> str:
        word = found[0]
        return f"[`{word}`]({links[word]})" if links and word in links else f"`{word}`"

    parts = text.split("`")
    for place in range(0, len(parts), 2):
        escaped = re.sub(r"([*<>\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", parts[place])
        parts[place] = CODE.sub(marked, escaped)
    return "`".join(parts)


def cell(text: str) -> str:
    """Converts plain text to Markdown for a table cell."""
    return prose(" ".join(text.split())).replace("|", "\\|")


# Settings


@dataclass
class Key:
    """One setting."""

    section: str
    name: str
    default: str
    comment: list[str]

    @property
    def full(self) -> str:
        """`section.key`."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"TOOLSIEVE_{self.section}__{self.name}".upper()


@dataclass
class Section:
    """A table of the settings file. Comments describe tables that have no defaults."""

    name: str
    parts: list[Key | list[str]] = field(default_factory=list)


def read_settings(text: str) -> tuple[list[str], list[Section]]:
    """Reads the introduction and the sections of the defaults file."""
    introduction: list[str] = []
    sections: list[Section] = []
    comment: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("#"):
            comment.append(line[1:].removeprefix(" "))
        elif not line.strip():
            if comment and sections:
                sections[-1].parts.append(comment)
            else:
                introduction += comment
            comment = []
        elif header := re.fullmatch(r"\[([\w.]+)\]", line):
            sections.append(Section(header[1]))
        elif entry := re.fullmatch(r"(\w+) = (.*)", line):
            value = [entry[2]]
            if entry[2] == "[":
                value += iter(lambda: next(lines), "]")
                value.append("]")
            sections[-1].parts.append(Key(sections[-1].name, entry[1], "\n".join(value), comment))
            comment = []
        else:
            raise UnreadableError(f"a line of the settings: {line}")
    return introduction, sections


def is_example(line: str) -> bool:
    """Whether a line of a comment is TOML instead of prose."""
    return re.match(r"\[\[?[\w.]+\]\]?$|[\w]+ = |\s{8,}#", line) is not None


def remark(lines: list[str]) -> Iterator[str]:
    """Formats a comment and its examples. A table that the comment describes gets a heading."""
    text: list[str] = []
    example: list[str] = []

    def flush() -> Iterator[str]:
        if text:
            yield from (prose(" ".join(text)), "")
        if example:
            yield from ("```toml", *example, "```", "")
        text.clear()
        example.clear()

    for line in lines:
        if is_example(line):
            if text:
                yield from flush()
            example.append(line)
            continue
        if example:
            yield from flush()
        if table := re.match(r"(\[\[?[\w.]+\]\]?): (.*)", line):
            yield from flush()
            yield from (f"### `{table[1]}`", "")
            text.append(table[2][:1].upper() + table[2][1:])
        elif line:
            text.append(line)
        else:
            yield from flush()
    yield from flush()


def settings_page(defaults: str) -> str:
    """Builds the page of all settings, with their defaults, variables and descriptions."""
    introduction, sections = read_settings(defaults)
    known = {part.full for section in sections for part in section.parts if isinstance(part, Key)}
    if len(known) < 50:
        raise UnreadableError(f"{len(known)} settings are too few")

    everywhere = {name: f"#{name.replace('.', '')}" for name in known}
    body: list[str] = []
    for section in sections:
        body += [f"## `[{section.name}]`", ""]
        here = {part.name: f"#{section.name}{part.name}" for part in section.parts if isinstance(part, Key)}
        for part in section.parts:
            if isinstance(part, list):
                body += remark(part)
                continue
            body += [f"### `{part.full}`", "", prose(" ".join(part.comment), {**everywhere, **here}), ""]
            if "\n" in part.default:
                body += [f"Variable `{part.variable}`. Default:", ""]
                body += ["```toml", f"{part.name} = {part.default}", "```", ""]
            else:
                body += [f"Default `{part.default}`, variable `{part.variable}`.", ""]
    # The first paragraph is about the file itself.
    paragraphs = [" ".join(lines.split("\n")) for lines in "\n".join(introduction).split("\n\n")][1:]
    opening = (
        "Every setting has a default. A settings file contains only the settings that you change. `toolsieve check` "
        "finds mistakes in the file."
    )
    return page("Settings", "src/settings/defaults.toml", "\n\n".join([opening, *map(prose, paragraphs)]), body)


# Commands


def help_of(program: Path, words: list[str]) -> str:
    """Returns the help text of a command. Sets no variables, because the help text shows their values."""
    environment = {"PATH": os.environ.get("PATH", "")}
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise UnreadableError(f"toolsieve {' '.join(words)} --help: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def subcommands(text: str) -> list[str]:
    """Returns the commands in a help text."""
    listed = re.search(r"^Commands:\n((?:  .*\n?)+)", text, re.MULTILINE)
    names = re.findall(r"^  ([a-z][\w-]*) ", listed[1], re.MULTILINE) if listed else []
    return [name for name in names if name != "help"]


def command_line_page(program: Path) -> str:
    """Builds the page of all commands, with their help texts."""
    body: list[str] = []

    def add(words: list[str]) -> None:
        text = help_of(program, words)
        summary, _, rest = text.partition("\n\n")
        body.extend([f"## `toolsieve {' '.join(words)}`", "", prose(" ".join(summary.split())) + ".", ""])
        body.extend(["```text", rest.strip(), "```", ""])
        for name in subcommands(text):
            add([*words, name])

    top = help_of(program, [])
    commands = subcommands(top)
    if len(commands) < 15:
        raise UnreadableError(f"{len(commands)} commands are too few")
    for name in commands:
        add([name])
    mcpo = help_of(program, ["mcpo"])
    body += ["## mcpo's command line", "", "Without a command, Toolsieve accepts mcpo's flags.", ""]
    body += ["```text", mcpo.strip(), "```"]
    introduction = (
        "Each section contains the output of `toolsieve COMMAND --help`. The exit code of a command is 0 for success, "
        "1 for a failure, and 2 for wrong usage or an invalid configuration."
    )
    return page("Command line", "the program's `--help`", introduction, body)


# Routes


def kind(schema: dict[str, Any]) -> str:
    """Describes a schema's type in a few words."""
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for keyword in ("oneOf", "anyOf"):
        if keyword in schema:
            return " or ".join(dict.fromkeys(filter(None, map(kind, schema[keyword]))))
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    types = schema.get("type", "any")
    names = [name for name in (types if isinstance(types, list) else [types]) if name != "null"]
    text = " or ".join(names)
    if "items" in schema and "array" in names:
        return f"array of {kind(schema['items'])}"
    return text


def fields(schema: dict[str, Any]) -> list[str]:
    """Formats the members of an object as a table."""
    if "properties" not in schema:
        return []
    required = schema.get("required", [])
    lines = ["| Field | Type | |", "| --- | --- | --- |"]
    for name, value in schema["properties"].items():
        needed = "Required. " if name in required else ""
        lines.append(f"| `{name}` | {kind(value)} | {needed}{cell(value.get('description', ''))} |")
    return [*lines, ""]


def operation(method: str, path: str, described: dict[str, Any], shared: dict[str, Any]) -> list[str]:
    """Formats one route."""
    lines = [f"### `{method.upper()} {path}`", "", prose(" ".join(described.get("summary", "").split())), ""]
    if more := described.get("description"):
        lines += [prose(" ".join(more.split())), ""]
    if parameters := described.get("parameters"):
        lines += ["| Parameter | In | Type | |", "| --- | --- | --- | --- |"]
        for one in parameters:
            text = cell(one.get("description", ""))
            lines.append(f"| `{one['name']}` | {one['in']} | {kind(one['schema'])} | {text} |")
        lines.append("")
    if body := described.get("requestBody"):
        needed = "" if body.get("required") else " (optional)"
        lines += [f"Body{needed}: {kind(body['content']['application/json']['schema'])}.", ""]
    lines += ["| Status | Response |", "| --- | --- |"]
    for status, answer in sorted(described["responses"].items()):
        if reference := answer.get("$ref"):
            answer = shared[reference.rpartition("/")[2]]
        content = answer.get("content", {}).get("application/json", {}).get("schema", {})
        shape = f": {kind(content)}" if "$ref" in content else ""
        lines.append(f"| {status} | {cell(answer['description'])}{shape} |")
    return [*lines, ""]


def http_page(document: dict[str, Any]) -> str:
    """Builds the page of the service's own routes by tag, with their request and response bodies."""
    operations = [
        (method, path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if method in METHODS
    ]
    body: list[str] = []
    for tag in document["tags"]:
        name = tag["name"]
        body += [f"## {name.capitalize()}", "", prose(tag["description"]) + ".", ""]
        for method, path, described in operations:
            if name in described["tags"]:
                body += operation(method, path, described, document["components"]["responses"])
    if untagged := [path for _, path, described in operations if not described.get("tags")]:
        raise UnreadableError(f"without a tag: {untagged}")
    body += ["## Bodies", ""]
    for name, schema in document["components"]["schemas"].items():
        body += [f"### {name}", "", prose(" ".join(schema.get("description", "").split())), "", *fields(schema)]
    introduction = (
        "These are the service's own routes. The routes of the MCP servers' tools are in the document `/openapi.json` "
        "of a running service; see [Addresses](addresses.md). [Errors](errors.md) describes all errors."
    )
    return page("HTTP", "openapi/service.json", introduction, body)


# Errors


def errors_page(source: str) -> str:
    """Builds the page of all error codes, with their statuses."""
    table = re.findall(r'^    \w+ +"(\w+)" +([A-Z_]+) +(Caller|Remote|Us) +"([^"]+)",$', source, re.MULTILINE)
    expected = re.search(r"^codes! \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    if expected is None or len(table) != len(expected[1].splitlines()):
        raise UnreadableError("the table of error codes in src/http/problem/code.rs")
    whose = {"Caller": "the caller", "Remote": "the MCP server", "Us": "Toolsieve"}
    body = ["| Code | Status | Meaning | At fault |", "| --- | --- | --- | --- |"]
    numbers = {status.name: status.value for status in http.HTTPStatus} | {"PAYLOAD_TOO_LARGE": 413}
    for name, status, fault, title in table:
        body.append(f"| `{name}` | {numbers[status]} | {cell(title)} | {whose[fault]} |")
    introduction = (
        "Every error is a problem document (RFC 9457, `application/problem+json`) with a stable `code`. `detail` "
        "explains what happened and how to fix it. The header `X-Request-Id` contains the same id as `request_id`. "
        "If a single parameter, header or body member caused `invalid_request`, `parameter` names it. For "
        "`invalid_arguments`, `errors` describes the problem with each argument, by JSON Pointer. Over MCP, a "
        "failed meta-tool names its invalid argument in `_meta`, as `toolsieve/parameter`."
    )
    return page("Errors", "src/http/problem/code.rs", introduction, body)


def pages(program: Path) -> dict[str, str]:
    """Builds all generated pages, by file name."""
    return {
        "settings.md": settings_page((ROOT / "src/settings/defaults.toml").read_text(encoding="utf-8")),
        "command-line.md": command_line_page(program),
        "http.md": http_page(json.loads((ROOT / "openapi/service.json").read_text(encoding="utf-8"))),
        "errors.md": errors_page((ROOT / "src/http/problem/code.rs").read_text(encoding="utf-8")),
    }


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Write the generated pages of the reference.")
    parser.add_argument("--toolsieve", type=Path, required=True, help="the built program")
    parser.add_argument("--check", action="store_true", help="compare with the existing pages, and write nothing")
    arguments = parser.parse_args()
    stale = 0
    for name, text in pages(arguments.toolsieve.resolve()).items():
        path = PAGES / name
        former = path.read_text(encoding="utf-8") if path.exists() else ""
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
        elif former != text:
            stale += 1
            both = former.splitlines(), text.splitlines()
            differences = difflib.unified_diff(*both, str(path), "generated", n=0, lineterm="")
            sys.stderr.writelines(f"{line}\n" for line in differences)
    if stale:
        sys.stderr.write(f"{stale} pages differ; run docs/reference.py --toolsieve {arguments.toolsieve}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
