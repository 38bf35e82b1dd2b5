"""Sets the intervals from what was measured on real GPUs: core/report/spread.h.

    calibrate.py [--oometer FILE] [--check]     --check writes nothing: exit status 1 if the header is out of date

A kind of case is known by the runs of fitcheck.jsonl that are of it: one GPU, with weights in 4 bits or not. Split
conformal prediction with the largest of n errors as the bound: a new run of the same kind lies inside with a probability
of n / (n + 1), whatever the errors' distribution. As a check, each run is left out in turn and judged by the others; and
each model's, which is harder, as its runs are alike. Rows of published.jsonl set nothing: their conditions are not the
job's own.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

from validate import HERE, MEASURED, answers, measurements

HEADER = HERE / "core" / "report" / "spread.h"
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


def header(found: dict[str, list[tuple[str, float]]]) -> str:
    lines = []
    for kind, name in (("one_gpu", "kSpreadOneGpu"), ("one_gpu_4bit", "kSpreadOneGpu4Bit")):
        runs = found[kind]
        spread = math.ceil(bound([abs(error) for _, error in runs]) * 10000)
        alone = left_out(runs, lambda i, j: i == j)
        model = left_out(runs, lambda i, j, runs=runs: runs[i][0] == runs[j][0])
        lines.append(f"/// {len(runs)} runs. Left out one by one {alone} lie inside, model by model {model}.")
        lines.append(f"inline constexpr ReservedSpread {name}{{{len(runs)}, {spread}}};")
    return f"""#pragma once

#include <cstdint>

/// Written by tools/calibrate.py from tests/measured/fitcheck.jsonl (runs on a Tesla T4): how far reserved bytes
/// lie from the simulated ones. The largest error of n runs: a new one of the same kind lies inside with a
/// probability of n / (n + 1).
namespace oometer {{

struct ReservedSpread {{
  int runs = 0;                 ///< real runs behind it
  std::int64_t either_way = 0;  ///< of the simulated bytes, in ten-thousandths
}};

{chr(10).join(lines)}

}}  // namespace oometer
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oometer", type=Path, default=HERE / "build" / "native" / "oometer")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = header(errors(arguments.oometer))
    if arguments.check:
        return int(HEADER.read_text() != text)
    HEADER.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
