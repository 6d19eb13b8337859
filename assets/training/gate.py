#!/usr/bin/env python3
"""Fits the no-tool gate's head: does this message need a tool at all?

    cargo run --release --example gate-evidence -- assets/toolsieve-e5.int8.bin TOOLLISTS FITTED HELD_OUT > evidence.jsonl
    venv/bin/python assets/training/gate.py evidence.jsonl assets/gate.json

A logistic regression and a hidden layer on what the service knows of a message (cosines, words in common, wording, ...) and on the
message's vector, fitted together to messages that are not held out. Both kinds weigh the same, and every message weighs the same however
many catalogues it was ranked in. Noise on the inputs, dropout and weight decay keep the layer small. The threshold is the one that keeps
a share of the held-out messages that need a tool, of servers that the head was not trained on, over all languages and in each; the
report is on the held-out messages that need none.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

SIGNALS = ["best", "second", "five", "lexical", "wording", "tools", "reference", "agreement", "length", "foreign"]


def load(*paths: Path) -> tuple[str, list[dict], dict[str, numpy.ndarray]]:
    model, rows, vectors = "", [], {}
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for line in map(json.loads, file):
                if "model" in line:
                    assert model in ("", line["model"]), "evidence of several models"
                    model = line["model"]
                elif "vector" in line:
                    vectors[line["text"]] = numpy.array(line["vector"], numpy.float64)
                else:
                    rows.append(line)
    return model, rows, vectors


class Head(torch.nn.Module):
    def __init__(self, inputs: int, hidden: int, dropout: float):
        super().__init__()
        self.straight = torch.nn.Linear(inputs, 1)
        self.hidden = torch.nn.Linear(inputs, hidden)
        self.dropout = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(hidden, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.straight(inputs) + self.out(self.dropout(torch.relu(self.hidden(inputs)))))[:, 0]


def fit(inputs: torch.Tensor, needs: torch.Tensor, weight: torch.Tensor, options: argparse.Namespace) -> Head:
    torch.manual_seed(options.seed)
    head = Head(inputs.shape[1], options.hidden, options.dropout)
    optimizer = torch.optim.AdamW(head.parameters(), lr=options.rate, weight_decay=options.decay)
    steps = -(-len(inputs) // options.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=options.epochs * steps)
    for _ in range(options.epochs):
        for rows in torch.randperm(len(inputs)).split(options.batch):
            noisy = inputs[rows] + options.noise * torch.randn(len(rows), inputs.shape[1])
            loss = (binary_cross_entropy_with_logits(head(noisy), needs[rows], reduction="none") * weight[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return head.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("evidence", type=Path, nargs="+")
    parser.add_argument("output", type=Path)
    parser.add_argument("--keep", type=float, default=0.985, help="share of held-out messages with a tool above the threshold")
    parser.add_argument("--keep-each", type=float, default=0.95, help="the same in each language")
    parser.add_argument("--hidden", type=int, default=96, help="units of the hidden layer")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--noise", type=float, default=0.6, help="standard deviation of the noise on the inputs, which have 1")
    parser.add_argument("--decay", type=float, default=0.5, help="weight decay")
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    model, rows, vectors = load(*options.evidence)
    signals = numpy.array([[row["signals"][name] for name in SIGNALS] for row in rows])
    vector = numpy.array([vectors[row["of"]] for row in rows])
    needs = numpy.array([row["needs"] for row in rows])
    held = numpy.array([row["held_out"] for row in rows])
    mean, spread = signals[~held].mean(0), signals[~held].std(0) + 1e-9
    features = torch.tensor(numpy.hstack([(signals - mean) / spread, vector * numpy.sqrt(vector.shape[1])]), dtype=torch.float32)

    times = Counter(row["of"] for row, out in zip(rows, held, strict=True) if not out)
    each = numpy.array([0.0 if out else 1 / times[row["of"]] for row, out in zip(rows, held, strict=True)])
    for kind in (True, False):
        of_kind = (needs == kind) & ~held
        each[of_kind] *= 1000 / each[of_kind].sum()
    shown = torch.tensor(~held)
    each = torch.tensor(each / each[~held].mean(), dtype=torch.float32)
    fitted = fit(features[shown], torch.tensor(needs, dtype=torch.float32)[shown], each[shown], options)
    with torch.no_grad():
        scores = fitted(features).numpy()

    language = numpy.array([row["lang"] for row in rows])
    languages = sorted(set(language[held & needs]))
    of_each = [numpy.quantile(scores[held & needs & (language == name)], 1 - options.keep_each) for name in languages]
    threshold = float(min(numpy.quantile(scores[held & needs], 1 - options.keep), *of_each))
    passed = scores >= threshold
    kept = passed[held & needs].mean()
    silent = 1 - passed[held & ~needs].mean()
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for row, out, ok in zip(rows, held, passed, strict=True):
        if out:
            by_kind[row["kind"]].append(bool(ok))
    print(f"held out: keeps {kept:.3f} of those that need a tool, silences {silent:.3f} of those that need none")
    for name in languages:
        of = held & (language == name)
        print(f"  {name}: keeps {passed[of & needs].mean():.3f}, silences {1 - passed[of & ~needs].mean():.3f}")
    if any("gate" in row for row in rows):
        before = numpy.array([row["gate"] for row in rows])
        print(f"the gate before: keeps {before[held & needs].mean():.3f}, silences {1 - before[held & ~needs].mean():.3f}")
    for kind, passes in sorted(by_kind.items()):
        print(f"  {kind}: {numpy.mean(passes):.3f} passed of {len(passes)}")
    trained = ~held
    print(f"trained on: keeps {passed[trained & needs].mean():.3f}, silences {1 - passed[trained & ~needs].mean():.3f}")

    def unit(weights: torch.Tensor, bias: torch.Tensor) -> dict:
        """The weights for what the service knows, which is not scaled."""
        values = weights.detach().double().numpy()
        own = values[: len(SIGNALS)] / spread
        return {
            "bias": round(float(bias.detach()) - float(own @ mean), 5),
            "weights": {name: round(float(value), 5) for name, value in zip(SIGNALS, own, strict=True)},
            "direction": [round(float(value), 2) for value in values[len(SIGNALS) :] * numpy.sqrt(vector.shape[1])],
        }

    straight = unit(fitted.straight.weight[0], fitted.straight.bias[0] + fitted.out.bias[0])
    units = zip(fitted.out.weight[0], fitted.hidden.weight, fitted.hidden.bias, strict=True)
    head = {
        "model": model,
        "made": f"assets/training/gate.py; held out: keeps {kept:.3f} with a tool, silences {silent:.3f} without",
        **straight,
        "hidden": [{"out": round(float(out.detach()), 5), **unit(weights, bias)} for out, weights, bias in units],
        "threshold": round(threshold, 4),
    }
    text = json.dumps(head, indent=1)
    options.output.write_text(re.sub(r"(?<=[\[,\d])\n\s+(?=[-\d\]])", " ", text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
