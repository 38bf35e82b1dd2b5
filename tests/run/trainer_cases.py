"""Recorded trainer runs, as scripts without a word about the stand-in, under `oometer run`: the same peaks?

    trainer_cases.py CASE.json ...        each {"spec": as of tools/trainer.py, "result": {"steps": [peaks]}}

Each case is a fork of one process that has imported everything, so that a case takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"
SITE = Path(__file__).parents[2] / "python/oometer/run/site"
PEAKS = ("requested", "allocated", "reserved")


def enter_run() -> None:
    """Starts this program again as `oometer run` starts a script."""
    from oometer.run.command import libraries

    if os.environ.get("OOMETER_RUN"):
        return
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    quiet |= {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1", "TRANSFORMERS_DISABLE_TORCH_CHECK": "1", "ACCELERATE_DISABLE_RICH": "1"}
    path = os.pathsep.join([str(SITE), str(SITE.parents[2]), os.environ.get("PYTHONPATH", "")])
    run = {"LD_PRELOAD": libraries(), "PYTHONPATH": path, "OOMETER_RUN": tempfile.mkdtemp(), "OOMETER_RUN_STEPS": "1000"}
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **quiet, **run})


def train(spec: dict[str, Any]) -> None:
    """The script."""
    import trainer

    samples, loop = trainer.Samples(spec), spec["loop"]
    phases = trainer.Phases()
    phases.begin = phases.end = lambda *_: None  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        arguments = trainer.make_arguments(spec, samples, folder) if loop["kind"] != "hand" else None
        model, peft_config = trainer.make_model(spec, None)
        if loop["kind"] == "hand":
            trainer.run_by_hand(spec, model, samples, phases)
            return
        import transformers

        class Silent(transformers.TrainerCallback):
            pass

        Silent.phases = phases  # type: ignore[attr-defined]
        trainer.make_trainer(spec, arguments, model, peft_config, samples, Silent, None).train()


def run_case(path: Path) -> str:
    from oometer.run import watch

    case = json.loads(path.read_text(encoding="utf-8"))
    seen = watch.current
    seen.process = os.getpid()
    seen.steps.clear()
    if "items" in case["spec"]:
        return "skipped"
    seen.values.rules.integer = case["spec"].get("item_int", 0)
    train(case["spec"])
    wanted = [{key: step[key] for key in PEAKS} for step in case["result"]["steps"]]
    if seen.steps == wanted:
        return "equal"
    return f"DIFFERS\n   found    {seen.steps}\n   expected {wanted}\n   {dict(seen.values.answered)}"


def in_a_fork(ask: Callable[[], str]) -> str:
    """What a fork of this process says, which has imported everything."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        sys.stdout = open(os.devnull, "w")
        try:
            answer = ask()
        except BaseException as error:
            answer = "FAILED " + "".join(traceback.format_exception(error, limit=-3))
        os.write(write, answer.encode()[:60000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read() or "FAILED without a word"
    os.waitpid(child, 0)
    return answer


def main() -> None:
    enter_run()
    sys.path.insert(0, str(TOOLS))
    import trainer

    cases = [Path(name) for name in sys.argv[1:]]
    trainer.import_trainers(with_trl=True)
    counts: dict[str, int] = {}
    for path in cases:
        answer = in_a_fork(lambda path=path: run_case(path))  # type: ignore[misc]
        counts[answer.split()[0]] = counts.get(answer.split()[0], 0) + 1
        print(path.stem, answer, flush=True)
    print(counts)
    sys.exit(set(counts) != {"equal"})


if __name__ == "__main__":
    main()
