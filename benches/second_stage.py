#!/usr/bin/env python3
"""Measures what a second stage over the first twenty tools gains: late interaction between token vectors (MaxSim).

    python3 benches/second_stage.py --sets DIR --runs RUNS --encoder FOLDER SET…

`--sets` is a folder with the sets, each with `tools.jsonl` and `queries.jsonl`; `--runs` is the folder to which `toolsieve bench --runs`
wrote the rankings. `--encoder` is the folder that `assets/training/checkpoint.py` makes of the built-in model. It needs numpy,
safetensors and tokenizers; the encoder is computed with numpy.

The vectors of the tokens come from the same forward pass as the first stage's vectors. Each token of a message finds its most similar token
in the tool's text (server, name, description). MaxSim is the mean of these cosines, plain or weighted by the token's rarity among the
tools. Tokens without a letter or digit don't count. "Centred" subtracts the mean of all tokens' vectors first.

The new score is the first stage's plus a factor times MaxSim, as a z-score over the twenty tools. Rankings without scores (those of
`toolsieve bench`) get the negative logarithm of the rank. Each set uses the variant and the factor with the best mean nDCG@5 on the others.

Source of MaxSim: Khattab and Zaharia, "ColBERT" (2020).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "assets" / "training"))
import data

FIRST = 20
LENGTH = 256
HEADS = 12
BATCH_TOKENS = 2048
RESAMPLES = 1000
FACTORS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2)
LAYERS = (-1, -2)
VARIANTS = tuple(itertools.product(LAYERS, ("plain", "rare"), ("as they are", "centred")))
Tokens = tuple[np.ndarray, dict[int, np.ndarray]]
"""Ids, and for each layer the vectors of unit length."""


# ---- the encoder -----------------------------------------------------------------------------------------------------


class Encoder:
    """BERT in float32. Texts of one length go together, so nothing is padded."""

    def __init__(self, folder: Path) -> None:
        self.weights = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LENGTH)
        self.depth = 1 + max(int(name.split(".")[2]) for name in self.weights if name.startswith("encoder.layer."))

    def __call__(self, texts: Iterable[str]) -> dict[str, Tokens]:
        ids = {text: self.tokenizer.encode(text).ids for text in texts}
        found: dict[str, Tokens] = {}
        for length, group in itertools.groupby(sorted(ids, key=lambda text: len(ids[text])), key=lambda text: len(ids[text])):
            same, size = list(group), max(1, BATCH_TOKENS // length)
            for batch in (same[at : at + size] for at in range(0, len(same), size)):
                layers = self.layers(np.array([ids[text] for text in batch]))
                for place, text in enumerate(batch):
                    found[text] = np.array(ids[text]), {layer: layers[layer][place] for layer in LAYERS}
        return found

    def layers(self, ids: np.ndarray) -> dict[int, np.ndarray]:
        words, places = (self.weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position"))
        state = self.norm("embeddings.LayerNorm", words[ids] + places[: ids.shape[1]])
        kept = {}
        for number in range(self.depth):
            name = f"encoder.layer.{number}."
            state = self.norm(name + "attention.output.LayerNorm", state + self.attention(name + "attention.", state))
            wide = self.linear(name + "intermediate.dense", state)
            wide *= 0.5 * (1 + erf(wide * np.float32(0.5**0.5)))
            state = self.norm(name + "output.LayerNorm", state + self.linear(name + "output.dense", wide))
            if number - self.depth in LAYERS:
                kept[number - self.depth] = state
        return kept

    def attention(self, name: str, state: np.ndarray) -> np.ndarray:
        batch, length, width = state.shape
        query, key, value = (
            self.linear(f"{name}self.{part}", state).reshape(batch, length, HEADS, -1).swapaxes(1, 2) for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) / np.float32((width // HEADS) ** 0.5)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        return self.linear(name + "output.dense", mixed.swapaxes(1, 2).reshape(batch, length, width))

    def linear(self, name: str, state: np.ndarray) -> np.ndarray:
        return state @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, name: str, state: np.ndarray) -> np.ndarray:
        state = state - state.mean(-1, keepdims=True)
        state /= np.sqrt((state**2).mean(-1, keepdims=True) + 1e-12)
        return state * self.weights[name + ".weight"] + self.weights[name + ".bias"]


def erf(value: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 7.1.26; the error is below 2e-7."""
    size = np.abs(value)
    step = 1 / (1 + np.float32(0.3275911) * size)
    series = step * (0.254829592 + step * (-0.284496736 + step * (1.421413741 + step * (-1.453152027 + step * 1.061405429))))
    return np.sign(value) * (1 - series * np.exp(-size * size))


# ---- sets and scores -------------------------------------------------------------------------------------------------


@dataclass
class Message:
    text: str
    groups: list[set[str]]
    tools: list[str]
    first: np.ndarray
    """The scores of the first stage."""


def read(folder: Path, run: Path, limit: int) -> tuple[dict[str, str], list[Message]]:
    """The texts of the tools, and the messages with their first twenty tools."""
    listed = data.lines(folder / "tools.jsonl")
    tools = {line["id"]: data.Tool(line.get("server", ""), line["name"], line.get("description") or "") for line in listed}
    rankings = {line.get("query_id", line.get("id")): line["ranked"][:FIRST] for line in data.lines(run)}
    messages = []
    for line in data.lines(folder / "queries.jsonl"):
        ranked = rankings.get(line["id"], [])
        twins = line.get("alt") or {}
        groups = [{tool, *twins.get(tool, [])} for tool in line["relevant"]]
        names = [entry if isinstance(entry, str) else entry[0] for entry in ranked]
        scores = [-np.log(place + 1.0) if isinstance(entry, str) else entry[1] for place, entry in enumerate(ranked)]
        messages.append(Message(line["query"], groups, names, np.array(scores)))
    step = max(1, len(messages) // limit) if limit else 1
    messages = [message for message in messages[::step] if message.tools]
    needed = {tool for message in messages for tool in message.tools}
    return {name: tools[name].full() for name in needed}, messages


def z_scores(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-9)


class Tables:
    """What MaxSim needs of one set: vectors, the mean vector, and the rarity of each token among the tools."""

    def __init__(self, tools: dict[str, str], messages: list[Message], encoder: Encoder) -> None:
        vectors = encoder({*tools.values(), *(message.text for message in messages)})
        self.messages = {message.text: vectors[message.text] for message in messages}
        self.tools = {name: vectors[text] for name, text in tools.items()}
        size = len(encoder.tokenizer.get_vocab())
        seen = np.zeros(size)
        for ids, _ in self.tools.values():
            seen[np.unique(ids)] += 1
        self.rarity = np.log(1 + (len(tools) - seen + 0.5) / (seen + 0.5))
        marks = [number for piece, number in encoder.tokenizer.get_vocab().items() if not any(map(str.isalnum, piece))]
        self.is_word = np.ones(size, bool)
        self.is_word[[0, 1, 2, *marks]] = False
        self.mean = {layer: np.concatenate([of[layer] for _, of in self.tools.values()]).mean(0) for layer in LAYERS}

    def unit(self, tokens: Tokens, layer: int, form: str) -> np.ndarray:
        vectors = tokens[1][layer][self.is_word[tokens[0]]]
        vectors = vectors - self.mean[layer] if form == "centred" else vectors
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def scores(self, messages: list[Message], layer: int, weights: str, form: str) -> list[np.ndarray]:
        """MaxSim of each message with its twenty tools."""
        tools = {name: self.unit(tokens, layer, form).T for name, tokens in self.tools.items()}
        found = []
        for message in messages:
            ids = self.messages[message.text][0]
            ids = ids[self.is_word[ids]]
            if not len(ids):
                found.append(np.zeros(len(message.tools)))
                continue
            asked = self.unit(self.messages[message.text], layer, form)
            factors = self.rarity[ids] if weights == "rare" else np.ones(len(ids))
            best = np.array([(asked @ tools[name]).max(1) for name in message.tools])
            found.append(best @ factors / factors.sum())
        return found


def figures(message: Message, scores: np.ndarray) -> tuple[float, float, float]:
    """R@1, R@5 and nDCG@5."""
    order = [message.tools[place] for place in np.argsort(-scores, kind="stable")]
    found = sorted(next((place for place, name in enumerate(order) if name in group), FIRST) for group in message.groups)
    count = len(message.groups)
    ideal = sum(1 / np.log2(place + 2) for place in range(min(count, 5)))
    gain = sum(1 / np.log2(place + 2) for place in found if place < 5)
    return sum(place < 1 for place in found) / count, sum(place < 5 for place in found) / count, gain / ideal


def interval(changes: np.ndarray) -> np.ndarray:
    """Half the 95 % interval of the mean."""
    drawn = np.random.default_rng(7).integers(0, len(changes), (RESAMPLES, len(changes)))
    low, high = np.quantile(changes[drawn].mean(1), (0.025, 0.975), axis=0)
    return (high - low) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0, help="about as many messages per set, evenly spaced")
    parser.add_argument("names", nargs="+", metavar="SET")
    options = parser.parse_args()
    encoder = Encoder(options.encoder)
    results: dict[str, dict[tuple[Any, ...], np.ndarray]] = {}
    for name in options.names:
        tools, messages = read(options.sets / name, options.runs / f"{name}.jsonl", options.limit)
        start = time.perf_counter()
        tables = Tables(tools, messages, encoder)
        tokens = [len(ids) for ids, _ in tables.tools.values()]
        took = time.perf_counter() - start
        print(f"{name}: {len(messages)} messages, {len(tools)} tools, {np.mean(tokens):.0f} tokens a tool, {took:.0f} s")
        results[name] = {}
        for variant in VARIANTS:
            late = [z_scores(scores) for scores in tables.scores(messages, *variant)]
            for factor in FACTORS:
                rows = [figures(message, message.first + factor * scores) for message, scores in zip(messages, late, strict=True)]
                results[name][(*variant, factor)] = np.array(rows)
    choices = [(*variant, factor) for variant in VARIANTS for factor in FACTORS]
    for name, of in results.items():
        others = [other for other in results if other != name]
        chosen = max(choices, key=lambda choice: np.mean([results[other][choice][:, 2].mean() for other in others]))
        before, after = of[(*VARIANTS[0], 0.0)], of[chosen]
        change, half = (after - before).mean(0), interval(after - before)
        cells = "  ".join(f"{old:.3f} {by:+.3f} ±{error:.3f}" for old, by, error in zip(before.mean(0), change, half, strict=True))
        print(f"{name:20s} R@1, R@5, nDCG@5: {cells}   chosen on the others: {chosen}")
    for variant in VARIANTS:
        means = [np.mean([of[(*variant, factor)].mean(0) for of in results.values()], 0) for factor in FACTORS]
        cells = [f"{factor}: {mean[0]:.3f} {mean[1]:.3f} {mean[2]:.3f}" for factor, mean in zip(FACTORS, means, strict=True)]
        print(variant, "  ".join(cells))


if __name__ == "__main__":
    main()
