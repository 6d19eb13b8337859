#!/usr/bin/env python3
"""A trained model as its difference from the base model, small enough to be kept: `checkpoint.py save|load FILE BASE TRAINED`.

`save` writes which pieces the base has and the differences of all weights, with 31 levels a row; `load` makes TRAINED again. BASE is what
`base.py` makes; `load` makes it anew if it isn't there, with the same pieces.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import shutil
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file, save_file

LEVELS = 15


def save(file: Path, base: Path, trained: Path) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in (base, trained))
    arrays: dict[str, numpy.ndarray] = {}
    lost = total = 0.0
    for name, value in after.items():
        change = (value - before[name]).numpy().astype(numpy.float32)
        if not change.any():
            continue
        if change.ndim == 1:
            arrays[name] = change.astype(numpy.float16)
            continue
        scale = numpy.abs(change).max(1, keepdims=True) / LEVELS
        levels = numpy.rint(change / numpy.where(scale > 0, scale, 1)).astype(numpy.int8)
        lost += float(((levels * scale - change) ** 2).sum())
        total += float((change**2).sum())
        arrays[name], arrays[f"{name}/scale"] = levels, scale.astype(numpy.float32)
    pieces = [piece for piece, _ in json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]]
    arrays["pieces"] = numpy.frombuffer("\n".join(pieces).encode(), numpy.uint8)
    buffer = io.BytesIO()
    numpy.savez(buffer, **arrays)
    file.write_bytes(lzma.compress(buffer.getvalue(), preset=2))
    print(f"{file.stat().st_size / 1e6:.1f} MB, {(lost / total) ** 0.5:.4f} of the difference lost")


def load(file: Path, base: Path, trained: Path) -> None:
    arrays = numpy.load(io.BytesIO(lzma.decompress(file.read_bytes())))
    if not base.exists():
        import base as making

        making.make(base, bytes(arrays["pieces"]).decode().split("\n"), [])
    weights = load_file(base / "model.safetensors")
    for name in weights:
        if name in arrays:
            change = arrays[name].astype(numpy.float32)
            scale = arrays[f"{name}/scale"] if f"{name}/scale" in arrays else 1.0
            weights[name] = (weights[name] + torch.from_numpy(change * scale)).contiguous()
    shutil.copytree(base, trained, dirs_exist_ok=True)
    save_file(weights, trained / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["save", "load"])
    parser.add_argument("file", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("trained", type=Path)
    options = parser.parse_args()
    (save if options.what == "save" else load)(options.file, options.base, options.trained)


if __name__ == "__main__":
    main()
