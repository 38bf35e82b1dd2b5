"""A SkyPilot task on whichever GPU has room for the job: `python skypilot.py job.json train.sh >task.yaml; sky launch task.yaml`"""

import json
import sys
from pathlib import Path

import oometer

# SkyPilot's names and ours.
ACCELERATORS = {"t4": "T4", "l4": "L4", "a100-40gb": "A100", "a100-80gb": "A100-80GB", "h100-80gb": "H100", "h200": "H200"}


def task(job: str, script: str) -> str:
    """The task's YAML, with every GPU on which the job fits as it is: SkyPilot takes the cheapest of them."""
    fits = [row["id"] for row in oometer.gpus(job)["gpus"] if row["verdict"] == "fits" and row["id"] in ACCELERATORS]
    if not fits:
        raise SystemExit(f"{job} fits on none of {', '.join(ACCELERATORS)}; oometer advise {job} says what would help")
    count = int(json.loads(Path(job).read_text(encoding="utf-8")).get("parallel", {}).get("data", 1))
    names = ", ".join(f"{ACCELERATORS[gpu]}: {count}" for gpu in fits)
    return f"resources:\n  accelerators: {{{names}}}\nworkdir: .\nrun: |\n  bash {script}\n"


if __name__ == "__main__":
    print(task(sys.argv[1], sys.argv[2]), end="")
