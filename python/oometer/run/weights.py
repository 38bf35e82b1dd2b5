"""Weights that are not on this machine: a checkpoint file in their place that is a hole, from the model's config."""

import copy
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# safetensors' names of dtypes (safetensors/torch.py, _TYPES).
TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
    "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


SHARD = 4 << 30  # bytes a file: files are mapped whole, and Linux maps none that is larger than the machine's memory


def write_hole(path: Path, tensors: dict[str, Any]) -> None:
    """A safetensors file of that many bytes, of which only the head takes room on the disk."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        head[name] = {"dtype": TYPES[str(tensor.dtype).removeprefix("torch.")], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def shards_of(tensors: dict[str, Any]) -> list[dict[str, Any]]:
    """In files of at most SHARD bytes each, in their order."""
    shards: list[dict[str, Any]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        own = tensor.numel() * tensor.element_size()
        if shards[-1] and size + own > SHARD:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += own
    return shards


def checkpoint_of(model_class: Any, config: Any) -> tuple[list[str], dict[str, Any] | None]:
    """What `save_pretrained` would have written of a model with that config, in the config's dtype: files, and their index."""
    import torch

    dtype = getattr(config, "dtype", None) or torch.float32
    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
    try:  # not _from_config, which would have DeepSpeed partition it
        with torch.device("meta"):
            model = model_class(copy.deepcopy(config))
    finally:
        torch.set_default_dtype(usual)
    tensors = model.state_dict()
    shared = set(getattr(model, "all_tied_weights_keys", None) or ())
    tensors = {name: tensor for name, tensor in tensors.items() if name not in shared}
    try:  # newer ones keep experts together in memory, and apart in files
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        pass
    else:
        tensors = revert_weight_conversion(model, tensors)
    folder = Path(tempfile.mkdtemp(prefix="weights-", dir=os.environ["OOMETER_RUN"]))
    index: dict[str, str] = {}
    files: list[str] = []
    for i, shard in enumerate(shards_of(tensors), 1):
        file = folder / f"model-{i:05}.safetensors"
        write_hole(file, shard)
        files.append(str(file))
        index |= dict.fromkeys(shard, file.name)
    return files, {"weight_map": index, "all_checkpoint_keys": list(index), "metadata": {}} if len(files) > 1 else None


class MissingWeights:
    """Replaces the two functions of transformers.modeling_utils that look for a checkpoint."""

    def __init__(self, modeling_utils: Any, made: Callable[[str], None]) -> None:
        self.made = made
        self.loading: list[tuple[Any, Any]] = []  # the class and the config of each from_pretrained that is under way
        self.find = modeling_utils._get_resolved_checkpoint_files
        modeling_utils._get_resolved_checkpoint_files = self.resolve
        self.from_pretrained = modeling_utils.PreTrainedModel.from_pretrained.__func__
        modeling_utils.PreTrainedModel.from_pretrained = classmethod(self.enter)

    def enter(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        self.loading.append((cls, kwargs.get("config")))
        try:
            return self.from_pretrained(cls, *args, **kwargs)
        finally:
            self.loading.pop()

    def resolve(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.find(*args, **kwargs)
        except OSError:
            name = args[0] if args else kwargs["pretrained_model_name_or_path"]
            cls, config = self.loading[-1]
            if not hasattr(config, "model_type"):
                config = cls.config_class.from_pretrained(name)
            self.made(f"no weights of {name} are here: they are those of its config, empty")
            return checkpoint_of(cls, config)
