"""Compares oometer with what others measured on real GPUs and published.

    validate.py [--oometer FILE] [MEASUREMENTS.jsonl ...]     default: all of tests/measured/

Needs nothing but Python. For each source: the errors, and beside them those of the source's own predictor for the same
runs. tests/measured/README.md says what a line holds. Where the table of published figures lies beside the checkout
(../shared/measured.csv), its rows are read there; tests/measured/published.jsonl has those that the project keeps.
So are GPUMemNet's runs (gpumemnet.py, gpumemnet_timm.py, gpumemnet_lms.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpumemnet
import gpumemnet_lms
import gpumemnet_timm
import published

HERE = Path(__file__).resolve().parent.parent
MEASURED = HERE / "tests" / "measured"
WHAT = {"allocated": "peak allocated", "reserved": "peak reserved", "device": "whole device"}
NAMED_FROM = 0.10  # an error from here on is told by name


def predict(oometer: Path, row: dict[str, Any]) -> dict[str, Any]:
    """The report, without what nobody here reads; its error where the job is refused. `graph` of a row: a file that is its model."""
    graph = ["--graph", row["graph"]] if "graph" in row else []
    command = [oometer, "estimate", "--json", *graph, "-"]
    run = subprocess.run(command, input=json.dumps(row["job"]), capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):  # 1: does not fit
        return {"error": run.stderr.strip()}
    report = json.loads(run.stdout)
    return {key: report[key] for key in ("verdict", "peak", "interval", "model")}


def measurements(files: list[Path]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for file in files or sorted(MEASURED.glob("*.jsonl")):
        if file == published.OUT and published.TABLE.exists():
            rows.extend(published.rows(published.TABLE))
        else:
            rows.extend(json.loads(line) for line in file.read_text().splitlines())
    if not files and gpumemnet.MLPS.exists():
        rows.extend(gpumemnet.rows(gpumemnet.MLPS))
    if not files:
        rows.extend(gpumemnet_timm.rows())
        rows.extend(gpumemnet_lms.rows())
    return with_graphs([row for row in rows if "probe" not in row])


def with_graphs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exports the graphs of rows that name a module (measure_plan.py); leaves out, with a line, those that have none."""
    named = {f"plan-{row['name']}": row for row in rows if "python" in row}
    if not named:
        return rows
    rows = [row for row in rows if "python" not in row]
    if not all(importlib.util.find_spec(name) for name in ("timm", "torchvision")):
        print(f"{len(named)} runs of modules: skipped, for want of timm and torchvision in this Python", file=sys.stderr)
        return rows
    batches = {name: row["job"]["data"]["micro_batch_size"] for name, row in named.items()}
    told = {name: row["python"] for name, row in named.items()}
    models: dict[str, gpumemnet_timm.Model] = {name: (t["callable"], t["arguments"], t["inputs"]) for name, t in told.items()}
    gpumemnet_timm.export_all(models, sorted(set(batches.values())))
    broken = gpumemnet_timm.told_without_graph(models)
    return rows + [row | {"graph": gpumemnet_timm.graph_of(name, batches[name])} for name, row in named.items() if name not in broken]


def answers(oometer: Path, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The report of each row, in order."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda row: predict(oometer, row), rows))


def errors_of(row: dict[str, Any], report: dict[str, Any]) -> dict[str, float]:
    """How far the report lies from each thing that was measured, as a share of it."""
    peak = report["peak"]
    ours = {"allocated": peak["allocated"], "reserved": peak["reserved"], "device": peak["total"]}
    if "outside" in row:  # what the source itself tells of the process, in place of the table's figure
        ours["device"] = peak["reserved"] + row["outside"]
    return {what: ours[what] / truth - 1 for what, truth in row["measured"].items()}


def lies_inside(row: dict[str, Any], report: dict[str, Any]) -> bool:
    """Whether what the whole device held lies in the interval; with `outside` as known as the source tells it."""
    shift = row["outside"] - report["peak"]["outside_allocator"] if "outside" in row else 0
    return report["interval"]["low"] + shift <= row["measured"]["device"] <= report["interval"]["high"] + shift


def peer_errors_of(row: dict[str, Any]) -> dict[str, float]:
    """The same of other predictors, of the whole device."""
    return {peer: predicted / row["measured"]["device"] - 1 for peer, predicted in row.get("peers", {}).items()}


def summary(errors: list[float]) -> str:
    away = sorted(abs(e) for e in errors)
    p95 = away[min(len(away) - 1, int(0.95 * len(away)))]
    within = " ".join(f"{sum(e <= limit for e in away) / len(away):5.0%}" for limit in (0.01, 0.03, 0.05, 0.10))
    return f"{len(away):4d} {statistics.mean(away):8.2%} {statistics.median(away):8.3%} {p95:8.2%} {away[-1]:8.2%}  {within}"


def validate(oometer: Path, files: list[Path]) -> None:
    rows = measurements(files)
    errors: dict[str, dict[str, list[float]]] = {}
    refused: dict[str, list[str]] = {}
    outliers: dict[str, list[str]] = {}  # by explanation
    told = false_fits = false_alarms = 0
    inside: dict[str, list[bool]] = {}
    for row, report in zip(rows, answers(oometer, rows), strict=True):
        if "error" in report:
            refused.setdefault(f"{row['source']}: {report['error'][:160]}", []).append(row["name"])
            continue
        told += 1
        of_source = errors.setdefault(row["source"], {})
        for what, error in errors_of(row, report).items():
            of_source.setdefault(WHAT[what], []).append(error)
            if abs(error) >= NAMED_FROM:
                why = f"{row['source']}, {WHAT[what]}. {row.get('why', 'Unexplained.')}"
                outliers.setdefault(why, []).append(f"{row['name']} {error:+.1%}")
        for peer, error in peer_errors_of(row).items():
            of_source.setdefault(f"{peer}, whole device", []).append(error)
        if "device" in row["measured"]:
            inside.setdefault(row["source"], []).append(lies_inside(row, report))
        # What was measured did fit.
        false_alarms += report["verdict"] == "does-not-fit" and not row.get("out_of_memory")
        false_fits += report["verdict"] == "fits" and bool(row.get("out_of_memory"))
    print(f"{'':42}   n     mean   median      95%      max   ≤1%   ≤3%   ≤5%  ≤10%")
    for source, parts in errors.items():
        for what, values in parts.items():
            print(f"{source + ': ' + what:42}{summary(values)}")
    print(f"\nfalse “fits”: {false_fits}; false “does not fit”: {false_alarms}, of {told} runs")
    for source, held in inside.items():
        print(f"{source}: whole device inside the interval: {sum(held)} of {len(held)} ({sum(held) / len(held):.1%})")
    for title, groups in (("Off by a tenth or more", outliers), ("Refused", refused)):
        if groups:
            print(f"\n{title}:")
            for reason, names in groups.items():
                print(f"  {reason}\n    {', '.join(names)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oometer", type=Path, default=HERE / "build" / "native" / "oometer")
    parser.add_argument("files", type=Path, nargs="*")
    arguments = parser.parse_args()
    if not arguments.oometer.exists():
        sys.exit(f"{arguments.oometer} is missing: ./dev build")
    validate(arguments.oometer, arguments.files)
