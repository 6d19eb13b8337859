"""Makes the small multilingual models with random weights, and the vectors that transformers computes with them.

    python tests/models/make_multilingual.py        # needs torch, transformers, tokenizers

The vocabularies are trained on `tests/cases/encoder/scripts.txt`, except for two scripts that stay unknown. The trainers run on
several threads, so the vocabularies differ a little each time. The character map is made of Unicode's own compatibility mappings,
in the format of SentencePiece. `reference.json` is as in `make.py`.
"""

from __future__ import annotations

import base64
import json
import shutil
import unicodedata
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

from charsmap import LONGEST_SEQUENCE, charsmap
from weights import randomise

HERE = Path(__file__).parent
LINES = (HERE.parent / "cases" / "encoder" / "scripts.txt").read_text(encoding="utf-8").splitlines()
# Sinhala and Telugu.
TRAINED = [line for line in LINES if not any("\u0d80" <= letter <= "\u0dff" or "\u0c00" <= letter <= "\u0c7f" for letter in line)]
TEXTS = [*LINES[::3], LINES[-7], "", "  spaces\t\tand\u00a0\u3000more  ", "ක ఖ unknown\u2603ක\u2603", "word " * 80]
TOKENS = 64
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
RANGES = [(0xA0, 0x250), (0x300, 0x370), (0x600, 0x700), (0x1E00, 0x1F00), (0x2000, 0x2200), (0x2460, 0x2500), (0x3130, 0x3190)]
RANGES += [(0x3200, 0x3300), (0xFB00, 0xFB07), (0xFEF5, 0xFEFD), (0xFDF0, 0xFDFD), (0xFF01, 0xFFF0), (0x1F100, 0x1F120)]


def rules() -> dict[str, str]:
    """Sequences and their replacements: compositions, compatibility mappings, spaces, and characters that are removed."""
    found = {}
    for character in (chr(code) for first, end in RANGES for code in range(first, end)):
        composed, decomposed = unicodedata.normalize("NFKC", character), unicodedata.normalize("NFD", character)
        if composed != character:
            found[character] = composed
        if len(decomposed) > 1 and len(decomposed.encode()) <= LONGEST_SEQUENCE and unicodedata.normalize("NFC", decomposed) == character:
            found[decomposed] = composed
    found.update({character: " " for character in "\t\n\r\u00a0\u2581\u3000\u2028\u2029" + "".join(map(chr, range(0x2000, 0x200B)))})
    removed = [*range(1, 9), 11, *range(14, 32), 0x7F, 0xAD, 0x200B, 0x200E, 0x200F, 0xFEFF]
    found.update({chr(code): "" for code in removed})
    return found


def unigram(normalizer: list, pre_tokenizer: list) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(rules())), *normalizer])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer) if len(pre_tokenizer) > 1 else pre_tokenizer[0]
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TRAINED, trainer)
    made = json.loads(tokenizer.to_str())
    made["model"]["vocab"].append(["<mask>", 0.0])
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.add_special_tokens(["<mask>"])
    around = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    pair = "<s> $A </s> </s> $B </s>"
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=pair, special_tokens=around)
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TRAINED, trainers.WordPieceTrainer(vocab_size=900, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def plans() -> dict[str, dict]:
    metaspace = pre_tokenizers.Metaspace()
    split = [pre_tokenizers.WhitespaceSplit(), metaspace]
    collapse = normalizers.Replace(Regex(" {2,}"), " ")
    strip = [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    sizes = {"num_hidden_layers": 2, "hidden_act": "gelu"}
    wide = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 100, **sizes}
    small = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, **sizes}
    prompts = {"query": "query: ", "passage": "passage: "}
    names = {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    cased = {"do_lower_case": False, "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    return {
        "xlm-roberta": {
            "tokenizer": unigram([collapse], split),
            "settings": names,
            "pooling": "mean",
            "model": (XLMRobertaModel, XLMRobertaConfig(max_position_embeddings=TOKENS + 2, type_vocab_size=1, pad_token_id=1, **wide)),
        },
        "bert-unigram": {
            "tokenizer": unigram(strip, [metaspace]),
            "settings": names,
            "pooling": "mean",
            "prompts": prompts,
            "model": (BertModel, BertConfig(max_position_embeddings=TOKENS, pad_token_id=1, **small)),
        },
        "bert-scripts": {
            "tokenizer": word_piece(),
            "settings": cased,
            "pooling": "cls",
            "model": (BertModel, BertConfig(max_position_embeddings=TOKENS + 16, **wide)),
        },
    }


def vectors(model: torch.nn.Module, tokenizer: Tokenizer, pooling: str, prompt: str) -> list[list[float]]:
    found = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(prompt + text).ids])
        with torch.no_grad():
            rows = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        vector = rows.mean(0) if pooling == "mean" else rows[0]
        found.append([round(value, 6) for value in torch.nn.functional.normalize(vector, dim=0).tolist()])
    return found


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def make(name: str, plan: dict, seed: int) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tokenizer: Tokenizer = plan["tokenizer"]
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    kind, config = plan["model"]
    config.vocab_size = tokenizer.get_vocab_size() + 3
    torch.manual_seed(seed)
    model = kind(config, add_pooling_layer=False)
    randomise(model, torch.Generator().manual_seed(seed), spread=1.2)
    model.half().save_pretrained(folder)
    # The numbers as saved, computed with in float32.
    model = kind.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).eval()
    tokenizer.enable_truncation(TOKENS)
    parts = [("", "sentence_transformers.models.Transformer"), ("1_Pooling", "sentence_transformers.models.Pooling")]
    write(folder / "modules.json", [{"idx": at, "name": str(at), "path": path, "type": kind} for at, (path, kind) in enumerate(parts)])
    switches = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    chosen = {switch: pooling == plan["pooling"] for pooling, switch in switches.items()}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": config.hidden_size, **chosen})
    write(folder / "sentence_bert_config.json", {"max_seq_length": TOKENS, "do_lower_case": False})
    write(folder / "tokenizer_config.json", {"model_max_length": 512, **plan["settings"]})
    prompts = plan.get("prompts", {})
    if prompts:
        write(folder / "config_sentence_transformers.json", {"prompts": prompts})
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    query = vectors(model, tokenizer, plan["pooling"], prompts.get("query", ""))
    document = vectors(model, tokenizer, plan["pooling"], prompts.get("passage", ""))
    write(folder / "reference.json", {"texts": TEXTS, "ids": ids, "query": query, "document": document})
    apart = (torch.tensor(query) @ torch.tensor(query).T)[~torch.eye(len(TEXTS), dtype=torch.bool)]
    print(f"{name}: {tokenizer.get_vocab_size()} tokens, cosines of different texts {apart.min():.2f} to {apart.max():.2f}")


def main() -> None:
    encoded = base64.b64encode(charsmap(rules()))
    print(f"{len(rules())} rules, {len(encoded)} characters of base64")
    for seed, (name, plan) in enumerate(plans().items(), 1):
        make(name, plan, seed)


if __name__ == "__main__":
    main()
