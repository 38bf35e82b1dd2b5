"""Peak GPU memory of PyTorch jobs, computed before they run.

    import oometer
    report = oometer.estimate({"version": 1, "model": {"preset": "llama-3-8b"}, "gpu": {"name": "h100-80gb"}})
    report.fits, report.peak.total        # bytes
    print(report)                         # the command's table

A job is a dictionary, its JSON text, or the path of a file: a job's JSON, or a trainer's own YAML or shell script.
What is wrong with one is raised as `JobError`, with the place in it.
"""

from typing import TYPE_CHECKING, Any

from oometer._core import version as _version
from oometer.answers import Advice, Answer, Check, Gpus, Imported, Peak, Plans, Report
from oometer.errors import JobError
from oometer.questions import advise, check, estimate, gpus, import_files, plan, presets, schema, snapshot, summary

if TYPE_CHECKING:
    from oometer.callback import FitsCallback as FitsCallback
    from oometer.huggingface import job_from as job_from

__version__ = _version()

__all__ = [
    "Advice",
    "Answer",
    "Check",
    "FitsCallback",
    "Gpus",
    "Imported",
    "JobError",
    "Peak",
    "Plans",
    "Report",
    "advise",
    "check",
    "estimate",
    "gpus",
    "import_files",
    "job_from",
    "plan",
    "presets",
    "schema",
    "snapshot",
    "summary",
]


def __getattr__(name: str) -> Any:
    """What needs transformers is imported when it is asked for."""
    if name == "job_from":
        from oometer.huggingface import job_from

        return job_from
    if name == "FitsCallback":
        from oometer.callback import FitsCallback

        return FitsCallback
    raise AttributeError(f"module 'oometer' has no attribute {name!r}")
