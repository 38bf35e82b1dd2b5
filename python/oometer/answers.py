"""Answers as objects that print well. Each holds the core's JSON; what it says in words is the command's own text."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from oometer import _core, html

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Peak:
    """The peak of one GPU, in bytes."""

    allocated: int  # by tensors, as torch.cuda.max_memory_allocated() counts
    reserved: int  # by PyTorch's allocator, as torch.cuda.max_memory_reserved() counts
    outside_allocator: int  # CUDA context, NCCL and other libraries
    total: int  # reserved and outside


class Answer(Mapping[str, Any]):
    """A JSON object of the core, as a mapping. `str()` is the command's table, `.text` the JSON."""

    rows_of: ClassVar[str] = ""  # the member that `to_pandas` makes a table of

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def data(self) -> dict[str, Any]:
        """The JSON object."""
        tree: dict[str, Any] = json.loads(self.text)
        return tree

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def _repr_html_(self) -> str:
        return html.preformatted(str(self))

    def to_pandas(self) -> "pandas.DataFrame":
        """Its rows as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.data[self.rows_of])


class Report(Answer):
    """The answer of `estimate`."""

    def __str__(self) -> str:
        return _core.report_table(self.text)

    def __repr__(self) -> str:
        return f"<oometer.Report: {_core.verdict_line(self.text)}>"

    def _repr_html_(self) -> str:
        return html.report(self.data, _core.verdict_line(self.text))

    @property
    def verdict(self) -> str:
        """ "fits", "tight" or "does-not-fit"."""
        return str(self.data["verdict"])

    @property
    def fits(self) -> bool:
        """Whether it runs on that GPU, tight or not."""
        return bool(self.data["fits"])

    @property
    def headroom(self) -> int:
        """Bytes to spare; negative: what is missing."""
        return int(self.data["headroom"])

    @property
    def peak(self) -> Peak:
        return Peak(**self.data["peak"])

    @property
    def breakdown(self) -> dict[str, int]:
        """Bytes at the peak by purpose: parameters, gradients, optimizer_states, activations, ..."""
        return dict(self.data["breakdown"])

    def to_pandas(self) -> "pandas.DataFrame":
        """A row a module, by its path, each with what it and all below it hold at the peak, in bytes."""
        import pandas

        return pandas.DataFrame(list(_modules(self.data["modules"]))).set_index("path")


def _modules(modules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for module in modules:
        yield {key: value for key, value in module.items() if key != "children"}
        yield from _modules(module["children"])


class Check(Answer):
    """The answer of `check`: true where the job fits. `str()` is the verdict in one sentence."""

    def __init__(self, text: str, *, strict: bool = False) -> None:
        super().__init__(text)
        self.strict = strict

    def __bool__(self) -> bool:
        return self.data["verdict"] == "fits" or (self.data["verdict"] == "tight" and not self.strict)

    def __str__(self) -> str:
        return _core.verdict_line(self.text)

    def __repr__(self) -> str:
        return f"<oometer.Check: {self}>"


class Advice(Answer):
    """The answer of `advise`."""

    rows_of = "changes"

    def __str__(self) -> str:
        return _core.advice_table(self.text)


class Gpus(Answer):
    """The answer of `gpus`."""

    rows_of = "gpus"

    def __str__(self) -> str:
        return _core.gpu_table(self.text)


class Plans(Answer):
    """The answer of `plan`."""

    rows_of = "plans"

    def __str__(self) -> str:
        return _core.plan_table(self.text)


class Imported(Answer):
    """A trainer's files as a job, and what became of each key."""

    rows_of = "taken"

    @property
    def job(self) -> dict[str, Any]:
        """The job, for `estimate` and the others."""
        return dict(self.data["job"])

    def __str__(self) -> str:
        return json.dumps(self.data, indent=2)
