#!/usr/bin/env python3
"""Rounds the weights of a model to the levels of `toolsieve model import`: `rounding.py MODEL OUTPUT TEXTS…`.

Training changes most weights by less than half a level, so plain rounding would undo it. This script rounds one input after another, and
corrects the others for the error, so that a layer's outputs for TEXTS change least (GPTQ: Frantar et al., "GPTQ: Accurate Post-Training
Quantization for Generative Pre-trained Transformers", ICLR 2023, algorithm 1, here with one factor per output and 8 bits). Each layer
gets the outputs of the rounded layers before it. TEXTS are files of messages, or a folder of tool lists. The import then keeps each weight.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path

import data
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModel

LEVELS, TOKENS, BATCH, PADDING = 127, 128, 32, 1
# Of the mean of the diagonal, added to it.
DAMPING = 0.01


def texts_of(path: Path) -> list[str]:
    """The messages of a file, or the texts of a folder's tools."""
    if path.is_dir():
        return [text for tool in data.load_tools(path).values() for text in tool.texts()]
    return [row["query"] for row in map(json.loads, path.read_text().splitlines()) if "query" in row]


def rounded(weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Weights (outputs x inputs) on their levels. `inputs` is the sum of the inputs' outer products."""
    weights, inputs = weights.double().clone(), inputs.double().clone()
    scale = weights.abs().amax(dim=1) / LEVELS
    # This one stays the largest of its row, so that the import finds the same factor.
    largest = weights.abs().argmax(dim=1)
    sign = weights.gather(1, largest[:, None])[:, 0].sign()
    inputs += torch.eye(len(inputs)) * DAMPING * inputs.diagonal().mean()
    order = inputs.diagonal().argsort(descending=True)
    weights, place = weights[:, order], order.argsort()[largest]
    factor = torch.linalg.cholesky(torch.linalg.inv(inputs[order][:, order]), upper=True)
    result = torch.zeros_like(weights)
    for column in range(weights.shape[1]):
        levels = (weights[:, column] / scale).round().clamp(-LEVELS, LEVELS)
        levels = torch.where(place == column, sign * LEVELS, levels)
        result[:, column] = levels * scale
        error = (weights[:, column] - result[:, column]) / factor[column, column]
        weights[:, column:] -= error[:, None] * factor[column, column:]
    return result[:, order.argsort()].float()


class Rounding:
    """The layers of a model, and what reaches the present one."""

    def __init__(self, folder: Path, texts: list[str]):
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(TOKENS)
        tokens = sorted((encoding.ids for encoding in tokenizer.encode_batch(texts)), key=len)
        self.parts = []
        for start in range(0, len(tokens), BATCH):
            part = tokens[start : start + BATCH]
            length = len(part[-1])
            ids = torch.tensor([row + [PADDING] * (length - len(row)) for row in part])
            present = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in part])
            away = (1.0 - present[:, None, None, :]) * torch.finfo(torch.float32).min
            self.parts.append([self.model.embeddings(input_ids=ids), away, present.bool()])

    def run(self) -> None:
        for layer in self.model.encoder.layer:
            attention = layer.attention
            for group in (
                [attention.self.query, attention.self.key, attention.self.value],
                [attention.output.dense],
                [layer.intermediate.dense],
                [layer.output.dense],
            ):
                self.round(layer, group)
            for part in self.parts:
                part[0] = self.through(layer, part)

    @staticmethod
    def through(layer: torch.nn.Module, part: list[torch.Tensor]) -> torch.Tensor:
        result = layer(part[0], attention_mask=part[1])
        return result[0] if isinstance(result, tuple) else result

    def round(self, layer: torch.nn.Module, group: list[torch.nn.Linear]) -> None:
        """Rounds the weights of matrices that have the same input."""
        size = group[0].in_features
        products = torch.zeros(size, size)
        present = torch.zeros(0)

        def add(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
            values = inputs[0][present]
            products.addmm_(values.T, values)

        hook = group[0].register_forward_pre_hook(add)
        for part in self.parts:
            present = part[2]
            self.through(layer, part)
        hook.remove()
        for linear in group:
            linear.weight.data = rounded(linear.weight.data, products)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=1500, help="texts of each file or folder")
    options = parser.parse_args()
    chance, texts = random.Random(1), []
    for path in options.texts:
        found = texts_of(path)
        texts += chance.sample(found, min(options.count, len(found)))
    with torch.no_grad():
        rounding = Rounding(options.model, texts)
        rounding.run()
    weights = load_file(options.model / "model.safetensors")
    weights |= {name: weight.contiguous() for name, weight in rounding.model.state_dict().items() if name in weights}
    shutil.copytree(options.model, options.output, dirs_exist_ok=True)
    save_file(weights, options.output / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
