"""Does a small learned correction of what is left over help on GPUs that it has not seen?

    correction.py [--oometer FILE]        needs numpy

For each measured run (seconds of a step: tests/measured/time/steps.jsonl, h100.jsonl and h200.jsonl; reserved bytes: what validate.py reads)
the logarithm of measured over computed is what a correction would have to say. Two are tried: one factor for all, and a ridge regression on
what the report has (shares of the time by kind and its size; shares of the memory by purpose and its size). All runs of one GPU are left out in
turn, the regression's strength is chosen among the others in the same way, and the errors of those left out are printed: as computed, and
corrected. docs/comparison.md says what came of it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measured_steps import ROOT, STEPS, of_ours
from validate import measurements

KINDS = ["gemm", "attention", "elementwise", "reduction", "copy", "index", "optimizer", "communication", "idle"]
STRENGTHS = (1.0, 10.0, 100.0, 1000.0)


class Run(NamedTuple):
    gpu: str
    features: list[float]
    off: float  # log of measured over computed


def report_of(oometer: str, job: dict[str, Any]) -> dict[str, Any] | None:
    command = [oometer, "estimate", "--json", "-"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def timed(oometer: str) -> list[Run]:
    rows = [json.loads(line) for line in STEPS.read_text().splitlines()]
    rows += [run for gpu in ("h100", "h200") for run in of_ours(ROOT / f"tests/measured/{gpu}.jsonl")]
    found = []
    for row in rows:
        report = report_of(oometer, row["job"])
        if report is None or report["time"] is None:
            continue
        time = report["time"]
        shares = [time["by_kind"].get(kind, 0) / time["step"] for kind in KINDS]
        found.append(Run(report["gpu"]["name"], [*shares, math.log(time["step"]), time["hfu"]], math.log(row["step"] / time["step"])))
    return found


def sized(oometer: str) -> list[Run]:
    found = []
    for row in measurements([ROOT / f"tests/measured/{name}.jsonl" for name in ("fitcheck", "fms", "h100", "h200", "published")]):
        measured = row["measured"].get("reserved")
        report = report_of(oometer, row["job"]) if measured else None
        if report is None:
            continue
        peak = report["peak"]
        shares = [report["breakdown"][part] / peak["allocated"] for part in sorted(report["breakdown"])]
        size = [math.log(peak["reserved"]), peak["reserved"] / peak["allocated"] - 1]
        found.append(Run(report["gpu"]["name"] or row["source"], [*shares, *size], math.log(measured / peak["reserved"])))
    return found


Correction = Callable[[Run], float]


def factor(runs: list[Run]) -> Correction:
    middle = statistics.median(run.off for run in runs)
    return lambda _: middle


def ridge(runs: list[Run], strength: float) -> Correction:
    x, y = np.array([run.features for run in runs]), np.array([run.off for run in runs])
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    z = (x - mean) / scale
    weights = np.linalg.solve(z.T @ z + strength * np.eye(z.shape[1]), z.T @ (y - y.mean()))
    return lambda run: float(y.mean() + (np.array(run.features) - mean) / scale @ weights)


def left_out(runs: list[Run], learn: Callable[[list[Run]], Correction]) -> list[tuple[Run, float]]:
    """Each run with what is left over of it once those of other GPUs have taught a correction."""
    found = []
    for gpu in sorted({run.gpu for run in runs}):
        correct = learn([run for run in runs if run.gpu != gpu])
        found += [(run, run.off - correct(run)) for run in runs if run.gpu == gpu]
    return found


def chosen_ridge(runs: list[Run]) -> Correction:
    def error(strength: float) -> float:
        return statistics.median(abs(off) for _, off in left_out(runs, lambda others: ridge(others, strength)))

    several = len({run.gpu for run in runs}) > 1
    return ridge(runs, min(STRENGTHS, key=error) if several else STRENGTHS[-1])


def line(name: str, offs: Iterable[float]) -> str:
    away = sorted(abs(math.expm1(-off)) for off in offs)
    return f"{name:24}{len(away):5}{statistics.median(away):9.1%}{away[math.ceil(0.9 * len(away)) - 1]:9.1%}{away[-1]:9.1%}"


def study(what: str, runs: list[Run]) -> None:
    print(f"\n{what}\n{'':24}{'runs':>5}{'median':>9}{'90 %':>9}{'worst':>9}")
    corrections = {"computed": [(run, run.off) for run in runs], "one factor": left_out(runs, factor), "ridge": left_out(runs, chosen_ridge)}
    for name, offs in corrections.items():
        print(line(name, (off for _, off in offs)))
    for gpu in sorted({run.gpu for run in runs}):
        for name, offs in corrections.items():
            print(line(f"  {gpu}: {name}", [off for run, off in offs if run.gpu == gpu]))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--oometer", default=str(ROOT / "build/native/oometer"))
    oometer = arguments.parse_args().oometer
    if not Path(oometer).exists():
        sys.exit(f"no command at {oometer}")
    study("seconds of a step", timed(oometer))
    study("reserved bytes", sized(oometer))


if __name__ == "__main__":
    main()
