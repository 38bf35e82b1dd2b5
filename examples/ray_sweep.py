"""Many jobs over a Ray cluster: JSON lines in, JSON lines out, in the same order.

    python ray_sweep.py jobs.jsonl answers.jsonl [--workers 2] [--make 100000]

Each worker answers whole batches in its own process; only the report's head comes back. `--make N` writes N jobs first.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import oometer
import ray

BATCH = 500  # jobs a task: a second's work


@ray.remote(num_cpus=1)
def answer(lines: list[str]) -> list[str]:
    """A batch of jobs, each answered by its head or its error."""
    out = []
    for line in lines:
        try:
            out.append(json.dumps(oometer.summary(line)))
        except oometer.JobError as error:
            out.append(json.dumps({"error": {"pointer": error.pointer, "message": error.message}}))
    return out


def batches(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8") as file:
        while lines := list(itertools.islice(file, BATCH)):
            yield lines


def make(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for i in range(count):
            data = {"micro_batch_size": 1 + i % 16, "sequence_length": 640 + 32 * (i // 16 % 64)}
            job = {"version": 1, "model": {"preset": "llava-1.5-7b"}, "data": data, "gpu": {"name": "h100-80gb"}}
            file.write(json.dumps(job) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--make", type=int, default=0)
    options = parser.parse_args()
    if options.make:
        make(options.jobs, options.make)
    ray.init(num_cpus=options.workers, include_dashboard=False)
    start, count = time.perf_counter(), 0
    waiting: list[ray.ObjectRef] = []
    with options.answers.open("w", encoding="utf-8") as file:
        given = batches(options.jobs)
        while True:
            # As many batches under way as keep every worker busy; memory does not grow with the number of jobs.
            waiting += [
                answer.remote(lines) for lines in itertools.islice(given, max(0, 2 * int(ray.cluster_resources()["CPU"]) - len(waiting)))
            ]
            if not waiting:
                break
            for line in ray.get(waiting.pop(0)):
                file.write(line + "\n")
                count += 1
    seconds = time.perf_counter() - start
    print(f"{count} jobs in {seconds:.1f} s, {count / seconds:.0f} a second")


if __name__ == "__main__":
    main()
