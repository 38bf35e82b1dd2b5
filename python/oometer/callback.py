"""Will it fit, asked where the training starts; and what it really took, where it ends."""

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import oometer
from oometer import html
from oometer.huggingface import job_from

_SAMPLES = 256  # of the data set, whose lengths are looked at
_ENOUGH_STEPS = 5


class DoesNotFitError(RuntimeError):
    """The training was stopped before its first step. `check` is the answer."""

    def __init__(self, check: oometer.Check) -> None:
        self.check = check
        super().__init__(str(check))


class FitsCallback(TrainerCallback):
    """For `Trainer(callbacks=[oometer.FitsCallback()])`: raises DoesNotFitError before the first step of a training that does
    not fit, and at the end writes the predicted peak beside the measured one.

    gpu: a GPU of `oometer presets`; the one of this machine otherwise.
    sequence_length: tokens of the longest sample; otherwise that of the first samples of the data set.
    strict: a tight fit stops it too.
    log: a file to which a line is added at the end, JSON; it stays on this machine. `oometer estimate --telemetry FILE` reads it.
    """

    def __init__(
        self,
        gpu: str = "",
        *,
        sequence_length: int | None = None,
        strict: bool = False,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        self.gpu, self.sequence_length, self.strict = gpu, sequence_length, strict
        self.log = Path(log) if log else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "oometer/runs.jsonl"
        self.check: oometer.Check | None = None
        self.job: dict[str, Any] = {}
        self.begun: list[float] = []  # when each step began

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        length = self.sequence_length or getattr(args, "max_length", None) or _longest(kwargs.get("train_dataloader"))
        try:
            self.job = job_from(kwargs["model"], args=args, sequence_length=length, gpu=self.gpu)
        except oometer.JobError as error:
            print(f"oometer does not know this training: {error}")
            return
        if not self.gpu and torch.cuda.is_available():
            self.job["gpu"] = _this_gpu()
        self.check = oometer.check(self.job, strict=self.strict)
        if state.is_world_process_zero:
            print(f"oometer: {self.check}")
        if not self.check:
            raise DoesNotFitError(self.check)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begun.append(time.monotonic())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.check is None or not torch.cuda.is_available() or not state.is_world_process_zero:
            return
        predicted = self.check["peak"]
        measured = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        for name, size in measured.items():
            print(f"oometer: peak {name}: {html.gib(predicted[name])} predicted, {html.gib(size)} measured")
        line = {
            "time": int(time.time()),
            "oometer": oometer.__version__,
            "gpu": torch.cuda.get_device_name(),
            "predicted": {name: predicted[name] for name in measured},
            "measured": measured | _step_seconds(self.begun),
            "job": self.job,
        }
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _this_gpu() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"usable_bytes": properties.total_memory, "compute_capability": f"{properties.major}.{properties.minor}"}


def _step_seconds(begun: list[float]) -> dict[str, float]:
    """From one step's begin to the next, in the middle: few are followed by an evaluation, and the first two warm up."""
    steps = [later - earlier for earlier, later in zip(begun[2:], begun[3:], strict=False)]
    return {"step_seconds": statistics.median(steps)} if len(steps) >= _ENOUGH_STEPS else {}


def _longest(loader: Any) -> int | None:
    """Of the first samples, without touching the loader's own order."""
    data = getattr(loader, "dataset", None)
    lengths = []
    try:
        for i in range(min(_SAMPLES, len(data))):  # type: ignore[arg-type]
            lengths.append(len(data[i]["input_ids"]))  # type: ignore[index]
    except (TypeError, KeyError, IndexError):  # a stream, or samples of another kind
        return None
    return max(lengths, default=None)
