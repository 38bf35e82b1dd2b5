"""Makes tests/reference/ from the oracle's cases and from traces of real PyTorch.

    import_oracle.py --oracle DIR [--traces DIR] [--jobs DIR] [--peaks DIR]

Writes single_gpu.jsonl, zero2.jsonl, distributed.jsonl and layers.json from the oracle. Of traces (NAME.spec.json with NAME.peaks.json,
as real_trace.py and rank_trace.py write them) those of one GPU go into FAMILY/training.jsonl, ranks into FAMILY/ranks.jsonl; of jobs
(NAME.job.json with NAME.peaks.json) all into training.jsonl. A case that is there by its name is replaced, others stay. --peaks: the
oracle's cases as real_trace.py or rank_trace.py --peaks measures them (NAME.json), which go along as "real".
tests/reference/README.md has the fields.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FAMILIES = (
    *("llava7b", "llava13b", "tiny", "clip", "llama", "vicuna", "tinyllama"),
    *("qwen25vl", "qwen2vl", "smolvlm", "idefics3", "llavanext"),
)
# The folders of core/models whose name is not their model_type.
FOLDERS = {
    "deberta-v2": "deberta_v2",
    "xlm-roberta": "xlm_roberta",
    "qwen3_5_text": "qwen3_5",
    "inkling_text": "inkling",
    "qwen4_exp_text": "qwen4_exp",
    "modernbert-decoder": "modernbert_decoder",
    "blenderbot-small": "blenderbot_small",
    "data2vec-text": "data2vec_text",
    "unispeech": "wav2vec2",
    "unispeech-sat": "wav2vec2",
    "hubert": "wav2vec2",
    "wavlm": "wav2vec2",
    "wav2vec2-bert": "wav2vec2_bert",
    "blip-2": "blip_2",
    "clip_vision_model": "clip",
    "kosmos-2.5": "kosmos2_5",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "glm4v_moe": "glm4v",
    "glm_ocr": "glm4v",
    "lighton_ocr": "mistral3",
    "llava_next": "llava",
    "llava_onevision": "llava_next_video",
    "megatron-bert": "megatron_bert",
    "roberta-prelayernorm": "roberta_prelayernorm",
    "smolvlm": "idefics3",
    "idefics2": "idefics3",
    "parakeet_ctc": "parakeet",
    "cohere_asr": "canary",
    "granite_speech_plus": "granite_speech",
    "qwen2_5_vl": "qwen2_vl",
    "qianfan_ocr": "internvl",
    "minicpmv4_7": "minicpmv4_6",
    "minimax_m3_vl_text": "minimax_m3_vl",
    "minicpm_ocr": "minicpmv4_6",
    "siglip2_vision_model": "siglip2",
    "vision-encoder-decoder": "vision_encoder_decoder",
    "xlm-roberta-xl": "xlm_roberta_xl",
}
PHASES = {"fwd": "forward", "bwd": "backward", "opt": "optimizer", "step": "optimizer"}
STATISTICS = ("requested", "allocated", "reserved")
PEFT_OPTIONS = ("use_dora", "use_rslora", "lora_bias", "autocast_adapter_dtype")
OUT = Path(__file__).resolve().parent.parent / "tests" / "reference"


def only(numbers: dict[str, Any], *more: str) -> dict[str, Any]:
    return {key: numbers[key] for key in (*STATISTICS, *more) if key in numbers}


def job_of(spec: dict[str, Any], oracle: Path) -> dict[str, Any]:
    sys.path.insert(0, str(oracle))
    from to_job import job  # type: ignore[import-not-found]

    out = job(spec)
    for key in PEFT_OPTIONS:  # which to_job does not know
        if key in spec["train"].get("lora", {}):
            out["training"]["lora"][key] = spec["train"]["lora"][key]
    if "ia3" in spec["train"]:
        out["training"]["ia3"] = spec["train"]["ia3"]
    if "gradient_accumulation_steps" in spec["train"]:
        out["training"]["gradient_accumulation_steps"] = spec["train"]["gradient_accumulation_steps"]
    return out


def by_phase(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows that real_trace.py writes, by iteration and phase."""
    out: dict[str, Any] = {"init": {}, "iterations": []}
    for row in rows:
        phase, number = row["phase"], row["iteration"]
        numbers = only(row, "end_allocated", "end_reserved")
        if number == 0:
            out["init"][phase] = numbers
            continue
        if len(out["iterations"]) < number:
            out["iterations"].append({"phases": {}})
        before = out["iterations"][number - 1]["phases"].get(phase, {})  # of the micro-step before
        out["iterations"][number - 1]["phases"][phase] = numbers | {k: max(numbers[k], before.get(k, 0)) for k in STATISTICS}
    for iteration in out["iterations"]:
        iteration |= {k: max(p[k] for p in iteration["phases"].values()) for k in STATISTICS}
    return out


def single_gpu(oracle: Path, peaks: Path | None) -> Iterator[dict[str, Any]]:
    for path in sorted((oracle / "cases").glob("*.json")):
        case = json.loads(path.read_text())
        if not path.stem.startswith(FAMILIES):
            continue
        fake, ghost = case["result"]["fake"], case["result"].get("ghost")
        truth: dict[str, Any] = {"backend": "ghost" if ghost else "fake"}
        if ghost:
            truth["iterations"] = [only(numbers) for numbers in ghost["native"]]
            truth["expandable"] = [only(numbers) for numbers in ghost["expandable"]]
        else:
            truth["iterations"] = [only(row["sim_native"]) for row in fake["iterations"]]
            truth["expandable"] = [only(row["sim_expandable"]) for row in fake["iterations"]]
        truth["phases"] = [{PHASES[k]: v for k, v in row["phase_peaks"].items()} for row in fake["iterations"]]
        truth["breakdown"] = [row["breakdown"] for row in fake["iterations"]]
        truth["peak_op"] = [row["peak_op"] for row in fake["iterations"]]
        truth |= {"parameters": fake["n_params"], "trainable": fake["n_trainable"]}
        if peaks and (peaks / path.name).exists():
            truth["real"] = by_phase(json.loads((peaks / path.name).read_text()))
        yield {"name": path.stem, "job": job_of(case["spec"], oracle), "truth": truth}


def ranks(oracle: Path, names: str, peaks: Path | None) -> Iterator[dict[str, Any]]:
    for path in sorted((oracle / "distributed" / "cases").glob(f"{names}*.json")):
        case = json.loads(path.read_text())
        result, truth = case.get("result"), {}
        if case.get("out_of_memory"):
            truth["out_of_memory"] = case["out_of_memory"]
        if result:
            truth["compute_capability"] = f"{result['ghost_sm'] / 10:.1f}"
            truth["init"] = only(result["init"], "end_allocated", "end_reserved")
            truth["iterations"] = [
                {k: row[f"peak_{k}"] for k in STATISTICS}
                | {"phases": {PHASES[k]: only(v, "end_allocated", "end_reserved") for k, v in row["phases"].items()}}
                for row in result["iterations"]
            ]
            truth |= {"parameters": result["n_params"], "trainable": result["n_trainable"], "retries": result["num_alloc_retries"]}
        if peaks and (peaks / path.name).exists():
            truth["real"] = by_phase(json.loads((peaks / path.name).read_text()))
        yield {"name": path.stem, "job": job_of(case["spec"], oracle), "truth": truth}


def real(traces: Path, oracle: Path, distributed: bool) -> Iterator[dict[str, Any]]:
    for path in sorted(traces.glob("*.peaks.json")):
        name = path.name.removesuffix(".peaks.json")
        spec = json.loads((traces / f"{name}.spec.json").read_text())
        if ("parallel" in spec) != distributed:
            continue
        job = job_of(spec, oracle)
        if name.endswith("_sm90"):
            job["gpu"] = {"name": "h100-80gb"}
        truth = {"backend": "ghost", "mode": False} | by_phase(json.loads(path.read_text()))
        yield {"name": name, "job": job, "truth": truth}


def of_jobs(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.peaks.json")):
        name = path.name.removesuffix(".peaks.json")
        job = json.loads((folder / f"{name}.job.json").read_text())
        yield {"name": name, "job": job, "truth": {"backend": "ghost", "mode": False} | by_phase(json.loads(path.read_text()))}


def layers(oracle: Path) -> list[dict[str, Any]]:
    """What each layer saves for backward: one entry for each storage that is not a parameter."""
    out = []
    for layer in json.loads((oracle / "layers.json").read_text()):
        if "saved" not in layer:
            continue
        storages: dict[int, dict[str, Any]] = {}
        for saved in layer["saved"]:
            if saved["kind"] == "param":
                continue
            entry = {"bytes": saved["storage_bytes"], "dtype": saved["dtype"], "shape": saved["shape"], "kind": saved["kind"]}
            entry |= {
                "made_by": saved.get("made_by") or saved.get("source", ""),
                "module": saved.get("in_module", "").split(" (")[0],
                "by": [],
            }
            entry = storages.setdefault(saved["storage"], entry)
            entry["by"].append(f"{saved['node']}.{saved['arg']}")
        kept = ("name", "note", "inputs", "outputs", "input_saved", "unique_activation_bytes", "held_after_forward_bytes")
        kept += ("forward_peak_over_start_bytes", "backward_peak_over_start_bytes", "param_bytes")
        out.append({key: layer[key] for key in kept if key in layer} | {"saved": list(storages.values())})
    return out


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    print(f"{path.relative_to(OUT)}: {path.stat().st_size:,d} bytes")


def line_of(case: dict[str, Any]) -> str:
    return json.dumps(case, separators=(",", ":"))


def add_to_families(kind: str, cases: Iterator[dict[str, Any]]) -> None:
    files: dict[Path, dict[str, str]] = {}
    for case in cases:
        model_type = case["job"]["model"]["config"]["model_type"]
        path = OUT / FOLDERS.get(model_type, model_type) / f"{kind}.jsonl"
        if path not in files:
            lines = path.read_text().splitlines() if path.exists() else []
            files[path] = {json.loads(line)["name"]: line for line in lines}
        files[path][case["name"]] = line_of(case)
    for path, lines in files.items():
        write_lines(path, lines.values())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--oracle", type=Path, required=True)
    arguments.add_argument("--traces", type=Path)
    arguments.add_argument("--jobs", type=Path)
    arguments.add_argument("--peaks", type=Path)
    given = arguments.parse_args()
    write_lines(OUT / "single_gpu.jsonl", map(line_of, single_gpu(given.oracle, given.peaks)))
    write_lines(OUT / "zero2.jsonl", map(line_of, ranks(given.oracle, "A", given.peaks)))
    write_lines(OUT / "distributed.jsonl", map(line_of, ranks(given.oracle, "[BC]", given.peaks)))
    entries = [json.dumps(layer, separators=(",", ":")) for layer in layers(given.oracle)]
    (OUT / "layers.json").write_text("[\n" + ",\n".join(entries) + "\n]\n")
    if given.traces:
        add_to_families("training", real(given.traces, given.oracle, distributed=False))
        add_to_families("ranks", real(given.traces, given.oracle, distributed=True))
    if given.jobs:
        add_to_families("training", of_jobs(given.jobs))


if __name__ == "__main__":
    main()
