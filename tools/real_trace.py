"""Runs one training step of real PyTorch on the ghost device and writes every malloc and free of its caching allocator.

    real_trace.py CASE.json OUT.jsonl --ghost DIR [--mode] [--steps 2]

CASE.json is an oometer job, a reference case, or a case's spec. No dispatch mode is active: a mode changes what PyTorch does
(gradients are then never accumulated in place). `--mode` puts one on all the same, for a comparison. tools/README.md has the format.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from step.batch import make_inputs
from step.device_values import DeviceValues, read_grids, route_evenly, visual_tokens
from step.generation import generate
from step.ghost import enter_ghost, quiet_torch
from step.job import spec_of
from step.model import build_model
from step.optimizer import make_optimizer
from step.spec import Spec
from step.training import attention_choice, averaged_model, make_scaler, train_step

FACTORIES = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "new_zeros",
    "resize_",
    "set_",
    "zeros",
    "zero_",
    "fill_",
}
FACTORIES |= {"zeros_like", "ones", "ones_like", "full", "new_full", "empty_permuted", "_efficientzerotensor", "full_like", "new_ones"}
STATISTICS = ("requested", "allocated", "active", "reserved")


class Modules:
    """Puts the path of each module into the profile, and remembers which module made which autograd node."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[str, str]] = {}
        self.stack: list[tuple[str, str]] = []
        self.ranges: list[Any] = []
        self.sequence: list[int] = []
        self.owner: list[tuple[str, str]] = []

    def watch(self, model: Any) -> None:
        import torch.nn.modules.module as hooks

        for name, module in model.named_modules(remove_duplicate=False):
            self.names.setdefault(id(module), (name, type(module).__name__))
        hooks.register_module_forward_pre_hook(self.enter)
        hooks.register_module_forward_hook(self.leave, always_call=True)

    def mark(self) -> None:
        import torch

        number, current = torch.autograd._get_sequence_nr(), self.stack[-1] if self.stack else ("", "")
        if self.sequence and self.sequence[-1] == number:
            self.owner[-1] = current
        else:
            self.sequence.append(number)
            self.owner.append(current)

    def enter(self, module: Any, _args: Any) -> None:
        import torch

        parent = self.stack[-1][0] if self.stack else ""
        self.stack.append(self.names.get(id(module), (parent, type(module).__name__)))
        scope = torch.profiler.record_function("module:{}:{}".format(*self.stack[-1]))
        scope.__enter__()
        self.ranges.append(scope)
        self.mark()

    def leave(self, _module: Any, _args: Any, _out: Any) -> None:
        if self.ranges:
            self.ranges.pop().__exit__(None, None, None)
            self.stack.pop()
        self.mark()

    def of_node(self, number: int) -> str:
        index = bisect.bisect_right(self.sequence, number) - 1
        return self.owner[index][0] if index >= 0 else ""


def context_of(path: list[Any], modules: Modules) -> dict[str, Any]:
    """The labels of a memory event, from the profile's events around it (outermost first)."""
    labels: dict[str, Any] = {"iteration": 0, "phase": "init", "module": "", "op": "", "path": "", "node": ""}
    ops: list[str] = []
    shapes: list[Any] = []
    recomputed = False
    for event in path:
        name = event.name
        if name.startswith("phase:"):
            _, iteration, labels["phase"] = name.split(":")
            labels["iteration"] = int(iteration)
        elif name.startswith("module:"):
            labels["module"] = name.split(":")[1]
            recomputed = labels["phase"] == "backward"
            ops = []
        elif name.startswith("autograd::engine::evaluate_function: "):
            labels["node"] = name.split(": ")[1].removeprefix("torch::autograd::")
            labels["module"], ops, recomputed = modules.of_node(event.extra_fields.sequence_number), [], False
        elif name.startswith("aten::"):
            ops.append(name[6:])
            if name[6:] not in FACTORIES or len(ops) == 1:
                labels["op"] = name[6:]
                shapes = [list(t.sizes) for t in event.extra_fields.inputs if hasattr(t, "sizes")]
    if recomputed:
        labels["recompute"] = True
    if not ops and path and not path[-1].name.startswith(("phase:", "module:", "autograd::")):
        labels["op"] = path[-1].name
    labels["path"] = "/".join(ops)
    if shapes:
        labels["shapes"] = shapes
    return labels


def memory_events(roots: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The profile's allocations and frees on the device in order, each with the events around it."""
    found: list[tuple[int, Any, list[Any]]] = []

    def walk(event: Any, path: list[Any]) -> None:
        if event.name == "[memory]":
            if event.extra_fields.device.type == "cuda":
                found.append((event.start_time_ns, event, path))
            return
        inner = [*path, event]
        for child in event.children:
            walk(child, inner)

    for root in roots:
        walk(root, [])
    yield from ((event, path) for _, event, path in sorted(found, key=lambda f: f[0]))


def paired(actions: list[dict[str, Any]], profiled: list[tuple[Any, list[Any]]]) -> Iterator[tuple[dict[str, Any], Any, list[Any]]]:
    """Each action of the allocator with its event in the profile; a dispatch mode hides some of these."""
    at = 0
    for action in actions:
        size = action["size"] if action["action"] == "alloc" else -1
        if at < len(profiled):
            event, path = profiled[at]
            if event.extra_fields.ptr == action["addr"] and (event.extra_fields.alloc_size > 0) == (size > 0):
                at += 1
                yield action, event, path
                continue
        yield action, None, []
    if at < len(profiled):
        raise SystemExit("the profile and the allocator's history are not in the same order")


def write(out: Path, profile: Any, history: list[dict[str, Any]], modules: Modules, named: dict[int, str]) -> int:
    """Pairs the profile (labels) with the allocator's history (requested bytes, stream), one to one."""
    actions = [e for e in history if e["action"] in ("alloc", "free_requested")]
    profiled = list(memory_events(profile.profiler.kineto_results.experimental_event_tree()))
    pairs = list(paired(actions, profiled))
    if missing := sum(event is None for _, event, _ in pairs):
        print(f"{missing} of the allocator's {len(actions)} actions are not in the profile: their labels are empty")
    streams = {s: i for i, s in enumerate(sorted({a["stream"] for a in actions}))}
    live: dict[int, dict[str, Any]] = {}
    lines: list[dict[str, Any]] = []
    primed: set[int] = set()
    for action, event, path in pairs:
        size = action["size"]
        labels = context_of(path, modules)
        if event is None and lines:
            labels |= {key: lines[-1][key] for key in ("iteration", "phase", "module")}
        if labels["path"].endswith("nonzero/empty") and size == 4:  # DeviceValues put the count there: not PyTorch's own
            primed.add(action["addr"])
            continue
        if action["addr"] in primed:
            primed.remove(action["addr"])
            continue
        labels["path"] = labels["path"].replace("nonzero/nonzero", "nonzero")
        if frames := [f"{short(f['filename'])}:{f['line']}:{f['name']}" for f in action.get("frames", [])]:
            labels["frame"] = next(iter(interesting(frames)), "")
            labels["frames"] = interesting(frames)[:4]
        if action["action"] == "alloc":
            line = {"event": "alloc", "bytes": size, "storage": len(lines), "stream": streams[action["stream"]], **labels}
            if event is not None:
                line["block"] = event.extra_fields.alloc_size
            live[action["addr"]] = line
        else:
            made = live.pop(action["addr"])
            line = {"event": "free", "bytes": made["bytes"], "storage": made["storage"], "stream": made["stream"], **labels}
            line.pop("shapes", None)
        lines.append(line)
    for address, line in live.items():
        if line["phase"] == "init" and address in named:
            line["module"], _, line["name"] = named[address].rpartition(".")
    with out.open("w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    return len(lines)


def short(name: str) -> str:
    for package in ("deepspeed", "transformers", "accelerate", "torch", "step"):
        if f"/{package}/" in name:
            return package + "/" + name.rsplit(f"/{package}/", 1)[1]
    return Path(name).name


def interesting(frames: list[str]) -> list[str]:
    """Python frames, innermost first, without the plumbing and without ours."""
    plumbing = ("torch/_ops.py", "torch/utils/_python_dispatch.py", "torch/utils/_contextlib.py", "torch/nn/modules/module.py")
    ours = ("real_trace.py", "step/", "rank_trace.py")
    return [f for f in frames if not f.startswith((*plumbing, *ours)) and ".py:" in f]


class Peaks:
    """Peaks of the allocator's statistics in each phase."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def phase(self, iteration: int, name: str) -> Iterator[None]:
        import torch

        torch.cuda.reset_peak_memory_stats()
        try:
            with torch.profiler.record_function(f"phase:{iteration}:{name}"):
                yield
        finally:  # memory may run out in it: the row says how far it came
            now = torch.cuda.memory_stats()
            row = {"iteration": iteration, "phase": name}
            row |= {k: now[f"{k}_bytes.all.peak"] for k in STATISTICS}
            row |= {f"end_{k}": now[f"{k}_bytes.all.current"] for k in STATISTICS}
            self.rows.append(row)

    def print(self) -> None:
        print(f"{'':18s}" + "".join(f"{k:>16s}" for k in STATISTICS) + f"{'end_allocated':>16s}")
        for row in self.rows:
            numbers = [row[k] for k in (*STATISTICS, "end_allocated")]
            print(f"{row['iteration']} {row['phase']:16s}" + "".join(f"{n:16,d}" for n in numbers))


def policies_mode(spec: Spec) -> Any:
    """A dispatch mode with the reference cases' answers to reads of device values (they were recorded under one)."""
    import math

    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten

    def masked_select(source: Any, mask: Any, count: int | None = None) -> Any:
        source, _ = torch.broadcast_tensors(source, mask)
        count = source.numel() if count is None else count
        index = torch.empty((count, source.dim()), dtype=torch.int64, device=source.device)
        out = torch.empty((count,), dtype=source.dtype, device=source.device)
        del index
        return out

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is aten._local_scalar_dense.default and args[0].is_cuda:
                kind = args[0].dtype
                return True if kind == torch.bool else 1.0 if kind.is_floating_point else spec.get("item_int", 0)
            if func is aten.masked_scatter_backward.default:
                return masked_select(args[0], args[1], math.prod(args[2])).view(args[2])
            if func is aten.masked_select.default and args[0].is_cuda:
                return masked_select(*args)
            return func(*args, **(kwargs or {}))

    return Mode()


def finish(peaks: Peaks, peaks_file: Path | None, trace: tuple[Path, Any, Modules, dict[int, str]] | None) -> None:
    """How a traced run ends: its trace is written (or there is none, and it was only measured), its peaks are printed and kept."""
    import torch

    if trace:
        out, profile, modules, named = trace
        count = write(out, profile, torch.cuda.memory._snapshot()["device_traces"][0], modules, named)
        print(f"{out}: {count} events")
    peaks.print()
    if peaks_file:
        peaks_file.write_text(json.dumps(peaks.rows) + "\n")


def run(
    spec: Spec,
    out: Path | None,
    peaks_file: Path | None = None,
    mode: bool = False,
    steps: int = 2,
    around: contextlib.AbstractContextManager[Any] | None = None,
) -> list[dict[str, Any]]:
    """Builds and runs the case; writes the trace to `out`, or without one only measures. Returns the peaks. Each iteration (of a
    generation, all of it) runs inside `around`.
    """
    import torch

    quiet_torch()
    modules, peaks = Modules(), Peaks()
    route_evenly(spec)
    keep = None if mode else DeviceValues(read_grids(spec), found=visual_tokens(spec))
    with contextlib.ExitStack() as stack:
        if out:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
            activities = [torch.profiler.ProfilerActivity.CPU]
            profile = stack.enter_context(torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True))
        if mode:
            stack.enter_context(policies_mode(spec))
        stack.enter_context(attention_choice(spec))
        with peaks.phase(0, "init"):
            model = build_model(spec)
            optimizer = None
            if "inference" not in spec:
                optimizer = make_optimizer(spec, [p for p in model.parameters() if p.requires_grad], model)
            averaged = None if "inference" in spec else averaged_model(spec, model)
            scaler = make_scaler(spec, believe=True)
            batch = make_inputs(spec)
        tensors = [*model.named_parameters(), *model.named_buffers(), *((f"inputs.{k}", v) for k, v in batch.items())]
        named = {t.data_ptr(): n for n, t in tensors if isinstance(t, torch.Tensor)}
        del tensors
        if out:
            modules.watch(model)
        if "inference" in spec:
            gc.collect()
            gc.disable()
            with around or contextlib.nullcontext():
                generate(spec, model, batch, peaks.phase)
        for iteration in range(1, steps + 1) if "inference" not in spec else ():
            gc.collect()
            gc.disable()
            with around or contextlib.nullcontext():
                train_step(spec, model, optimizer, batch, lambda name, i=iteration: peaks.phase(i, name), scaler, averaged)
            gc.enable()
    finish(peaks, peaks_file, out and (out, profile, modules, named))
    del keep
    return peaks.rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("case", type=Path)
    arguments.add_argument("out", type=Path, nargs="?")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--mode", action="store_true", help="under a dispatch mode, as the reference cases were recorded")
    arguments.add_argument("--steps", type=int, default=2)
    arguments.add_argument("--peaks", type=Path, help="write the peaks by phase here, as JSON")
    given = arguments.parse_args()
    enter_ghost(given.ghost)
    run(spec_of(json.loads(given.case.read_text())), given.out, given.peaks, given.mode, given.steps)


if __name__ == "__main__":
    main()
