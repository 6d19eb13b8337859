"""Makes the small models with random weights and the vectors that sentence-transformers computes with them.

    python tests/models/make.py        # needs torch, transformers, sentence-transformers

Each folder is one that sentence-transformers saves and loads, with a `reference.json` of texts and vectors beside it.
The models mean nothing; they differ in what an encoder can get wrong: sizes of heads and of the wide part that are no
power of two, pooling, activation, kind of numbers, casing, accents, prompts, where the tokenizer stands.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

from weights import randomise

HERE = Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "create an issue in the repository",
    "Send an email to Anna about the meeting on Friday!",
    "what time is it in Tokyo?",
    "read_file(path: string, limit: int)",
    "naïve café résumé, Ångström and ÜBER",
    "明天北京的天气怎么样",
    "weather",
    "GitHub GITHUB github",
    "",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 4,
    "unknown ☃ characters 😀 in between",
    "Delete the old backups, then list what is left; 3 of 10 are enough.",
]

MODELS = {
    "mean-uncased": {
        "config": {
            "hidden_size": 48,
            "num_attention_heads": 6,
            "intermediate_size": 100,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-5,
            "type_vocab_size": 1,
        },
        "pooling": "mean",
        "dtype": torch.float16,
        "tokenizer": {"do_lower_case": True},
    },
    "cls-cased": {
        "config": {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 144, "hidden_act": "relu"},
        "pooling": "cls",
        "dtype": torch.bfloat16,
        "tokenizer": {"do_lower_case": False},
        "vocabulary": True,
        "prompts": {"query": "query: ", "passage": "passage: "},
    },
    "max-accents": {
        "config": {"hidden_size": 60, "num_attention_heads": 4, "intermediate_size": 96, "hidden_act": "gelu"},
        "pooling": "max",
        "dtype": torch.float32,
        "folder": "0_Transformer",
        "tokenizer": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    },
}


def vocabulary() -> list[str]:
    """Words of the texts as they are and in small letters, and every character alone and as a continuation."""
    words = sorted({word for text in TEXTS for word in text.split() if word.isascii() and word.isalnum()})
    words += [word.lower() for word in words if word.lower() not in words]
    characters = sorted({character for text in TEXTS for character in text + text.lower() if character not in " 😀☃"})
    pieces = [word[3:] for word in words if len(word) > 6]
    tokens = [*SPECIAL, *words, *characters, *(f"##{piece}" for piece in [*characters, *pieces])]
    return list(dict.fromkeys(tokens))


def make(name: str, plan: dict, seed: int) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    scratch = HERE / ".scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    (scratch / "vocab.txt").write_text("\n".join(vocabulary()) + "\n")
    tokenizer = BertTokenizerFast(vocab=str(scratch / "vocab.txt"), model_max_length=64, **plan["tokenizer"])
    config = BertConfig(
        vocab_size=len(vocabulary()) + 3, num_hidden_layers=2, max_position_embeddings=80, **plan["config"]
    )
    # Of the pooler, which nobody uses and the library adds.
    torch.manual_seed(seed)
    bert = BertModel(config, add_pooling_layer=False)
    randomise(bert, torch.Generator().manual_seed(seed), spread=1.6)
    bert.to(plan["dtype"]).save_pretrained(scratch / "bert")
    tokenizer.save_pretrained(scratch / "bert")

    transformer = Transformer(str(scratch / "bert"), max_seq_length=64, model_kwargs={"dtype": plan["dtype"]})
    pooling = Pooling(plan["config"]["hidden_size"], pooling_mode=plan["pooling"])
    model = SentenceTransformer(modules=[transformer, pooling, Normalize()], prompts=plan.get("prompts"), device="cpu")
    model.save(str(folder), create_model_card=False)
    # The numbers as saved, computed with in float32.
    exact = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    roles = {"query": "query", "document": "passage"} if plan.get("prompts") else {"query": None, "document": None}

    def encoded(prompt: str | None) -> list[list[float]]:
        vectors = exact.encode(TEXTS, prompt_name=prompt, normalize_embeddings=True, batch_size=1)
        return vectors.astype(float).round(7).tolist()

    vectors = {role: encoded(prompt) for role, prompt in roles.items()}
    ids = [exact.tokenizer(text, truncation=True, max_length=64)["input_ids"] for text in TEXTS]
    cosines = torch.tensor(vectors["query"]) @ torch.tensor(vectors["query"]).T
    apart = cosines[~torch.eye(len(TEXTS), dtype=torch.bool)]
    print(f"{name}: cosines of different texts {apart.min():.2f} to {apart.max():.2f}, mean {apart.mean():.2f}")

    if plan.get("vocabulary"):
        shutil.copy(scratch / "vocab.txt", folder / "vocab.txt")
        (folder / "tokenizer.json").unlink()
    if part := plan.get("folder"):
        # As older releases lay the files out.
        (folder / part).mkdir()
        for file in list(folder.glob("*")):
            if file.is_file() and file.name not in {"modules.json", "config_sentence_transformers.json", "README.md"}:
                file.rename(folder / part / file.name)
        modules = json.loads((folder / "modules.json").read_text())
        modules[0]["path"] = part
        (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    (folder / "README.md").unlink(missing_ok=True)
    reference = {"texts": TEXTS, "ids": ids, **vectors}
    (folder / "reference.json").write_text(json.dumps(reference, ensure_ascii=False) + "\n")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    for seed, (name, plan) in enumerate(MODELS.items(), 1):
        make(name, plan, seed)
