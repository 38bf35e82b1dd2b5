"""Fits what kernels reach of a GPU's peaks to published measurements, and writes core/time/speeds.inc.

    fit_time.py DATA >core/time/speeds.inc

DATA is a folder of tables of published measurements, each row with its source:

    gpus.csv                 data sheets: dense peaks with fp32 accumulation, memory and link bandwidths of presets/gpus.json
    gemm_eff.csv.gz          bf16 products (ai-dynamo/aiconfigurator), by M, N and K
    ops_vidur.csv.gz         fp16 products and elementwise kernels of an A40, an A100 and an H100 (microsoft/vidur)
    ops_neusight.csv.gz      fp32 products, elementwise kernels, layer norm and softmax (sitar-lab/NeuSight)
    attn_eff.csv.gz          forward of causal flash attention (ai-dynamo/aiconfigurator)
    comm_aiconfigurator.csv.gz  NCCL's collectives by size (ai-dynamo/aiconfigurator)

The forms that are fitted are those of core/time/kernel_time.h. On standard error: each fit's median and 90th percentile of the
absolute relative error, on the measurements that it was made from. docs/time.md has what whole steps say.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The chips that were measured, as the tables call them: aiconfigurator, vidur, NeuSight.
CHIPS = {
    "p100": ("", "", "Tesla P100-PCIE-16GB"),
    "v100": ("", "", "Tesla V100-PCIE-32GB"),
    "t4": ("", "", "Tesla T4"),
    "a100": ("a100_sxm", "a100", "NVIDIA A100 80GB PCIe"),
    "a40": ("", "a40", ""),
    "l4": ("", "", "NVIDIA L4"),
    "l40s": ("l40s", "", ""),
    "h100": ("h100_sxm", "h100", "NVIDIA H100 80GB HBM3"),
    "h200": ("h200_sxm", "", ""),
    "b200": ("b200_sxm", "", ""),
    "gb200": ("gb200", "", ""),
    "rtx-pro-6000": ("rtx_pro_6000_server", "", ""),
    "rtx-3090": ("", "", ""),
    "rtx-4090": ("", "", ""),
    "rtx-5090": ("", "", ""),
}
# What products of 16 bits reach on chips of which none was measured: with it the whole steps of tests/measured/time/steps.jsonl that are marked
# `fitted` have a median error of nothing (tools/measured_steps.py). GeForce's data sheets halve the peak for fp32 accumulation and state a
# clock that is exceeded. Attention is taken to be slower by as much as on an L40S.
FROM_STEPS = {"t4": 0.30, "rtx-3090": 1.12, "rtx-4090": 1.07, "rtx-5090": 0.93}
# What kernels reach in profiled steps of dense models on an H200 (tests/measured/time/profiles.jsonl): elementwise ones that PyTorch
# vectorizes 4.2 to 4.7 TB/s; those that it does not, as operands are broadcast, strided or widened, 1.55 to 1.76; sums 1.7 to 2.2 and
# softmax 2.6. The second are held up by the multiprocessors, of which an H100 has the same.
ELEMENTWISE_FROM_PROFILES = {"h100": 0.90, "h200": 0.90}
REDUCTION_FROM_PROFILES = {"h200": 0.50}
STRIDED_FROM_PROFILES = {"h100": 1700, "h200": 1700}
SHEETS = {"a100": "a100-80gb", "h100": "h100-80gb", "p100": "p100-16gb", "v100": "v100-16gb"}  # else the chip's own name
# NeuSight's cards that are other than the catalogue's: fp32 TFLOP/s and GB/s (data sheets of the PCIe cards).
NEUSIGHT = {"v100": (14.0, 900.0), "a100": (19.5, 1935.0)}

# A GPU of the catalogue is the measured chip itself, or its kin: the nearest of its architecture.
SELF = {
    "p100-16gb": "p100", "v100-16gb": "v100", "v100-32gb": "v100", "t4": "t4", "a100-40gb": "a100", "a100-80gb": "a100",
    "a40": "a40", "l4": "l4", "l40s": "l40s", "h100-80gb": "h100", "h200": "h200", "b200": "b200", "gb200": "gb200",
    "rtx-pro-6000": "rtx-pro-6000", "rtx-3090": "rtx-3090", "rtx-4090": "rtx-4090", "rtx-5090": "rtx-5090",
}  # fmt: skip
KIN = {
    "rtx-2080-ti": "t4", "a100-40gb-pcie": "a100", "a100-80gb-pcie": "a100", "a30": "a100", "gh200-96gb": "h100",
    "gh200-144gb": "h200", "h100-80gb-pcie": "h100", "h100-94gb-nvl": "h100", "h20": "h100",
    "rtx-5000-ada": "l40s",
}  # fmt: skip
KIN_OF_PREFIX = {"rtx-30": "rtx-3090", "rtx-40": "rtx-4090", "rtx-50": "rtx-5090", "rtx-a": "a40", "a10": "a40", "a16": "a40",
                 "l4": "l40s", "rtx-": "l40s"}  # fmt: skip

FABRICS = {"nvlink3": ("a100_sxm", 300), "nvlink4": ("h100_sxm", 450), "nvlink5": ("b200_sxm", 900),
           "pcie": ("rtx_pro_6000_server", 64)}  # fmt: skip

TRIALS = 2500  # of the random search: more change no third digit
LAUNCH = 3e-6  # of a kernel alone: the floor of small kernels in gemm_eff
L40S_PRODUCTS = 0.638  # what its products of 16 bits reach, below
BYTES_OF_PRODUCTS = 0.8  # of the bandwidth: the chips' median in gemm_eff


def rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


def columns(table: list[dict[str, str]], *names: str) -> list[Floats]:
    return [np.array([float(row[name] or 1) for row in table]) for name in names]


def fit(what: str, model: Callable[[Floats], Floats], seconds: Floats, start: list[float], weights: Floats | None = None) -> Floats:
    """The constants with which `model` is nearest to what was measured, in the mean of absolute logarithms."""
    random = np.random.default_rng(0)

    def loss(p: Floats) -> float:
        return float(np.average(np.abs(np.log(model(p) / seconds)), weights=weights))

    best = np.array(start)
    least = loss(best)
    for _ in range(TRIALS):
        other = np.abs(best * (1 + random.normal(size=len(best)) * random.choice([0.005, 0.05, 0.3])))
        if (its := loss(other)) < least:
            best, least = other, its
    error = np.abs(model(best) / seconds - 1)
    text = " ".join(f"{x:.4g}" for x in best)
    print(f"{what:34} {len(seconds):6} rows, off by {np.median(error):.3f}, {np.quantile(error, 0.9):.3f}: {text}", file=sys.stderr)
    return best


def product(flops: Floats, bytes_: Floats, peak: float, bandwidth: float) -> Callable[[Floats], Floats]:
    return lambda p: p[2] + np.sqrt((flops / (peak * p[0])) ** 2 + (bytes_ / (bandwidth * p[1])) ** 2)


def gemm_half(data: Path, chip: str, sheet: dict[str, str]) -> Floats | None:
    aiconfigurator, vidur, _ = CHIPS[chip]
    if chip in FROM_STEPS:
        return np.array([FROM_STEPS[chip], BYTES_OF_PRODUCTS, LAUNCH])
    if aiconfigurator:
        table = [r for r in rows(data / "gemm_eff.csv.gz") if r["gpu"] == aiconfigurator and r["dtype"] == "bfloat16"]
        table = [r for r in table if float(r["median_flop_util"]) > 0.001 and float(r["median_bw_util"]) > 0.001]
        table = [r for r in table if max(float(r["m_pow2"]), float(r["n_pow2"])) < 65536]
        of_flops, of_bytes, us, tflops, gbs, count = columns(
            table, "median_flop_util", "median_bw_util", "median_us", "peak_tflops", "hbm_gbs", "count"
        )
        seconds = us * 1e-6
        flops, bytes_ = of_flops * tflops * 1e12 * seconds, of_bytes * gbs * 1e9 * seconds
    elif vidur:
        table = [r for r in rows(data / "ops_vidur.csv.gz") if r["gpu"] == vidur and r["op"] in ("mlp_up_proj", "mlp_down_proj")]
        tokens, width, inner, tp, ms = columns(table, "tokens", "n_embd", "n_expanded", "tp", "median_ms")
        halves = np.array([2.0 if r["gated"] == "True" and r["op"] == "mlp_up_proj" else 1.0 for r in table])
        inner = inner * halves / tp
        seconds, flops = ms * 1e-3, 2 * tokens * width * inner
        bytes_, count = 2 * (tokens * width + width * inner + tokens * inner), np.ones(len(table))
    else:
        return None
    weights = np.where(flops > 1e10, 4.0, 1.0) * np.sqrt(count)  # training's sizes count more
    model = product(flops, bytes_, float(sheet["bf16_tflops"]) * 1e12, float(sheet["hbm_gbs"]) * 1e9)
    return fit(f"{chip}: products, half", model, seconds, [0.75, 0.75, 4e-6], weights)


def gemm_single(data: Path, chip: str, sheet: dict[str, str]) -> Floats | None:
    name = CHIPS[chip][2]
    table = [r for r in rows(data / "ops_neusight.csv.gz") if r["gpu"] == name and r["op"] == "linear"] if name else []
    if not table:
        return None
    b, m, n, k, ms = columns(table, "B", "M", "N", "K", "latency_ms")
    large = 2 * b * m * n * k > 1e10  # the small ones' times have their profiler's overhead
    b, m, n, k, ms = b[large], m[large], n[large], k[large], ms[large]
    tflops, gbs = NEUSIGHT.get(chip, (float(sheet["fp32_tflops"]), float(sheet["hbm_gbs"])))
    flops, bytes_ = 2 * b * m * n * k, 4 * b * (m * k + k * n + m * n)
    # What they reach of the bandwidth does not show in such sizes: as products of 16 bits do.
    found = fit(f"{chip}: products, single", lambda p: LAUNCH + np.sqrt((flops / (tflops * 1e12 * p[0])) ** 2
                + (bytes_ / (gbs * 1e9 * BYTES_OF_PRODUCTS)) ** 2), ms * 1e-3, [0.75])  # fmt: skip
    return np.array([found[0], BYTES_OF_PRODUCTS, LAUNCH])


def attention(data: Path, chip: str, sheets: dict[str, dict[str, str]], head: str) -> Floats | None:
    if chip in FROM_STEPS and chip != "t4":
        its = attention(data, "l40s", sheets, head)
        return None if its is None else its * [FROM_STEPS[chip] / L40S_PRODUCTS, 1, 1]
    name = CHIPS[chip][0]
    sheet = sheets[SHEETS.get(chip, chip)]
    table = [r for r in rows(data / "attn_eff.csv.gz") if r["gpu"] == name and r["lib"].startswith("vllm")] if name else []
    table = [r for r in table if r["head_dim"] == head and float(r["seq"]) >= 128 and r["mha"] == "True"]
    table = [r for r in table if float(r["median_causal_flop_util"]) > 0.005]
    if len(table) < 10:
        return None
    length, util, ms = columns(table, "seq", "median_causal_flop_util", "median_ms")
    peak = float(sheet["bf16_tflops"]) * 1e12
    flops = util * peak * ms * 1e-3
    return fit(f"{chip}: attention, head {head}", lambda p: p[2] + flops / (peak * p[0]) * (1 + p[1] / length), ms * 1e-3,
               [0.6, 1000.0, 2e-5])  # fmt: skip


def streaming(data: Path, chip: str, sheet: dict[str, str], *, reduces: bool) -> Floats | None:
    _, vidur, neusight = CHIPS[chip]
    gbs = NEUSIGHT.get(chip, (0.0, float(sheet["hbm_gbs"])))[1]
    names = ("ln", "softmax") if reduces else ("add", "mul", "div", "addu", "mulu", "divu", "relu", "gelu", "tanh")
    table = [r for r in rows(data / "ops_neusight.csv.gz") if neusight and r["gpu"] == neusight and r["op"] in names]
    if table:
        b, h, ms = columns(table, "B", "H", "latency_ms")
        passes = np.array([3.0 if r["op"] in ("add", "mul", "div") else 2.0 for r in table])
        bytes_, seconds = 4 * passes * b * h, ms * 1e-3
    elif vidur and not reduces:
        gbs = float(sheet["hbm_gbs"])
        table = [r for r in rows(data / "ops_vidur.csv.gz") if r["gpu"] == vidur and r["op"] == "add" and float(r["tokens"]) >= 256]
        tokens, width, ms = columns(table, "tokens", "n_embd", "median_ms")
        bytes_, seconds = 2 * 3 * tokens * width, ms * 1e-3
        large = bytes_ > 6e6 * float(sheet["l2_mb"])  # what the cache has not
        if large.sum() < 10:
            return None
        bytes_, seconds = bytes_[large], seconds[large]
    else:
        return None
    return fit(f"{chip}: {'reductions' if reduces else 'elementwise'}", lambda p: LAUNCH + bytes_ / (gbs * 1e9 * p[0]), seconds, [0.8])


def collectives(data: Path, system: str, link: float, op: str, ranks: int) -> Floats:
    table = [r for r in rows(data / "comm_aiconfigurator.csv.gz") if r["system"] == system and r["op"] == op and r["kernel"] == "NCCL"]
    table = [r for r in table if r["dtype"] == "half" and r["n_gpus"] == str(ranks) and float(r["message"]) >= 1 << 19]
    elements, ms = columns(table, "message", "latency_ms")
    over_links = 2 * elements * (ranks - 1) / ranks * (2 if op == "all_reduce" else 1)
    return fit(f"{system}: {op} of {ranks}", lambda p: p[0] + over_links / (link * 1e9 * p[1]), ms * 1e-3, [3e-5, 0.7])


def chip_row(chip: str, fits: Sequence[Floats | None], strided: int = 0) -> str:
    texts = []
    for i, found in enumerate(fits):
        if i < 4:
            a, b, c = found if found is not None else (0, 0, 0)
            texts.append(f"{{{a:.3g}, {b:.{3 if i < 2 else 0}{'g' if i < 2 else 'f'}}, {c * 1e6:.2g}}}")
        else:
            texts.append("0" if found is None else f"{found[0]:.3g}")
    return f'{{"{chip}", {", ".join(texts)}, {strided}}}'


def number(text: str) -> str:
    return text or "0"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path)
    data = arguments.parse_args().data
    sheets = {row["id"]: row for row in rows(data / "gpus.csv")}
    print("// Written by tools/fit_time.py: what kernels of measured chips reach of the data sheet. 0: not measured.")
    print("// id, products of 16 bits {of FLOPs, of bytes, us}, of fp32, attention with heads of 64, of 128 {of FLOPs,")
    print("// tokens that halve it, us}, elementwise kernels and reductions {of bytes}, those not vectorized {GB/s; 0: as others}")
    print("constexpr Chip kChips[] = {")
    every: list[list[Floats | None]] = []
    for chip in CHIPS:
        sheet = sheets[SHEETS.get(chip, chip)]
        fits = [
            gemm_half(data, chip, sheet),
            gemm_single(data, chip, sheet),
            attention(data, chip, sheets, "64"),
            attention(data, chip, sheets, "128"),
        ]
        fits += [streaming(data, chip, sheet, reduces=False), streaming(data, chip, sheet, reduces=True)]
        every.append(list(fits))
        for i, profiled in ((4, ELEMENTWISE_FROM_PROFILES), (5, REDUCTION_FROM_PROFILES)):
            if chip in profiled:
                fits[i] = np.array([profiled[chip]])
        print(f"    {chip_row(chip, fits, STRIDED_FROM_PROFILES.get(chip, 0))},")
    print("};")
    print("// The median of those of which it was measured.")
    whole = [fits for chip, fits in zip(CHIPS, every, strict=True) if chip not in FROM_STEPS or chip == "t4"]
    usual = [np.median([f for f in column if f is not None], axis=0) for column in zip(*whole, strict=True)]
    print(f"constexpr Chip kUsual = {chip_row('', usual)};")
    print("\n// Data sheets, dense and with fp32 accumulation: id, the chip whose kernels it is taken to have, whether it is that")
    print("// chip, TFLOP/s of fp32, tf32, bf16, fp16, GB/s of memory and of a link in one direction, what links GPUs")
    print("constexpr GpuSpeed kGpus[] = {")
    for gpu, sheet in sheets.items():
        kin = SELF.get(gpu) or KIN.get(gpu) or next((k for p, k in KIN_OF_PREFIX.items() if gpu.startswith(p)), "")
        if not kin:
            continue  # no kernel of its architecture was measured
        fabric = "pcie"
        if sheet["link"].startswith("NVLink") and "bridge" not in sheet["link"]:
            fabric = {"2": "nvlink3", "3": "nvlink3", "4": "nvlink4", "5": "nvlink5"}[sheet["link"][6]]
        link = sheet["link_uni_gbs" if fabric != "pcie" else "pcie_uni_gbs"]
        peaks = ", ".join(number(sheet[key]) for key in ("fp32_tflops", "tf32_tflops", "bf16_tflops", "fp16_tflops", "hbm_gbs"))
        print(f'    {{"{gpu}", "{kin}", {str(gpu in SELF).lower()}, {peaks}, {link}, Fabric::{fabric}}},')
    print("};")
    print("\n// NCCL over such links {us, of the link}: all_reduce of 2, 4, 8 ranks, then all_gather.")
    print("constexpr Collective kCollectives[][2][3] = {")
    for fabric, (system, link) in FABRICS.items():
        texts = []
        for op in ("all_reduce", "all_gather"):
            found = [collectives(data, system, link, op, ranks) for ranks in (2, 4, 8)]
            texts.append("{" + ", ".join(f"{{{p[0] * 1e6:.3g}, {p[1]:.3g}}}" for p in found) + "}")
        print(f"    {{{', '.join(texts)}}},  // {fabric}")
    print("};")


if __name__ == "__main__":
    main()
