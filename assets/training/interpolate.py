#!/usr/bin/env python3
"""Mixes two models: `interpolate.py STOCK TRAINED OUTPUT --share 0.8` takes four fifths of the trained weights.

Weights between the stock model's and the fine-tuned one's keep more of what the stock model knows of texts that are not
about tools, and are often better than both. The folder can then be imported with `toolsieve model import`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stock", type=Path)
    parser.add_argument("trained", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--share", type=float, default=0.8, help="of the trained weights, 0 to 1")
    options = parser.parse_args()
    stock, trained = (load_file(folder / "model.safetensors") for folder in (options.stock, options.trained))
    share = options.share
    mixed = {
        name: value if not value.is_floating_point() else ((1 - share) * value + share * trained[name]).contiguous()
        for name, value in stock.items()
    }
    shutil.copytree(options.trained, options.output, dirs_exist_ok=True)
    save_file(mixed, options.output / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
