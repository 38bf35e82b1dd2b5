#!/usr/bin/env python3
"""Asks cuDNN which plan its heuristics choose for convolutions, and what workspace it takes, on a device that need not be there.

    cudnn_workspaces.py OUT.jsonl [--batch 32]     writes tests/reference/cudnn.jsonl

Needs torch with its cuDNN (9.8 or later: CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), timm and torchvision; no GPU. Each distinct
convolution of a few models is asked of an A100, an H100 and a T4 in PyTorch's order of dimensions, forward and both gradients, as
PyTorch asks (cudnn/Conv_v8.cpp: CUDNN_HEUR_MODE_INSTANT, no plan that converts its inputs down).
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MODELS = ["resnet50", "resnext50_32x4d", "vgg11", "efficientnet_b0", "convnext_tiny", "vit_base_patch16_224"]
# cudaDeviceProp of each, as cuDNN writes them as JSON.
COMMON: dict[str, Any] = {
    **{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "warpSize": 32},
    **{"smCountOrigin": 0, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0},
    **{"maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0},
    **{"isTccDriver": 0, "supportCoopLaunch": 1, "cudaDeviceId": 0, "driverVer": 13020},
}
A100 = {"deviceVer": 800, "multiProcessorCount": 108, "maxSharedMemoryPerBlockOptin": 166912, "totalGlobalMem": 42285268992}
A100 |= {"smClockRateKHz": 1410000, "memClockRateKHz": 1215000, "l2CacheSize": 41943040, "deviceName": "NVIDIA A100-SXM4-40GB"}
H100 = {"deviceVer": 900, "multiProcessorCount": 132, "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 85014282240}
H100 |= {"smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 52428800, "deviceName": "NVIDIA H100 80GB HBM3"}
T4 = {"deviceVer": 750, "multiProcessorCount": 40, "maxSharedMemoryPerBlockOptin": 65536, "totalGlobalMem": 15642329088}
T4 |= {"smClockRateKHz": 1590000, "memClockRateKHz": 5001000, "l2CacheSize": 4194304, "deviceName": "Tesla T4"}
T4 |= {"reservedSharedMemoryPerBlock": 0, "maxThreadsPerSM": 1024, "maxCtasPerSM": 16}

# cudnn_graph.h (9.26): descriptors, types of attributes, types of data.
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN, GRAPH = 1, 2, 3, 4, 5, 15
TENSOR, DEVICE_PROPERTIES = 17, 38
DATA_TYPE, INT64, FLOAT, CONVOLUTION_MODE, HEURISTICS_MODE, NUMERICAL_NOTE, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 11, 15, 24
CROSS_CORRELATION, INSTANT, DOWN_CONVERT_INPUTS = 1, 0, 1
DTYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
# A pass's descriptor, and its attributes: alpha, beta, the convolution, x, weight, y.
PASSES = {
    "forward": (10, 700, 701, 702, 704, 703, 705),
    "input": (12, 706, 707, 708, 710, 709, 711),
    "weight": (11, 712, 713, 714, 716, 715, 717),
}
CASES = [(A100, "float32"), (A100, "bfloat16"), (H100, "bfloat16"), (T4, "float32"), (T4, "float16")]

Convolution = tuple[list[int], list[int], list[int], list[int], list[int], list[int]]  # x, weight, y, padding, stride, dilation


class Descriptor:
    """A cudnnBackendDescriptor_t."""

    library: ctypes.CDLL

    def __init__(self, kind: int) -> None:
        self.handle = ctypes.c_void_p()
        self.check(self.library.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.handle)))

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.library.cudnnGetErrorString(status).decode())

    def set(self, name: int, kind: int, values: Any) -> Descriptor:
        self.check(self.library.cudnnBackendSetAttribute(self.handle, name, kind, ctypes.c_int64(len(values)), values))
        return self

    def integers(self, name: int, values: list[int]) -> Descriptor:
        return self.set(name, INT64, (ctypes.c_int64 * len(values))(*values))

    def choose(self, name: int, kind: int, value: int) -> Descriptor:
        return self.set(name, kind, (ctypes.c_int * 1)(value))

    def link(self, name: int, other: Descriptor) -> Descriptor:
        return self.set(name, DESCRIPTOR, (ctypes.c_void_p * 1)(other.handle))

    def done(self) -> Descriptor:
        self.check(self.library.cudnnBackendFinalize(self.handle))
        return self

    def get(self, name: int, kind: int, values: Any) -> int:
        count = ctypes.c_int64()
        self.check(self.library.cudnnBackendGetAttribute(self.handle, name, kind, ctypes.c_int64(len(values)), ctypes.byref(count), values))
        return count.value


def tensor_of(name: int, sizes: list[int], dtype: str) -> Descriptor:
    strides = [1] * len(sizes)
    for i in reversed(range(len(sizes) - 1)):
        strides[i] = strides[i + 1] * sizes[i + 1]
    made = Descriptor(TENSOR).choose(901, DATA_TYPE, DTYPES[dtype]).integers(902, sizes).integers(903, strides)
    return made.integers(906, [name]).integers(900, [16]).done()


def graph_of(direction: str, dtype: str, convolution: Convolution) -> Descriptor:
    x, weight, y, padding, stride, dilation = convolution
    made = Descriptor(CONVOLUTION).integers(106, [len(padding)]).choose(100, DATA_TYPE, 0).choose(101, CONVOLUTION_MODE, CROSS_CORRELATION)
    made.integers(105, padding).integers(104, padding).integers(102, dilation).integers(103, stride).done()
    kind, alpha, beta, of_convolution, *of_tensors = PASSES[direction]
    operation = Descriptor(kind).link(of_convolution, made)
    operation.set(alpha, FLOAT, (ctypes.c_float * 1)(1)).set(beta, FLOAT, (ctypes.c_float * 1)(0))
    for i, (attribute, sizes) in enumerate(zip(of_tensors, (x, weight, y), strict=True)):
        operation.link(attribute, tensor_of(i + 1, sizes, dtype))
    return Descriptor(GRAPH).link(801, operation.done()).done()


def workspace(device: Descriptor, graph: Descriptor) -> int | None:
    """Of the first plan that PyTorch would take."""
    heuristics = Descriptor(HEURISTICS).link(201, graph).choose(200, HEURISTICS_MODE, INSTANT).link(204, device).done()
    configs = [Descriptor(ENGINE_CONFIG) for _ in range(20)]
    count = heuristics.get(202, DESCRIPTOR, (ctypes.c_void_p * len(configs))(*(c.handle.value for c in configs)))
    for config in configs[:count]:
        engine = Descriptor(ENGINE)
        config.get(300, DESCRIPTOR, (ctypes.c_void_p * 1)(engine.handle))
        notes = (ctypes.c_int * 16)()
        if DOWN_CONVERT_INPUTS in notes[: engine.get(1303, NUMERICAL_NOTE, notes)]:
            continue
        try:
            plan = Descriptor(PLAN).link(401, config).link(407, device).done()
        except RuntimeError:
            continue
        size = (ctypes.c_int64 * 1)()
        plan.get(402, INT64, size)
        return size[0]
    return None


class Convolutions(TorchDispatchMode):
    """Sees those of a forward, each once, without those that PyTorch runs by a kernel of its own (depthwise)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Convolution] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            x, weight, _, stride, padding, dilation, transposed, _, groups = args
            if not transposed and x.dim() == 4 and not (groups > 1 and x.shape[1] == groups):
                told = (list(x.shape), list(weight.shape), list(out.shape), list(padding), list(stride), list(dilation))
                self.found.setdefault(json.dumps(told), told)
        return out


def convolutions(batch: int) -> Iterator[Convolution]:
    import timm

    mode = Convolutions()
    for name in MODELS:
        with torch.device("meta"):
            model = timm.create_model(name)
        with mode, torch.no_grad():
            model(torch.empty(batch, *model.default_cfg["input_size"], device="meta"))
    yield from mode.found.values()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--batch", type=int, default=32)
    given = arguments.parse_args()
    folder = Path(torch.__file__).parents[1] / "nvidia" / "cudnn" / "lib"  # of torch's own dependency, nvidia-cudnn
    Descriptor.library = ctypes.CDLL(str(folder / "libcudnn_graph.so.9"))
    Descriptor.library.cudnnGetErrorString.restype = ctypes.c_char_p
    found = list(convolutions(given.batch))
    with given.out.open("w") as out:
        for properties, dtype in CASES:
            text = json.dumps(COMMON | properties).encode()
            device = Descriptor(DEVICE_PROPERTIES).set(2702, CHAR, ctypes.create_string_buffer(text, len(text))).done()
            capability = [properties["deviceVer"] // 100, properties["deviceVer"] // 10 % 10]
            for convolution in found:
                for direction in PASSES:
                    size = workspace(device, graph_of(direction, dtype, convolution))
                    line = {"device": capability, "dtype": dtype, "pass": direction}
                    line |= dict(zip(("x", "weight", "y"), convolution, strict=False))
                    out.write(json.dumps(line | {"bytes": size}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
