"""`oometer run`: scripts as people write them, on the stand-in device."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import oometer
import pytest

HEAD = "import torch\nfrom torch.nn import functional as F\n"
LOOP = """
model = torch.nn.Sequential(torch.nn.Embedding(1000, 512), torch.nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    ids = torch.full((8, 128), 7)
    ids[0, :5] = 3
    ids = ids.cuda()
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run(
    folder: Path, script: str, *options: str, code: int = 0, env: dict[str, str] | None = None, launch: list[str] | None = None
) -> tuple[dict[str, Any], str]:
    (folder / "train.py").write_text(HEAD + script)
    command = [sys.executable, "-m", "oometer", "run", "--json", *options, "--", *(launch or [sys.executable]), "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False)
    assert done.returncode == code, done.stderr
    return (json.loads(done.stdout) if done.stdout else {}), done.stderr


def test_a_plain_loop(tmp_path: Path) -> None:
    answer, _ = run(tmp_path, LOOP, "--gpu", "t4", "--steps", "2")
    assert answer["verdict"] == "fits"
    assert len(answer["steps"]) == 2
    # Weights, their gradients and two moments, and the activations: more than four times the weights.
    assert answer["steps"][1]["allocated"] > 4 * 4 * (1000 * 512 * 2 + 1000)
    assert answer["peak"]["total"] == answer["peak"]["reserved"] + answer["peak"]["outside_allocator"]
    assert answer["synthesised"] == {}


def test_what_comes_from_the_host_is_known(tmp_path: Path) -> None:
    script = """
ids = torch.tensor([[5, 5, 3, 0], [5, 3, 0, 0]]).cuda()
mask = ids != 0
print("FOUND", mask.sum().item(), mask.nonzero().shape[0], mask.sum(-1).tolist(), bool(mask.all()), ids[mask].tolist(), int(ids.max()))
ids[0, 0] = 9
ids.masked_fill_(mask.logical_not(), -100)
print("WRITTEN", ids.tolist(), torch.arange(3, device="cuda").cumsum(0).tolist(), ids.cpu()[0, 0].item())
x = torch.randn(4, 400, device="cuda", requires_grad=True)
print("UNKNOWN", x.sum().item(), bool(torch.isnan(x).any()), x[torch.tensor([True, False, True, False]).cuda()].shape[0])
"""
    _, words = run(tmp_path, script)
    assert "FOUND 5 5 [3, 2] False [5, 5, 3, 5, 3] 5" in words
    assert "WRITTEN [[9, 5, 3, -100], [5, 3, -100, -100]] [0, 1, 3] 9" in words
    assert "UNKNOWN 1.0 False 2" in words


def test_memory_ends_where_the_gpus_does(tmp_path: Path) -> None:
    script = """
held = []
total = torch.cuda.mem_get_info()[1]
print("TOTAL", total)
try:
    while True:
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    print("ENDED", len(held))
"""
    _, words = run(tmp_path, script, "--gpu", "t4", "--limit")
    assert f"TOTAL {next(gpu for gpu in oometer.presets()['gpus'] if gpu['id'] == 't4')['usable_bytes']}" in words
    assert "ENDED 14" in words


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_a_script_that_does_not_fit(tmp_path: Path, settings: str) -> None:
    script = """
weight = torch.nn.Parameter(torch.empty(5 << 30, dtype=torch.uint8, device="cuda").view(torch.bfloat16))
optimizer = torch.optim.AdamW([weight])
weight.sum().backward()
optimizer.step()
"""
    answer, _ = run(tmp_path, script, "--gpu", "t4", "--steps", "1", code=1, env={"PYTORCH_CUDA_ALLOC_CONF": settings})
    assert answer["verdict"] == "does-not-fit"
    assert "CUDA out of memory" in answer["out_of_memory"]
    assert "train.py" in answer["out_of_memory"]


def test_host_memory_is_pinned_and_devices_are_several(tmp_path: Path) -> None:
    script = """
x = torch.ones(1000).pin_memory()
print("PINNED", x.is_pinned(), x.to("cuda", non_blocking=True).cpu().sum().item())
print("DEVICES", torch.cuda.device_count(), torch.ones(3, device="cuda:1").device, torch.cuda.get_device_capability())
"""
    _, words = run(tmp_path, script, "--gpus", "2", "--gpu", "a100-80gb")
    assert "PINNED True 1000.0" in words
    assert "DEVICES 2 cuda:1 (8, 0)" in words


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    _, words = run(tmp_path, "raise ValueError('no data')\n", code=2)
    assert "exited with 1 before it used the GPU: ValueError: no data" in words
    assert "train.py:3" in words.splitlines()[-1]
    _, words = run(tmp_path, "torch.ones(1).cuda()\nraise ValueError('no data')\n", code=2)
    assert "before its first optimizer step: ValueError: no data" in words
    assert "train.py:4" in words
    _, words = run(tmp_path, "import time\ntorch.ones(1).cuda()\ntime.sleep(60)\n", "--timeout", "20", code=2)
    assert "no end after 20" in words
    assert "train.py:5" in words.splitlines()[-1]
    _, words = run(tmp_path, "import os\ntorch.ones(1).cuda()\nos.abort()\n", code=2)
    assert "ended by SIGABRT" in words
    assert "train.py:5" in words.splitlines()[-1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
    _, words = run(tmp_path, "import os\ntorch.ones(1).cuda()\nos.abort()\n", code=2, launch=launch)
    assert "a process of the command crashed at" in words.splitlines()[-1]
    assert "train.py:5" in words.splitlines()[-1]
    deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntorch.ones(1).cuda()\ntime.sleep(60)\n"
    _, words = run(tmp_path, deaf, "--timeout", "20", code=2)
    assert "train.py:6" in words.splitlines()[-1]
    _, words = run(tmp_path, LOOP.replace(".cuda()\noptimizer", ".to('cuda:3')\noptimizer"), "--gpus", "2", code=2)
    assert "wants more GPUs than --gpus 2" in words
    (tmp_path / "jax.py").write_text("")
    _, words = run(tmp_path, "import jax\n", code=2)
    assert "imports jax, whose memory is not seen" in words
    assert "train.py:3" in words


def test_a_script_that_fails_after_a_step(tmp_path: Path) -> None:
    answer, _ = run(tmp_path, LOOP + "    raise ValueError('no more data')\n", code=2)
    assert answer["verdict"] == "unknown"
    assert not answer["fits"]
    assert len(answer["steps"]) == 1
    assert any("no more data" in note and "train.py:" in note for note in answer["notes"])


def test_a_branch_on_what_is_not_known(tmp_path: Path) -> None:
    script = LOOP.replace("    loss.backward()", "    if loss > 3:\n        loss = loss * 2\n    loss.backward()")
    answer, _ = run(tmp_path, script, "--steps", "1")
    assert answer["synthesised"] == {"a scalar of bool": 1}
    assert answer["synthesised_at"]["a scalar of bool"].endswith("train.py:11")
    assert any("branches on a value that is not known" in note and "train.py:11" in note for note in answer["notes"])


def test_what_is_drawn_until_it_is_within_bounds(tmp_path: Path) -> None:
    script = LOOP.replace("optimizer = ", "torch.nn.init.trunc_normal_(model[1].weight)\noptimizer = ", 1)
    answer, _ = run(tmp_path, script, "--steps", "1")
    assert answer["synthesised"] == {}


def test_masks_that_vmap_makes(tmp_path: Path) -> None:
    script = """
from torch.nn.attention.flex_attention import create_block_mask
create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cuda")
"""
    answer, _ = run(tmp_path, script + LOOP, "--steps", "1")
    assert len(answer["steps"]) == 1


def test_forks_and_checkpoints(tmp_path: Path) -> None:
    script = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((16,), i)
if __name__ == "__main__":
    model = torch.nn.Embedding(1000, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    for ids in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2):
        torch.save(model.state_dict(), "model.pt")
        model(ids.cuda()).sum().backward()
        optimizer.step()
"""
    answer, _ = run(tmp_path, script, "--steps", "2", "--sandbox")
    assert len(answer["steps"]) == 2
    assert "model.pt was not written (--sandbox)" in answer["notes"]
    assert not (tmp_path / "model.pt").exists()


def test_transformers_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = """
import transformers
config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
model = transformers.LlamaForCausalLM(config)
rows = [{"input_ids": [5] * 100, "labels": [5] * 100} for _ in range(64)]
arguments = transformers.TrainingArguments("out", max_steps=20, bf16=True, report_to="none", per_device_train_batch_size=4)
transformers.Trainer(model, arguments, train_dataset=rows, data_collator=transformers.default_data_collator).train()
"""
    answer, _ = run(tmp_path, script, "--steps", "3")
    assert len(answer["steps"]) == 3
    assert answer["steps"][1] == answer["steps"][2]
    assert answer["versions"]["transformers"]
    assert not list((tmp_path / "out").glob("checkpoint*"))


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_weights_that_are_not_here_take_no_memory(tmp_path: Path, where: str) -> None:
    """30 layers of Llama 3 70B, 56 GB in several files: k_proj and v_proj are small enough to be copied to the device."""
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 30, "num_attention_heads": 64, "num_key_value_heads": 8}
    config = sizes | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "dtype": "bfloat16"}
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    script = f"""
import resource
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model", dtype="bfloat16", device_map="{where}").cuda()
assert torch.cuda.memory_allocated() > 55e9
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2e6  # kB
model.model.norm.weight.sum().backward()
torch.optim.SGD([model.model.norm.weight]).step()
"""
    answer, _ = run(tmp_path, script, "--gpu", "h200", "--steps", "1")
    assert answer["verdict"] == "fits"


def test_who_holds_the_peak(tmp_path: Path) -> None:
    answer, _ = run(tmp_path, LOOP, "--gpu", "t4", "--steps", "2", "--holders", "--snapshot", "memory.pickle")
    holders = answer["holders"]
    assert holders["requested"] == max(step["requested"] for step in answer["steps"])
    for what in ("modules", "lines"):
        assert sum(size for _, size in holders[what]) == holders["requested"]
    sizes = dict(holders["modules"])
    assert sizes["1"] >= 4 * 512 * 1000  # the head's weight
    assert any("train.py:" in line for line, _ in holders["lines"])
    assert (tmp_path / "memory.pickle").stat().st_size > 1000
