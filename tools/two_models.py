"""Two models in one run: a policy that trains and a frozen reference of it, one loss over the log-probabilities of both (IPO).

    two_models.py CASE.json [--both] [--ghost DIR] [--peaks FILE.json]

The case's job describes both models; the first half of its batch are the chosen answers, the second half the rejected ones. With
`parallel` the policy alone is wrapped, as a rank of DDP. With --both the two train, each wrapped and with its class's own loss and
an optimizer of its own, as an actor and a critic do. Peaks are by phase, as real_trace.py's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from pathlib import Path
from typing import Any

import rank_trace
import real_trace
from step.batch import make_inputs
from step.device_values import DeviceValues
from step.ghost import enter_ghost, quiet_torch
from step.job import spec_of
from step.model import build_model
from step.optimizer import make_optimizer
from step.spec import Spec

BETA = 0.1


def log_probabilities(logits: Any, labels: Any) -> Any:
    """Of each sequence: the sum over its tokens."""
    logps = logits[:, :-1].float().log_softmax(-1)
    return logps.gather(2, labels[:, 1:].unsqueeze(2)).squeeze(2).sum(-1)


def ipo_loss(policy: Any, reference: Any, batch: dict[str, Any]) -> Any:
    """DPOTrainer's "ipo" (TRL): the squared distance of the two models' margins from 1 / (2 beta)."""
    import torch

    outputs = policy(input_ids=batch["input_ids"])
    logps = log_probabilities(outputs.logits, batch["labels"])
    with torch.no_grad():
        reference_logps = log_probabilities(reference(input_ids=batch["input_ids"]).logits, batch["labels"])
    chosen, rejected = logps.chunk(2)
    reference_chosen, reference_rejected = reference_logps.chunk(2)
    margin = (chosen - rejected) - (reference_chosen - reference_rejected)
    return ((margin - 1 / (2 * BETA)) ** 2).mean()


def join_group(spec: Spec) -> None:
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ |= {"RANK": "0", "WORLD_SIZE": str(spec["parallel"]["world"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    torch.distributed.init_process_group(backend="fake", store=FakeStore(), rank=0, world_size=spec["parallel"]["world"])


def run(spec: Spec) -> list[dict[str, Any]]:
    import torch

    quiet_torch()
    peaks, keep = real_trace.Peaks(), DeviceValues(0)
    if "parallel" in spec:
        join_group(spec)
    with peaks.phase(0, "init"):
        policy = build_model(spec)
        reference = build_model(spec).eval().requires_grad_(False)
    with peaks.phase(0, "wrap"):
        wrapped = rank_trace.wrap_ddp(spec, policy) if "parallel" in spec else policy
        optimizer = make_optimizer(spec, [p for p in policy.parameters() if p.requires_grad], policy)
        gc.collect()
    with peaks.phase(0, "inputs"):
        batch = make_inputs(spec)
    for iteration in (1, 2):
        gc.collect()
        gc.disable()
        with peaks.phase(iteration, "forward"):
            loss = ipo_loss(wrapped, reference, batch)
        with peaks.phase(iteration, "backward"):
            loss.backward()
            del loss
        with peaks.phase(iteration, "optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        gc.enable()
    torch.cuda.synchronize()
    del keep
    return peaks.rows


def run_both(spec: Spec) -> list[dict[str, Any]]:
    import torch

    quiet_torch()
    peaks, keep = real_trace.Peaks(), DeviceValues(0)
    join_group(spec)

    def optimizer(model: Any) -> Any:
        return make_optimizer(spec, [p for p in model.parameters() if p.requires_grad], model)

    with peaks.phase(0, "init"):
        models = [build_model(spec), build_model(spec)]
    with peaks.phase(0, "wrap"):
        wrapped = [rank_trace.wrap_torch(spec, model, optimizer) for model in models]
        gc.collect()
    with peaks.phase(0, "inputs"):
        batch = make_inputs(spec)
    for iteration in (1, 2):
        gc.collect()
        gc.disable()
        with peaks.phase(iteration, "forward"):
            losses = [model(**batch).loss for model, _, _ in wrapped]
        with peaks.phase(iteration, "backward"):
            for (_, backward, _), loss in zip(wrapped, losses, strict=True):
                backward(loss)
            del loss, losses
        with peaks.phase(iteration, "optimizer"):
            for _, _, take_step in wrapped:
                take_step()
        gc.enable()
    torch.cuda.synchronize()
    del keep
    return peaks.rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("case", type=Path)
    arguments.add_argument("--both", action="store_true", help="both train")
    arguments.add_argument("--ghost", help="the folder of the ghost's libraries (or GHOST_DIR)")
    arguments.add_argument("--peaks", type=Path, help="write the peaks by phase here, as JSON")
    given = arguments.parse_args()
    enter_ghost(given.ghost, capability="90")
    rows = (run_both if given.both else run)(spec_of(json.loads(given.case.read_text())))
    for row in rows:
        print(row["iteration"], row["phase"], *(f"{k} {row[k]:,d}" for k in real_trace.STATISTICS))
    if given.peaks:
        given.peaks.write_text(json.dumps(rows) + "\n")
    os._exit(0)  # the fake process group does not shut down


if __name__ == "__main__":
    main()
