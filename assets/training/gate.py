#!/usr/bin/env python3
"""Fits the no-tool gate's head: does this message need a tool at all?

    cargo run --release --example gate-evidence -- assets/toolsieve-e5.int8.bin TOOLLISTS FITTED HELD_OUT > evidence.jsonl
    venv/bin/python assets/training/gate.py evidence.jsonl assets/gate.json

A logistic regression on what the service knows of a message (cosines, words in common, wording, ...) and on the message's
vector, fitted to messages that are not held out. Both kinds weigh the same, and every message weighs the same however many
catalogues it was ranked in. The threshold is the one that keeps a share of the held-out messages that need a tool, of servers
that the head was not trained on, over all languages and in each; the report is on the held-out messages that need none.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy

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


def fit(features: numpy.ndarray, needs: numpy.ndarray, weight: numpy.ndarray, ridge: numpy.ndarray) -> numpy.ndarray:
    """Newton's method for the penalised likelihood."""
    weights = numpy.zeros(features.shape[1])
    for _ in range(30):
        probability = 1 / (1 + numpy.exp(-features @ weights))
        gradient = features.T @ (weight * (probability - needs)) + ridge * weights
        curve = weight * probability * (1 - probability)
        step = numpy.linalg.solve((features.T * curve) @ features + numpy.diag(ridge + 1e-9), gradient)
        weights -= step
        if numpy.abs(step).max() < 1e-7:
            break
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("evidence", type=Path, nargs="+")
    parser.add_argument("output", type=Path)
    parser.add_argument("--keep", type=float, default=0.985, help="share of held-out messages with a tool above the threshold")
    parser.add_argument("--keep-each", type=float, default=0.95, help="the same in each language")
    parser.add_argument("--ridge", type=float, default=3.0, help="penalty on the signals' weights")
    parser.add_argument("--vector-ridge", type=float, default=20.0, help="penalty on the vector's weights")
    options = parser.parse_args()

    model, rows, vectors = load(*options.evidence)
    signals = numpy.array([[row["signals"][name] for name in SIGNALS] for row in rows])
    vector = numpy.array([vectors[row["of"]] for row in rows])
    needs = numpy.array([row["needs"] for row in rows])
    held = numpy.array([row["held_out"] for row in rows])
    mean, spread = signals[~held].mean(0), signals[~held].std(0) + 1e-9
    features = numpy.hstack([numpy.ones((len(rows), 1)), (signals - mean) / spread, vector * numpy.sqrt(vector.shape[1])])

    times = Counter(row["of"] for row, out in zip(rows, held, strict=True) if not out)
    each = numpy.array([0.0 if out else 1 / times[row["of"]] for row, out in zip(rows, held, strict=True)])
    for kind in (True, False):
        of_kind = (needs == kind) & ~held
        each[of_kind] *= 1000 / each[of_kind].sum()
    ridge = numpy.concatenate([[0.0], numpy.full(len(SIGNALS), options.ridge), numpy.full(vector.shape[1], options.vector_ridge)])
    weights = fit(features[~held], needs[~held].astype(float), each[~held], ridge)
    scores = features @ weights

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

    own = weights[1 : 1 + len(SIGNALS)] / spread
    head = {
        "model": model,
        "made": f"assets/training/gate.py; held out: keeps {kept:.3f} with a tool, silences {silent:.3f} without",
        "bias": round(float(weights[0] - own @ mean), 5),
        "weights": {name: round(float(value), 5) for name, value in zip(SIGNALS, own, strict=True)},
        "direction": [round(float(value), 4) for value in weights[1 + len(SIGNALS) :] * numpy.sqrt(vector.shape[1])],
        "threshold": round(threshold, 4),
    }
    options.output.write_text(json.dumps(head, indent=1).replace(",\n  ", ", ").replace("[\n  ", "[") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
