#!/usr/bin/env python3
"""Writes the operators that a torch.nn.Module runs as a JSON file, from which oometer tells the memory of training it, or of inference.

    export_graph.py torchvision.models:resnet50 --input 3x224x224 -o resnet50.json
    export_graph.py my_package.my_module:make_model --arguments '{"width": 64}' --input 128:int64 -o my_model.json
    export_graph.py torchvision.models:resnet50 --inference --input 3x224x224 -o resnet50.json     # for "task": "inference"
    export_graph.py --hf config.json --task causal-lm --sequence-length 2048 -o model.json         # a class of transformers

Or from Python: `export_graph(model, lambda batch: (torch.empty(batch, 3, 224, 224),), "model.json")`. Needs torch (2.2 or later) and this
file, no GPU and no memory for the weights: the model runs on the meta device, with two batch sizes, so that the file says which numbers
grow with the batch. tools/README.md describes the file (version 1).

A program that reads values from the device gets these: a bool is True (no token is padding), another number is 1.0 or 0, a mask selects
everything. With --hf, sequences have no padding and no attention mask, and use_cache is off for training. --input adds an input that the
task does not name: `--input token_type_ids=2048:int64`.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import json
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental import _config
from torch.nn.modules import module as hooks
from torch.utils._pytree import tree_leaves

VERSION = 1
READS = {"aten::item", "aten::is_nonzero", "aten::_local_scalar_dense", "aten::equal", "aten::allclose"}
# What --task runs: a class of transformers, and the inputs that it has.
TASKS = {
    "causal-lm": ("AutoModelForCausalLM", ("input_ids", "labels")),
    "masked-lm": ("AutoModelForMaskedLM", ("input_ids", "labels")),
    "seq2seq-lm": ("AutoModelForSeq2SeqLM", ("input_ids", "labels")),
    "token-classification": ("AutoModelForTokenClassification", ("input_ids", "labels")),
    "sequence-classification": ("AutoModelForSequenceClassification", ("input_ids", "label")),
    "question-answering": ("AutoModelForQuestionAnswering", ("input_ids", "start_positions", "end_positions")),
    "image-classification": ("AutoModelForImageClassification", ("pixel_values", "label")),
    "image-text-to-text": ("AutoModelForImageTextToText", ("input_ids", "pixel_values", "labels")),
}


class Recorder(SchemaCheckMode):
    """Sees operators above autograd: linear as linear, in place as in place. Of the modes that PyTorch lets in there, the simplest is
    this base class; nothing of it is used."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._dispatch_key = torch._C.DispatchKey.PreDispatch
        self.names = {id(m): i for i, (_, m) in enumerate(model.named_modules())}
        self.stack = [0]
        self.tensors: dict[int, int] = {}  # id of a tensor that is alive: its number
        self.keep: list[Any] = []  # parameters, buffers, inputs
        self.count = 0
        self.operators: list[list[Any]] = []
        self.with_gradient: set[int] = set()  # numbers of tensors through which gradients go
        self.dead: list[int] = []
        self.closed = False

    def number(self, tensor: torch.Tensor) -> int:
        """A new number for a new tensor; it is told when Python lets go of it."""
        key, number = id(tensor), self.count
        self.tensors[key] = number
        self.count += 1

        def gone() -> None:
            if not self.closed and self.tensors.pop(key, None) is not None:
                self.dead.append(number)

        weakref.finalize(tensor, gone).atexit = False
        return number

    def name(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self.tensors:  # made by other means than an operator: a constant of the model's code
            self.flush()
            self.operators.append([self.stack[-1], "constant", [list(tensor.shape), kind(tensor.dtype)], self.number(tensor)])
        number = self.tensors[id(tensor)]
        if isinstance(tensor.grad_fn, torch.autograd.function.BackwardCFunction) and number not in self.with_gradient:
            raise SystemExit(f"{tensor.grad_fn.name()}: a backward of the model's own (torch.autograd.Function) is not supported yet")
        return f"%{number}"

    def flush(self) -> None:
        if self.dead and self.operators:
            line = self.operators[-1]
            line[4:] = [sorted([*(line[4] if len(line) > 4 else []), *self.dead])]
        self.dead.clear()

    def plain(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.item() if value.device.type == "cpu" and value.dim() == 0 else self.name(value)
        if isinstance(value, (list, tuple)):
            return [self.plain(v) for v in value]
        if isinstance(value, torch.dtype):
            return kind(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value if not isinstance(value, float) or math.isfinite(value) else str(value)
        return str(value)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if func.namespace == "prim" or name in ("aten::sym_size", "aten::is_floating_point"):
            return func(*args, **kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if name in READS and any(t.is_meta for t in tensors):
            value = answer(tensors[0].dtype) if len(tensors) == 1 else True
            return bool(value) if name == "aten::is_nonzero" else value
        given = []
        for i, argument in enumerate(func._schema.arguments):
            value = (
                args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
            )
            given.append((value, argument.has_default_value() and not isinstance(value, torch.Tensor) and value == argument.default_value))
        while given and given[-1][1]:
            given.pop()
        on_host = bool(tensors) and not any(t.is_meta for t in tensors)
        plain = [] if on_host else [self.plain(value) for value, _ in given]
        before = len(self.operators)
        self.flush()
        out = func(*args, **kwargs)
        del args, kwargs, given, tensors
        del self.operators[before:]  # operators inside a composite one, if any came this way
        made = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        if not any(t.is_meta for t in made) and (made or on_host):
            return out  # in host memory
        if on_host:  # a copy of what is there
            name, plain = "aten::constant", [list(made[0].shape), kind(made[0].dtype)]
        results = [self.tensors[id(t)] if id(t) in self.tensors else self.number(t) for t in made]
        self.with_gradient.update(self.tensors[id(t)] for t in made if t.requires_grad)
        name = name.removeprefix("aten::") + ("" if torch.is_grad_enabled() else "!no_grad")
        self.operators.append([self.stack[-1], name, plain, results[0] if len(results) == 1 else results])
        return out

    def enter(self, module: torch.nn.Module, _arguments: Any) -> None:
        self.stack.append(self.names.get(id(module), self.stack[-1]))

    def leave(self, _module: torch.nn.Module, _arguments: Any, _out: Any) -> None:
        self.stack.pop()


def answer(dtype: torch.dtype) -> bool | float | int:
    """What a program reads from a device that computes nothing."""
    return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 0


def kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(meta(v) for v in value)
    return {k: meta(v) for k, v in value.items()} if isinstance(value, dict) else value


def record(model: torch.nn.Module, given: Any) -> dict[str, Any]:
    """One forward, with the model and its inputs on the meta device."""
    recorder = Recorder(model)
    arguments, keywords = ((), meta(given)) if isinstance(given, dict) else (meta(given), {})
    document: dict[str, Any] = {"modules": [], "parameters": [], "buffers": [], "inputs": []}
    for path, module in model.named_modules():
        document["modules"].append([path, type(module).__name__])
    for section, method in (("parameters", "_parameters"), ("buffers", "_buffers")):
        for owner, (_, module) in enumerate(model.named_modules()):
            for name, tensor in getattr(module, method).items():
                if tensor is None:
                    continue
                line = [owner, name, kind(tensor.dtype), list(tensor.shape)]
                if id(tensor) in recorder.tensors:
                    line = [owner, name, f"%{recorder.tensors[id(tensor)]}"]  # tied: another module has it too
                else:
                    recorder.keep.append(tensor)
                    recorder.number(tensor)
                    line += [] if tensor.requires_grad or section == "buffers" else [False]
                document[section].append(line)
    for tensor in tree_leaves((arguments, keywords)):
        if isinstance(tensor, torch.Tensor):
            recorder.keep.append(tensor)
            recorder.number(tensor)
            document["inputs"].append([kind(tensor.dtype), list(tensor.shape)])
    entered = [hooks.register_module_forward_pre_hook(recorder.enter), hooks.register_module_forward_hook(recorder.leave, always_call=True)]
    try:
        # Autograd keeps nothing, so that a tensor goes when Python lets go of it.
        keep_nothing = torch.autograd.graph.saved_tensors_hooks(lambda _: None, lambda _: None)
        key = "meta_nonzero_assume_all_nonzero"  # since torch 2.5
        everything = _config.patch({key: True}) if hasattr(_config, key) else contextlib.nullcontext()
        with keep_nothing, everything, enable_python_dispatcher(), recorder:
            out = model(*arguments, **keywords)
    finally:
        for hook in entered:
            hook.remove()
    recorder.flush()
    document["operators"] = recorder.operators
    tensors = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and id(t) in recorder.tensors]
    document["outputs"] = [[recorder.tensors[id(t)], kind(t.dtype), list(t.shape)] for t in tensors]
    recorder.closed = True
    return document


def by_batch(a: Any, b: Any, sizes: tuple[int, int], where: str = "") -> Any:
    """What two recordings share; a number that differs is written as what it grows with: {"batch": n, "plus": m}."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [by_batch(x, y, sizes, f"{where}/{i}") for i, (x, y) in enumerate(zip(a, b, strict=True))]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {k: by_batch(a[k], b[k], sizes, f"{where}/{k}") for k in a}
    if a == b and type(a) is type(b):
        return a
    if type(a) is int and type(b) is int and (b - a) % (sizes[1] - sizes[0]) == 0:
        slope = (b - a) // (sizes[1] - sizes[0])
        plus = a - slope * sizes[0]
        return {"batch": slope, **({"plus": plus} if plus else {})}
    raise SystemExit(f"{where}: other operators with a batch of {sizes[1]} than with {sizes[0]}; give one size, batch=(n,) or --batch")


def check_fast_path(model: torch.nn.Module) -> None:
    """Of attention, nn's own modules have kernels that the meta device does not show."""
    fused = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder)
    names = [name for name, module in model.named_modules() if isinstance(module, fused)]
    if names and torch.backends.mha.get_fastpath_enabled():
        raise SystemExit(
            f"{names[0]}: in eval mode torch.nn's attention takes a fused path that is not modelled: "
            "torch.backends.mha.set_fastpath_enabled(False) turns it off: call it before this, and where the model runs"
        )


def export_graph(
    model: torch.nn.Module,
    inputs: Callable[[int], Any],
    path: str | Path,
    batch: tuple[int, ...] = (2, 3),
    *,
    inference: bool = False,
) -> None:
    """Writes `model`'s operators to `path`. `inputs(batch_size)` gives its arguments: a tuple, or a dict of keywords.

    The model runs in the mode that it is in (call `model.train()` first); for `inference` in eval mode, under `torch.no_grad()`. With one
    batch size instead of two, the file is for that one.
    """
    model = copy.deepcopy(model).to("meta")
    if inference:
        model.eval()
        check_fast_path(model)
    recorded = []
    for size in batch:
        given = inputs(size)
        with torch.no_grad() if inference else contextlib.nullcontext():
            recorded.append(record(model, given if isinstance(given, (tuple, list, dict)) else (given,)))
    document = recorded[0] if len(recorded) == 1 else by_batch(recorded[0], recorded[1], (batch[0], batch[1]))
    head = {"format": "oometer-graph", "version": VERSION, "torch": torch.__version__, "batch": list(batch)}
    # One line for each entry: small, and readable.
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    for key, value in document.items():
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
        lines.append(f"{json.dumps(key)}: [\n{rows}]" if key != "outputs" else f"{json.dumps(key)}: {json.dumps(value)}")
    Path(path).write_text("{" + ",\n".join(lines) + "}\n")


def load(name: str, arguments: dict[str, Any] | None = None) -> torch.nn.Module:
    """`package.module:callable`, called: a model in training mode."""
    module, _, attribute = name.partition(":")
    made: Any = importlib.import_module(module)
    for part in attribute.split("."):
        made = getattr(made, part)
    return made(**(arguments or {})).train()


def input_of(text: str, batch: int) -> torch.Tensor:
    """`3x224x224` or `128:int64`: the shape of one sample, and its type."""
    shape, _, dtype = text.partition(":")
    sizes = [int(n) for n in shape.split("x")] if shape else []
    return torch.empty(batch, *sizes, dtype=getattr(torch, dtype or "float32"), device="meta")


def from_transformers(config: str, task: str, dtype: str | None = None, *, inference: bool = False) -> torch.nn.Module:
    """The class of transformers that a task and a config.json (a folder of one, a name of the hub) stand for, on the meta device.

    `dtype`: the weights' type in place of the config's.
    """
    import transformers

    described = transformers.AutoConfig.from_pretrained(config)
    with torch.device("meta"):
        options = {"dtype": getattr(torch, dtype)} if dtype else {}
        model = getattr(transformers, TASKS[task][0]).from_config(described, **options)
    if not inference:
        for part in (model.config, model.config.get_text_config()):
            part.use_cache = False
    return model.train(not inference)


def inputs_of_task(model: torch.nn.Module, task: str, tokens: int, batch: int, *, inference: bool = False) -> dict[str, torch.Tensor]:
    """A batch without padding, for a model of `from_transformers`. `tokens` counts those of images, too."""
    images = getattr(model.config, "vision_config", model.config)
    side = getattr(images, "image_size", 224)
    sizes = {
        **dict.fromkeys(("input_ids", "labels"), [tokens]),
        **dict.fromkeys(("label", "start_positions", "end_positions"), []),
        "pixel_values": [getattr(images, "num_channels", 3), *(side if isinstance(side, (list, tuple)) else [side, side])],
    }
    names = [name for name in TASKS[task][1] if name in ("input_ids", "pixel_values") or not inference]
    types = {"pixel_values": model.dtype}
    return {
        "labels" if name == "label" else name: torch.empty(batch, *sizes[name], dtype=types.get(name, torch.int64), device="meta")
        for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="package.module:callable, which makes the model")
    parser.add_argument("--arguments", type=json.loads, default={}, help="the callable's keyword arguments, as JSON")
    parser.add_argument(
        "--hf", metavar="CONFIG", help="in place of it: a config.json (or its folder, or a name of the hub) for transformers"
    )
    parser.add_argument("--task", choices=TASKS, default="causal-lm", help="what --hf's model does (default: causal-lm)")
    parser.add_argument("--sequence-length", type=int, metavar="N", help="tokens of a sequence, those of images included")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="of --hf's weights, in place of the config's")
    parser.add_argument("--input", action="append", default=[], help="a sample's shape and type: 3x224x224, 128:int64; once for each")
    parser.add_argument("--batch", type=int, help="only this batch size, for models that run other operators with another")
    parser.add_argument("--inference", action="store_true", help="in eval mode, without gradients")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    if (given.model is None) == (given.hf is None):
        parser.error("expected package.module:callable, or --hf CONFIG")
    if given.hf and "input_ids" in TASKS[given.task][1] and not given.sequence_length:
        parser.error(f"expected --sequence-length N for {given.task}")
    if given.model and not given.input:
        parser.error("expected --input, once for each of the model's arguments")
    inference = given.inference
    if given.hf:
        model = from_transformers(given.hf, given.task, given.dtype, inference=inference)
    else:
        with torch.device("meta"):
            model = load(given.model, given.arguments)

    def inputs(size: int) -> Any:
        if not given.hf:
            return tuple(input_of(text, size) for text in given.input)
        named = inputs_of_task(model, given.task, given.sequence_length or 0, size, inference=inference)
        return named | {name: input_of(text, size) for name, _, text in (i.partition("=") for i in given.input)}

    export_graph(model, inputs, given.out, (given.batch,) if given.batch else (2, 3), inference=inference)
    print(f"{given.out}: {given.out.stat().st_size:,d} bytes")


if __name__ == "__main__":
    main()
