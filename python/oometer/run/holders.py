"""Who holds the peak: by module, and by line of code. From PyTorch's own memory history, whose entries say which Python
frames allocated; modules write their path into each entry as they run (torch._C._cuda_setMemoryMetadata)."""

import collections
import weakref
from typing import Any

import torch

ENTRIES = 5_000_000
LARGEST_SHOWN = 20
NOT_THE_AUTHORS = ("/torch/", "oometer/run/", "<frozen", "<string>")  # frames of these say less than their callers


class Holders:
    def __init__(self) -> None:
        torch.cuda.memory._record_memory_history(max_entries=ENTRIES, stacks="python")
        self.stack: list[str] = []
        self.names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.roots: weakref.WeakSet[Any] = weakref.WeakSet()
        torch.nn.modules.module.register_module_forward_pre_hook(self.enter)
        torch.nn.modules.module.register_module_forward_hook(self.leave, always_call=True)

    # --- modules, as they run

    def enter(self, module: Any, _: Any) -> None:
        if module not in self.names:
            self.roots.add(module)
            for name, inner in module.named_modules():
                self.names.setdefault(inner, name or type(module).__name__)
        self.stack.append(self.names[module])
        self.say()

    def leave(self, *_: Any) -> None:
        if self.stack:
            self.stack.pop()
        self.say()

    def say(self) -> None:
        torch._C._cuda_setMemoryMetadata(self.stack[-1] if self.stack else "")

    # --- at the end

    def at_peak(self, device: int) -> dict[str, Any]:
        """What was alive when the most requested bytes were, as [who, bytes], the largest first."""
        entries = torch.cuda.memory._snapshot()["device_traces"][device]
        live: dict[int, int] = {}  # address -> entry
        now = peak = at = 0
        for i, entry in enumerate(entries):
            if entry["action"] == "alloc":
                live[entry["addr"]] = i
                now += entry["size"]
                if now > peak:
                    peak, at = now, i
            elif entry["action"] == "free_completed" and entry["addr"] in live:
                now -= entries[live.pop(entry["addr"])]["size"]
        live = {}
        for i, entry in enumerate(entries[: at + 1]):
            if entry["action"] == "alloc":
                live[entry["addr"]] = i
            elif entry["action"] == "free_completed":
                live.pop(entry["addr"], None)
        weights = self.weights()
        modules: collections.Counter[str] = collections.Counter()
        lines: collections.Counter[str] = collections.Counter()
        for address, i in live.items():
            entry = entries[i]
            modules[weights.get(address) or entry.get("user_metadata") or "(outside modules)"] += entry["size"]
            lines[line_of(entry["frames"])] += entry["size"]
        return {"requested": peak, "modules": largest(modules), "lines": largest(lines)}

    def weights(self) -> dict[int, str]:
        """Whose parameters, and their gradients, lie at an address."""
        out: dict[int, str] = {}
        for root in list(self.roots):
            for name, parameter in root.named_parameters():
                owner = name.rpartition(".")[0] or type(root).__name__
                for tensor in (parameter, parameter.grad):
                    if isinstance(tensor, torch.Tensor) and tensor.is_cuda and type(tensor.data) is torch.Tensor:
                        out.setdefault(tensor.untyped_storage().data_ptr(), owner)
        return out


def line_of(frames: list[dict[str, Any]]) -> str:
    """The innermost line that is not PyTorch's own."""
    own = [frame for frame in frames if not any(part in frame["filename"] for part in NOT_THE_AUTHORS)]
    if not own:
        return "(no Python frame)"
    frame = own[0]
    return f"{frame['filename'].rpartition('site-packages/')[2]}:{frame['line']} {frame['name']}"


def largest(sizes: "collections.Counter[str]") -> list[list[Any]]:
    shown: list[list[Any]] = [[who, size] for who, size in sizes.most_common(LARGEST_SHOWN)]
    rest = sum(sizes.values()) - sum(size for _, size in shown)
    return shown + ([["(others)", rest]] if rest else [])
