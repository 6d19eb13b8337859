#!/usr/bin/env python3
"""Looks for broken links: in the HTML of the built book, and in Markdown that is read on the forge.

    tests/docs/links.py --book FOLDER README.md ARCHITECTURE.md …

Addresses with a scheme are not asked: this works without a network. A path must exist, and an anchor must be an id of
the page or a heading of the file. Ends with 1 where something is broken.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Pages that repeat others.
REPEATED = {"print.html", "toc.html"}


class Page(HTMLParser):
    """The ids of an HTML page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes one element."""
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) in {("a", "href"), ("link", "href"), ("img", "src"), ("script", "src")} and value:
                self.links.append(value)


def without_code(markdown: str) -> str:
    """Markdown without what stands in fences."""
    return re.sub(r"^( *)(```|~~~).*?^\1\2[^\n]*$", "", markdown, flags=re.MULTILINE | re.DOTALL)


def anchors(markdown: str) -> set[str]:
    """The anchors that a forge makes of headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", without_code(markdown), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def markdown_links(markdown: str) -> list[str]:
    """What Markdown links to, in line or by reference."""
    text = re.sub(r"`[^`\n]*`", "", without_code(markdown))
    return re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"^\[[^\]]+\]: +(\S+)", text, re.MULTILINE)


def is_elsewhere(link: str) -> bool:
    """Whether a link leads out of the repository."""
    return bool(urlsplit(link).scheme) or link.startswith("//")


def target(source: Path, link: str) -> tuple[Path, str]:
    """The file that a link leads to, and the anchor in it."""
    parts = urlsplit(link)
    return (source.parent / unquote(parts.path)).resolve() if parts.path else source, unquote(parts.fragment)


def broken(source: Path, links: Iterable[str], pages: dict[Path, Page], root: Path | None = None) -> Iterator[str]:
    """What is wrong with the links of one file. `root`: what must hold every target."""
    for link in links:
        if is_elsewhere(link):
            continue
        path, anchor = target(source, link)
        if path.is_dir() and root is not None:
            path /= "index.html"
        if not path.exists():
            yield f"{source}: {link}: there is no such file"
        elif root is not None and not path.is_relative_to(root):
            yield f"{source}: {link}: leads out of the book"
        elif anchor and path.suffix == ".html":
            page = pages.get(path) or Page(path.read_text(encoding="utf-8"))
            if anchor not in page.ids:
                yield f"{source}: {link}: there is no such anchor"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{source}: {link}: there is no such heading"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Look for broken links.")
    parser.add_argument("--book", type=Path, required=True, help="folder of the built book")
    parser.add_argument("files", type=Path, nargs="*", help="Markdown files")
    arguments = parser.parse_args()
    book: Path = arguments.book.resolve()
    files = [path for path in sorted(book.rglob("*.html")) if path.name not in REPEATED]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    found = [problem for path, page in pages.items() for problem in broken(path, page.links, pages, book)]
    checked = sum(len(page.links) for page in pages.values())
    for path in arguments.files:
        links = markdown_links(path.read_text(encoding="utf-8"))
        checked += len(links)
        found += broken(path.resolve(), links, pages)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    if not pages or not checked:
        sys.stderr.write(f"{book}: there is nothing to check\n")
        return 1
    sys.stdout.write(f"{checked} links in {len(pages)} pages and {len(arguments.files)} files, {len(found)} broken\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
