"""LLaMA-Factory's trainers of preferences (llamafactory 0.9.5, with the trl 0.24 that it pins) and what its workflows hand them.

Both come into PYTHONPATH, beside the newer libraries that everything else runs with:

    pip install --no-deps --target DIR llamafactory==0.9.5 trl==0.24.0 omegaconf antlr4-python3-runtime==4.9.3
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from functools import partial
from importlib.machinery import ModuleSpec
from typing import Any

from step.model import build_model
from step.spec import Spec

STAGES = {"pairwise": "rm", "custom_dpo": "dpo", "custom_kto": "kto"}
TRAINERS = {"pairwise": "PairwiseTrainer", "custom_dpo": "CustomDPOTrainer", "custom_kto": "CustomKTOTrainer"}
IGNORED = -100  # extras/constants.py: IGNORE_INDEX


def names_to_import() -> list[str]:
    """The trainers, which come without audio, and with other versions of libraries than they ask for."""
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    audio = types.ModuleType("torchaudio")
    audio.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", audio)
    return [f"llamafactory.train.{STAGES[kind]}.trainer.{name}" for kind, name in TRAINERS.items()]


def name_checkpointed_modules() -> None:
    """Its checkpoints ask for the module whose method they run. transformers 5.6, the last that it takes, gives them the method;
    later ones give a function and the module.
    """
    from llamafactory.model.model_utils import checkpointing

    make = checkpointing.get_custom_gradient_checkpointing_func

    def make_for_functions(function: Any) -> Any:
        theirs = make(function)

        def run(forward: Any, *given: Any, **keywords: Any) -> Any:
            module, *rest = forward.args
            return theirs(partial(types.MethodType(forward.func, module), *rest, **forward.keywords), *given, **keywords)

        return run

    checkpointing.get_custom_gradient_checkpointing_func = make_for_functions


def finetuning_args(spec: Spec) -> Any:
    """FinetuningArguments as hparams/parser.py reads them."""
    from llamafactory.hparams import FinetuningArguments

    train, loop = spec["train"], spec["loop"]
    given = {"stage": STAGES[loop["kind"]], "finetuning_type": "lora" if train.get("lora") else "full", **loop.get("finetuning_args", {})}
    if lora := train.get("lora"):
        names = {"r": "lora_rank", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"}
        given |= {ours: lora[theirs] for theirs, ours in names.items() if theirs in lora}
        given["lora_target"] = ",".join(lora["target_modules"])
    return FinetuningArguments(**given)


def make_model(spec: Spec) -> Any:
    """load_model (model/loader.py), of weights that are made here in the published type."""
    from llamafactory.hparams import ModelArguments
    from llamafactory.model.adapter import init_adapter
    from llamafactory.model.model_utils.checkpointing import prepare_model_for_training
    from llamafactory.model.patcher import patch_valuehead_model
    from trl import AutoModelForCausalLMWithValueHead

    loop = spec["loop"]
    model = build_model({**spec, "train": {**spec["train"], "ckpt": None, "lora": None}}, "cpu")
    checkpointing = loop.get("ckpt")
    options = {"disable_gradient_checkpointing": not checkpointing, "use_reentrant_gc": checkpointing == "reentrant"}
    model_args = ModelArguments(model_name_or_path=".", **options)
    name_checkpointed_modules()
    prepare_model_for_training(model, model_args)
    model = init_adapter(model.config, model, model_args, finetuning_args(spec), True)
    if loop["kind"] == "pairwise":
        model = AutoModelForCausalLMWithValueHead.from_pretrained(model)
        patch_valuehead_model(model)
    return model.train()


def make_reference(spec: Spec) -> Any:
    """create_ref_model (train/trainer_utils.py); none: there is none, or it is the policy without its adapters."""
    kind = spec["loop"]["kind"]
    if kind == "pairwise" or spec["train"].get("lora") or (kind == "custom_dpo" and not finetuning_args(spec).use_ref_model):
        return None
    reference = build_model({**spec, "train": {**spec["train"], "ckpt": None}}, "cpu")
    return reference.requires_grad_(False).eval()


def make_collator(spec: Spec, tokenizer: Any, model: Any) -> Any:
    from llamafactory.data import collator
    from llamafactory.data.template import TEMPLATES

    is_kto = spec["loop"]["kind"] == "custom_kto"
    kind = collator.KTODataCollatorWithPadding if is_kto else collator.PairwiseDataCollatorWithPadding
    tokenizer.padding_side = "right"
    return kind(
        tokenizer=tokenizer, template=TEMPLATES["default"], model=model, pad_to_multiple_of=8, label_pad_token_id=IGNORED, processor=None
    )


def make_rows(kind: str, samples: list[dict[str, Any]], batch: int) -> list[dict[str, Any]]:
    """A data set's rows (data/processor/pairwise.py, feedback.py). Two answers to one prompt are equally long; of a micro-batch
    the mismatched answers are its own from the last to the first, and every other answer is wanted.
    """
    nothing = {"images": None, "videos": None, "audios": None}
    rows = []
    for i, sample in enumerate(samples):
        ids, labels = sample["input_ids"].tolist(), sample["labels"].tolist()
        if kind != "custom_kto":
            own = {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
            rows.append({f"{which}_{key}": value for which in ("chosen", "rejected") for key, value in own.items()} | nothing)
            continue
        first = i - i % batch
        other = samples[min(first + batch, len(samples)) - 1 - i % batch]["labels"].tolist()
        prompt, answer = sum(token == IGNORED for token in labels), sum(token != IGNORED for token in other)
        kl = {"kl_input_ids": ids[:prompt] + [5] * answer, "kl_attention_mask": [1] * (prompt + answer)}
        kl["kl_labels"] = [IGNORED] * prompt + [5] * answer
        own = {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
        rows.append(own | kl | {"kto_tags": i % batch % 2 == 0} | nothing)
    return rows


def make_trainer_class(kind: str) -> Any:
    module = importlib.import_module(f"llamafactory.train.{STAGES[kind]}.trainer")
    return getattr(module, TRAINERS[kind])
