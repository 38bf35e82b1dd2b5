"""The run's steps and peaks, in each of its processes."""

import atexit
import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from oometer.run.places import place_of

current: "Watch"


class Watch:
    """Counts optimizer steps, reads the allocator's peaks of each, and ends the run after so many.

    A step ends when its optimizers have stepped, and the next begins with the first operator that records a gradient;
    what happens in between (an evaluation, a checkpoint) is `between`.
    """

    def __init__(self, folder: str, steps: int, values: Any) -> None:
        global current
        current = self
        self.folder, self.wanted, self.values = Path(folder), steps, values
        self.process = os.getpid()
        self.steps: list[dict[str, int]] = []
        self.between = {"allocated": 0, "reserved": 0}
        self.stepped: list[int] = []  # the optimizers of the step that is open or was the last
        self.of_a_step = 0  # how many optimizers step in one
        self.is_open = False
        self.out_of_memory: str | None = None
        self.failure: str | None = None
        self.stopped_at: str | None = None
        self.notes: list[str] = []
        self.holders: Any = None
        self.written = False
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self.after_optimizer)
        self.hook, sys.excepthook = sys.excepthook, self.on_exception
        atexit.register(self.write)

    # --- steps

    def peaks(self) -> dict[str, int]:
        stats = torch.cuda.memory_stats()
        return {name: stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")}

    def begin(self) -> None:
        """An operator records a gradient: the first one of a step opens it."""
        if self.is_open or not torch.cuda.is_initialized():
            return
        self.is_open = True
        now = self.peaks()
        self.between = {key: max(value, now[key]) for key, value in self.between.items()}
        torch.cuda.reset_peak_memory_stats()
        if self.steps and not self.of_a_step:
            self.of_a_step = len(self.stepped)
        self.stepped = []

    def after_optimizer(self, optimizer: Any, *_: Any) -> None:
        if not torch.cuda.is_initialized() or os.getpid() != self.process:
            return
        self.ended(id(optimizer))

    def ended(self, optimizer: int) -> None:
        """An optimizer has stepped."""
        now = self.peaks()
        if self.is_open:
            self.steps.append(now)
            self.is_open = False
        elif self.steps:  # another one of the same step
            self.steps[-1] = {key: max(value, now[key]) for key, value in self.steps[-1].items()}
        else:
            self.steps.append(now)
        self.stepped.append(optimizer)
        torch.cuda.reset_peak_memory_stats()
        if len(self.steps) >= self.wanted and len(self.stepped) >= (self.of_a_step or 1):
            self.finish()

    def finish(self) -> None:
        """Ends the process: nothing that the script would do later is wanted, such as a checkpoint."""
        self.write()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def note(self, text: str) -> None:
        """What a person who reads the answer should know."""
        if text not in self.notes:
            self.notes.append(text)

    # --- how it ended

    def on_exception(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        place = place_of(traceback.extract_tb(trace))
        if isinstance(error, torch.OutOfMemoryError):
            self.out_of_memory = f"{str(error).split('. GPU')[0]}{place}"
        elif isinstance(error, KeyboardInterrupt):
            self.stopped_at = place.strip(" ()") or None
        else:
            self.failure = f"{kind.__name__}: {error}{place}"
        self.hook(kind, error, trace)

    def write(self) -> None:
        """What is known so far, for the command."""
        if self.written or os.getpid() != self.process or not torch.cuda.is_initialized():
            return
        self.written = True
        last = self.peaks()
        library = ctypes.CDLL(None)
        library.oometer_standin_peak.restype = ctypes.c_size_t
        device = torch.cuda.current_device()
        everything = [*self.steps, self.between, last]
        out = {
            "rank": int(os.environ.get("RANK", "0")),
            "peak": {key: max(row[key] for row in everything) for key in ("allocated", "reserved")},
            "device_peak": library.oometer_standin_peak(device),
            "steps": self.steps,
            "between": self.between,
            "out_of_memory": self.out_of_memory,
            "failure": self.failure,
            "holders": self.holders.at_peak(device) if self.holders else None,
            "notes": self.notes,
            "synthesised": dict(self.values.answered),
            "synthesised_at": self.values.places,
            "stopped_at": self.stopped_at,
            "versions": {
                name: getattr(sys.modules[name], "__version__", "")
                for name in ("torch", "transformers", "accelerate", "peft", "trl", "deepspeed")
                if name in sys.modules
            },
        }
        (self.folder / f"{self.process}.json").write_text(json.dumps(out), encoding="utf-8")
        if snapshot := os.environ.get("OOMETER_RUN_SNAPSHOT"):
            torch.cuda.memory._dump_snapshot(snapshot)
