#!/usr/bin/env python3
"""Dense R@1, R@5 and R@10 per language of float32 models: `evaluate_languages.py FOLDER…`.

Searches the tools of `tests/cases/languages` by their two texts, with its 120 messages a language. No words, no gate: for choosing between
models before one is imported.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import data
import numpy
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

CASES = Path(__file__).parents[2] / "tests" / "cases" / "languages"
FIFTEEN = "de es fr it pt nl pl tr ru uk ar hi zh ja ko".split()
TOKENS, BATCH, PADDING = 128, 64, 1


class Model:
    def __init__(self, folder: Path):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS)
        self.bert = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def encode(self, texts: list[str]) -> numpy.ndarray:
        ids = [text.ids for text in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
        vectors = numpy.zeros((len(ids), self.bert.config.hidden_size), numpy.float32)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            longest = len(ids[part[-1]])
            padded = torch.tensor([ids[at] + [PADDING] * (longest - len(ids[at])) for at in part])
            mask = torch.arange(longest) < torch.tensor([[len(ids[at])] for at in part])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden = self.bert(input_ids=padded, attention_mask=mask.long()).last_hidden_state.float()
            vectors[part] = torch.nn.functional.normalize((hidden * mask[..., None]).sum(1), dim=-1).numpy()
        return vectors


def evaluate(folder: Path) -> None:
    model = Model(folder)
    tools = [data.Tool(line["server"], tool["name"], tool["description"]) for line in data.lines(CASES / "servers.jsonl") for tool in line["tools"]]
    passages = [(at, text) for at, tool in enumerate(tools) for text in tool.texts()]
    rows = [line for line in data.lines(CASES / "messages.jsonl") if "tool" in line]
    cosines = model.encode([line["query"] for line in rows]) @ model.encode([text for _, text in passages]).T
    best = numpy.full((len(rows), len(tools)), -1.0)
    for column, (at, _) in enumerate(passages):
        best[:, at] = numpy.maximum(best[:, at], cosines[:, column])
    found = defaultdict(list)
    for line, scores in zip(rows, best, strict=True):
        right = {f"{line['server']}::{line['tool']}", *line.get("alternatives", [])}
        ranks = [place for place, at in enumerate(numpy.argsort(-scores)[:10]) if "::".join(tools[at].key) in right]
        rank = min(ranks, default=10)
        found[line["lang"]].append((rank < 1, rank < 5, rank < 10))
    means = {language: numpy.mean(of, 0).round(3) for language, of in found.items()}
    others = [language for language in means if language not in [*FIFTEEN, "en"]]
    print(folder)
    for name, of in (("en", ["en"]), ("fifteen", FIFTEEN), ("six", others)):
        print(f"  {name}: R@1, R@5, R@10 {numpy.mean([means[language] for language in of], 0).round(3)}")
    print("  R@5:", {language: float(mean[1]) for language, mean in means.items()}, flush=True)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        evaluate(Path(given))
