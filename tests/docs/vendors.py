#!/usr/bin/env python3
"""Runs `toolsieve check` on each entry of the page about vendors, and compares the page with its own table of services.

    tests/docs/vendors.py --toolsieve target/release/toolsieve

No service is asked: this works without a network. Ends with 1 if an entry is refused, gets a warning, or has no
sign-in.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs/src/how-to/vendors.md"
# What the page requires before the first entry.
ENVIRONMENT = {
    "HOME": "/nonexistent",
    "PATH": "/usr/bin:/bin",
    "TOOLSIEVE_HTTP__PUBLIC_URL": "https://tools.example.org",
    "TOOLSIEVE_SECRETS_KEY": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
}


def entries(section: str) -> list[str]:
    """The entries of one section of the page, also those within lists."""
    return re.findall(r"^ *```json\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)


def check(program: str, entry: str, folder: Path, without: str | None = None) -> subprocess.CompletedProcess[str]:
    """Checks one entry, with all the variables that it names, or all but one."""
    file = folder / "mcp.json"
    file.write_text(entry, encoding="utf-8")
    variables = {name: "a-value" for name in re.findall(r"\$\{(\w+)\}", entry) if name != without}
    command = [program, "check", "--config", str(file)]
    return subprocess.run(command, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False)


def of_entry(program: str, entry: str, folder: Path) -> Iterator[str]:
    """What is wrong with one entry."""
    checked = check(program, entry, folder)
    if checked.returncode != 0 or "warning" in checked.stderr:
        yield checked.stderr.strip() or f"exit code {checked.returncode}"
        return
    for name in set(re.findall(r"\$\{(\w+)\}", entry)):
        if name not in check(program, entry, folder, without=name).stderr:
            yield f"the program doesn't miss {name}"
    servers: dict[str, dict[str, Any]] = json.loads(entry)["mcpServers"]
    for name, server in servers.items():
        if "auth" not in server:
            yield f"{name} has no sign-in"
        elif ".googleapis.com" in server["url"] and server["auth"]["parameters"].get("access_type") != "offline":
            yield f"{name} gets no refresh token"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Check the entries for vendors.")
    parser.add_argument("--toolsieve", required=True, help="the built program")
    program: str = parser.parse_args().toolsieve
    page = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([\w ]+)\]\(#", page, re.MULTILINE)
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    found = [] if listed else ["the page lists no services"]
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for service in listed:
            of_service = entries(sections.get(service, ""))
            if not of_service:
                found.append(f"{service}: there is no entry")
            for entry in of_service:
                checked += 1
                found += [f"{service}: {problem}\n{entry}" for problem in of_entry(program, entry, Path(folder))]
    outside = len(entries(page)) - checked
    if outside:
        found.append(f"{outside} entries are in no section of a service")
    for problem in found:
        sys.stderr.write(f"{PAGE.name}: {problem}\n")
    sys.stdout.write(f"{checked} entries for {len(listed)} services, {len(found)} problems\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
