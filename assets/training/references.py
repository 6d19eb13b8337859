#!/usr/bin/env python3
"""Token ids and float32 vectors of a model for some texts: what the int8 encoder is tested against.

    venv/bin/python references.py FOLDER ../../tests/cases/encoder/texts.json --made "…" > ../../tests/cases/encoder/toolsieve-e5.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, help="a JSON list of strings")
    parser.add_argument("--made", required=True, help="says where the model is from")
    options = parser.parse_args()
    tokenizer, model = Tokenizer.from_file(str(options.model / "tokenizer.json")), AutoModel.from_pretrained(options.model).eval()
    tokenizer.enable_truncation(256)
    lines = []
    for text in json.loads(options.texts.read_text(encoding="utf-8")):
        tokens = tokenizer.encode(text).ids
        with torch.no_grad():
            vector = torch.nn.functional.normalize(model(torch.tensor([tokens])).last_hidden_state[0].mean(0), dim=0)
        case = {"text": text, "tokens": tokens, "vector": [round(value, 6) for value in vector.tolist()]}
        lines.append(json.dumps(case, ensure_ascii=False))
    print(f'{{"made": {json.dumps(options.made)},\n"cases": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
