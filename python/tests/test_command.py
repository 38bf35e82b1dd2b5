import json
import subprocess
from pathlib import Path

import oometer
import pytest

JOB = {"version": 1, "model": {"preset": "llama-2-7b"}, "data": {"sequence_length": 512}, "gpu": {"name": "h100-80gb"}}


def run(command: list[str], *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], input=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name", ["estimate", "check", "advise", "gpus", "plan", "resolve", "import", "presets", "trace", "checkpoints", "run", "mcp"]
)
def test_every_command_is_there(command: list[str], name: str) -> None:
    assert run(command, name, "--help").returncode == 0


def test_check_says_it_with_its_exit_code(command: list[str]) -> None:
    assert run(command, "check", "-", given=json.dumps(JOB)).returncode == 0
    assert run(command, "check", "-", "--gpu", "t4", given=json.dumps(JOB)).returncode == 1
    assert run(command, "check", "-", given="{").returncode == 2


def test_a_job_a_line(command: list[str]) -> None:
    lines = [json.dumps({**JOB, "data": {"sequence_length": length}}) for length in (256, 512)]
    output = run(command, "estimate", "--jsonl", given="\n".join([*lines, "", '{"version": 2}']) + "\n")
    answers = [json.loads(line) for line in output.stdout.splitlines()]
    assert output.returncode == 2
    assert [answer.get("verdict") for answer in answers[:2]] == [oometer.estimate(line).verdict for line in lines]
    assert answers[2]["error"]["pointer"] == "/version"


def test_run_says_what_is_wrong(command: list[str]) -> None:
    for arguments, words in (
        ([], "expected a command after --"),
        (["--gpu", "h10-80gb", "--", "true"], "h100-80gb"),
        (["--gpu", "mi300x", "--", "true"], "NVIDIA"),
        (["--", "no-such-command"], "no such command"),
        (["--", "true"], "before it used the GPU"),
    ):
        output = run(command, "run", *arguments)
        assert output.returncode == 2, arguments
        assert words in output.stderr


def test_formats_for_continuous_integration(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    github = run(command, "check", str(file), "--gpu", "t4", "--format", "github")
    assert github.returncode == 1
    assert github.stdout.startswith(f"::error file={file},title=oometer::Does not fit on t4")
    junit = run(command, "check", str(file), "--format", "junit")
    assert '<testcase classname="oometer"' in junit.stdout
    assert 'failures="0"' in junit.stdout
    answer = json.loads(run(command, "check", str(file), "--format", "json").stdout)
    assert answer["peak"] == oometer.estimate(JOB)["peak"]
