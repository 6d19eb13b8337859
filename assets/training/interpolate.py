#!/usr/bin/env python3
"""Mixes models of one shape: `interpolate.py OUTPUT first=0.4 second=0.4 base=0.2` takes these shares of the folders' weights.

Weights between several fine-tuned models and their base are often better than each of them, above all for texts that are not like the
training's (Wortsman et al., 2022). The folder can then be imported with `toolsieve model import`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("shares", nargs="+", metavar="FOLDER=SHARE")
    options = parser.parse_args()
    shares = [(Path(folder), float(share)) for folder, share in (given.rsplit("=", 1) for given in options.shares)]
    if abs(sum(share for _, share in shares) - 1) > 1e-6:
        parser.error("the shares must add up to 1")
    models = [(load_file(folder / "model.safetensors"), share) for folder, share in shares]
    first = models[0][0]
    mixed = {name: sum(share * model[name] for model, share in models).contiguous() for name in first}
    shutil.copytree(shares[0][0], options.output, dirs_exist_ok=True)
    save_file(mixed, options.output / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
