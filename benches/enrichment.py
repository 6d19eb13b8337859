#!/usr/bin/env python3
"""Measures what judged fields about tools contribute to a search: which fields, in which place, and for how many of the tools.

    python3 benches/enrichment.py --sets DIR --encoder FOLDER [--vectors FILE] [--json FILE]

`--sets` is a folder with `livemcpbench`, `azure_mcp`, `mcptoolbenchpp` and `metatool`, each with `tools.jsonl` and `queries.jsonl`
as `toolsieve bench` reads them. `--encoder` is a folder that `transformers` reads, with mean pooling; `assets/training/checkpoint.py`
makes that of the built-in model. `--vectors` keeps the vectors, so that a second run with the same encoder computes none. It needs numpy,
torch, transformers and tokenizers.

`enrichment.jsonl` beside this file has the fields of 300 tools by set and id. A person wrote them from the tools' definitions
without reading any message of the sets. The tools are those that most messages need. Never train on these fields: they describe
the tools of the benchmarks.

Scores are those of the ranking's core: .8 times the better cosine of a tool's texts plus .2 times BM25, both as z-scores over
the candidates. BM25 is a short reimplementation, so the figures compare variants; they are not those of the service.

There are three tables:
  closed  per set, only tools with fields; the mean over the four sets
  joined  all 300 tools as one catalog
  share   the same 300 tools, but only a part of them, drawn by hash, has fields: messages that need a tool with fields, messages
          that need one without, and all
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "assets" / "training"))
import data

DENSE_WEIGHT = 0.8
FIRST = 5
RESAMPLES = 1000
SHARES = (0.25, 0.5, 0.75, 0.9, 0.95)
Key = tuple[str, str]
Message = tuple[str, list[set[Key]]]
Embed = Callable[[list[str]], np.ndarray]

# Name, whether fields are appended to the full text or are a text of their own, the fields embedded, the fields in BM25.
ALL = ("function", "when_to_use", "limits", "tags")
BUILT = ("function", "tags")
VARIANTS: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("own texts", "append", (), ()),
    ("a text of its own: all fields", "own", ALL, ()),
    ("a text of its own: function", "own", ("function",), ()),
    ("a text of its own: when to use", "own", ("when_to_use",), ()),
    ("a text of its own: tags", "own", ("tags",), ()),
    ("appended: all fields", "append", ALL, ()),
    ("appended: function, tags", "append", BUILT, ()),
    ("words: all fields", "append", (), ALL),
    ("words: function, tags", "append", (), BUILT),
    ("appended and words: function, tags", "append", BUILT, BUILT),
    ("appended and words: function, when to use, tags", "append", ("function", "when_to_use", "tags"), ("function", "when_to_use", "tags")),
]
CHOSEN = ("append", BUILT, BUILT)


# ---- the encoder -----------------------------------------------------------------------------------------------------


class Encoder:
    """Embeds texts. Keeps the vectors by text; loads the model only for a text without a vector."""

    def __init__(self, path: Path, kept: Path | None) -> None:
        self.path, self.file, self.model = path, kept, None
        self.kept: dict[str, np.ndarray] = {}
        if kept and kept.exists():
            stored = np.load(kept)
            self.kept = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))

    def __call__(self, texts: list[str]) -> np.ndarray:
        keys = [hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.kept}
        if missing:
            self.model = self.model or load(self.path)
            self.kept.update(zip(missing, self.model(list(missing.values())), strict=True))
            if self.file:
                np.savez(self.file, keys=np.array(list(self.kept)), vectors=np.stack(list(self.kept.values())))
        return np.stack([self.kept[key] for key in keys])


def load(path: Path) -> Embed:
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(path, dtype=torch.float32), AutoTokenizer.from_pretrained(path)

    def pieces(texts: list[str]) -> list[list[int]]:
        return tokenizer(texts, truncation=True, max_length=256)["input_ids"]

    model.eval()

    def embed(texts: list[str]) -> np.ndarray:
        found, ids = [None] * len(texts), pieces(texts)
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        with torch.inference_mode():
            for at in range(0, len(order), 32):
                batch = order[at : at + 32]
                width = max(len(ids[place]) for place in batch)
                padded = torch.tensor([ids[place] + [0] * (width - len(ids[place])) for place in batch])
                mask = torch.tensor([[1] * len(ids[place]) + [0] * (width - len(ids[place])) for place in batch])
                hidden = model(input_ids=padded, attention_mask=mask).last_hidden_state
                mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                for place, vector in zip(batch, torch.nn.functional.normalize(mean, dim=-1).numpy(), strict=True):
                    found[place] = vector
        return np.stack(found)

    return embed


# ---- words -----------------------------------------------------------------------------------------------------------

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and any are as at be been but by can could did do does doing for from get give had has have how i if in into is it its
        just like make may me my need no not of on or our out please s see should show so some t tell than that the their them then
        there these they this to up us use used using want was we were what when where which who will with would you your""",
    )
)


def stem(word: str) -> str:
    """Removes the commonest English endings, which is enough to compare variants."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def terms(text: str) -> Iterable[str]:
    for run in re.findall(r"[^\W_]+", text):
        if re.search(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", run):
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
            continue
        for part in map(str.lower, data.IDENTIFIER_PART.findall(run)):
            if part not in STOP_WORDS and (len(part) > 1 or part.isdigit()):
                yield stem(part)


class Words:
    """BM25 (k1 1.2, b .75) over texts with weights."""

    def __init__(self, documents: list[list[tuple[str, float]]]) -> None:
        counts = []
        for document in documents:
            count: Counter[str] = Counter()
            for text, weight in document:
                for term in terms(text):
                    count[term] += weight
            counts.append(count)
        lengths = np.array([sum(count.values()) for count in counts])
        norms = 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
        self.tools = len(counts)
        places: dict[str, list[int]] = defaultdict(list)
        scores: dict[str, list[float]] = defaultdict(list)
        for place, count in enumerate(counts):
            for term, frequency in count.items():
                places[term].append(place)
                scores[term].append(frequency * 2.2 / (frequency + norms[place]))
        self.lists = {}
        for term, found in places.items():
            rarity = math.log(1 + (self.tools - len(found) + 0.5) / (len(found) + 0.5))
            self.lists[term] = (np.array(found), np.array(scores[term]) * rarity)

    def __call__(self, message: str) -> np.ndarray:
        total = np.zeros(self.tools)
        for term in set(terms(message)) & self.lists.keys():
            found, scores = self.lists[term]
            total[found] += scores
        return total


# ---- the search ------------------------------------------------------------------------------------------------------


def parameters(tool: dict[str, Any]) -> str:
    members = ((tool.get("input_schema") or {}).get("properties") or {}).items()
    return " ".join(f"{name} {(schema.get('description') or '') if isinstance(schema, dict) else ''}" for name, schema in members)


def text_of(fields: dict[str, Any], names: tuple[str, ...]) -> str:
    texts = (", ".join(fields[name]) if name == "tags" else fields[name] for name in names)
    return " ".join(text for text in texts if text)


def z_scores(scores: np.ndarray) -> np.ndarray:
    deviation = scores.std()
    return (scores - scores.mean()) / deviation if deviation > 1e-9 else np.zeros_like(scores)


class Catalog:
    """Tools, some of them with fields, as one variant searches them."""

    def __init__(
        self,
        tools: dict[Key, dict[str, Any]],
        fields: dict[Key, dict[str, Any]],
        variant: tuple[str, tuple[str, ...], tuple[str, ...]],
        embed: Embed,
    ) -> None:
        place, embedded, worded = variant
        self.keys = list(tools)
        own = [data.Tool(tool["server"], tool["name"], tool["description"] or "") for tool in tools.values()]
        extra = [text_of(fields[key], embedded) if key in fields else "" for key in self.keys]
        full = [f"{tool.full()} {text}" if text and place == "append" else tool.full() for tool, text in zip(own, extra, strict=True)]
        self.vectors = [embed(full), embed([tool.texts()[-1] for tool in own])]
        if place == "own":
            self.vectors.append(embed([text or tool.full() for tool, text in zip(own, extra, strict=True)]))
        documents = []
        for key, tool in tools.items():
            document = [(tool["name"], 2.0), (tool["description"] or "", 1.0), (tool["server"], 1.0), (parameters(tool), 0.3)]
            if key in fields and worded:
                document.append((text_of(fields[key], worded), 1.0))
            documents.append(document)
        self.words = Words(documents)

    def first(self, message: str, vector: np.ndarray) -> list[Key]:
        cosines = np.maximum.reduce([vectors @ vector for vectors in self.vectors])
        scores = DENSE_WEIGHT * z_scores(cosines) + (1 - DENSE_WEIGHT) * z_scores(self.words(message))
        return [self.keys[place] for place in np.argsort(-scores, kind="stable")[:FIRST]]


def measures(needed: list[set[Key]], found: list[Key]) -> tuple[float, float]:
    """Recall and nDCG over the first five. Each needed tool is a set of equivalent ones."""
    left, gain = list(range(len(needed))), 0.0
    for rank, tool in enumerate(found, 1):
        hit = next((place for place in left if tool in needed[place]), None)
        if hit is not None:
            left.remove(hit)
            gain += 1 / math.log2(rank + 1)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(needed), FIRST) + 1))
    return 1 - len(left) / len(needed), gain / ideal


def measured(catalog: Catalog, messages: list[Message], embed: Embed) -> np.ndarray:
    vectors = embed([message for message, _ in messages])
    rows = [measures(needed, catalog.first(message, vector)) for (message, needed), vector in zip(messages, vectors, strict=True)]
    return np.array(rows)


def interval(difference: np.ndarray) -> float:
    """Half of the 95 % interval of the mean, by resampling the messages."""
    draws = np.random.default_rng(7).integers(0, len(difference), (RESAMPLES, len(difference)))
    low, high = np.percentile(difference[draws].mean(1), [2.5, 97.5])
    return float(high - low) / 2


# ---- the tables ------------------------------------------------------------------------------------------------------


def read(sets: Path, fields: dict[Key, dict[str, Any]]) -> tuple[dict[Key, dict[str, Any]], list[Message]]:
    """The tools with fields, and the messages whose needed tools all have fields."""
    tools: dict[Key, dict[str, Any]] = {}
    messages: list[Message] = []
    for name in dict.fromkeys(name for name, _ in fields):
        listed = {(name, tool["id"]): tool for tool in data.lines(sets / name / "tools.jsonl")}
        tools.update((key, tool) for key, tool in listed.items() if key in fields)
        for line in data.lines(sets / name / "queries.jsonl"):
            twins = line.get("alt") or {}
            groups = [{(name, twin) for twin in (tool, *twins.get(tool, []))} & fields.keys() for tool in line["relevant"]]
            if all(groups):
                messages.append((line["query"], groups))
    return tools, messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    embed = Encoder(options.encoder, options.vectors)
    fields = {(line["set"], line["id"]): line for line in data.lines(HERE / "enrichment.jsonl")}
    tools, messages = read(options.sets, fields)
    sets = list(dict.fromkeys(name for name, _ in tools))
    result: dict[str, Any] = {"tools": len(tools), "messages": len(messages), "joined": {}, "closed": {}, "share": {}}
    print(f"{len(tools)} tools, {len(messages)} messages\n")

    print(f"{'':50s} {'closed R@5':>10} {'joined R@5':>10} {'change':>15} {'nDCG@5':>7} {'change':>15}")
    base = None
    for name, *variant in VARIANTS:
        rows = measured(Catalog(tools, fields, tuple(variant), embed), messages, embed)
        base = rows if base is None else base
        closed = []
        for one in sets:
            of_set = {key: tool for key, tool in tools.items() if key[0] == one}
            asked = [message for message in messages if any(key[0] == one for key in message[1][0])]
            closed.append(measured(Catalog(of_set, fields, tuple(variant), embed), asked, embed).mean(0))
        mean, apart = rows.mean(0), np.mean(closed, 0)
        recall, gain = rows.T - base.T
        changes = [f"{change.mean():+.3f} ±{interval(change):.3f}" for change in (recall, gain)]
        print(f"{name:50s} {apart[0]:10.3f} {mean[0]:10.3f} {changes[0]:>15} {mean[1]:7.3f} {changes[1]:>15}")
        result["joined"][name], result["closed"][name] = mean.tolist(), apart.tolist()

    print(f"\n{'tools with fields':20s} {'with: own, fields':>20} {'without: own, fields':>22} {'all: own, fields':>20}   (nDCG@5)")
    order = sorted(tools, key=lambda key: hashlib.sha256("/".join(key).encode()).digest())
    for share in SHARES:
        part = {key: fields[key] for key in order[: round(share * len(order))]}
        rows = measured(Catalog(tools, part, CHOSEN, embed), messages, embed)
        has = np.array([any(key in part for group in needed for key in group) for _, needed in messages])
        cells, kept = [], []
        for which in (has, ~has, np.full(len(has), True)):
            before, after = base[which, 1].mean(), rows[which, 1].mean()
            half = interval(rows[which, 1] - base[which, 1])
            cells.append(f"{before:.3f} {after:.3f} ±{half:.3f}")
            kept.append([int(which.sum()), float(before), float(after), half])
        print(f"{share:<20.0%} " + "   ".join(cells))
        result["share"][str(share)] = kept
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
