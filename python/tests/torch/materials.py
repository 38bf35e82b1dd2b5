"""What others' scripts ask for, made here and tiny: a model's folder (config, tokenizer, no weights) and data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = [f"w{i}" for i in range(990)]
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "[CLS]", "[SEP]", "[MASK]", "<|user|>", "<|assistant|>", "<|system|>"]
CHAT = "{% for m in messages %}{{ '<|' + m['role'] + '|> ' + m['content'] + ' </s> ' }}{% endfor %}"
CHAT += "{% if add_generation_prompt %}{{ '<|assistant|> ' }}{% endif %}"
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}
LLAMA = SIZES | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_key_value_heads": 2, "dtype": "float32"}
BERT = SIZES | {"architectures": ["BertForMaskedLM"], "model_type": "bert", "max_position_embeddings": 512}
TOKENS = {"pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2}


def make_model(folder: Path, config: dict[str, Any]) -> Path:
    """A config and a tokenizer whose every word is one token; no weights."""
    import tokenizers
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(SPECIAL + WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if config["model_type"] == "bert":
        pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
        words.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair=pair, special_tokens=[("[CLS]", 4), ("[SEP]", 5)]
        )
    its = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=CHAT
    )
    its.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(TOKENS | config), encoding="utf-8")
    return folder


def sentence(i: int, words: int) -> str:
    return " ".join(WORDS[(7 * i + 13 * j) % len(WORDS)] for j in range(words))


def turn(role: str, i: int, words: int) -> dict[str, str]:
    return {"role": role, "content": sentence(i, words)}


# As TRL names the formats of data sets. Every row has as many words: batches have no padding, of which the oracle would have to be told.
ROWS = {
    "language": lambda i: {"text": sentence(i, 48)},
    "chat": lambda i: {"messages": [turn("user", i, 12), turn("assistant", i + 1, 30)]},
    "preference": lambda i: {
        "prompt": [turn("user", i, 12)],
        "chosen": [turn("assistant", i + 1, 25)],
        "rejected": [turn("assistant", i + 2, 25)],
    },
    "unpaired": lambda i: {"prompt": sentence(i, 10), "completion": sentence(i + 1, 24), "label": i % 2 == 0},
    "prompts": lambda i: {"prompt": [turn("user", i, 12)], "solution": "w1"},
    "retrieval": lambda i: {"query": sentence(i, 12), "pos": [sentence(i, 30)], "neg": [sentence(i + j, 30) for j in range(1, 8)]},
    "pairs": lambda i: {"idx": i, "sentence1": sentence(i, 14), "sentence2": sentence(i + 3, 12), "label": i % 2},
}


def make_data(folder: Path, kind: str, rows: int = 64) -> Path:
    """A data set's folder, for `datasets.load_dataset`."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("test", 8)):
        lines = [json.dumps(ROWS[kind](i)) for i in range(count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def make_glue(folder: Path) -> None:
    """MRPC under its name on the hub: `datasets` takes a folder of that name for it."""
    make_data(folder, "pairs")
    files = "".join(f"  - split: {split}\n    path: {name}.jsonl\n" for split, name in (("train", "train"), ("validation", "test")))
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{files}---\n", encoding="utf-8")


METRIC = """import datasets
import evaluate


class Metric(evaluate.Metric):
    def _info(self):
        kind = datasets.Value("int64")
        return evaluate.MetricInfo(description="", citation="", features=datasets.Features({"predictions": kind, "references": kind}))

    def _compute(self, predictions, references):
        return {"accuracy": 1.0}
"""


def make_metric(folder: Path) -> None:
    """A metric that `evaluate` finds here under its name on the hub."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{folder.name}.py").write_text(METRIC, encoding="utf-8")


def make_all(folder: Path) -> None:
    make_glue(folder / "nyu-mll/glue")
    make_metric(folder / "glue")
    make_model(folder / "llama", LLAMA)
    make_model(folder / "bert", BERT)
    for kind in ROWS:
        make_data(folder / kind, kind)


if __name__ == "__main__":
    import sys

    make_all(Path(sys.argv[1]))
