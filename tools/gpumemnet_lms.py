"""Turns the runs of language models in GPUMemNet's paper into jobs for validate.py: each model's graph is exported once, and kept.

Read where the data lies beside the checkout (../shared/gpumemnet/paper_results_data.csv: itu-rad/GPUMemNet, arXiv 2602.17817, CC BY 4.0)
and transformers can be imported. The scripts are itu-rad/CARMA's (workloads/BERT_base_on_wiki.py and so on): wikitext-2 in lengths of 512,
fp32, torch's AdamW. The models as they print them (workloads/*.model) have BertSdpaSelfAttention and GPT2SdpaAttention, transformers of
4.43 to 4.47; graph_modules.py calls today's models as these versions ran.
"""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import gpumemnet
from gpumemnet import MIB
from gpumemnet_timm import PAPER, SOURCE, TORCH_OF_THE_PAPER, Model, export_all, graph_of

OF_THE_PAPER = "GPUMemNet, paper's language models"
TOKENS = 512
BERT = {"vocab_size": 28996}  # bert-large-cased's
XLNET = {"n_layer": 12, "n_head": 12, "d_model": 768, "d_inner": 3072}  # xlnet-base-cased's
# The paper's name of a model, the class here and its arguments, as the scripts have them.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT_base": ("MaskedLM", BERT),
    "BERT_large": (
        "MaskedLM",
        {**BERT, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "xlnet_base": ("Classifier", XLNET),
    "xlnet_large": ("Classifier", {**XLNET, "n_layer": 24, "n_head": 16, "d_model": 1024, "d_inner": 4096}),
    "gpt2_large": ("CausalLM", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "gpt2_xl": ("CausalLM", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
}
GPUS = {"gpt2_large": 2}  # by torch.nn.DataParallel: CARMA's README. XLNet's two have the paper's batch each, as HF Trainer counts it.
BEFORE = (
    "before it trains the script runs the model twice, once under modelsummary, whose segments stay; the loop's outputs live on through "
    "the next forward"
)
WHY = {
    "MaskedLM": BEFORE,
    "CausalLM": BEFORE + ", GPT-2's with the keys and values of each layer; gpt2_large ran on two GPUs by torch.nn.DataParallel, whose "
    "first gathers both halves' outputs and adds up both gradients",
    "Classifier": BEFORE + "; batches are padded to their longest text, up to 512, so that segments of many sizes are kept; HF Trainer ran "
    "two GPUs by torch.nn.DataParallel, whose first adds up both gradients",
}


# --- runs -------------------------------------------------------------------------------------------------------------


def rows() -> Iterator[dict[str, Any]]:
    """A row each for validate.py; none, and a line that says so, without the data or the package."""
    if not PAPER.exists():
        return
    if not all(importlib.util.find_spec(name) for name in ("transformers", "timm", "torchvision")):
        print("The language models of GPUMemNet's paper: skipped, for want of transformers in this Python", file=sys.stderr)
        return
    from graph_modules import inputs_of

    models: dict[str, Model] = {name: (f"graph_modules:{kind}", config, inputs_of(kind, TOKENS)) for name, (kind, config) in MODELS.items()}
    export_all(models, [])
    with PAPER.open(newline="", encoding="utf-8") as file:
        for name, batch, measured, predicted, _, horus in csv.reader(file):
            if name not in MODELS:
                continue
            kind, share = MODELS[name][0], int(batch) // GPUS.get(name, 1)
            training: dict[str, Any] = {"precision": "fp32", "optimizer": {"name": "adamw", "implementation": "foreach", "param_groups": 1}}
            training |= {"max_grad_norm": 1.0} if kind == "Classifier" else {"keep_outputs": True}
            yield {
                "name": f"{name}_{batch}",
                "source": OF_THE_PAPER,
                "citation": f"{SOURCE}: {measured} MiB, nvidia-smi",
                "graph": graph_of(name, share),
                "job": {
                    "version": 1,
                    "data": {"micro_batch_size": share},
                    "training": training,
                    "gpu": {"name": "a100-40gb"},
                    "runtime": {"torch": TORCH_OF_THE_PAPER},
                },
                "why": WHY[kind],
                "measured": {"device": int(measured) * MIB},
                "outside": gpumemnet.OUTSIDE,
                "peers": {"GPUMemNet": int(predicted) * MIB, "Horus": int(float(horus) * MIB)},
            }
