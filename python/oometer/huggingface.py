"""Jobs from live objects of transformers, peft and TRL. What they mean is the core's importers' business: here they are
only spelled as the files that would say the same."""

import dataclasses
import enum
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oometer import _core
from oometer.answers import Imported
from oometer.errors import JobError
from oometer.questions import import_files


def job_from(
    model_or_config: Any,
    *,
    args: Any = None,
    peft_config: Any = None,
    ds_config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    sequence_length: int | None = None,
    gpu: str = "",
    gpus: int | None = None,
) -> dict[str, Any]:
    """The job that these objects start, for `estimate` and the others. It needs no GPU and reads no weights.

    model_or_config: a transformers model (weights may be on "meta") or its config, or the config's own dictionary.
    args: `TrainingArguments`, `SFTConfig`, `DPOConfig`, ...; without them a plain training step is meant.
    peft_config: of peft; that of a model which has adapters already is found by itself.
    ds_config: DeepSpeed's configuration, where `args.deepspeed` does not say it.
    sequence_length: tokens of a sample, which only the data say (TRL's `max_length` is taken from `args`).
    gpu, gpus: which (`oometer presets`) and how many; WORLD_SIZE otherwise.

    Raises JobError where the core refuses the job, with its reason.
    """
    config = _config(model_or_config)
    world = gpus if gpus is not None else int(os.environ.get("WORLD_SIZE", "1"))
    adapters = peft_config if peft_config is not None else _adapters(model_or_config)
    job = _plain_job(config) if args is None else _imported(model_or_config, config, args, ds_config, gpu=gpu, world=world).job
    training = job.setdefault("training", {})
    if adapters is not None:
        training.pop("stage", None)
        training["peft"] = _adapter_config(adapters)
    elif frozen := _frozen(model_or_config):
        training |= {"stage": "custom", "freeze": frozen}
    if sequence_length is not None:
        job.setdefault("data", {})["sequence_length"] = sequence_length
    if gpu:
        job["gpu"] = {"name": gpu}
    answer = json.loads(_core.summary(json.dumps(job)))
    if "error" in answer:
        raise JobError(answer["error"], job)
    return job


def _plain_job(config: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "model": {"config": config}}


def _imported(model: Any, config: dict[str, Any], args: Any, ds_config: Any, *, gpu: str, world: int) -> Imported:
    """The arguments and the config as two files that the importers read together."""
    content = _plain(args.to_dict() if hasattr(args, "to_dict") else dataclasses.asdict(args))
    # to_dict() has all fields; what is unset says nothing.
    # What is unset says nothing; use_cpu is how such arguments are made where there is no GPU.
    content = {k: v for k, v in content.items() if v not in (None, [], {}, "") and k not in ("use_cpu", "no_cuda")}
    content["model_name_or_path"] = config.get("_name_or_path") or "model"
    if dtype := getattr(model, "dtype", None):
        content["dtype"] = str(dtype).removeprefix("torch.")
    if attention := _attention(model):
        content["attn_implementation"] = attention
    if ds_config is not None:
        is_tree = isinstance(ds_config, Mapping)
        content["deepspeed"] = dict(ds_config) if is_tree else json.loads(Path(ds_config).read_text(encoding="utf-8"))
    elif isinstance(content.get("deepspeed"), str):
        content["deepspeed"] = json.loads(Path(content["deepspeed"]).read_text(encoding="utf-8"))
    files = ({"name": "arguments.json", "content": content}, {"name": "config.json", "content": config})
    answer = import_files(*files, gpu=gpu, gpus=world)
    if refused := answer["refused"]:
        message = f"{refused['key']}: {refused['message']}" if refused["key"] else refused["message"]
        raise JobError({"code": "refused", "pointer": refused["pointer"], "message": message}, answer.job)
    return answer


def _config(model_or_config: Any) -> dict[str, Any]:
    """Its config.json, with the class's name."""
    config = getattr(model_or_config, "config", model_or_config)
    tree: dict[str, Any] = dict(config) if isinstance(config, Mapping) else _plain(config.to_dict())
    base = model_or_config.get_base_model() if hasattr(model_or_config, "get_base_model") else model_or_config
    if base is not config and not isinstance(base, Mapping):
        tree["architectures"] = [type(base).__name__]
    return {key: value for key, value in tree.items() if value is not None}


def _attention(model: Any) -> str:
    config = getattr(model, "config", model)
    return str(getattr(config, "_attn_implementation", None) or "")


def _adapters(model: Any) -> Any:
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, Mapping) or not configs:
        return None
    return configs.get(getattr(model, "active_adapter", ""), next(iter(configs.values())))


def _adapter_config(config: Any) -> dict[str, Any]:
    """As adapter_config.json has it."""
    tree: dict[str, Any] = _plain(dict(config) if isinstance(config, Mapping) else config.to_dict())
    return {key: value for key, value in tree.items() if value not in (None, [], {}) and key not in _OF_NO_RUN}


_OF_NO_RUN = {"base_model_name_or_path", "auto_mapping", "peft_version", "revision", "task_type", "inference_mode"}


def _frozen(model: Any) -> list[str]:
    """What is not trained, as whole modules where it can be said so."""
    if not hasattr(model, "named_parameters"):
        return []
    trains: dict[str, bool] = {}
    for name, parameter in model.named_parameters():
        for place in _places(name):
            trains[place] = trains.get(place, False) or bool(parameter.requires_grad)
    if trains.get("", True) and all(trains.values()):
        return []
    found: list[str] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            continue
        place = next(place for place in _places(name) if not trains[place])
        if place not in found:
            found.append(place)
    return found


def _places(name: str) -> Iterator[str]:
    """ "a.b.weight": the whole, "a", "a.b" and itself."""
    yield ""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _plain(value: Any) -> Any:
    """As JSON has it: enumerations by their values, sets as lists, types and the like by their names."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(one) for one in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).removeprefix("torch.")
