"""`oometer run` before launchers of several processes, and one rank of a large world alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_run import run

pytest.importorskip("torch")
SETUP = """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
"""
STEPS = """
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    model(torch.ones(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WRAPS = {
    "ddp": "model = DistributedDataParallel(model)\n",
    "fsdp2": "from torch.distributed.fsdp import fully_shard\nfor layer in model:\n    fully_shard(layer)\nfully_shard(model)\n",
    "fsdp1": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(model, use_orig_params=True)\n",
    "hybrid": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
fully_shard(model, mesh=mesh)
""",
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
TRAINER = """
import transformers
config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
rows = [{"input_ids": [5] * 100, "labels": [5] * 100} for _ in range(64)]
arguments = transformers.TrainingArguments("out", max_steps=20, bf16=True, report_to="none", deepspeed="ds.json")
model = transformers.LlamaForCausalLM(config)
transformers.Trainer(model, arguments, train_dataset=rows, data_collator=transformers.default_data_collator).train()
"""


@pytest.mark.parametrize("wrap", ["ddp", "fsdp1", "fsdp2", "hybrid"])
def test_a_rank_alone_is_one_among_others(tmp_path: Path, wrap: str) -> None:
    script = SETUP + WRAPS[wrap] + STEPS
    answer, _ = run(tmp_path, script, "--gpus", "2", "--steps", "2", launch=TORCHRUN)
    assert [row["rank"] for row in answer["ranks"]] == [0, 1]
    assert answer["ranks"][0]["allocated"] == answer["ranks"][1]["allocated"]
    assert len(answer["steps"]) == 2
    alone, _ = run(tmp_path, script, "--fake-world", "2", "--steps", "2")
    assert alone["steps"] == answer["steps"]
    assert alone["peak"] == answer["peak"]
    large, _ = run(tmp_path, script, "--fake-world", "512", "--steps", "2")
    assert "rank 0 of 512 alone" in " ".join(large["notes"])
    if wrap.startswith("fsdp"):  # a share of the states
        assert large["peak"]["allocated"] < answer["peak"]["allocated"]


def test_objects_of_rank_0_reach_the_others(tmp_path: Path) -> None:
    script = (
        SETUP
        + """
name = ["from rank 0" if dist.get_rank() == 0 else None]
dist.broadcast_object_list(name, src=0)
lengths = [None] * 2
dist.all_gather_object(lengths, 7)
print(f"RANK {dist.get_rank()}: {name[0]}, {lengths}")
"""
    )
    _, words = run(tmp_path, script, "--gpus", "2", launch=TORCHRUN)
    assert "RANK 0: from rank 0, [7, 7]" in words
    assert "RANK 1: from rank 0, [7, 7]" in words


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("stage", [2, 3])
def test_zero_under_its_launchers(tmp_path: Path, launcher: str, stage: int) -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    buckets = {"reduce_bucket_size": 1000000, "allgather_bucket_size": 1000000, "stage3_prefetch_bucket_size": 1000000}
    config: dict[str, Any] = {"zero_optimization": {"stage": stage, **buckets}, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(config | {"train_micro_batch_size_per_gpu": "auto"}))
    script = TRAINER
    launch = {
        "accelerate": [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--multi_gpu"],
        "deepspeed": [str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", "2"],
    }[launcher]
    answer, _ = run(tmp_path, script, "--gpus", "2", "--steps", "2", launch=launch)
    assert len(answer["ranks"]) == 2
    assert len(answer["steps"]) == 2


def test_ranks_want_gpus(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n" + SETUP + WRAPS["ddp"] + STEPS)
    command = [sys.executable, "-m", "oometer", "run", "--gpus", "1", "--", *TORCHRUN, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--gpus" in done.stderr.splitlines()[-1]
