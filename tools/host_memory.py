"""Measures what a training process keeps in host memory, phase by phase, in real PyTorch on the ghost device.

    host_memory.py SPECS.jsonl --ghost DIR -o CASES.jsonl [--only NAME ...]

A spec: {"name", "job", "checkpoint": the checkpoint's type, "libraries": what the process imports}. The job says the model's config,
and how it runs:

    a loop "transformers.Trainer"     from_pretrained on the host, Trainer.train(), a checkpoint; a second process resumes from it
    strategy "deepspeed"              from_pretrained (stage 3: under HfDeepSpeedConfig), deepspeed.initialize with CPU Adam, two steps
    strategy "fsdp1" or "fsdp2"       from_pretrained, wrapped with CPU offload, two steps
    a plain step                      from_pretrained, model.to("cuda"), two steps

The checkpoint is a real one, of random weights. A second process watches /proc/PID/status. What the ghost leaves out is done by a small
library in front of it: pinned memory is resident as soon as it is there, and a copy between host and device touches the host's side.

A case's truth: "baseline": the process when libraries are imported and the device is there; "phases": by name the peaks of "rss",
"anonymous" (with shared memory) and "file" (mapped files), and "pinned", what PyTorch's pinned allocator has at the phase's end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from step.ghost import ghost_environment, quiet_torch

# cudaMemcpyKind: 1 to the device, 2 to the host. The ghost copies up to 16 MiB, which would put its device into host memory: only small
# inputs are left to it.
TOUCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>
static void every_page(volatile char *p, size_t n, int writes) {
  for (size_t i = 0; i < n; i += 4096) { char c = p[i]; if (writes) p[i] = c; }
  if (n) { char c = p[n - 1]; if (writes) p[n - 1] = c; }
}
int cudaHostAlloc(void **p, size_t n, unsigned flags) {
  static int (*real)(void **, size_t, unsigned);
  if (!real) real = dlsym(RTLD_NEXT, "cudaHostAlloc");
  int failed = real(p, n, flags);
  if (!failed) every_page(*p, n, 1);
  return failed;
}
static void touch(void *to, const void *from, size_t n, int kind) {
  if (kind == 1) every_page((volatile char *)from, n, 0);
  if (kind == 2) every_page(to, n, 1);
}
int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream) {
  static int (*real)(void *, const void *, size_t, int, void *);
  if (!real) real = dlsym(RTLD_NEXT, "cudaMemcpyAsync");
  touch(to, from, n, kind);
  return n > 65536 ? 0 : real(to, from, n, kind, stream);
}
int cudaMemcpy(void *to, const void *from, size_t n, int kind) {
  static int (*real)(void *, const void *, size_t, int);
  if (!real) real = dlsym(RTLD_NEXT, "cudaMemcpy");
  touch(to, from, n, kind);
  return n > 65536 ? 0 : real(to, from, n, kind);
}
"""
FIELDS = {"VmRSS": "rss", "RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shmem"}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


# --- the process that trains ------------------------------------------------------------------------------------------


class Marks:
    """When a phase ended, for whoever watches."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w")

    def end(self, phase: str) -> None:
        import torch

        pinned = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0) if torch.cuda.is_initialized() else 0
        print(json.dumps({"phase": phase, "at": time.monotonic(), "pinned": pinned}), file=self.file, flush=True)
        time.sleep(0.05)


def load(folder: str, spec: dict[str, Any]) -> Any:
    import torch
    import transformers

    dtype = getattr(torch, DTYPES[str(spec["job"]["training"]["precision"]).removeprefix("amp-")])
    if str(spec["job"]["training"]["precision"]).startswith("amp-"):
        dtype = torch.float32
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def batches(spec: dict[str, Any], count: int) -> list[dict[str, Any]]:
    import torch

    data = spec["job"]["data"]
    ids = torch.full((data["sequence_length"],), 5)
    return [{"input_ids": ids, "labels": ids.clone()} for _ in range(count * data["micro_batch_size"])]


def run_trainer(spec: dict[str, Any], folder: str, out: str, marks: Marks, resume: bool) -> None:
    import torch
    import transformers

    torch.zeros(1, device="cuda")
    marks.end("baseline")
    model = load(folder, spec)
    args = dict(spec["job"]["training"]["loop"].get("args", {}))
    given = {"output_dir": out, "max_steps": 4 if resume else 2, "save_steps": 2, "report_to": [], "logging_strategy": "no", **args}
    given |= {"per_device_train_batch_size": spec["job"]["data"]["micro_batch_size"], "disable_tqdm": True}
    if resume:
        given["save_strategy"] = "no"
    trainer = transformers.Trainer(model=model, args=transformers.TrainingArguments(**given), train_dataset=batches(spec, 8))

    class Phases(transformers.TrainerCallback):
        begun = False

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            marks.end("resuming" if resume else "loading")

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step >= 2:
                marks.end("training")

        def on_save(self, *_: Any, **__: Any) -> None:
            marks.end("saving")

    trainer.add_callback(Phases())
    torch.isfinite = lambda x: torch.ones_like(x, dtype=torch.bool, device="cpu") if x.is_cuda else torch.isreal(x)
    trainer.train(resume_from_checkpoint=resume)


def run_steps(spec: dict[str, Any], folder: str, marks: Marks) -> None:
    import torch

    strategy = spec["job"].get("parallel", {"strategy": "none"})["strategy"]
    data, training = spec["job"]["data"], spec["job"]["training"]
    if strategy == "none":
        torch.zeros(1, device="cuda")
        marks.end("baseline")
        model = load(folder, spec)
        take = model.to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        backward = torch.Tensor.backward

        def step() -> None:
            optimizer.step()
            optimizer.zero_grad()
    elif strategy == "deepspeed":
        take, backward, step = with_deepspeed(spec, folder, marks)
        model = take.module
    else:
        take, backward, step = with_fsdp(spec, folder, marks)
        model = take
    checkpointing = training.get("activation_checkpointing", "none")
    if isinstance(checkpointing, dict) and checkpointing.get("offload"):
        model.gradient_checkpointing_enable({"use_reentrant": False, "offload": True})
    model.train()
    model.config.use_cache = False
    saves = training.get("save_on_cpu")
    marks.end("loading" if strategy == "none" else "wrapping")
    accumulation = training.get("gradient_accumulation_steps", 1)
    ids = torch.full((data["micro_batch_size"], data["sequence_length"]), 5, device="cuda")
    for _ in range(2):
        for micro in range(accumulation):
            on_cpu = torch.autograd.graph.save_on_cpu(pin_memory=saves == "pinned") if saves else contextlib.nullcontext()
            with on_cpu:
                loss = take(input_ids=ids, labels=ids).loss
            backward(loss)
            if micro < accumulation - 1 and strategy == "deepspeed":
                step()
        step()
    marks.end("training")


def with_deepspeed(spec: dict[str, Any], folder: str, marks: Marks) -> tuple[Any, Any, Any]:
    import deepspeed
    import torch
    from deepspeed.ops.op_builder import CPUAdamBuilder
    from transformers.integrations import HfDeepSpeedConfig

    import rank_trace

    class Kernel:
        """The extension: it writes to its arguments and allocates nothing (csrc/adam/cpu_adam_impl.cpp)."""

        create_adam = destroy_adam = staticmethod(lambda *_: None)

        @staticmethod
        def adam_update(*given: Any) -> None:
            for tensor in given[-4:]:
                tensor.mul_(1)

    CPUAdamBuilder.load = lambda *_, **__: Kernel
    torch.zeros(1, device="cuda")
    parallel, training = spec["job"]["parallel"], spec["job"]["training"]
    join(parallel)
    rank_trace.believe_nothing()
    marks.end("baseline")
    config = json.loads(json.dumps(parallel["ds_config"]))
    config |= {"train_micro_batch_size_per_gpu": spec["job"]["data"]["micro_batch_size"], "bf16": {"enabled": True}}
    config |= {"gradient_accumulation_steps": training.get("gradient_accumulation_steps", 1), "zero_allow_untested_optimizer": True}
    held = HfDeepSpeedConfig(config) if config["zero_optimization"]["stage"] == 3 else None
    model = load(folder, spec)
    if held is None:
        model.to("cuda")  # as the engine does, before its optimizer is made
    marks.end("loading")
    groups = rank_trace.groups_of(model, 2, 0.0)
    if config["zero_optimization"].get("offload_optimizer"):
        optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(groups)
    else:
        optimizer = torch.optim.AdamW(groups, fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    del held
    return engine, engine.backward, engine.step


def join(parallel: dict[str, Any]) -> None:
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = parallel.get("data", 1)
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    torch.distributed.init_process_group(backend="fake", store=FakeStore(), rank=0, world_size=world)


def with_fsdp(spec: dict[str, Any], folder: str, marks: Marks) -> tuple[Any, Any, Any]:
    import functools

    import torch
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    parallel = spec["job"]["parallel"]
    torch.zeros(1, device="cuda")
    join(parallel)
    marks.end("baseline")
    model = load(folder, spec)
    wrapped = {m for m in model.modules() if type(m).__name__ in parallel["fsdp"]["wrap"]}
    if parallel["strategy"] == "fsdp1":
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(m) for m in wrapped})
        taken = fsdp.FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=0, use_orig_params=True, cpu_offload=fsdp.CPUOffload(offload_params=True)
        )
    else:
        mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (parallel["data"],))
        for module in [*wrapped, model]:
            fsdp.fully_shard(module, mesh=mesh, offload_policy=fsdp.CPUOffloadPolicy())
        taken = model
    optimizer = torch.optim.AdamW(taken.parameters(), fused=True)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return taken, torch.Tensor.backward, step


def child(given: argparse.Namespace) -> None:
    spec = json.loads(Path(given.child).read_text())
    import torch
    import transformers  # noqa: F401

    for name in spec["libraries"]:
        __import__(name)
    quiet_torch()
    marks = Marks(Path(given.marks))
    loop = spec["job"]["training"].get("loop", "step")
    if isinstance(loop, dict) and loop["name"] == "transformers.Trainer":
        run_trainer(spec, given.checkpoint, given.work, marks, given.resume)
    else:
        run_steps(spec, given.checkpoint, marks)
    del torch
    sys.stdout.flush()
    os._exit(0)


# --- the one that watches ---------------------------------------------------------------------------------------------


def status(pid: int) -> dict[str, int] | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = {FIELDS[key]: int(rest.split()[0]) * 1024 for key, _, rest in (line.partition(":") for line in lines) if key in FIELDS}
    return found if "rss" in found else None


def workers_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def private(pid: int) -> int:
    """Pages of a process that no other has."""
    with contextlib.suppress(OSError, StopIteration):
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(("Private_Dirty", "Private_Clean")))
    return 0


def watch(command: list[str], environment: dict[str, str], marks: Path) -> dict[str, Any]:
    process = subprocess.Popen(command, env=environment)
    samples: list[tuple[float, dict[str, int]]] = []
    workers: dict[int, int] = {}
    turn = 0
    while process.poll() is None:
        if now := status(process.pid):
            samples.append((time.monotonic(), now))
        turn += 1
        if turn % 100 == 0:
            for worker in workers_of(process.pid):
                workers[worker] = max(workers.get(worker, 0), private(worker))
        time.sleep(0.002)
    if process.returncode:
        raise SystemExit(f"the process ended with {process.returncode}")
    rows: dict[str, Any] = {}
    before = 0.0
    for mark in map(json.loads, marks.read_text().splitlines()):
        ours = [s for at, s in samples if before < at <= mark["at"] + 0.03]
        if mark["phase"] == "baseline":
            ours = ours[-1:] if (ours := [s for at, s in samples if at <= mark["at"] + 0.03]) else []
        peaks = {
            "rss": max((s["rss"] for s in ours), default=0),
            "anonymous": max((s["anonymous"] + s["shmem"] for s in ours), default=0),
            "file": max((s["file"] for s in ours), default=0),
            "pinned": mark["pinned"],
        }
        if mark["phase"] in rows:
            peaks = {key: max(value, rows[mark["phase"]][key]) for key, value in peaks.items()}
        rows[mark["phase"]] = peaks
        before = mark["at"] + 0.03
    if workers:
        rows["workers"] = sorted(workers.values())
    return rows


def make_checkpoint(spec: dict[str, Any], folder: Path) -> None:
    code = (
        "import sys, json, torch, transformers\n"
        "config = json.loads(sys.argv[1]); kind = config.pop('architectures')[0]\n"
        "cls = getattr(transformers, kind)\n"
        "with torch.device('cpu'): model = cls._from_config(cls.config_class(**config), dtype=getattr(torch, sys.argv[2]))\n"
        "model.save_pretrained(sys.argv[3])\n"
    )
    given = [json.dumps(spec["job"]["model"]["config"]), DTYPES[spec["checkpoint"]], str(folder)]
    subprocess.run([sys.executable, "-c", code, *given], check=True, env={**os.environ, "TRANSFORMERS_DISABLE_TORCH_CHECK": "1"})


def record(spec: dict[str, Any], ghost: str, checkpoints: Path, touch: Path) -> dict[str, Any]:
    key = str(abs(hash(json.dumps([spec["job"]["model"]["config"], spec["checkpoint"]], sort_keys=True))))
    checkpoint = checkpoints / key
    if not checkpoint.exists():
        make_checkpoint(spec, checkpoint)
    distributed = spec["job"].get("parallel", {}).get("strategy", "none") != "none"
    environment = {**os.environ, **ghost_environment(ghost, "90" if distributed else "80")}
    environment["LD_PRELOAD"] = f"{touch}:{environment['LD_PRELOAD']}"
    environment |= {"DS_IGNORE_CUDA_DETECTION": "1", "TORCHELASTIC_RESTART_COUNT": "0", "CUDA_VISIBLE_DEVICES": "0"}
    phases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "spec.json").write_text(json.dumps(spec))
        loop = spec["job"]["training"].get("loop", "step")
        resumes = isinstance(loop, dict) and loop["name"] == "transformers.Trainer" and spec.get("resumes", True)
        for resume in (False, True) if resumes else (False,):
            command = [sys.executable, __file__, "--child", f"{work}/spec.json", "--checkpoint", str(checkpoint), "--work", f"{work}/out"]
            command += ["--marks", f"{work}/marks", *(["--resume"] if resume else [])]
            rows = watch(command, environment, Path(work) / "marks")
            phases |= {name: row for name, row in rows.items() if not resume or name == "resuming"}
    baseline = phases.pop("baseline")
    workers = phases.pop("workers", None)
    truth = {"baseline": baseline, "phases": phases} | ({"workers": workers} if workers else {})
    return {"name": spec["name"], "job": spec["job"], "libraries": spec["libraries"], "truth": truth}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("specs", type=Path, nargs="?")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("-o", "--out", type=Path)
    arguments.add_argument("--only", nargs="*", default=[])
    for hidden in ("--child", "--checkpoint", "--work", "--marks"):
        arguments.add_argument(hidden, help=argparse.SUPPRESS)
    arguments.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child:
        child(given)
    ghost = given.ghost or os.environ["GHOST_DIR"]
    with tempfile.TemporaryDirectory() as folder:
        source, touch = Path(folder) / "touch.c", Path(folder) / "libtouch.so"
        source.write_text(TOUCH)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(touch), str(source), "-ldl"], check=True)
        for line in given.specs.read_text().splitlines():
            spec = json.loads(line)
            if given.only and spec["name"] not in given.only:
                continue
            try:
                case = json.dumps(record(spec, ghost, Path(folder) / "checkpoints", touch))
            except SystemExit as failed:
                print(f"{spec['name']}: {failed}", file=sys.stderr)
                continue
            print(case, flush=True)
            if given.out:
                with given.out.open("a") as file:
                    print(case, file=file)


if __name__ == "__main__":
    main()
