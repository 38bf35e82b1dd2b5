"""Counts the FLOPs of recorded cases by operator, and writes them into the cases: `flops` in their `truth`.

    flops.py CASES.jsonl ... --ghost DIR [--only NAME] [--again]

They are what torch.utils.flop_counter.FlopCounterMode counts in iteration 2 (of a generation: in all its turns) of a case of
tests/reference that one process runs; of graphs.jsonl and graphs_inference.jsonl the module is run that the graph was exported from.
Cases that have them already are not run again. One that cannot be run here, or whose job says less than it was recorded with (its
peak is another), is named, and stays as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import real_trace
from measure import capability_of
from step.ghost import enter_ghost
from step.job import spec_of as spec_of_job
from step.spec import CLASSES, Spec

SECONDS = 600  # for a case


def graph_specs(*, inference: bool) -> dict[str, Spec]:
    import graph_cases

    specs: dict[str, Spec] = {}
    for name, python, arguments, inputs, batch in graph_cases.cases():
        classifies = not inference and python != f"graph_modules:{name.split('_')[0]}"
        specs[name] = graph_cases.spec_of(python, arguments, inputs, batch, "adamw", classifies=classifies)
        specs[name] |= {"inference": {}} if inference else {}
    return specs


def runs_here(case: dict[str, Any]) -> bool:
    """Not what several processes ran, or another version; nor packages' kernels, as transformers has been imported without them."""
    job = case.get("job", {})
    runtime = job.get("runtime", {})
    is_one = job.get("parallel", {}).get("strategy", "none") == "none"
    return is_one and "transformers" not in runtime and runtime.get("kernels", "torch") == "torch"


def spec_of(case: dict[str, Any], graphs: dict[str, Spec]) -> Spec:
    return graphs[case["name"]] if "graph" in case else spec_of_job(case)


class Counted(TypedDict):
    flops: dict[str, int]
    requested: int  # the peak of the first iteration, bytes


class AfterTheFirst(contextlib.AbstractContextManager[None]):
    """Around each iteration: the counter, but for the first. Under it checkpoints hold more, so that peaks are compared there."""

    def __init__(self, counter: contextlib.AbstractContextManager[Any]) -> None:
        self.counter = counter
        self.entered = 0

    def __enter__(self) -> None:
        self.entered += 1
        if self.entered > 1:
            self.counter.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.entered > 1:
            self.counter.__exit__(*error)


class NoModules(contextlib.nullcontext[None]):
    """In place of the counter's ModuleTracker: its hooks stop functions that run their own backward (Liger's, MEFT's)."""

    parents = frozenset({"Global"})


def count(spec: Spec) -> Counted:
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    counter.mod_tracker = NoModules()
    rows = real_trace.run(spec, None, around=counter if "inference" in spec else AfterTheFirst(counter))
    return {
        "flops": {str(op): flops for op, flops in sorted(counter.get_flop_counts()["Global"].items(), key=str)},
        "requested": max(row["requested"] for row in rows if row["iteration"] == 1),
    }


def apart(run: Callable[[], Any], capability: str) -> Any:
    """What `run` gives in a process of its own, as libraries and tools patch torch and transformers; None where it fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        os.environ["GHOST_SM"] = capability
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = run()
            os.write(writer, json.dumps(found).encode())
        except (Exception, SystemExit):  # a case that does not run stops no other
            traceback.print_exc(limit=-2)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("cases", type=Path, nargs="+")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--only", default="", help="cases whose name begins so")
    arguments.add_argument("--again", action="store_true", help="those that have been counted, too")
    given = arguments.parse_args()
    enter_ghost(given.ghost)
    import transformers

    for name in CLASSES.values():
        getattr(transformers, name)
    for file in given.cases:
        cases = [json.loads(line) for line in file.read_text().splitlines()]
        graphs = graph_specs(inference="inference" in file.stem) if file.name.startswith("graphs") else {}
        for case in cases:
            truths = [its["truth"] for its in case.get("cases", [case])]  # a graph's by optimizer
            if not case["name"].startswith(given.only) or ("flops" in truths[0] and not given.again) or not runs_here(case):
                continue
            begin = time.monotonic()
            counted = apart(lambda case=case, graphs=graphs: count(spec_of(case, graphs)), capability_of(case) if "job" in case else "80")
            recorded = truths[0]["iterations"][0]["requested"]
            outcome = "NOT RUN" if counted is None else "ANOTHER RUN" if counted["requested"] != recorded else ""
            print(f"{file} {case['name']}: {time.monotonic() - begin:.1f} s {outcome}", flush=True)
            if counted is not None and not outcome:
                for truth in truths:
                    truth["flops"] = counted["flops"]
                file.write_text("".join(json.dumps(c, separators=(",", ":")) + "\n" for c in cases))


if __name__ == "__main__":
    main()
