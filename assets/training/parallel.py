#!/usr/bin/env python3
"""Collects short parallel texts from the message catalogues (gettext) of Debian packages: `parallel.py ROOT OUTPUT`.

    for package in $(cat parallel.txt); do apt-get download "$package"; done
    for file in *.deb; do dpkg-deb --fsys-tarfile "$file" | tar -x -C ROOT --wildcards '*/LC_MESSAGES/*.mo'; done

ROOT is the folder into which the packages were unpacked, `parallel.txt` their names. One line of OUTPUT is an English text and its
translations, `{"en": "Move to trash", "de": "In den Papierkorb verschieben", …}`. The texts stay on the machine that trains: they belong to
the programs' authors and translators, and none of them is in this repository. Only the fifteen languages of the training are read.
"""

from __future__ import annotations

import gettext
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

LANGUAGES = {
    "de": "de", "es": "es", "fr": "fr", "it": "it", "pt": "pt", "pt_BR": "pt", "nl": "nl", "pl": "pl", "tr": "tr", "ru": "ru", "uk": "uk",
    "ar": "ar", "hi": "hi", "zh_CN": "zh", "ja": "ja", "ko": "ko",
}  # fmt: skip
SHORTEST, LONGEST = 8, 160
MARKUP = re.compile(r"[<>%{}\\@$|]|--|http|\n")
KEY = re.compile(r"\((?:_|&)\w\)|(?:(?<=\s)|(?<=\w)|^)[_&](?=\w)")
"""Keys in the labels of menus: `_Open`, `Datei(&F)`."""


def plain(text: str) -> str:
    return KEY.sub("", text.strip()).replace("…", "").rstrip(".: ").strip()


def main() -> None:
    root, output = Path(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(root.glob("**/LC_MESSAGES/*.mo")):
        language = LANGUAGES.get(path.parent.parent.name)
        if language is None:
            continue
        try:
            with path.open("rb") as file:
                catalogue = gettext.GNUTranslations(file)
        except (OSError, ValueError, LookupError):  # Some catalogues are damaged.
            continue
        for key, translated in catalogue._catalog.items():
            if not isinstance(key, str) or not isinstance(translated, str):
                continue
            english = key.split("\x04")[-1]
            if not SHORTEST <= len(english) <= LONGEST or len(english.split()) < 2 or MARKUP.search(english.strip()) or MARKUP.search(translated):
                continue
            english, translated = plain(english), plain(translated)
            if len(translated) > 1 and translated != english:
                found[english].setdefault(language, translated)
    with output.open("w", encoding="utf-8") as file:
        for english, translations in sorted(found.items()):
            file.write(json.dumps({"en": english, **translations}, ensure_ascii=False) + "\n")
    print(f"{len(found)} texts, {sum(map(len, found.values()))} translations")


if __name__ == "__main__":
    main()
