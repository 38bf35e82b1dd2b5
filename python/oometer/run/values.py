"""What the script reads from a device whose kernels compute nothing.

What came from the host, and whatever whole numbers and truth values are computed from it, is known: the operator runs on
the device as always, and once more on the host, whose result is put where the device's is. So masks, labels, positions
and lengths that are read back are right. Of the rest nobody knows the values; a rule answers for them (`Rules`), and
each answer is counted.
"""

import collections
import ctypes
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

LARGEST = 16 << 20  # bytes whose values are followed: of larger tensors the stand-in copies nothing either (memory.cpp)
LARGEST_FLOATS = 256
READS = {
    "__get__",
    "__set__",
    "__len__",
    "size",
    "dim",
    "stride",
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
}
READS |= {"numel", "data_ptr", "requires_grad_", "is_floating_point", "untyped_storage", "element_size", "backward", "register_hook"}
WRITES = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__iand__", "__ior__", "__ixor__"}
UNWRITTEN = {"empty", "empty_like", "new_empty", "empty_strided", "resize_"}
RANDOM = ("rand", "normal", "bernoulli", "multinomial", "dropout", "uniform", "exponential")
FINITE = {"isnan": False, "isinf": False, "isfinite": True}


class Rules:
    """What is read where no value is known: settable with OOMETER_RUN_* (docs/run.md)."""

    def __init__(self, integer: int = 0, boolean: bool = True, real: float = 1.0) -> None:
        self.integer, self.boolean, self.real = integer, boolean, real

    def scalar(self, dtype: torch.dtype) -> Any:
        if dtype is torch.bool:
            return self.boolean
        return self.real if dtype.is_floating_point or dtype.is_complex else self.integer


class Values(TorchFunctionMode):
    """The values that are known, by storage; and the answers for those that are not."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self.rules = rules
        self.answered: collections.Counter[str] = collections.Counter()
        self.places: dict[str, str] = {}  # file and line of the first of each
        self.known: dict[int, Any] = {}  # a storage's address -> a weak reference to it
        self.selected: int | None = None
        self.redraws: int | None = None  # how often `trunc_normal_` still finds something out of bounds
        self.on_gradient: Callable[[], None] = lambda: None
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("_local_scalar_dense", self.scalar, "CUDA")
        self.library.impl("nonzero", self.nonzero, "CUDA")
        self.library.impl("masked_scatter_backward", self.masked_scatter_backward, "CUDA")

    def answer(self, what: str) -> None:
        """Counts an answer by a rule, and says where the script asked first."""
        self.answered[what] += 1
        if what not in self.places:
            self.places[what] = place_of_caller()

    # --- which values are known

    def knows(self, tensor: torch.Tensor) -> bool:
        return not tensor.is_cuda or tensor.untyped_storage()._cdata in self.known

    def learn(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.known:
            self.known[key] = weakref.ref(storage, lambda _: self.known.pop(key, None))

    def forget(self, tensor: torch.Tensor) -> None:
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
        self.known.pop(tensor.untyped_storage()._cdata, None)

    def on_host(self, value: Any) -> Any:
        """A tensor of the device as one of the host, with its values."""
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return host_copy(value)
        if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
            return torch.device("cpu")
        return value

    # --- every function of torch that the script calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("tolist", "cpu") and self.is_unknown_list(args[0]):
            with torch._C.DisableTorchFunction():
                answer = torch.full(args[0].shape, self.rules.scalar(args[0].dtype), dtype=args[0].dtype)
                return answer.tolist() if name == "tolist" else answer
        if name in READS:
            return func(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        given = [value for value in leaves if isinstance(value, torch.Tensor) and value.is_cuda]
        known = all(interesting(tensor) and self.knows(tensor) for tensor in given)
        writes = name in WRITES or (name.endswith("_") and not name.endswith("__"))
        before: Any = None
        if known and (given or writes):  # as they are before they are written over
            before = tree_map(self.on_host, (args, kwargs))
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.is_cuda and records(result):
            self.on_gradient()
        target = leaves[0] if writes and leaves and isinstance(leaves[0], torch.Tensor) and leaves[0].is_cuda else None
        outputs = [target] if target is not None else [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.is_cuda]
        if not known:
            self.follow_unknown(name, given, outputs, writes)
        elif any(interesting(t) and (target is not None or not self.knows(t)) for t in outputs):
            self.follow(func, name, (*(before or tree_map(self.on_host, (args, kwargs))), bool(given)), outputs, target is not None)
        return result

    def follow(self, func: Any, name: str, host: Any, outputs: list[torch.Tensor], writes: bool) -> None:
        """The same on the host, and its values put where the device's are."""
        if name in UNWRITTEN:
            return
        if name in ("to", "cuda") and not host[2]:  # the stand-in has copied them
            for tensor in outputs:
                self.learn(tensor)
            return
        state = torch.get_rng_state() if any(word in name for word in RANDOM) else None
        with torch._C.DisableTorchFunction():
            try:
                again = func(*host[0], **host[1])
            except Exception:  # the host has no such operator: then the values are not known
                for tensor in outputs if writes else ():
                    self.forget(tensor)
                return
            finally:
                if state is not None:
                    torch.set_rng_state(state)
            found = [tree_leaves(host)[0]] if writes else [t for t in tree_leaves(again) if isinstance(t, torch.Tensor)]
            for ours, theirs in zip(outputs, found, strict=False):
                if interesting(ours) and ours.shape == theirs.shape and not theirs.is_cuda:
                    put(ours, theirs)
                    self.learn(ours)

    def follow_unknown(self, name: str, given: list[torch.Tensor], outputs: list[torch.Tensor], writes: bool) -> None:
        """Of values that nobody knows."""
        if name in FINITE:
            for tensor in outputs:
                if interesting(tensor):
                    put(tensor, torch.full(tensor.shape, FINITE[name]))
                    self.learn(tensor)
            self.answer("numbers are finite")
        elif name == "histc" and outputs:  # tokens of each expert
            bins = outputs[0].numel()
            put(outputs[0], torch.full((bins,), given[0].numel() / bins).floor())
            self.learn(outputs[0])
            self.answer("counts are even")
        elif writes:
            for tensor in outputs:
                self.forget(tensor)

    # --- what is read

    def is_unknown_list(self, tensor: torch.Tensor) -> bool:
        """Whole numbers or truth values that nobody knows: what lies in their memory is not them."""
        if not tensor.is_cuda or tensor.dtype.is_floating_point or tensor.dtype.is_complex or self.knows(tensor):
            return False
        self.answer(f"a list of {str(tensor.dtype).removeprefix('torch.')}")
        return True

    def scalar(self, tensor: torch.Tensor) -> Any:
        if self.knows(tensor):
            return host_copy(tensor).item()
        if self.redraws is not None and tensor.dtype is torch.bool:
            self.redraws -= 1
            return self.redraws >= 0
        self.answer(f"a scalar of {str(tensor.dtype).removeprefix('torch.')}")
        return self.rules.scalar(tensor.dtype)

    def nonzero(self, tensor: torch.Tensor) -> torch.Tensor:
        """The real operator, which reads its count from its first scratch block: so the count is put where that will be."""
        if self.knows(tensor):
            count = host_count(tensor)
        else:
            count = tensor.numel() if self.selected is None else self.selected
            self.answer("nonzero() finds everything")
        tensor = tensor.contiguous()
        block = torch.empty(1, dtype=torch.int32, device=tensor.device)
        ctypes.c_int32.from_address(block.data_ptr()).value = count
        del block
        out = torch.empty(0, dtype=torch.int64, device=tensor.device)
        result = torch.nonzero(tensor, out=out)
        if result.size(0) != count:
            raise RuntimeError(f"oometer run: nonzero() found {result.size(0)} elements instead of {count}")
        return result

    def masked_scatter_backward(self, grad: torch.Tensor, mask: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        """Unless the mask is known, it has as many true elements as the source had."""
        self.selected = math.prod(sizes)
        try:
            selected = grad.masked_select(mask)
            missing = math.prod(sizes) - selected.numel()
            if missing > 0:
                selected = torch.cat([selected, selected.new_zeros(missing)])
            return selected.view(sizes)
        finally:
            self.selected = None


def place_of_caller() -> str:
    """The innermost line of the running code that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in ("/torch/", "oometer/run/")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('site-packages/')[2]}:{frame.f_lineno}"


def records(tensor: torch.Tensor) -> bool:
    """Whether the operator that made it recorded a gradient. A view that was made without may refuse to say."""
    try:
        return tensor.grad_fn is not None
    except RuntimeError:
        return False


def interesting(tensor: torch.Tensor) -> bool:
    """Whether its values are worth computing: whole numbers, truth values, and a few others."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # in `torch.vmap`: it has no storage
        return False
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return bool(tensor.numel() <= LARGEST_FLOATS)
    return bool(tensor.nbytes <= LARGEST)


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the device on the host, with its strides: the stand-in's memory is the host's own."""
    if tensor.numel() == 0:
        return torch.empty_like(tensor, device="cpu")
    with torch._C.DisableTorchFunction():
        span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        raw = bytearray(ctypes.string_at(tensor.data_ptr(), span * tensor.element_size()))
        return torch.frombuffer(raw, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


def host_count(tensor: torch.Tensor) -> int:
    """How many elements are not zero. Dimensions that repeat their elements are counted once and multiplied."""
    shape, strides, times = list(tensor.shape), list(tensor.stride()), 1
    for i, stride in enumerate(strides):
        if stride == 0:
            times *= shape[i]
            shape[i] = 1
    with torch._C.DisableTorchFunction():
        return int(torch.count_nonzero(host_copy(tensor.as_strided(shape, strides)))) * times


def put(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Writes the values of a tensor of the host into one of the device."""
    if ours.numel() == 0:
        return
    with torch._C.DisableTorchFunction():
        size = ours.element_size()
        span = 1 + sum((n - 1) * stride for n, stride in zip(ours.shape, ours.stride(), strict=True))
        memory = (ctypes.c_char * (span * size)).from_address(ours.data_ptr())
        torch.frombuffer(memory, dtype=ours.dtype).as_strided(ours.shape, ours.stride()).copy_(theirs)
