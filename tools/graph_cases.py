"""Makes tests/reference/graphs.jsonl: models of torchvision and timm, random MLPs, operators that few models have (graph_modules.py) and
tiny language models, as graphs, with what training them took on the ghost; or graphs_inference.jsonl: some of them in eval mode.

graph_cases.py OUT.jsonl --ghost DIR [--only NAME] [--inference]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import export_graph
import real_trace
from step.ghost import enter_ghost
from step.spec import Spec, tensor

# Small images: what is compared is which operator allocates what, not how much.
MODELS: list[tuple[str, dict[str, Any], int]] = [
    ("torchvision.models:vgg11", {}, 32),
    ("torchvision.models:resnet18", {}, 64),
    ("torchvision.models:mobilenet_v2", {}, 64),
    ("torchvision.models:mobilenet_v3_small", {}, 64),
    ("torchvision.models:efficientnet_b0", {}, 64),
    ("torchvision.models:convnext_tiny", {}, 64),
    ("torchvision.models:densenet121", {}, 64),
    ("torchvision.models:inception_v3", {"init_weights": False, "aux_logits": False}, 96),
    ("torchvision.models:shufflenet_v2_x1_0", {}, 64),
    ("torchvision.models:squeezenet1_1", {}, 64),
    ("torchvision.models:vit_b_16", {"image_size": 64}, 64),
    ("torchvision.models:swin_t", {}, 64),
    ("timm:create_model", {"model_name": "vit_tiny_patch16_224"}, 224),
    ("timm:create_model", {"model_name": "resnet26d"}, 64),
    ("timm:create_model", {"model_name": "mixer_s32_224"}, 224),
    ("timm:create_model", {"model_name": "convnextv2_atto"}, 64),
    ("timm:create_model", {"model_name": "skresnet18"}, 64),
    ("timm:create_model", {"model_name": "resnetblur18"}, 64),
    ("timm:create_model", {"model_name": "resmlp_12_224"}, 224),
    ("timm:create_model", {"model_name": "nest_tiny"}, 224),
    ("timm:create_model", {"model_name": "hiera_tiny_224"}, 224),
    ("timm:create_model", {"model_name": "gcvit_xxtiny"}, 224),
    ("timm:create_model", {"model_name": "tnt_s_patch16_224", "depth": 2, "img_size": 64}, 64),
    ("timm.models.volo:VOLO", {"layers": (1, 1, 1, 1), "img_size": 64, "embed_dims": (32, 64, 64, 64), "num_heads": (1, 2, 2, 2)}, 64),
    ("timm:create_model", {"model_name": "nextvit_small", "depths": (1, 2, 5, 1)}, 64),
    ("timm:create_model", {"model_name": "vit_large_patch14_xp_224", "depth": 2, "embed_dim": 64, "num_heads": 2, "img_size": 56}, 56),
    ("timm:create_model", {"model_name": "ese_vovnet39b_evos"}, 64),
    ("timm:create_model", {"model_name": "resnetv2_50d_frn", "layers": (1, 1, 1, 1)}, 64),
]
KINDS = ["unfold_images", "fold", "fold_transposed", "outlook", "pool_channels_last", "pool_transposed", "pool_rows", "group_variance"]
KINDS += ["variance", "deviation", "variance_of_all", "layer_norm_2d", "variance_and_mean", "larger", "largest", "look_up"]
LANGUAGE: list[tuple[str, dict[str, Any]]] = [
    ("MaskedLM", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}),
    ("CausalLM", {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}),
    ("Classifier", {"vocab_size": 100, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
]
Inputs = dict[str, tuple[list[int], str]]  # sizes of a sample and type of each
# Live bytes are met to the byte, but which free block an allocation takes is not.
OTHER_BLOCKS = {"convnextv2_atto", "resmlp_12_224", "nest_tiny", "hiera_tiny_224", "gcvit_xxtiny"}
# With batch norm and dropout, as eval mode has them, and without.
EVALUATED = {"vgg11", "resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "densenet121", "inception_v3"}
EVALUATED |= {"shufflenet_v2_x1_0", "squeezenet1_1", "swin_t", "vit_tiny_patch16_224", "mlp_03", "mlp_07", "mlp_11", "CausalLM_64"}
OPTIMIZERS = {"adamw": {"name": "adamw", "implementation": "foreach"}, "sgd": {"name": "sgd", "implementation": "foreach", "momentum": 0.9}}


def random_mlp(seed: int) -> Any:
    """Linear layers with activations, batch norm and dropout as GPUMemNet's data has them."""
    from torch import nn

    choose = random.Random(seed)
    width = choose.choice([13, 64, 100, 256, 1000])
    layers: list[Any] = [nn.Flatten()]
    features = 3 * 8 * 8
    norm, drop, bias = choose.random() < 0.4, choose.random() < 0.4, choose.random() < 0.8
    activation = choose.choice([nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Hardswish])
    for _ in range(choose.randint(1, 10)):
        out = max(2, int(width * choose.choice([0.5, 1, 1, 2])))
        layers.append(nn.Linear(features, out, bias=bias))
        layers += [nn.BatchNorm1d(out)] if norm else []
        layers.append(nn.ReLU(inplace=True) if activation is nn.ReLU and choose.random() < 0.5 else activation())
        layers += [nn.Dropout(choose.choice([0.1, 0.5]))] if drop else []
        features = out
    layers.append(nn.Linear(features, choose.choice([2, 10, 1000])))
    return nn.Sequential(*layers)


def cases() -> Iterator[tuple[str, str, dict[str, Any], Inputs, int]]:
    """Name, callable, its arguments, its inputs, the batch. A model of language gives its loss itself."""
    from graph_modules import inputs_of

    for python, arguments, side in MODELS:
        yield arguments.get("model_name", python.split(":")[1]), python, arguments, {"x": ([3, side, side], "float32")}, 4
    for seed in range(50):
        batch = random.Random(1000 + seed).choice([2, 8, 32, 100, 1024, 5000])
        yield f"mlp_{seed:02d}", "graph_cases:random_mlp", {"seed": seed}, {"x": ([3, 8, 8], "float32")}, batch
    for kind in KINDS:
        yield kind, "graph_modules:Images", {"kind": kind}, {"x": ([3, 16, 16], "float32")}, 4
    yield "large_variance", "graph_modules:Images", {"kind": "variance_of_all"}, {"x": ([3, 32, 32], "float32")}, 64
    yield "rms_norm", "graph_modules:Norms", {}, {"x": ([3, 8, 8], "float32")}, 4
    yield "rms_norm_of_many", "graph_modules:Norms", {"first": False}, {"x": ([3, 8, 8], "float32")}, 3000
    for kind, config in LANGUAGE:
        for tokens, batch in ((64, 2), (37, 3)):
            yield f"{kind}_{tokens}", f"graph_modules:{kind}", config, inputs_of(kind, tokens), batch


def spec_of(python: str, arguments: dict[str, Any], inputs: Inputs, batch: int, optimizer: str, *, classifies: bool) -> Spec:
    """A module's training, as step/ reads it. `classifies`: its output are logits; else it gives a loss."""
    spec: Spec = {
        "model": {"python": python, "arguments": arguments},
        "train": {"precision": "fp32", "optimizer": "sgd_momentum" if optimizer == "sgd" else optimizer, "opt_impl": "foreach"},
        "inputs": {key: tensor([batch, *sizes], dtype) for key, (sizes, dtype) in inputs.items()},
        "loss": "loss",
    }
    if classifies:
        spec["inputs"]["labels"] = tensor([batch])
    return spec


def graph_of(name: str, python: str, arguments: dict[str, Any], inputs: Inputs, *, inference: bool = False) -> dict[str, Any]:
    import torch

    def on_meta(size: int) -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(size, *sizes, dtype=getattr(torch, dtype), device="meta") for sizes, dtype in inputs.values())

    with tempfile.TemporaryDirectory() as folder, torch.device("meta") if "mlp" in name else contextlib.nullcontext():
        path = Path(folder) / "graph.json"
        export_graph.export_graph(export_graph.load(python, arguments), on_meta, path, inference=inference)
        graph: dict[str, Any] = json.loads(path.read_text())
    return graph


def rows_of(spec: Spec) -> list[dict[str, Any]]:
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    with contextlib.redirect_stdout(None):
        return real_trace.run(spec, None)


def measure_inference(name: str, python: str, arguments: dict[str, Any], inputs: Inputs, batch: int) -> dict[str, Any]:
    graph = graph_of(name, python, arguments, inputs, inference=True)
    job = {"task": "inference", "data": {"micro_batch_size": batch}, "gpu": {"name": "a100-80gb"}, "runtime": {"cudnn": False}}
    spec = spec_of(python, arguments, inputs, batch, "sgd", classifies=False) | {"inference": {}}
    rows = rows_of(spec)
    phases = {row.pop("phase"): row for row in rows if row.pop("iteration") == 1}
    return {"name": name, "graph": graph, "job": job, "truth": {"iterations": [{"phases": phases}]}}


def measure(name: str, python: str, arguments: dict[str, Any], inputs: Inputs, batch: int) -> dict[str, Any]:
    graph = graph_of(name, python, arguments, inputs)
    line: dict[str, Any] = {"name": name, **({"blocks": False} if name in OTHER_BLOCKS else {}), "graph": graph, "cases": []}
    for optimizer, how in OPTIMIZERS.items():
        training = {"precision": "fp32", "optimizer": {**how, "param_groups": 1}}
        job = {"data": {"micro_batch_size": batch}, "training": training, "gpu": {"name": "a100-80gb"}, "runtime": {"cudnn": False}}
        spec = spec_of(python, arguments, inputs, batch, optimizer, classifies=bool(graph["outputs"][0][2]))
        rows = rows_of(spec)
        phases: dict[int, dict[str, Any]] = {1: {}, 2: {}}
        for row in rows:
            iteration, phase = row.pop("iteration"), row.pop("phase")
            phases.get(iteration, {})[phase] = row
        iterations = [{"phases": phases[i]} for i in (1, 2)]
        line["cases"].append({"name": optimizer, "job": job, "truth": {"iterations": iterations}})
    return line


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--only", default="", help="cases whose name begins so")
    arguments.add_argument("--inference", action="store_true", help="forwards in eval mode, of those that EVALUATED names")
    given = arguments.parse_args()
    enter_ghost(given.ghost)
    os.environ["PYTHONHASHSEED"] = "0"
    with given.out.open("w") as out:
        for case in cases():
            if case[0].startswith(given.only) and (case[0] in EVALUATED or not given.inference):
                line = measure_inference(*case) if given.inference else measure(*case)
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
                out.flush()
                print(case[0], flush=True)


if __name__ == "__main__":
    main()
