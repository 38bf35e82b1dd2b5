"""The two ways check each other: 40 jobs over `oometer run` and over `estimate`, and where their steps differ. None may.

    both_ways.py [SPECS.jsonl]        (./dev validate --run) specs as of tools/trainer.py, a line each
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import trainer_cases

SPECS = Path(__file__).with_name("specs.jsonl")
KEYS = ("allocated", "reserved")


def steps_of_run(spec: dict[str, Any]) -> list[dict[str, int]]:
    from oometer.run import watch

    seen = watch.current
    seen.process = os.getpid()
    seen.steps.clear()
    seen.values.rules.integer = spec.get("item_int", 0)
    trainer_cases.train(spec)
    return [{key: step[key] for key in KEYS} for step in seen.steps]


def steps_of_estimate(spec: dict[str, Any]) -> list[dict[str, int]]:
    import oometer
    import trainer

    return [{key: step[key] for key in KEYS} for step in oometer.estimate(trainer.job_of(spec))["steps"]]


def compare(spec: dict[str, Any]) -> str:
    ours, theirs = steps_of_estimate(spec), steps_of_run(spec)
    count = min(len(ours), len(theirs))  # a run may have more steps than its estimate repeats
    return "equal" if count > 1 and ours[:count] == theirs[:count] else f"DIFFERS\n   estimate {ours}\n   run      {theirs}"


def main() -> None:
    trainer_cases.enter_run()
    sys.path.insert(0, str(trainer_cases.TOOLS))
    import trainer

    trainer.import_trainers(with_trl=True)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SPECS
    specs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    differ = 0
    for spec in specs:
        answer = trainer_cases.in_a_fork(lambda spec=spec: compare(spec))  # type: ignore[misc]
        differ += answer != "equal"
        print(spec["name"], answer, flush=True)
    print(f"{len(specs)} jobs, {differ} differ between `oometer run` and `estimate`")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
