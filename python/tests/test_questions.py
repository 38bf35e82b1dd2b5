import json
import subprocess
import sys
import threading
from pathlib import Path

import oometer
import pytest

JOB = {"version": 1, "model": {"preset": "llava-1.5-7b"}, "data": {"micro_batch_size": 1}, "gpu": {"name": "h100-80gb"}}
SMALL = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}


def test_a_report_says_what_the_command_says(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    report = oometer.estimate(JOB)
    output = subprocess.run([*command, "estimate", "--json", str(file)], capture_output=True, text=True, check=True)
    assert json.loads(output.stdout) == report.data
    table = subprocess.run([*command, "estimate", str(file)], capture_output=True, text=True, check=True)
    assert table.stdout == str(report)


def test_a_job_is_a_dictionary_a_text_or_a_path(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    peaks = {oometer.estimate(job).peak for job in (JOB, json.dumps(JOB), file, str(file))}
    assert len(peaks) == 1


def test_a_report_has_the_field_names_of_the_json() -> None:
    report = oometer.estimate(JOB)
    assert report.peak.total == report.peak.reserved + report.peak.outside_allocator == report["peak"]["total"]
    assert sum(report.breakdown.values()) == report.peak.allocated
    assert report.verdict == report["verdict"] == "fits"
    assert report.fits
    assert report.headroom > 0


@pytest.mark.parametrize(
    ("job", "pointer", "found", "expected"),
    [
        ({**JOB, "data": {"micro_batch_size": 0}}, "/data/micro_batch_size", 0, "a whole number from 1"),
        ({**JOB, "model": {"preset": "llava-1.5-7"}}, "/model/preset", "llava-1.5-7", '"llava-1.5-7b"'),
        ({**JOB, "optimiser": "adamw"}, "/optimiser", "adamw", "version"),
        ("{", "", None, ""),
    ],
)
def test_what_is_wrong_is_raised_with_its_place(job: object, pointer: str, found: object, expected: str) -> None:
    with pytest.raises(oometer.JobError) as raised:
        oometer.estimate(job)  # type: ignore[arg-type]
    assert raised.value.pointer == pointer
    assert raised.value.found == found
    assert raised.value.expected.startswith(expected)
    assert raised.value.message in str(raised.value)


def test_a_file_that_is_not_there_is_an_error_of_the_job() -> None:
    with pytest.raises(oometer.JobError, match=r"nowhere\.json"):
        oometer.check("nowhere.json")


def test_check_is_true_where_it_fits() -> None:
    assert oometer.check(JOB)
    answer = oometer.check(JOB, gpu="t4")
    assert not answer
    assert str(answer).startswith("Does not fit on t4")


def test_the_other_questions() -> None:
    assert oometer.advise(JOB)["largest_micro_batch"] >= 1
    assert "Effect of single changes" in str(oometer.advise(JOB))
    assert any(row["id"] == "t4" for row in oometer.gpus(JOB)["gpus"])
    assert str(oometer.gpus(JOB)).startswith("GPU")
    assert oometer.summary(JOB)["peak"] == oometer.estimate(JOB)["peak"]
    assert {model["id"] for model in oometer.presets()["models"]} >= {"llava-1.5-7b"}
    assert "properties" in oometer.schema()
    assert oometer.snapshot(JOB).startswith(b"\x80")


def test_plans_keep_what_is_computed() -> None:
    job = {"version": 1, "model": {"config": SMALL}, "data": {"micro_batch_size": 4, "sequence_length": 128}, "gpu": {"name": "h100-80gb"}}
    plans = oometer.plan(job)["plans"]
    assert plans
    assert all(row["micro_batch_size"] * row["gradient_accumulation_steps"] == 4 for row in plans)


def test_a_trainers_file_is_a_job(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\nbf16: true\n")
    answer = oometer.import_files(file, gpu="t4")
    assert answer.job["gpu"] == {"name": "t4"}
    assert answer["refused"] is None
    assert oometer.check(answer.job).data["peak"]["total"] > 0
    given = {
        "name": "a.json",
        "content": {"per_device_train_batch_size": 2, "model_name_or_path": "Qwen/Qwen2.5-0.5B", "num_train_epochs": 1},
    }
    assert oometer.import_files(given).job["data"]["micro_batch_size"] == 2


def test_a_report_in_a_notebook_is_html() -> None:
    page = oometer.estimate(JOB)._repr_html_()
    assert page.startswith("<div><strong>Fits on h100-80gb")
    assert page.count("<span title=") >= 3
    assert "<script" not in page
    assert oometer.gpus(JOB)._repr_html_().startswith("<pre>GPU")


def test_rows_are_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    modules = oometer.estimate(JOB).to_pandas()
    assert isinstance(modules, pandas.DataFrame)
    assert modules.loc["model.vision_tower", "parameters"] > 0
    assert "verdict" in oometer.gpus(JOB).to_pandas()


def test_threads_ask_at_the_same_time() -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(oometer.estimate(JOB).peak.total)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_importing_loads_nothing_large() -> None:
    code = "import sys, oometer; print([m for m in ('torch', 'numpy', 'pandas', 'transformers', 'mcp') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
