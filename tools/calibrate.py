"""Sets the intervals from what was measured on real GPUs: core/report/spread.h, tests/measured/gpumemnet.json.

    calibrate.py [--oometer FILE] [--check]     --check writes nothing: exit status 1 if the header is out of date

A kind of case is known by the runs of fitcheck.jsonl that are of it: one GPU, with weights in 4 bits or not. Split
conformal prediction with the largest of n errors as the bound: a new run of the same kind lies inside with a probability
of n / (n + 1), whatever the errors' distribution. As a check, each run is left out in turn and judged by the others; and
each model's, which is harder, as its runs are alike. Rows of published.jsonl set nothing: their conditions are not the
job's own.

Graphs with convolutions have GPUMemNet's runs (gpumemnet_timm.py), whose errors lean to one side: conformal quantiles of the signed
ones, an equal tail on both sides, as small as lets 95 % lie inside when each architecture (the class of a model) is left out in turn
and judged by the others. Those runs are no part of the project: what was found is kept in gpumemnet.json, and written anew where
they are at hand.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gpumemnet
import gpumemnet_lms
import gpumemnet_timm
from validate import HERE, MEASURED, answers, errors_of, measurements, peer_errors_of

HEADER = HERE / "core" / "report" / "spread.h"
GPUMEMNET = MEASURED / "gpumemnet.json"
COVERAGE = 0.95


def errors(oometer: Path) -> dict[str, list[tuple[str, float]]]:
    """By kind: of each run its model, and how far measured lies from predicted."""
    rows = measurements([MEASURED / "fitcheck.jsonl"])
    found: dict[str, list[tuple[str, float]]] = {"one_gpu": [], "one_gpu_4bit": []}
    for row, report in zip(rows, answers(oometer, rows), strict=True):
        kind = "one_gpu_4bit" if "quantization" in row["job"]["training"] else "one_gpu"
        found[kind].append((row["name"].split("_")[0], row["measured"]["reserved"] / report["peak"]["reserved"] - 1))
    return found


def bound(away: list[float]) -> float:
    """The conformal quantile of absolute errors: the ceil((n + 1) * coverage)-th, which has to exist."""
    rank = math.ceil((len(away) + 1) * COVERAGE)
    if rank > len(away):
        sys.exit(f"{len(away)} runs are too few for {COVERAGE:.0%}")
    return sorted(away)[rank - 1]


def left_out(runs: list[tuple[str, float]], same: Callable[[int, int], bool]) -> int:
    """How many runs lie inside of the largest error of those that are not left out with them."""
    return sum(abs(runs[i][1]) <= max(abs(runs[j][1]) for j in range(len(runs)) if not same(i, j)) for i in range(len(runs)))


def percent(share: float) -> str:
    digits = 0 if abs(share) >= 0.1 else 1 if abs(share) >= 0.01 else 2
    return f"{100 * share:.{digits}f} %"


def spread(errors: Iterable[float]) -> list[str]:
    """n, mean, median, 95th percentile, largest, shares within 1, 3, 5 and 10 %."""
    away = sorted(abs(e) for e in errors)
    p95 = away[min(len(away) - 1, math.ceil(0.95 * len(away)) - 1)]
    within = [f"{sum(e <= limit for e in away) / len(away):.0%}".replace("%", " %") for limit in (0.01, 0.03, 0.05, 0.10)]
    return [str(len(away)), *map(percent, (statistics.mean(away), statistics.median(away), p95, away[-1])), *within]


def both_sides(signed: Iterable[float], tail: float) -> tuple[float, float]:
    """The conformal quantiles of signed errors: beyond each lies a new one with a probability of at most `tail`."""
    ordered = sorted(signed)
    return ordered[math.floor((len(ordered) + 1) * tail) - 1], ordered[math.ceil((len(ordered) + 1) * (1 - tail)) - 1]


def image_models(oometer: Path) -> dict[str, Any] | None:
    """What GPUMemNet's runs of image models say, without the runs."""
    rows = list(gpumemnet_timm.rows())
    if not rows:
        return None
    of_family: dict[str, list[tuple[float, float, float]]] = {}  # reserved, whole device, FakeTensor
    refused: dict[str, str] = {}
    papers: dict[str, list[float]] = {}
    for row, report in zip(rows, answers(oometer, rows), strict=True):
        if "error" in report:
            refused[row["name"].rsplit("_", 1)[0]] = report["error"]
            continue
        measured, device = row["measured"]["device"], errors_of(row, report)["device"]
        peers = {peer: figure / measured - 1 for peer, figure in row["peers"].items()}
        if row["source"] == gpumemnet_timm.OF_THE_PAPER:
            for name, error in ({"oometer": device} | peers).items():
                papers.setdefault(name, []).append(error)
        else:
            signed = (measured - row["outside"]) / report["peak"]["reserved"] - 1
            of_family.setdefault(row["family"], []).append((signed, device, peers["FakeTensor"]))
    runs = [run for family in of_family.values() for run in family]
    tail, held = (1 - COVERAGE) / 2, 0
    while held < COVERAGE * len(runs):
        held = 0
        for left, its_runs in of_family.items():
            low, high = both_sides((run[0] for family, of in of_family.items() if family != left for run in of), tail)
            held += sum(low <= run[0] <= high for run in its_runs)
        tail -= 0.001
    low, high = both_sides((run[0] for run in runs), tail + 0.001)
    large = sorted((family for family in of_family.items() if len(family[1]) >= 40), key=lambda family: -len(family[1]))
    others = [run for family in of_family.values() if len(family) < 40 for run in family]
    return {
        "source": "itu-rad/GPUMemNet, Related_works/FakeTensor/fake_tensor.xlsx, paper_results_data.csv ; arXiv 2602.17817, CC BY 4.0",
        "runs": len(runs),
        "models": len({row["name"].rsplit("_", 1)[0] for row in rows if "family" in row}) - len(refused),
        "refused": len(refused),
        "families": len(of_family),
        "all": {"oometer": spread(run[1] for run in runs), "FakeTensor": spread(run[2] for run in runs)},
        "by_family": [[name, *spread(run[1] for run in of)] for name, of in [*large, ("others", others)]],
        "paper": {name: spread(errors) for name, errors in papers.items()},
        "interval": {"below": math.ceil(-low * 10000), "above": math.ceil(high * 10000), "held_out": held / len(runs)},
    }


def mlps(oometer: Path) -> list[str]:
    """How far GPUMemNet's MLPs are told; none without the data."""
    if not gpumemnet.MLPS.exists():
        return []
    rows = list(gpumemnet.rows(gpumemnet.MLPS))
    return spread(
        errors_of(row, report)["device"] for row, report in zip(rows, answers(oometer, rows), strict=True) if "error" not in report
    )


def language_models(oometer: Path) -> list[list[str]]:
    """A row for each language model of GPUMemNet's paper: name, measured, and the signed errors."""
    found = []
    rows = list(gpumemnet_lms.rows())
    for row, report in zip(rows, answers(oometer, rows), strict=True):
        if "error" in report:
            sys.exit(f"{row['name']}: {report['error']}")
        away = {"oometer": errors_of(row, report)["device"]} | peer_errors_of(row)
        signed = (f"{error:+.1%}".replace("%", " %") for error in away.values())
        found.append([row["name"], f"{row['measured']['device'] >> 20:,d} MiB", *signed])
    return found


def header(found: dict[str, list[tuple[str, float]]], images: dict[str, Any]) -> str:
    lines = []
    for kind, name in (("one_gpu", "kSpreadOneGpu"), ("one_gpu_4bit", "kSpreadOneGpu4Bit")):
        runs = found[kind]
        spread = math.ceil(bound([abs(error) for _, error in runs]) * 10000)
        alone = left_out(runs, lambda i, j: i == j)
        model = left_out(runs, lambda i, j, runs=runs: runs[i][0] == runs[j][0])
        lines.append(f"/// {len(runs)} runs. Left out one by one {alone} lie inside, model by model {model}.")
        lines.append(f"inline constexpr ReservedSpread {name}{{{len(runs)}, {spread}, {spread}}};")
    sides = images["interval"]
    lines.append(f"/// {images['runs']} runs. Architecture by architecture {sides['held_out']:.1%} lie inside what the others' make.")
    lines.append(f"inline constexpr ReservedSpread kSpreadConvolutions{{{images['runs']}, {sides['below']}, {sides['above']}}};")
    return f"""#pragma once

#include <cstdint>

/// Written by tools/calibrate.py: how far measured reserved bytes lie from the simulated ones. Of
/// tests/measured/fitcheck.jsonl (a Tesla T4) the largest error of n runs: a new one of the same kind lies inside with
/// a probability of n / (n + 1). Of tests/measured/gpumemnet.json (image models on an A100 40 GB) the quantiles between
/// which 95 % lie.
namespace oometer {{

struct ReservedSpread {{
  int runs = 0;            ///< real runs behind it
  std::int64_t below = 0;  ///< of the simulated bytes, in ten-thousandths
  std::int64_t above = 0;
}};

{chr(10).join(lines)}

}}  // namespace oometer
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oometer", type=Path, default=HERE / "build" / "native" / "oometer")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    images = None if arguments.check else image_models(arguments.oometer)
    if images:
        images["language"] = language_models(arguments.oometer) or json.loads(GPUMEMNET.read_text()).get("language", [])
        images["mlps"] = mlps(arguments.oometer) or json.loads(GPUMEMNET.read_text()).get("mlps", [])
        GPUMEMNET.write_text(json.dumps(images, indent=1, ensure_ascii=False) + "\n")
    text = header(errors(arguments.oometer), json.loads(GPUMEMNET.read_text()))
    if arguments.check:
        return int(HEADER.read_text() != text)
    HEADER.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
