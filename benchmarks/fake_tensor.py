"""Prints how many seconds one training step of the first job of jobs.json takes under FakeTensor: the real model in
real transformers, on tensors without storage. The second of two steps: the first also makes what is made once."""

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

root = Path(__file__).parents[1]
sys.path.insert(0, str(root / "tools"))

os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"  # it reads a value, and there are none

import step
from torch._subclasses.fake_tensor import FakeTensorMode

step.quiet_torch()
spec = step.spec_of(json.loads((root / "benchmarks/jobs.json").read_text())[0])
with FakeTensorMode(allow_non_fake_inputs=True), step.attention_choice(spec):
    model = step.build_model(spec, "cpu")
    optimizer = step.make_optimizer(spec, [p for p in model.parameters() if p.requires_grad])
    batch = step.make_inputs(spec, "cpu")
    for _ in range(2):
        start = time.perf_counter()
        step.train_step(spec, model, optimizer, batch, lambda phase: nullcontext())
print(time.perf_counter() - start)
