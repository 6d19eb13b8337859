#!/usr/bin/env python3
"""The gate's head for messages that lean on the turns before them: does this turn need a tool?

    venv/bin/python turns.py prepare --toollists DIR catalogs.jsonl dialogues.jsonl
    cargo run --release --example turn-evidence -- assets/toolsieve-minilm.int8.bin catalogs.jsonl dialogues.jsonl > evidence.jsonl
    venv/bin/python turns.py fit evidence.jsonl ../turn.json

`prepare` puts dialogues together: requests of messages.jsonl, invented.jsonl and notool.jsonl, answers and last turns of
turns.jsonl, whole dialogues of dialogues.jsonl and of the first half of the project's own test dialogues (the lines with odd
numbers; the other half is held out and never read here). Each is put before catalogues of several sizes. `fit` is a logistic
regression; the dialogues of the first half, each left out with its neighbours once, set the threshold.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

import data
import numpy
from gate import SIGNALS, fit

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent.parent / "tests"
SEED = 7
SIZES = [2, 4, 8, 16, 32]
TURN_SIGNALS = ["asks", "offers", "question", "margin_alone", "margin_in_context"]

# Whether a turn of a kind needs a tool after an answer of a kind; pairs that may mean either are left out.
NONE = ["courtesy", "decline", "chatter", "opinion", "creative", "meta", "rewrite"]
NEEDS: dict[str, dict[str, bool]] = {
    "done": {**dict.fromkeys([*NONE, "ack"], False), "follow": True, "new": True},
    "offer": {**dict.fromkeys(NONE, False), "confirm": True, "assent": True, "follow": True, "new": True},
    "ask": {**dict.fromkeys(NONE, False), "answer": True, "follow": True, "new": True},
    "chat": {**dict.fromkeys([*NONE, "ack", "confirm", "answer", "neutral"], False), "new": True},
}
COUNTS = {"done": 5200, "offer": 3000, "ask": 1500, "chat": 2600}
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

    requests = [("real", line["server"], line["query"]) for line in data.lines(FOLDER / "messages.jsonl")]
    for line in data.lines(FOLDER / "invented.jsonl"):
        requests += [("own", line["server"], message) for tool in line["tools"] for message in tool["messages"]]
    chatter = [line["query"] for line in data.lines(FOLDER / "notool.jsonl")]
    turns, answers = defaultdict(list), defaultdict(list)
    for line in data.lines(FOLDER / "turns.jsonl"):
        if "turn" in line:
            turns[line["turn"]].append(line["text"])
        else:
            answers[line["answer"]].append(line["text"])
    turns["assent"] = [text for text in turns["ack"] if text in ASSENT]
    turns["neutral"] = [text for text in turns["follow"] if text in NEUTRAL]

    written = 0
    with options.dialogues.open("w", encoding="utf-8") as file:

        def write(messages: list[tuple[str, str]], needs: bool, kind: str, source: str, catalog: str, group: str) -> None:
            nonlocal written
            written += 1
            line = {"messages": [{"role": role, "content": text} for role, text in messages], "needs": needs, "kind": kind}
            file.write(json.dumps({**line, "source": source, "catalog": catalog, "group": group}, ensure_ascii=False) + "\n")

        for state, count in COUNTS.items():
            kinds = sorted(NEEDS[state])
            for number in range(count):
                # Half of the turns need a tool wherever some do.
                wanted = number % 2 == 0 if state != "chat" else False
                kind = draw.choice([kind for kind in kinds if NEEDS[state][kind] == wanted and (kind != "new" or draw.random() < 0.2)] or kinds)
                if state == "chat":
                    pool, server, request = draw.choice(["real", "own"]), None, draw.choice(chatter)
                else:
                    pool, server, request = draw.choice(requests)
                fitting = [name for name, (of, _) in catalogs.items() if of == pool] if server is None else with_server(pool, {server})
                messages = [("user", request), ("assistant", draw.choice(answers[state])), ("user", draw.choice(turns[kind]))]
                write(messages, NEEDS[state][kind], kind, "made", draw.choice(fitting), f"made-{number}")
        for at, line in enumerate(data.lines(FOLDER / "dialogues.jsonl")):
            messages = [(message["role"], message["content"]) for message in line["messages"]]
            fitting = with_server("real", {line["server"]})
            for catalog in draw.sample(fitting, min(3, len(fitting))):
                write(messages, True, line["turn_kind"], "dialogues", catalog, f"dialogue-{at}")
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


def features(rows: list[dict], vectors: dict[str, numpy.ndarray]) -> numpy.ndarray:
    """Signals first, then the vectors; the turn's signals are the last ones before them."""
    names = [("alone", name) for name in SIGNALS] + [("in_context", name) for name in SIGNALS] + [("turn", name) for name in TURN_SIGNALS]
    signals = numpy.array([[row[part][name] for part, name in names] for row in rows])
    message = numpy.array([vectors[row["message"]] for row in rows])
    context = numpy.array([vectors[row["context"]] for row in rows])
    is_open = numpy.array([[float(row["turn"]["asks"] + row["turn"]["offers"] > 0)] for row in rows])
    return numpy.hstack([signals, message, is_open * message, context])


def train(options: argparse.Namespace) -> None:
    model, rows, vectors = load(options.evidence)
    raw = features(rows, vectors)
    needs = numpy.array([row["of"]["needs"] for row in rows])
    source = numpy.array([row["of"]["source"] for row in rows])
    group = numpy.array([row["of"]["group"] for row in rows])
    count = 2 * len(SIGNALS) + len(TURN_SIGNALS)
    width = (raw.shape[1] - count) // 3
    mean, spread = raw[:, :count].mean(0), raw[:, :count].std(0) + 1e-6
    scale = numpy.sqrt(width)
    inputs = numpy.hstack([numpy.ones((len(rows), 1)), (raw[:, :count] - mean) / spread, raw[:, count:] * scale])
    ridge = numpy.concatenate([[0.0], numpy.full(count, options.ridge), numpy.full(2 * width, options.vector_ridge), numpy.full(width, options.context_ridge)])

    def weight(kept: numpy.ndarray) -> numpy.ndarray:
        each = kept.astype(float)
        for of, share in (("made", 1.0), ("dialogues", 0.15), ("chosen", 1.0)):
            for kind in (True, False):
                of_kind = (source == of) & (needs == kind) & kept
                if of_kind.any():
                    each[of_kind] *= 1000 * share / of_kind.sum()
        return each

    # Each dialogue of the chosen half is judged by a head that has not seen it.
    scores = numpy.full(len(rows), numpy.nan)
    folds = sorted({name for name in group if name.startswith("chosen-")})
    for fold in range(options.folds):
        out = numpy.isin(group, folds[fold :: options.folds])
        scores[out] = inputs[out] @ fit(inputs[~out], needs[~out].astype(float), weight(~out)[~out], ridge)
    judged = ~numpy.isnan(scores)
    threshold = float(numpy.quantile(scores[judged & needs], 1 - options.keep))
    kept = (scores[judged & needs] >= threshold).mean()
    silent = (scores[judged & ~needs] < threshold).mean()
    before = numpy.array([row["gate"] for row in rows])
    print(f"left out: keeps {kept:.3f}, silences {silent:.3f}; before: {before[judged & needs].mean():.3f}, {1 - before[judged & ~needs].mean():.3f}")
    wrong: dict[tuple[str, str], list[float]] = defaultdict(list)
    kinds: dict[tuple[bool, str], list[bool]] = defaultdict(list)
    for row, score, is_judged in zip(rows, scores, judged, strict=True):
        if is_judged:
            kinds[row["of"]["needs"], row["of"]["kind"]].append(bool(score >= threshold))
            if (score >= threshold) != row["of"]["needs"]:
                wrong[row["of"]["kind"], row["message"]].append(round(float(score - threshold), 2))
    for (kind_needs, kind), passed in sorted(kinds.items()):
        print(f"  {'needs' if kind_needs else 'none '} {kind}: {numpy.mean(passed):.3f} passed of {len(passed)}")
    if options.wrong:
        for (kind, message), by in sorted(wrong.items()):
            print(f"    {kind}: {message} {by}")

    weights = fit(inputs, needs.astype(float), weight(numpy.ones(len(rows), bool)), ridge)
    own = weights[1 : 1 + count] / spread
    part = lambda start, names: {name: round(float(value), 5) for name, value in zip(names, own[start : start + len(names)], strict=True)}
    vector = weights[1 + count :] * scale
    head = {
        "model": model,
        "made": f"assets/training/turns.py; dialogues left out: keeps {kept:.3f} with a tool, silences {silent:.3f} without",
        "bias": round(float(weights[0] - own @ mean), 5),
        "alone": part(0, SIGNALS),
        "in_context": part(len(SIGNALS), SIGNALS),
        "turn": part(2 * len(SIGNALS), TURN_SIGNALS),
        **{name: [round(float(value), 4) for value in vector[at * width : (at + 1) * width]] for at, name in enumerate(["message", "message_if_open", "context"])},
        "threshold": round(threshold, 4),
    }
    options.output.write_text(json.dumps(head, indent=1).replace(",\n  ", ", ").replace("[\n  ", "[") + "\n", encoding="utf-8")


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
    fitting.add_argument("output", type=Path)
    fitting.add_argument("--keep", type=float, default=0.98, help="share of left-out turns with a tool above the threshold")
    fitting.add_argument("--ridge", type=float, default=3.0, help="penalty on the signals' weights")
    fitting.add_argument("--vector-ridge", type=float, default=10.0, help="penalty on the message vector's weights")
    fitting.add_argument("--context-ridge", type=float, default=40.0, help="penalty on the context vector's weights")
    fitting.add_argument("--folds", type=int, default=12)
    fitting.add_argument("--wrong", action="store_true", help="lists what was judged wrongly")
    fitting.set_defaults(run=train)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
