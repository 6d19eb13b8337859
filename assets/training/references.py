#!/usr/bin/env python3
"""Float32 vectors of a model for the texts of an existing reference file: what the int8 encoder is tested against.

    venv/bin/python references.py mixed ../../tests/cases/encoder/all-minilm-l6-v2.json \\
        --made "…" > ../../tests/cases/encoder/toolsieve-minilm.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--made", required=True, help="says where the model is from")
    options = parser.parse_args()
    tokenizer, model = AutoTokenizer.from_pretrained(options.model), AutoModel.from_pretrained(options.model).eval()
    lines = []
    for case in json.loads(options.texts.read_text(encoding="utf-8"))["cases"]:
        tokens = tokenizer(case["text"], truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            vector = torch.nn.functional.normalize(model(**tokens).last_hidden_state[0].mean(0), dim=0)
        lines.append(json.dumps({"text": case["text"], "vector": [round(value, 6) for value in vector.tolist()]}, ensure_ascii=False))
    print(f'{{"made": {json.dumps(options.made)},\n"cases": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
