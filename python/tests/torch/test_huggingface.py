"""Jobs from live objects are those of the same things as files."""

import json
from pathlib import Path
from typing import Any

import oometer
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}


@pytest.fixture
def model() -> Any:
    with torch.device("meta"):
        return transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**SIZES), dtype=torch.bfloat16)


def arguments(**given: Any) -> Any:
    return transformers.TrainingArguments("out", report_to="none", save_strategy="no", max_steps=3, use_cpu=True, **given)


def test_a_config_alone_is_a_plain_step() -> None:
    job = oometer.job_from(transformers.LlamaConfig(**SIZES), sequence_length=128)
    assert (
        oometer.estimate(job).peak
        == oometer.estimate({"version": 1, "model": {"config": SIZES | {"model_type": "llama"}}, "data": {"sequence_length": 128}}).peak
    )


def test_arguments_mean_what_the_importer_says(model: Any, tmp_path: Path) -> None:
    args = arguments(per_device_train_batch_size=4, gradient_checkpointing=True, bf16=True, optim="adamw_torch")
    job = oometer.job_from(model, args=args, sequence_length=512, gpu="t4")
    files = {
        "args.json": {
            "per_device_train_batch_size": 4,
            "gradient_checkpointing": True,
            "bf16": True,
            "optim": "adamw_torch",
            "max_steps": 3,
            "save_strategy": "no",
            "dtype": "bfloat16",
            "num_train_epochs": 3,
        },
        "config.json": model.config.to_dict(),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    other = oometer.import_files(*(tmp_path / name for name in files), gpu="t4").job
    other["data"]["sequence_length"] = 512
    assert oometer.estimate(job)["steps"] == oometer.estimate(other)["steps"]


def test_adapters_and_deepspeed(model: Any) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"])
    job = oometer.job_from(model, args=arguments(), peft_config=lora)
    assert job["training"]["peft"]["r"] == 8
    with torch.device("meta"):
        adapted = peft.get_peft_model(transformers.LlamaForCausalLM(model.config), lora)
    assert oometer.job_from(adapted, args=arguments())["training"]["peft"]["peft_type"] == "LORA"
    job = oometer.job_from(
        model, args=arguments(bf16=True), ds_config={"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}, gpus=4
    )
    assert job["parallel"]["data"] == 4


def test_what_is_frozen(model: Any) -> None:
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    assert oometer.job_from(model)["training"] == {"stage": "custom", "freeze": ["model.embed_tokens", "model.layers.0"]}


def test_what_is_refused_is_raised(model: Any) -> None:
    with pytest.raises(oometer.JobError, match="galore"):
        oometer.job_from(model, args=arguments(optim="galore_adamw", optim_target_modules=["q_proj"]))


def test_the_callback_stops_what_does_not_fit(model: Any, tmp_path: Path) -> None:
    from oometer.callback import DoesNotFitError, FitsCallback

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    rows = [{"input_ids": [5] * 64, "labels": [5] * 64} for _ in range(8)]
    args = transformers.TrainingArguments(str(tmp_path), report_to="none", max_steps=1, use_cpu=True, save_strategy="no")
    log = tmp_path / "runs.jsonl"

    def train(**given: Any) -> Any:
        callback = FitsCallback(log=log, **given)
        collate = transformers.default_data_collator
        transformers.Trainer(model, args, train_dataset=rows, data_collator=collate, callbacks=[callback]).train()
        return callback

    assert train(gpu="t4").job["data"]["sequence_length"] == 64
    with pytest.raises(DoesNotFitError, match="Does not fit on t4"):
        train(gpu="t4", sequence_length=100_000)


def test_seconds_of_a_step_are_those_in_the_middle() -> None:
    from oometer.callback import _step_seconds

    assert _step_seconds([0, 5, 6, 7, 8, 9]) == {}
    assert _step_seconds([0, 5, 6, 7, 8, 9, 109, 110]) == {"step_seconds": 1}
