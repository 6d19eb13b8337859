#!/usr/bin/env python3
"""Gives a trained model the pieces of another base: `widen.py TRAINED BASE OUTPUT`.

Training hardly changes the word vectors (by 0.1 % of their length in 500 steps), so the base's own serve as well, and more pieces can be
added afterwards. The base's vectors have four bits, and `toolsieve model import --four-bit-pieces` keeps them exactly.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

WORDS = "embeddings.word_embeddings.weight"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("trained", "base", "output"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    weights = load_file(options.trained / "model.safetensors")
    weights[WORDS] = load_file(options.base / "model.safetensors")[WORDS]
    shutil.copytree(options.base, options.output, dirs_exist_ok=True)
    save_file(weights, options.output / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
