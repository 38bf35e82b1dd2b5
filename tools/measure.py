"""Runs a job's model in real transformers and measures the memory of two training steps. Writes a case.

    measure.py JOB.json [-o CASE.json] [--ghost DIR] [--fake] [--gpu] [--snapshot FILE.pickle]

--ghost DIR   real PyTorch and its real caching allocator on a stand-in device whose kernels do nothing; no GPU is needed
--fake        FakeTensor, tensors alone; give --ghost DIR too where there is no GPU (PyTorch asks the device which kernel it takes)
--gpu         a GPU: max_memory_allocated and _reserved, the device's used memory through NVML, a memory snapshot
With none of them: the GPU if there is one, else the ghost. A case is {"job", "result": {"ghost": ..., "fake": ..., "gpu": ...}}.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import json
import math
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import real_trace
from step.batch import make_inputs
from step.generation import generate
from step.ghost import ghost_environment, quiet_torch
from step.job import spec_of
from step.model import build_model
from step.optimizer import make_optimizer
from step.spec import GRIDS, Spec
from step.training import attention_choice, make_scaler, train_step

MARK = "\n@@result "


# ---------------------------------------------------------------------------------------------- FakeTensor


class Storages:
    """Sees every storage that an operator makes, and by weak reference its end; keeps live bytes, peaks and who is alive."""

    def __init__(self) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        self.live: dict[int, tuple[Any, int, str]] = {}
        self.role: dict[int, str] = {}
        self.bytes, self.rounded, self.phase = 0, 0, "init"
        self.peaks: list[dict[str, Any]] = []
        outer = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = outer.answer(func, args) if func.namespace == "aten" else NotImplemented
                if out is NotImplemented:
                    out = func(*args, **(kwargs or {}))
                outer.see(out)
                return out

        self.mode = Mode()

    def answer(self, func: Any, args: Any) -> Any:
        """Values that the program reads: as DeviceValues says them."""
        import torch

        aten = torch.ops.aten
        if func is aten._local_scalar_dense.default and args[0].is_cuda:
            kind = args[0].dtype
            return True if kind == torch.bool else 1.0 if kind.is_floating_point else 0
        if func is aten.nonzero.default and args[0].is_cuda:
            return torch.empty((args[0].numel(), args[0].dim()), dtype=torch.int64, device="cuda")
        if func is aten.masked_scatter_backward.default:
            return torch.empty(args[2], dtype=args[0].dtype, device="cuda")
        return NotImplemented

    def see(self, out: Any) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        for tensor in tree_leaves(out):
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
                continue
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key in self.live or not size:
                continue
            end = weakref.ref(storage, lambda _, key=key: self.dead(key))
            self.live[key] = (end, size, self.phase)
            self.add(size, 1)

    def dead(self, key: int) -> None:
        _, size, _ = self.live.pop(key)
        self.role.pop(key, None)
        self.add(size, -1)

    def add(self, size: int, sign: int) -> None:
        self.bytes += sign * size
        self.rounded += sign * -(-size // 512) * 512
        if self.peaks and self.bytes > self.peaks[-1]["requested"]:
            row = self.peaks[-1]
            row["requested"], row["rounded"] = self.bytes, max(row["rounded"], self.rounded)
            row["alive"] = [(key, entry[1], entry[2]) for key, entry in self.live.items()]

    def name(self, role: str, tensors: list[Any]) -> None:
        for tensor in tensors:
            self.role[tensor.untyped_storage()._cdata] = role

    @contextlib.contextmanager
    def watch(self, iteration: int, phase: str) -> Iterator[None]:
        self.phase = phase
        self.peaks.append({"iteration": iteration, "phase": phase, "requested": -1, "rounded": self.rounded, "alive": []})
        self.add(0, 1)
        yield
        row = self.peaks[-1]
        row["end_requested"] = self.bytes
        kinds = {"forward": "activations"}
        breakdown: collections.Counter[str] = collections.Counter()
        for key, size, born in row.pop("alive"):
            breakdown[self.role.get(key) or kinds.get(born, "temporaries")] += size
        row["breakdown"] = dict(breakdown.most_common())


def fake(spec: Spec) -> dict[str, Any]:
    import torch
    import transformers.utils.import_utils as transformers_imports
    from torch._subclasses.fake_tensor import FakeTensorMode

    quiet_torch()
    transformers_imports.is_fake_tensor = lambda tensor: False  # it would take another path than an eager run does
    storages = Storages()
    with FakeTensorMode(allow_non_fake_inputs=True), storages.mode, attention_choice(spec):
        with storages.watch(0, "init"):
            model = build_model(spec)
            parameters = [p for p in model.parameters() if p.requires_grad]
            optimizer = make_optimizer(spec, parameters)
            batch = make_inputs(spec)
        storages.name("parameters", list(model.parameters()))
        storages.name("buffers_and_inputs", [*model.buffers(), *(v for v in batch.values() if isinstance(v, torch.Tensor))])
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(lambda p: storages.name("gradients", [p.grad]))
        for iteration in (1, 2):
            gc.collect()
            gc.disable()
            train_step(spec, model, optimizer, batch, lambda phase, i=iteration: storages.watch(i, phase))
            gc.enable()
            states = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
            storages.name("optimizer_states", [v for v in states if v.device.type == "cuda"])
    return {"phases": storages.peaks, "parameters": sum(p.numel() for p in model.parameters())}


# ---------------------------------------------------------------------------------------------- a device, stand-in or real


def ghost(spec: Spec) -> dict[str, Any]:
    strategy = spec.get("parallel", {}).get("strategy", "none")
    if strategy == "none":
        return {"phases": real_trace.run(spec, None)}
    if strategy != "deepspeed":
        raise SystemExit(f"{strategy} is not measured here: deepspeed is")
    import rank_trace

    return {"phases": rank_trace.run(spec, None)}


def used_memory() -> dict[str, int] | None:
    """What NVML says the first visible device has in use, by everyone. Does not touch CUDA: it tells of an idle device too."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    by_index = first.isdigit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(first)) if by_index else pynvml.nvmlDeviceGetHandleByUUID(first)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {"used": memory.used, "total": memory.total, "driver": pynvml.nvmlSystemGetDriverVersion()}


CATALOGUE = {"NVIDIA H100 80GB HBM3": "h100-80gb", "NVIDIA H200": "h200", "Tesla T4": "t4"}


def gpu_of(device: str, usable_bytes: int, major: int, minor: int) -> dict[str, Any]:
    """The job's gpu: by its name in presets/gpus.json, which also says what lies outside the allocator, else by its memory."""
    if device in CATALOGUE:
        return {"name": CATALOGUE[device]}
    return {"usable_bytes": usable_bytes, "compute_capability": f"{major}.{minor}"}


def place_image_tokens(spec: Spec) -> None:
    """On a real device the placeholders must be there: the first tokens of each sample. For models that do not look for them in
    get_placeholder_mask, or read them before (see place_by_features).
    """
    config, inputs = spec["model"].get("config", {}), spec["inputs"]
    pixels, ids = inputs.get("pixel_values", inputs.get("feature_attention_mask")), inputs.get("input_ids")
    if not pixels or not ids:
        return
    vision, kind, samples = config.get("vision_config", {}), config.get("model_type"), ids["shape"][0]
    token = config.get("image_token_index", config.get("image_token_id"))
    if kind in GRIDS:
        token = token or 151_655
        count = sum(math.prod(grid) for grid in inputs["image_grid_thw"]["values"]) // vision.get("spatial_merge_size", 2) ** 2 // samples
    elif kind in ("smolvlm", "idefics3"):
        token = token or 128_257
        side = vision.get("image_size", 224) // vision.get("patch_size", 32) // config.get("scale_factor", 2)
        count = side**2 * pixels["shape"][1]
    elif kind == "idefics2":
        token, count = token or 32_001, config.get("perceiver_config", {}).get("resampler_n_latents", 64) * pixels["shape"][1]
    elif kind == "qwen2_audio":
        token, count = config.get("audio_token_index", 151_646), inputs["feature_attention_mask"]["tokens"]
    else:
        return
    ids["image_tokens"] = [token or 32_000, count]


def place_by_features(model: Any) -> None:
    """Has the first tokens of each sample become placeholders, as many as there are features, when a model looks for them."""
    for module in model.modules():
        find = getattr(module, "get_placeholder_mask", None)
        if find is None:
            continue

        def placed(input_ids: Any, inputs_embeds: Any, *features: Any, module: Any = module, find: Any = find, **named: Any) -> Any:
            for kind in ("image", "audio"):
                given = named.get(f"{kind}_features", features[0] if features and kind == "image" else None)
                token = getattr(module.config, f"{kind}_token_id", None)
                if given is not None and token is not None and input_ids is not None:
                    count = given.numel() // inputs_embeds.shape[-1] // len(input_ids)
                    input_ids.data[:, :count] = token  # in place, and unseen by autograd: nothing is allocated
            return find(input_ids, inputs_embeds, *features, **named)

        module.get_placeholder_mask = placed


def of_length(spec: Spec, length: int) -> Spec:
    """The same with sequences of `length` tokens."""
    texts = {k: spec["inputs"][k] for k in ("input_ids", "labels", "position_ids") if k in spec["inputs"]}
    shorter = {k: given | {"shape": [*given["shape"][:-1], length]} for k, given in texts.items()}
    return spec | {"inputs": spec["inputs"] | shorter}


def give_values(model: Any) -> None:
    """Fills, in place, what no module's constructor does: experts and routers, made by torch.empty, are zero on a fresh device. With
    zeros all tokens go to the same experts, no expert has a gradient, and AdamW takes its slow path (docs/time.md).
    """
    for module in model.modules():
        if not hasattr(module, "reset_parameters"):
            for parameter in module.parameters(recurse=False):
                if parameter.dim() > 1 and parameter.is_floating_point():
                    parameter.data.normal_(std=0.02)


def give_tokens(model: Any, batch: dict[str, Any]) -> None:
    """Other words in place of one alone, for text without placeholders: a single word goes to the same few experts, and leaves the
    others without a gradient.
    """
    if any(name.startswith(("pixel_values", "input_features", "input_values")) for name in batch):
        return
    words = model.config.get_text_config().vocab_size
    for name in ("input_ids", "labels"):
        if name in batch and batch[name].dim() == 2:
            batch[name].random_(2, words)


def anywhere(_phase: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def step_seconds(step: Callable[[], None], times: int = 5) -> list[float]:
    """How long a warm step takes, `times` times, the device waited for."""
    import torch

    taken = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return taken


def gpu(spec: Spec, snapshot: str | None, cudnn: bool) -> dict[str, Any]:
    import torch

    place_image_tokens(spec)
    result: dict[str, Any] = {"idle": used_memory()}
    torch.zeros(1, device="cuda")
    result |= {"device": torch.cuda.get_device_name(), "context_only": used_memory(), "cuda": torch.version.cuda}
    result |= {"compute_capability": torch.cuda.get_device_capability(), "usable_bytes": torch.cuda.mem_get_info()[1]}
    torch.backends.cudnn.enabled = cudnn
    peaks = real_trace.Peaks()
    if snapshot:
        torch.cuda.memory._record_memory_history(max_entries=5_000_000)
    try:
        with attention_choice(spec):
            with peaks.phase(0, "init"):
                model = build_model(spec)
                give_values(model)
                place_by_features(model)
                generates, lengths = "inference" in spec, spec.get("lengths")
                optimizer = None if generates else make_optimizer(spec, [p for p in model.parameters() if p.requires_grad])
                scaler = make_scaler(spec, believe=True)  # the weights are whatever lies in memory
                batch = make_inputs(spec)
                give_tokens(model, batch)
            if generates:
                generate(spec, model, batch, peaks.phase)
            gc.collect()  # what loading a model left; a trainer collects it, too (accelerate's free_memory)
            for iteration in range(1, 0 if generates else len(lengths or (1, 2)) + 1):
                if lengths:
                    batch = make_inputs(of_length(spec, lengths[iteration - 1]))
                train_step(spec, model, optimizer, batch, lambda phase, i=iteration: peaks.phase(i, phase), scaler)
                torch.cuda.synchronize()
            result["used_after"], result["reserved_after"] = used_memory(), torch.cuda.memory_reserved()
            if not generates and not lengths:
                result["step_seconds"] = step_seconds(lambda: train_step(spec, model, optimizer, batch, anywhere, scaler))
    except torch.OutOfMemoryError as error:  # a measurement too
        result["out_of_memory"] = str(error)
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    result = {"used_after": used_memory(), "reserved_after": torch.cuda.memory_reserved()} | result | {"phases": peaks.rows}
    result["max_memory_allocated"] = max(row["allocated"] for row in peaks.rows)
    result["max_memory_reserved"] = max(row["reserved"] for row in peaks.rows)
    return result


# ---------------------------------------------------------------------------------------------- driver


def by_iteration(phases: list[dict[str, Any]]) -> list[dict[str, int]]:
    rows = [[row for row in phases if row["iteration"] == i] for i in (1, 2)]
    keys = [k for k in real_trace.STATISTICS if k in phases[0]]
    return [{k: max(row[k] for row in part) for k in keys} for part in rows if part]


def measured_here(backend: str, document: dict[str, Any], snapshot: str | None) -> dict[str, Any]:
    """One backend in this process, whose allocator nothing else has used."""
    spec, job = spec_of(document), document.get("job", document)
    spec |= {key: document[key] for key in ("lengths",) if key in document}
    if backend == "gpu":
        result = gpu(spec, snapshot, job.get("runtime", {}).get("cudnn", True))
    else:
        result = fake(spec) if backend == "fake" else ghost(spec)
    import torch
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return result | {"iterations": by_iteration(result["phases"])} | versions


def child(given: argparse.Namespace) -> None:
    result = measured_here(given.backend, json.loads(given.job.read_text()), given.snapshot)
    print(MARK + json.dumps(result), flush=True)
    os._exit(0)  # a fake process group does not shut down


def measured(backend: str, given: argparse.Namespace) -> dict[str, Any]:
    """One backend in a process of its own, with its own allocator."""
    environment = dict(os.environ)
    document = json.loads(given.job.read_text())
    if backend != "gpu" and given.ghost:
        environment |= ghost_environment(given.ghost, capability_of(document))
        environment |= {"DS_IGNORE_CUDA_DETECTION": "1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    environment["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"
    if document.get("job", document).get("runtime", {}).get("expandable_segments"):
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, __file__, str(given.job), "--backend", backend]
    command += ["--snapshot", given.snapshot] if given.snapshot and backend == "gpu" else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if MARK not in done.stdout:
        raise SystemExit(f"{backend} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.split(MARK)[1].splitlines()[0])


def capability_of(document: dict[str, Any]) -> str:
    """The stand-in device's compute capability, as the ghost wants it: "80" or "90"."""
    wanted = document.get("job", document).get("gpu", {})
    name = wanted.get("name", "h100-80gb")
    return wanted.get("compute_capability", "9.0" if name.startswith(("h100", "h200", "gh200")) else "8.0").replace(".", "")


def has_gpu() -> bool:
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("job", type=Path, help="an oometer job, or a case that holds one")
    arguments.add_argument("-o", "--out", type=Path)
    arguments.add_argument("--ghost", default=os.environ.get("GHOST_DIR"), help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--fake", action="store_true")
    arguments.add_argument("--gpu", action="store_true")
    arguments.add_argument("--snapshot", help="where the memory snapshot of a GPU run goes")
    arguments.add_argument("--backend", choices=("fake", "ghost", "gpu"), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.backend:
        return child(given)
    backends = [name for name in ("fake", "gpu") if getattr(given, name)]
    if given.ghost and not given.gpu:
        backends.append("ghost")
    if not backends:
        if not has_gpu():
            arguments.error("no GPU here: give --ghost DIR")
        backends = ["gpu"]
    document = json.loads(given.job.read_text())
    result = {backend: measured(backend, given) for backend in backends}
    for backend, numbers in result.items():
        for row in numbers["phases"]:
            shown = "  ".join(f"{k} {row[k]:,d}" for k in (*real_trace.STATISTICS, "rounded") if k in row)
            print(f"{backend:6s}{row['iteration']} {row['phase']:10s} {shown}")
    if given.out:
        given.out.write_text(json.dumps({"job": document.get("job", document), "result": result}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
