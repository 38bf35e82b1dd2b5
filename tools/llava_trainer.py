"""Runs LLaVATrainer of haotian-liu/LLaVA 1.2.2 on the ghost, and measures each step.

    llava_trainer.py SPEC.json ... --ghost DIR [-o CASES.jsonl]       each in a fork of one process that has imported everything
    llava_trainer.py SPEC.json --ghost DIR --trace OUT.jsonl          one, with every malloc and free (tools/README.md: a log)
    llava_trainer.py SPEC.json --job                                  the job that says the same

The packages of its time go before those of requirements.txt:

    pip install --no-deps --target FOLDER llava-torch==1.2.2.post1 transformers==4.37.2 accelerate==0.21.0 tokenizers==0.15.1 \\
        peft==0.11.1 huggingface_hub==0.23.4 safetensors==0.4.5 sentencepiece requests urllib3 idna certifi charset-normalizer
    DS_BUILD_OPS=0 pip install --no-deps --no-build-isolation --target FOLDER deepspeed==0.12.6
    PYTHONPATH=FOLDER llava_trainer.py ...

The model is made as train() of llava/train/train.py makes it, with configs in place of published weights and a data set of samples that are
alike; the trainer, its arguments and the collator are LLaVA's own. A spec:

    "text", "vision":  configs of Llama and of CLIP's tower
    "checkpoint":      true: the language model's config has a tower already (a LLaVA), so that the projector is loaded with it
    "model_args":      LLaVA's ModelArguments
    "args":            its TrainingArguments
    "attn":            attn_implementation
    "data":            {"mbs", "length": tokens after the images are in, "images": of a sample}
    "parallel":        {"strategy": "ddp" | "deepspeed" with "ds_config", "world": GPUs}
    "steps":           optimizer steps
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

for absent in ("datasets", "pandas", "sklearn", "trl"):  # newer than the packages of its time
    sys.modules[absent] = None  # type: ignore[assignment]

import real_trace
from step.device_values import DeviceValues, asking
from step.ghost import enter_ghost, quiet_torch
from step.imports import import_for_forks
from step.process_group import join_group, tame_deepspeed
from trainer import Phases, forked, peaks

Spec = dict[str, Any]
LINEAR = "(?!.*vision_tower).*\\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"  # find_all_linear_names


class Values(DeviceValues):
    """What prepare_inputs_labels_for_multimodal reads of samples that have all as many images."""

    def __init__(self, images: int) -> None:
        super().__init__(0)
        self.images = images
        tolist = self.torch.Tensor.tolist

        def places(tensor: Any) -> Any:
            if tensor.is_cuda and sys._getframe(1).f_code.co_name == "prepare_inputs_labels_for_multimodal":
                return list(range(1, images + 1))
            return tolist(tensor)

        self.torch.Tensor.tolist = places

    def scalar(self, tensor: Any) -> Any:
        frame = asking()
        name = frame.f_code.co_name
        if name == "prepare_inputs_labels_for_multimodal":
            if tensor.dtype is not self.torch.bool:
                return self.images + 1  # range(num_images + 1)
            if not self.in_pieces:
                return self.images == 0  # num_images == 0
            self.in_pieces = frame.f_locals["i"] < self.images  # i < num_images
            return self.in_pieces
        if name in ("_inner_training_loop", "__contains__"):  # isnan(loss) or isinf(loss); 0 in attention_mask
            return False
        return super().scalar(tensor)

    def nonzero(self, tensor: Any) -> Any:
        self.in_pieces = sys._getframe(1).f_code.co_name == "prepare_inputs_labels_for_multimodal"  # else of the attention_mask
        self.selected = self.images if self.in_pieces else None
        try:
            return super().nonzero(tensor)
        finally:
            self.selected = None


def job_of(spec: Spec) -> Spec:
    """The job that asks for the spec's run."""
    args, model_args, data = dict(spec.get("args", {})), spec.get("model_args", {}), spec["data"]
    config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "projector_hidden_act": "gelu"}
    config |= {"vision_config": {"model_type": "clip_vision_model", **spec["vision"]}, "text_config": {"model_type": "llama", **spec["text"]}}
    config |= {"vision_feature_layer": model_args.get("mm_vision_select_layer", -1)}
    training: Spec = {"precision": "bf16" if args.get("bf16") else "fp32", "attention": spec.get("attn", "sdpa")}
    training["stage"] = "pretrain" if model_args.get("tune_mm_mlp_adapter") else "finetune"
    lora = {key: args.pop(key) for key in list(args) if key.startswith("lora_")}
    if lora.pop("lora_enable", False):
        names = {"lora_r": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout"}
        training["lora"] = {"rank": 64, "alpha": 16, "dropout": 0.05, "target_modules": LINEAR, "also_train": ["mm_projector"]}
        training["lora"] |= {names[key]: value for key, value in lora.items()}
    if spec.get("checkpoint"):
        training["float32_modules"] = []
    training["loop"] = {"name": "llava.LLaVATrainer", "args": {"save_strategy": "no", **args, "max_steps": spec.get("steps", 3)}}
    job = {"version": 1, "model": {"config": config, "name": spec["name"]}, "task": "train"}
    job["data"] = {"micro_batch_size": data["mbs"], "sequence_length": data["length"], "images_per_sample": data.get("images", 1)}
    job["training"] = training
    if parallel := spec.get("parallel"):
        job["parallel"] = {"strategy": parallel["strategy"], "data": parallel["world"]}
        if "ds_config" in parallel:
            job["parallel"] |= {"ds_config": parallel["ds_config"], "rank": 0}
    job["gpu"] = {"name": "a100-80gb"}
    job["runtime"] = {"framework": "llava", "torch": "2.15", "cudnn": False, "peft": "0.11.1"}
    return job


class ImageProcessor:
    """What train() asks CLIPImageProcessor."""

    def __init__(self, size: int) -> None:
        self.crop_size = {"height": size, "width": size}


class Tokenizer:
    """What the collator and train() ask the tokenizer."""

    padding_side, pad_token_id = "right", 0

    def __init__(self, model_max_length: int) -> None:
        self.model_max_length = model_max_length

    def save_pretrained(self, *_: Any, **__: Any) -> None: ...


class Rows:
    """LazySupervisedDataset of samples that are alike."""

    def __init__(self, spec: Spec, count: int) -> None:
        import torch

        data, vision = spec["data"], spec["vision"]
        images = data.get("images", 1)
        tokens = (vision["image_size"] // vision["patch_size"]) ** 2
        ids = torch.full((data["length"] - images * (tokens - 1),), 5)
        ids[1 : images + 1] = -200
        image = torch.zeros(3, vision["image_size"], vision["image_size"])
        self.count, self.sample = count, {"input_ids": ids, "labels": ids.clone(), "image": image}
        self.modality_lengths = [len(ids)] * count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, _: int) -> Spec:
        return self.sample


def make_model(spec: Spec, training_args: Any) -> Any:
    """train() (llava/train/train.py), from `model = ` to the trainer."""
    import torch
    from llava.model.language_model.llava_llama import LlavaConfig, LlavaLlamaForCausalLM
    from llava.train.train import ModelArguments, find_all_linear_names
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

    vision = CLIPVisionConfig(**spec["vision"])
    CLIPVisionConfig.from_pretrained = lambda *_, **__: vision
    CLIPVisionModel.from_pretrained = lambda *_, **__: CLIPVisionModel._from_config(vision)
    CLIPImageProcessor.from_pretrained = lambda *_, **__: ImageProcessor(vision.image_size)
    model_args = ModelArguments(vision_tower="openai/clip", **spec.get("model_args", {}))
    config = LlavaConfig(**spec["text"])
    if spec.get("checkpoint"):
        config.mm_vision_tower, config.mm_hidden_size = model_args.vision_tower, vision.hidden_size
        config.mm_projector_type, config.mm_vision_select_layer = model_args.mm_projector_type, model_args.mm_vision_select_layer
    kwargs = {"torch_dtype": torch.bfloat16} if training_args.bf16 else {}
    model = LlavaLlamaForCausalLM._from_config(config, attn_implementation=spec.get("attn", "sdpa"), **kwargs)
    model.config.use_cache = False
    if training_args.gradient_checkpointing:
        model.enable_input_require_grads()
    if training_args.lora_enable:
        from peft import LoraConfig, get_peft_model

        lora_config = LoraConfig(
            r=training_args.lora_r,
            lora_alpha=training_args.lora_alpha,
            target_modules=find_all_linear_names(model),
            lora_dropout=training_args.lora_dropout,
            bias=training_args.lora_bias,
            task_type="CAUSAL_LM",
        )
        if training_args.bf16:
            model.to(torch.bfloat16)
        if training_args.fp16:
            model.to(torch.float16)
        model = get_peft_model(model, lora_config)
    model.get_model().initialize_vision_modules(model_args=model_args, fsdp=training_args.fsdp)
    vision_tower = model.get_vision_tower()
    vision_tower.to(dtype=torch.bfloat16 if training_args.bf16 else torch.float16, device=training_args.device)
    model.config.tokenizer_padding_side = "right"
    model.config.tokenizer_model_max_length = training_args.model_max_length
    model.config.tune_mm_mlp_adapter = training_args.tune_mm_mlp_adapter = model_args.tune_mm_mlp_adapter
    if model_args.tune_mm_mlp_adapter:
        model.requires_grad_(False)
        for p in model.get_model().mm_projector.parameters():
            p.requires_grad = True
    model.config.mm_use_im_start_end = False
    model.config.mm_projector_lr = training_args.mm_projector_lr
    training_args.use_im_start_end = False
    model.config.mm_use_im_patch_token = False
    return model


def make_watch(phases: Phases) -> Any:
    import torch
    import transformers

    class Watch(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.steps: list[dict[str, int]] = []
            self.saves: list[dict[str, int]] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            gc.collect()
            gc.disable()
            torch.cuda.reset_peak_memory_stats()

        def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            self.steps.append(peaks())
            phases.begin(state.global_step, "between")
            torch.cuda.reset_peak_memory_stats()
            gc.enable()

        def on_save(self, *_: Any, **__: Any) -> None:
            self.saves.append(peaks())

    return Watch()


def run(spec: Spec, trace: Path | None = None) -> Spec:
    import torch
    from llava.train.llava_trainer import LLaVATrainer
    from llava.train.train import DataCollatorForSupervisedDataset, TrainingArguments

    parallel = spec.get("parallel")
    if parallel:
        join_group(parallel["world"])
        if parallel["strategy"] == "deepspeed":
            import deepspeed

            tame_deepspeed()
            deepspeed.init_distributed("fake", auto_mpi_discovery=False)
    values = Values(spec["data"].get("images", 1))
    quiet_torch()
    phases, modules = Phases(), real_trace.Modules()
    watch = make_watch(phases)
    steps, mbs = spec.get("steps", 3), spec["data"]["mbs"]
    with contextlib.ExitStack() as stack:
        profile: Any = None
        if trace:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
            activities = [torch.profiler.ProfilerActivity.CPU]
            profile = stack.enter_context(torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True))
        phases.begin(0, "init")
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        given = {"output_dir": folder, "per_device_train_batch_size": mbs, "max_steps": steps, "save_strategy": "no", "disable_tqdm": True}
        given |= {"report_to": "none", "model_max_length": spec["data"]["length"], "logging_strategy": "no"} | spec.get("args", {})
        if parallel and "ds_config" in parallel:
            given["deepspeed"] = parallel["ds_config"]
        training_args = TrainingArguments(**given)
        model = make_model(spec, training_args)
        tokenizer = Tokenizer(training_args.model_max_length)
        world = parallel["world"] if parallel else 1
        rows = Rows(spec, (steps + 1) * mbs * training_args.gradient_accumulation_steps * world)

        class Marked(LLaVATrainer):
            def training_step(self, *given: Any, **keywords: Any) -> Any:
                phases.begin(self.state.global_step + 1, "forward")
                return super().training_step(*given, **keywords)

        trainer = Marked(
            model=model,
            tokenizer=tokenizer,
            args=training_args,
            train_dataset=rows,
            data_collator=DataCollatorForSupervisedDataset(tokenizer=tokenizer),
            callbacks=[watch],
        )
        named = {p.data_ptr(): n for n, p in [*model.named_parameters(), *model.named_buffers()]}
        if trace:
            modules.watch(model)
        backward = trainer.accelerator.backward

        def mark_backward(*given: Any, **keywords: Any) -> None:
            phases.begin(trainer.state.global_step + 1, "backward")
            backward(*given, **keywords)
            phases.begin(trainer.state.global_step + 1, "optimizer")

        trainer.accelerator.backward = mark_backward
        trainer.train()
        phases.end()
    truth: Spec = {"steps": watch.steps} | ({"saves": watch.saves} if watch.saves else {})
    truth["versions"] = {m: sys.modules[m].__version__ for m in ("torch", "transformers", "accelerate", "peft", "deepspeed") if sys.modules.get(m)}
    truth["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    del values
    if trace:
        count = real_trace.write(trace, profile, torch.cuda.memory._snapshot()["device_traces"][0], modules, named)
        print(f"{trace}: {count} events")
    return truth


def name_what_moved() -> None:
    """What the packages of its time want of torch and today's has no more."""
    import logging

    from torch.distributed.elastic.agent.server import api
    from torch.optim import lr_scheduler

    # A scheduler did not mind that DeepSpeed leaves out empty groups.
    lr_scheduler.zip = lambda *given, **_: zip(*given, strict=False)  # type: ignore[attr-defined]

    for name in ("log", "_get_socket_with_port"):
        if not hasattr(api, name):
            setattr(api, name, logging.getLogger(name))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("spec", type=Path, nargs="+")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--trace", type=Path, help="write every malloc and free here")
    arguments.add_argument("--job", action="store_true", help="print the job only")
    arguments.add_argument("-o", "--out", type=Path, help="add the cases to this file")
    given = arguments.parse_args()
    specs = [(lambda d: d.get("spec", d))(json.loads(path.read_text())) for path in given.spec]
    if given.job:
        for spec in specs:
            print(json.dumps(job_of(spec)))
        return
    enter_ghost(given.ghost)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    name_what_moved()
    if given.trace:
        run(specs[0], given.trace)
        return
    import_for_forks("transformers.Trainer", "llava.train.llava_trainer.LLaVATrainer", "llava.train.train.train")

    def record(spec: Spec) -> None:
        line = json.dumps({"name": spec["name"], "job": job_of(spec), "truth": run(spec)})
        if given.out:
            with given.out.open("a") as file:
                file.write(line + "\n")
        else:
            print(line)

    for spec in specs:
        print(spec["name"], "ok" if forked(lambda spec=spec: record(spec)) else "FAILED", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
