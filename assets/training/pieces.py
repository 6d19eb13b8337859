#!/usr/bin/env python3
"""Writes `tokenizer.json` for a model with some of the pieces of XLM-R, as `toolsieve model import` reads it.

    python3 pieces.py FOLDER        # needs tokenizers; FOLDER has unigram.json, see base.py

`unigram.json` has `pieces`, `scores` (logarithms of probabilities) and `map` (what normalisation replaces single characters by).
The character map also composes letters with their marks: texts from some systems come decomposed.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "models"))
from charsmap import LONGEST_SEQUENCE, charsmap

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def compositions(known: dict[str, str]) -> dict[str, str]:
    """Decomposed characters, and what their composed forms become."""
    found = {}
    for character in map(chr, range(0x80, 0x11000)):
        decomposed = unicodedata.normalize("NFD", character)
        if len(decomposed) > 1 and len(decomposed.encode()) <= LONGEST_SEQUENCE and unicodedata.normalize("NFC", decomposed) == character:
            found[decomposed] = known.get(character, character)
    return found


def tokenizer(stored: dict) -> Tokenizer:
    pieces = [*((special, 0.0) for special in SPECIAL), *list(zip(stored["pieces"], map(float, stored["scores"]), strict=True))[4:]]
    made = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    rules = compositions(stored["map"]) | stored["map"]
    made.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(rules)), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.add_special_tokens(SPECIAL)
    pair = "<s> $A </s> </s> $B </s>"
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)])
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    made = tokenizer(json.loads((folder / "unigram.json").read_text(encoding="utf-8")))
    made.save(str(folder / "tokenizer.json"), pretty=False)
    print(made.encode("Wie viel Uhr ist es in Tokio? ｆｕｌｌ e\u0301te\u0301").tokens)


if __name__ == "__main__":
    main()
