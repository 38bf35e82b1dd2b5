"""The examples of the repository do what they say."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = {"version": 1, "model": {"preset": "llama-2-7b"}, "data": {"sequence_length": 512}, "training": {"lora": {"rank": 8}}}


def load(name: str) -> ModuleType:
    # By its path: SkyPilot's and Kubernetes' own packages have these names.
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's repository with a job that fits on an H100 and one that does not, and the command on the path."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "oometer"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m oometer "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "lora.json").write_text(json.dumps({**JOB, "gpu": {"name": "h100-80gb"}}))
    whole = {**JOB, "training": {}, "data": {"sequence_length": 512, "micro_batch_size": 512}, "gpu": {"name": "h100-80gb"}}
    (tmp_path / "jobs" / "whole.json").write_text(json.dumps(whole))
    return tmp_path


def bash(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script, "--", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_github_actions(folder: Path) -> None:
    workflow = (EXAMPLES / "github-actions.yml").read_text(encoding="utf-8")
    step = workflow.split("- run: |\n")[1]
    done = bash(folder, step)
    assert done.returncode == 1
    assert done.stdout.count("::error file=") == 1
    assert "file=jobs/whole.json" in done.stdout
    (folder / "jobs" / "whole.json").unlink()
    assert bash(folder, step).returncode == 0


def test_pre_commit(folder: Path) -> None:
    entry = re.search(r"entry: bash -c '(.*)' --", (EXAMPLES / "pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert entry
    assert bash(folder, entry[1], "jobs/lora.json").returncode == 0
    assert bash(folder, entry[1], "jobs/lora.json", "jobs/whole.json").returncode == 1


def test_slurm(folder: Path) -> None:
    wrapper = f'SBATCH=echo PARTITIONS="small=t4 large=h200" "{EXAMPLES / "slurm.sh"}" "$@"'
    done = bash(folder, wrapper, "jobs/lora.json", "train.sbatch")
    assert done.stdout.split() == ["--partition=large", "train.sbatch"]
    assert "small: " in done.stderr
    (folder / "jobs" / "wrong.json").write_text("{}")
    assert bash(folder, wrapper, "jobs/wrong.json", "train.sbatch").returncode == 2
    done = bash(folder, wrapper.replace("h200", "l4"), "jobs/whole.json", "train.sbatch")
    assert done.returncode == 1
    assert "fits on no partition" in done.stderr


def test_kubernetes() -> None:
    def answer(job: object, product: str) -> dict[str, object]:
        pod = {"metadata": {"annotations": {"oometer/job": json.dumps(job)}}, "spec": {"nodeSelector": {"nvidia.com/gpu.product": product}}}
        reply: dict[str, object] = load("kubernetes").review({"uid": "1", "object": pod})
        return reply

    assert answer(JOB, "NVIDIA-H100-80GB-HBM3")["allowed"] is True
    refused = answer(JOB, "Tesla-T4")
    assert refused["allowed"] is False
    assert "Does not fit" in json.dumps(refused)
    assert answer({"version": 1}, "Tesla-T4")["warnings"]


def test_skypilot(folder: Path) -> None:
    task = load("skypilot").task(str(folder / "jobs" / "lora.json"), "train.sh")
    assert "H100: 1" in task
    assert "T4" not in task
    with pytest.raises(SystemExit, match="fits on none"):
        load("skypilot").task(str(folder / "jobs" / "whole.json"), "train.sh")


def test_ray(folder: Path) -> None:
    pytest.importorskip("ray")
    arguments = ["jobs.jsonl", "answers.jsonl", "--workers", "1", "--make", "20"]
    subprocess.run([sys.executable, EXAMPLES / "ray_sweep.py", *arguments], cwd=folder, check=True, capture_output=True)
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert len(answers) == 20
    assert all(answer["peak"]["total"] > 2**30 for answer in answers)
