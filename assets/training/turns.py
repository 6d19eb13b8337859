#!/usr/bin/env python3
"""The gate's head for messages that lean on the turns before them: does this turn need a tool?

    venv/bin/python turns.py prepare --toollists DIR catalogs.jsonl dialogues.jsonl
    cargo run --release --example turn-evidence -- assets/toolsieve-e5.int8.bin catalogs.jsonl dialogues.jsonl > evidence.jsonl
    venv/bin/python turns.py fit evidence.jsonl ../gate.json ../turn.json

`prepare` puts dialogues together: requests of messages.jsonl, invented.jsonl and notool.jsonl, answers and last turns of
turns.jsonl, the same in fifteen languages, whole dialogues of dialogues.jsonl and dialogues_languages.jsonl, and of the first half of the project's own test dialogues (the lines with odd
numbers; the other half is held out and never read here). Each is put before catalogues of several sizes. `fit` is a logistic
regression; the dialogues of the first half, each left out with its neighbours once, set the threshold. The gate's margins, which are among the
signals, are those of the given gate, so the program that wrote the evidence need not have it.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import data
import numpy
from gate import SIGNALS
from scipy.optimize import minimize

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent.parent / "tests"
SEED = 7
SIZES = [2, 4, 8, 16, 32]
# Words weigh about as much as a vector does.
GRAM_SCALE = 3.0
# As in `turn_head.rs`.
LARGEST_MARGIN = 8.0
TURN_SIGNALS = ["asks", "offers", "question", "courtesy", "margin_alone", "margin_in_context"]

# Whether a turn of a kind needs a tool after an answer of a kind; pairs that may mean either are left out.
NONE = ["courtesy", "decline", "chatter", "opinion", "creative", "meta", "rewrite", "idle"]
NEEDS: dict[str, dict[str, bool]] = {
    "done": {**dict.fromkeys([*NONE, "ack"], False), "follow": True, "new": True},
    "offer": {**dict.fromkeys(NONE, False), "confirm": True, "assent": True, "follow": True, "new": True},
    "ask": {**dict.fromkeys(NONE, False), "answer": True, "follow": True, "new": True},
    "chat": {**dict.fromkeys([*NONE, "ack", "confirm", "answer", "neutral"], False), "new": True},
}
COUNTS = {"done": 12000, "offer": 5600, "ask": 2600, "chat": 4400}
ENGLISH = 0.45
"""The share of English among the dialogues that are put together."""
# Words of a message of which nothing stands for something said before, for the head to judge it.
LONGEST = 6
# Words of [ack] that accept an offer.
ASSENT = {
    "ok", "okay", "ok.", "k", "alright", "all right", "fine", "fine by me", "good", "great", "great!", "perfect", "perfect!", "excellent",
    "super", "cool", "works for me", "looks good", "looks good to me", "that works", "that's fine", "👍", "👌", "ok 👍", "ok good", "ok great",
}
# Follow-ups that ask for more of whatever there was, of a poem as of a list.
NEUTRAL = {
    "try again", "try that again", "try it once more", "once more", "again", "again please", "do it again", "one more time", "undo that",
    "the first one", "the second one", "the third", "the last one", "the first", "the second", "number two", "number 3", "the other one",
    "not that one, the other one", "show me more", "next", "the next one please", "and the one after that", "try a different one",
    "same for Bob", "same for Anna please", "and one for me", "create another one", "add another one", "add two more", "read it to me",
    "call it summary instead", "bigger", "faster", "compare the two", "use the other one",
}


def servers(folder: Path) -> dict[str, list[dict]]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        tools = json.loads(path.read_text(encoding="utf-8"))["tools"]
        found[path.stem] = [{key: tool[key] for key in ("name", "description", "inputSchema") if key in tool} for tool in tools]
    return found


def own_servers() -> dict[str, list[dict]]:
    found = {}
    for name, server in json.loads((TESTS / "data/scenario_servers.json").read_text(encoding="utf-8")).items():
        found[name] = server["tools"]
    for line in data.lines(FOLDER / "invented.jsonl"):
        tools = [{"name": tool["name"], "description": tool["description"], "inputSchema": {"type": "object"}} for tool in line["tools"]]
        found[line["server"]] = tools
    return found


@dataclass
class Language:
    """What dialogues in one language are put together of."""

    requests: list[tuple[str, str, str]] = field(default_factory=list)
    chatter: list[str] = field(default_factory=list)
    turns: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def english(cls) -> Language:
        made = cls([("real", line["server"], line["query"]) for line in data.lines(FOLDER / "messages.jsonl")])
        for line in data.lines(FOLDER / "invented.jsonl"):
            made.requests += [("own", line["server"], message) for tool in line["tools"] for message in tool["messages"]]
        made.chatter = [line["query"] for line in data.lines(FOLDER / "notool.jsonl")]
        for line in data.lines(FOLDER / "turns.jsonl"):
            made.add_turn({**line, "assent": line["text"] in ASSENT, "neutral": line["text"] in NEUTRAL})
        return made

    def add_turn(self, line: dict) -> None:
        if "turn" not in line:
            self.answers[line["answer"]].append(line["text"])
            return
        self.turns[line["turn"]].append(line["text"])
        if line["turn"] == "ack" and line.get("assent"):
            self.turns["assent"].append(line["text"])
        if line["turn"] == "follow" and line.get("neutral"):
            self.turns["neutral"].append(line["text"])

    def complete(self) -> None:
        """Short messages that can stand alone too."""
        self.turns["idle"] = [text for text in self.chatter if len(text.split()) <= LONGEST and len(text) <= 60]
        self.turns["new"] += [text for _, _, text in self.requests if len(text.split()) <= 7 and len(text) <= 70]


def prepare(options: argparse.Namespace) -> None:
    draw = random.Random(SEED)
    pools = {"real": servers(options.toollists), "own": own_servers()}
    catalogs: dict[str, tuple[str, set[str]]] = {}
    for pool, known in pools.items():
        names = sorted(known)
        for size in SIZES:
            for number in range(3):
                catalogs[f"{pool}-{size}-{number}"] = (pool, set(draw.sample(names, size)))
        catalogs[f"{pool}-all"] = (pool, set(names))
    with options.catalogs.open("w", encoding="utf-8") as file:
        for name, (pool, members) in catalogs.items():
            line = {"catalog": name, "servers": [{"server": server, "tools": pools[pool][server]} for server in sorted(members)]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def with_server(pool: str, wanted: set[str]) -> list[str]:
        return [name for name, (of, members) in catalogs.items() if of == pool and members & wanted]

    spoken = {"en": Language.english()}
    for line in data.lines(FOLDER / "turns_languages.jsonl"):
        spoken.setdefault(line["lang"], Language()).add_turn(line)
    for line in data.lines(FOLDER / "languages.jsonl"):
        pool = "real" if line["server"] in pools["real"] else "own"
        if line["server"] in pools[pool]:
            spoken[line["lang"]].requests.append((pool, line["server"], line["query"]))
    for name in ("notool_languages", "notool_everyday"):
        for line in data.lines(FOLDER / f"{name}.jsonl"):
            spoken[line.get("lang", "en")].chatter.append(line["query"])
    others = sorted(set(spoken) - {"en"})
    for language in spoken.values():
        language.complete()

    written = 0
    with options.dialogues.open("w", encoding="utf-8") as file:

        def write(messages: list[tuple[str, str]], needs: bool, kind: str, source: str, catalog: str, group: str) -> None:
            nonlocal written
            written += 1
            line = {"messages": [{"role": role, "content": text} for role, text in messages], "needs": needs, "kind": kind}
            file.write(json.dumps({**line, "source": source, "catalog": catalog, "group": group}, ensure_ascii=False) + "\n")

        for state, count in COUNTS.items():
            for number in range(count):
                language = spoken["en" if draw.random() < ENGLISH else draw.choice(others)]
                # Half of the turns need a tool wherever some do.
                wanted = number % 2 == 0 if state != "chat" else False
                kinds = sorted(kind for kind in NEEDS[state] if language.turns[kind])
                fitting = [kind for kind in kinds if NEEDS[state][kind] == wanted and (kind != "new" or draw.random() < 0.4)]
                kind = draw.choice(fitting or kinds)
                if state == "chat":
                    pool, server, request = draw.choice(["real", "own"]), None, draw.choice(language.chatter)
                else:
                    pool, server, request = draw.choice(language.requests)
                among = [name for name, (of, _) in catalogs.items() if of == pool] if server is None else with_server(pool, {server})
                messages = [("user", request), ("assistant", draw.choice(language.answers[state])), ("user", draw.choice(language.turns[kind]))]
                write(messages, NEEDS[state][kind], kind, "made", draw.choice(among), f"made-{number}")
        whole = [*data.lines(FOLDER / "dialogues.jsonl"), *data.lines(FOLDER / "dialogues_languages.jsonl")]
        for at, line in enumerate(whole):
            messages = [(message["role"], message["content"]) for message in line["messages"]]
            fitting = with_server("real", {line["server"]})
            for catalog in draw.sample(fitting, min(3, len(fitting))):
                # Those in other languages count for the threshold, too: the test's own first half is English.
                group = f"chosen-other-{at}" if "lang" in line else f"dialogue-{at}"
                write(messages, True, line["turn_kind"], "dialogues", catalog, group)
        for at, line in enumerate(data.lines(TESTS / "cases/dialogues/dialogues.jsonl")):
            if at % 2:
                continue
            before = [(message["role"], message["content"]) for message in line["messages"]]
            for turn in line["turns"]:
                for pool in pools:
                    if turn["needs"] and pool not in turn:
                        continue
                    wanted = {tool.split("::")[0] for other in line["turns"] for tool in other.get(pool, [])}
                    fitting = with_server(pool, {tool.split("::")[0] for tool in turn[pool]} if turn["needs"] else wanted or set(pools[pool]))
                    chosen = {f"{pool}-all", *draw.sample(fitting, min(2, len(fitting)))}
                    for catalog in sorted(chosen):
                        write([*before, ("user", turn["text"])], turn["needs"], turn["kind"], "chosen", catalog, f"chosen-{at}")
    print(f"{len(catalogs)} catalogues, {written} dialogues")


def load(path: Path) -> tuple[str, list[dict], dict[str, numpy.ndarray]]:
    model, rows, vectors = "", [], {}
    with path.open(encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "model" in line:
                model = line["model"]
            elif "vector" in line:
                vectors[line["text"]] = numpy.array(line["vector"], numpy.float32)
            else:
                rows.append(line)
    return model, rows, vectors


def words(text: str) -> list[str]:
    """As `turn_head.rs` has them."""
    found = re.findall(r"\w+|[?!]", text.lower().replace("'", "").replace("’", ""))
    return ["^", *found[:24], "$"]


def grams(text: str) -> set[str]:
    single = words(text)
    return {*single, *(f"{one} {other}" for one, other in zip(single, single[1:], strict=False))}


def courtesies() -> dict[tuple[str, ...], str]:
    phrases: dict[tuple[str, ...], str] = {}
    for line in (FOLDER.parent.parent / "src/domain/selection/relevance/courtesies.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            _, kind, phrase = line.split("\t")
            key = tuple(words(phrase)[1:-1])
            phrases[key] = "assent" if "assent" in (kind, phrases.get(key)) else "courtesy"
    return phrases


def share(text: str, phrases: dict[tuple[str, ...], str]) -> float:
    """The share of the words that are courtesies."""
    said = [word for word in words(text)[1:-1] if word not in "?!"]
    covered = [False] * len(said)
    for start in range(len(said)):
        ends = [end for end in range(start + 1, min(len(said), start + 8) + 1) if tuple(said[start:end]) in phrases]
        for place in range(start, max(ends, default=start)):
            covered[place] = True
    return sum(covered) / max(1, len(said))


def listed(text: str, phrases: dict[tuple[str, ...], str]) -> set[str] | None:
    """The kinds of the courtesies that a message is made of; nothing if it says more."""
    said = [word for word in words(text)[1:-1] if word not in "?!"]
    if not said:
        return {"assent"} if set(text) & set("👍👌✅🆗") else {"courtesy"}
    reached: list[set[str] | None] = [set(), *[None] * len(said)]
    for start in range(len(said)):
        if (before := reached[start]) is not None:
            for end in range(start + 1, min(len(said), start + 8) + 1):
                kind = phrases.get(tuple(said[start:end]))
                if kind and reached[end] is None:
                    reached[end] = before | {kind}
    return reached[-1]


def minimise(inputs: numpy.ndarray, needs: numpy.ndarray, weight: numpy.ndarray, ridge: numpy.ndarray) -> numpy.ndarray:
    """A logistic regression by L-BFGS."""
    sign = 2 * needs.astype(numpy.float32) - 1

    def loss(weights: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        margin = sign * (inputs @ weights.astype(numpy.float32))
        value = (weight * numpy.logaddexp(0, -margin)).sum() + 0.5 * (ridge * weights * weights).sum()
        slope = (weight * sign / (1 + numpy.exp(numpy.clip(margin, -40, 40)))).astype(numpy.float32)
        return float(value), ridge * weights - inputs.T @ slope

    return minimize(loss, numpy.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200}).x


class Inputs:
    """What a head sees of each row: signals, words, vectors."""

    def __init__(self, rows: list[dict], vectors: dict[str, numpy.ndarray], common: int) -> None:
        self.phrases = courtesies()
        for row in rows:
            row["turn"]["courtesy"] = share(row["message"], self.phrases)
        counts = Counter(gram for message in {row["message"] for row in rows} for gram in grams(message))
        self.grams = {gram: at for at, gram in enumerate(sorted(gram for gram, count in counts.items() if count >= common))}
        names = [("alone", name) for name in SIGNALS] + [("in_context", name) for name in SIGNALS] + [("turn", name) for name in TURN_SIGNALS]
        signals = numpy.array([[row[part][name] for part, name in names] for row in rows], numpy.float32)
        self.mean, self.spread = signals.mean(0), signals.std(0) + 1e-6
        self.is_open = numpy.array([[float(row["turn"]["asks"] + row["turn"]["offers"] > 0)] for row in rows], numpy.float32)
        said = numpy.zeros((len(rows), len(self.grams)), numpy.float32)
        for at, row in enumerate(rows):
            known = [self.grams[gram] for gram in grams(row["message"]) if gram in self.grams]
            said[at, known] = GRAM_SCALE / max(1, len(known)) ** 0.5
        message = numpy.array([vectors[row["message"]] for row in rows])
        context = numpy.array([vectors[row["context"]] for row in rows])
        self.width = message.shape[1]
        self.scale = self.width**0.5
        blocks = [numpy.ones((len(rows), 1)), (signals - self.mean) / self.spread, said, self.is_open * said]
        blocks += [message * self.scale, self.is_open * message * self.scale, context * self.scale]
        self.sizes = [block.shape[1] for block in blocks]
        self.all = numpy.hstack(blocks).astype(numpy.float32)

    def ridge(self, options: argparse.Namespace) -> numpy.ndarray:
        penalties = [1e-6, options.ridge, options.word_ridge, options.word_ridge, options.vector_ridge, options.vector_ridge, options.context_ridge]
        return numpy.concatenate([numpy.full(size, penalty) for size, penalty in zip(self.sizes, penalties, strict=True)])

    def decided(self, rows: list[dict]) -> numpy.ndarray:
        """What the list of courtesies decides: an infinite score, or nothing."""
        scores = numpy.full(len(rows), numpy.nan)
        for at, row in enumerate(rows):
            kinds = listed(row["message"], self.phrases)
            if kinds is not None and (not self.is_open[at, 0] or "assent" not in kinds):
                scores[at] = -numpy.inf
            elif kinds == {"assent"}:
                scores[at] = numpy.inf
        return scores

    def parts(self, weights: numpy.ndarray) -> dict:
        _, signals, plain, if_open, message, message_if_open, context = numpy.split(weights, numpy.cumsum(self.sizes)[:-1])
        own = signals / self.spread
        part = lambda start, names: {name: round(float(value), 5) for name, value in zip(names, own[start : start + len(names)], strict=True)}
        both = numpy.stack([plain, if_open], 1) * GRAM_SCALE
        vector = lambda values: [round(float(value), 4) for value in values * self.scale]
        return {
            "bias": round(float(weights[0] - own @ self.mean), 5),
            "alone": part(0, SIGNALS),
            "in_context": part(len(SIGNALS), SIGNALS),
            "turn": part(2 * len(SIGNALS), TURN_SIGNALS),
            "grams": {gram: [round(float(value), 3) for value in both[at]] for gram, at in self.grams.items()},
            "message": vector(message),
            "message_if_open": vector(message_if_open),
            "context": vector(context),
        }


def set_margins(rows: list[dict], vectors: dict[str, numpy.ndarray], gate: dict) -> None:
    """Sets the gate's margins, as `gate_head.rs` has them."""
    units = [gate, *gate["hidden"]]
    direction = numpy.array([unit["direction"] for unit in units], numpy.float32)
    weights = numpy.array([[unit["weights"][name] for name in SIGNALS] for unit in units], numpy.float32)
    bias, out = numpy.array([unit["bias"] for unit in units]), numpy.array([unit["out"] for unit in gate["hidden"]])
    along = {text: direction @ vector for text, vector in vectors.items()}
    for row in rows:
        for part, text in (("alone", "message"), ("in_context", "context")):
            scores = bias + weights @ [row[part][name] for name in SIGNALS] + along[row[text]]
            margin = float(scores[0] + out @ scores[1:].clip(0) - gate["threshold"])
            row["turn"][f"margin_{part}"] = max(-LARGEST_MARGIN, min(LARGEST_MARGIN, margin))


def train(options: argparse.Namespace) -> None:
    model, rows, vectors = load(options.evidence)
    gate = json.loads(options.gate.read_text(encoding="utf-8"))
    assert gate["model"] == model, "the gate is another model's"
    set_margins(rows, vectors, gate)
    inputs = Inputs(rows, vectors, options.common)
    ridge = inputs.ridge(options)
    needs = numpy.array([row["of"]["needs"] for row in rows])
    source = numpy.array([row["of"]["source"] for row in rows])
    group = numpy.array([row["of"]["group"] for row in rows])

    def weight(kept: numpy.ndarray) -> numpy.ndarray:
        each = kept.astype(float)
        for of, of_source in (("made", options.made), ("dialogues", 0.2), ("chosen", 1.0)):
            for kind in (True, False):
                of_kind = (source == of) & (needs == kind) & kept
                if of_kind.any():
                    each[of_kind] *= 1000 * of_source / of_kind.sum()
        return each[kept]

    everything = numpy.ones(len(rows), bool)
    weights = minimise(inputs.all, needs, weight(everything), ridge) if options.output else None

    # Each dialogue of the chosen half is judged by a head that has not seen it.
    scores = numpy.full(len(rows), numpy.nan)
    names = sorted({name for name in group if name.startswith("chosen-")})
    for fold in range(options.folds):
        out = numpy.isin(group, names[fold :: options.folds])
        scores[out] = inputs.all[out] @ minimise(inputs.all[~out], needs[~out], weight(~out), ridge)
    judged = ~numpy.isnan(scores)
    by_list = inputs.decided(rows)
    scores = numpy.where(numpy.isnan(by_list), scores, by_list)
    threshold = float(numpy.quantile(scores[judged & needs], 1 - options.keep))
    passed = scores >= threshold
    kept, silent = passed[judged & needs].mean(), 1 - passed[judged & ~needs].mean()
    before = numpy.array([row["gate"] for row in rows])
    print(f"left out: keeps {kept:.3f}, silences {silent:.3f}; before: {before[judged & needs].mean():.3f}, {1 - before[judged & ~needs].mean():.3f}")
    for other in (0.99, 0.97, 0.96, 0.95):
        print(f"  at {other} kept: {(scores[judged & ~needs] < numpy.quantile(scores[judged & needs], 1 - other)).mean():.3f} silenced")
    wrong: dict[tuple[str, str], list[float]] = defaultdict(list)
    kinds: dict[tuple[bool, str], list[bool]] = defaultdict(list)
    for row, score, is_judged in zip(rows, scores, judged, strict=True):
        if is_judged:
            kinds[row["of"]["needs"], row["of"]["kind"]].append(bool(score >= threshold))
            if (score >= threshold) != row["of"]["needs"]:
                wrong[row["of"]["kind"], row["message"]].append(round(float(score - threshold), 2))
    for (kind_needs, kind), of_kind in sorted(kinds.items()):
        print(f"  {'needs' if kind_needs else 'none '} {kind}: {numpy.mean(of_kind):.3f} passed of {len(of_kind)}")
    if options.wrong:
        for (kind, message), by in sorted(wrong.items()):
            print(f"    {kind}: {message} {by}")
    if weights is None:
        return
    head = {
        "model": model,
        "made": f"assets/training/turns.py; dialogues left out: keeps {kept:.3f} with a tool, silences {silent:.3f} without",
        **inputs.parts(weights),
        "threshold": round(threshold, 4),
    }
    text = json.dumps(head, indent=1, ensure_ascii=False)
    options.output.write_text(re.sub(r"(?<=[\[,\d])\n\s+(?=[-\d\]])", " ", text) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("--toollists", type=Path, required=True)
    preparing.add_argument("catalogs", type=Path)
    preparing.add_argument("dialogues", type=Path)
    preparing.set_defaults(run=prepare)
    fitting = commands.add_parser("fit")
    fitting.add_argument("evidence", type=Path)
    fitting.add_argument("gate", type=Path, help="the fitted gate")
    fitting.add_argument("output", type=Path, nargs="?")
    fitting.add_argument("--keep", type=float, default=0.97, help="share of left-out turns with a tool above the threshold")
    fitting.add_argument("--ridge", type=float, default=3.0, help="penalty on the signals' weights")
    fitting.add_argument("--vector-ridge", type=float, default=30.0, help="penalty on the message vector's weights")
    fitting.add_argument("--context-ridge", type=float, default=300.0, help="penalty on the context vector's weights")
    fitting.add_argument("--word-ridge", type=float, default=0.2, help="penalty on the words' weights")
    fitting.add_argument("--common", type=int, default=4, help="messages that a word or pair of words has to be in")
    fitting.add_argument("--made", type=float, default=1.0, help="weight of the dialogues that were put together")
    fitting.add_argument("--folds", type=int, default=4)
    fitting.add_argument("--wrong", action="store_true", help="lists what was judged wrongly")
    fitting.set_defaults(run=train)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
