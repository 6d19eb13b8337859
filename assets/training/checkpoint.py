#!/usr/bin/env python3
"""The built-in model's float weights, to train it further: `checkpoint.py ../toolsieve-e5.int8.bin OUTPUT`.

Makes the base (`base.py`) with the same pieces, and replaces its weights by those of the weights file. `toolsieve model import` rounded those of the
layers to 127 levels a row; the vectors of the pieces are the base's own. The format is that of `src/adapters/embed/builtin/weights.rs`.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import base as making
import numpy
import torch
from safetensors.torch import load_file, save_file

HASHED_FROM, ALIGNMENT, PANEL, GROUP = 48, 64, 32, 4
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


class Sections:
    """Reads a weights file from front to back. Its sizes must be multiples of 32, so that nothing is padded."""

    def __init__(self, path: Path):
        self.bytes = path.read_bytes()
        header = int.from_bytes(self.bytes[12:16], "little")
        self.config = json.loads(self.bytes[HASHED_FROM : HASHED_FROM + header])
        self.at = HASHED_FROM + header

    def next(self, kind: type, count: int) -> numpy.ndarray:
        self.at = math.ceil(self.at / ALIGNMENT) * ALIGNMENT
        values = numpy.frombuffer(self.bytes, kind, count, self.at)
        self.at += values.nbytes
        return values

    def pieces(self) -> list[str]:
        count = self.config["tokens"]
        offsets = self.next(numpy.uint32, count + 1)
        self.next(numpy.uint32, slots(count))
        text = self.next(numpy.uint8, self.config["token_bytes"]).tobytes()
        # No text contains a special piece, so the file leaves their names empty.
        return [*SPECIAL, *(text[start:end].decode() for start, end in zip(offsets[4:], offsets[5:], strict=False))]

    def matrix(self, inputs: int, outputs: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Returns the weights, [outputs, inputs], and the bias."""
        panels = self.next(numpy.int8, inputs * outputs).reshape(outputs // PANEL, inputs // GROUP, PANEL, GROUP)
        scales = self.next(numpy.float32, outputs)
        self.next(numpy.float32, outputs)
        bias = self.next(numpy.float32, outputs)
        return panels.transpose(0, 2, 1, 3).reshape(outputs, inputs) * scales[:, None], bias


def slots(tokens: int) -> int:
    """The slots of a vocabulary's hash table (`vocabulary.rs`)."""
    return 1 << (2 * tokens - 1).bit_length()


def weights_of(sections: Sections) -> dict[str, numpy.ndarray]:
    config = sections.config
    hidden, wide, heads = config["hidden"], config["intermediate"], config["heads"]
    size = hidden // heads
    if hidden % PANEL or wide % PANEL or size % 16:
        raise SystemExit("this script reads no models with padded rows")
    if config.get("words") != "four_bit":
        raise SystemExit("this script reads models with pieces of four bits")
    sections.next(numpy.uint8, config["tokens"] * hidden // 2)
    sections.next(numpy.uint8, config["tokens"] * hidden // PANEL * 2)
    found = {}
    # The embedding of token type 0 is part of the positions.
    found["embeddings.position_embeddings.weight"] = sections.next(numpy.float32, config["positions"] * hidden).reshape(-1, hidden)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (sections.next(numpy.float32, hidden) for _ in range(2))

    def matrix(name: str, inputs: int, outputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = sections.matrix(inputs, outputs)

    norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(config["layers"])):
        joined, bias = sections.matrix(hidden, 3 * hidden)
        for place, name in enumerate(("query", "key", "value")):
            rows = slice(place * hidden, (place + 1) * hidden)
            # The attention's factor is part of the query.
            factor = math.sqrt(size) if name == "query" else 1.0
            found[f"{layer}.attention.self.{name}.weight"] = joined[rows] * factor
            found[f"{layer}.attention.self.{name}.bias"] = bias[rows] * factor
        matrix(f"{layer}.attention.output.dense", hidden, hidden)
        norm(f"{layer}.attention.output.LayerNorm")
        matrix(f"{layer}.intermediate.dense", hidden, wide)
        matrix(f"{layer}.output.dense", wide, hidden)
        norm(f"{layer}.output.LayerNorm")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    sections = Sections(options.weights)
    making.make(options.output, sections.pieces(), [])
    file = options.output / "model.safetensors"
    weights = load_file(file)
    for name, value in weights_of(sections).items():
        weights[name][: len(value)] = torch.from_numpy(numpy.array(value))
    weights["embeddings.token_type_embeddings.weight"][:] = 0
    save_file(weights, file, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
