"""The questions: a job in, an answer out. Each is a call of the core."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oometer import _core
from oometer.answers import Advice, Check, Gpus, Imported, Plans, Report
from oometer.errors import JobError

Job = Mapping[str, Any] | str | os.PathLike[str]
"""A job as a dictionary, as JSON text (it begins with "{"), or the path of a file: its JSON, or a trainer's own."""


def estimate(job: Job) -> Report:
    """The whole report: peak, verdict, who holds the memory, phases, time."""
    return Report(_ask(_core.estimate, job))


def summary(job: Job) -> dict[str, Any]:
    """The report's head alone (verdict, fits, headroom, peak, interval, gpu): for sweeps over many jobs."""
    answer: dict[str, Any] = json.loads(_ask(_core.summary, job))
    return answer


def check(job: Job, *, gpu: str | None = None, strict: bool = False) -> Check:
    """Whether the job fits; true where it does. `gpu` takes the place of the job's; `strict`: a tight fit fails."""
    if gpu is not None:
        job = {**tree_of(job), "gpu": {"name": gpu}}
    return Check(_ask(_core.summary, job), strict=strict)


def advise(job: Job) -> Advice:
    """How far batch and sequence can grow, what would make the job fit, and what each change costs."""
    return Advice(_ask(_core.advise, job))


def gpus(job: Job) -> Gpus:
    """The job on every GPU of the catalogue."""
    return Gpus(_ask(_core.gpus, job))


def plan(job: Job) -> Plans:
    """Layouts of the job's GPUs, checkpointing and micro-batches: the fastest that fits first."""
    return Plans(_ask(_core.plan, job))


def snapshot(job: Job) -> bytes:
    """A memory snapshot for https://pytorch.org/memory_viz (a pickle)."""
    text = text_of(job)
    answer = _core.snapshot(text)
    if answer.startswith(b'{"error":'):
        raise JobError(json.loads(answer)["error"], _tree(text))
    return answer


def import_files(*files: str | os.PathLike[str] | Mapping[str, Any], gpu: str = "", gpus: int = 0) -> Imported:
    """A trainer's own files as a job (`.job`), with what was taken, ignored and left out.

    A file is a path, or {"name": ..., "content": ...} with a tree or a text. `gpu` and `gpus` say what it runs on.
    """
    if files and all(isinstance(file, Mapping) for file in files):
        question = {"files": list(files), "hub": json.loads(_core.hub()), "gpu": gpu, "gpus": gpus}
        return Imported(_checked(_core.import_json(json.dumps(question)), question))
    paths = [os.fspath(file) for file in files if not isinstance(file, Mapping)]
    if len(paths) != len(files):
        raise TypeError("expected paths, or {'name', 'content'} of every file")
    try:
        return Imported(_core.import_paths(paths, gpu, gpus))
    except RuntimeError as error:  # a file that cannot be read
        raise _unreadable(error) from None


def presets() -> dict[str, Any]:
    """{"models": [{"id", "title", "description"}], "gpus": [{"id", "name", "usable_bytes", ...}]}: what has a name."""
    answer: dict[str, Any] = json.loads(_core.presets())
    return answer


def schema() -> dict[str, Any]:
    """The JSON schema of a job: each key with its words."""
    answer: dict[str, Any] = json.loads(_core.job_schema())
    return answer


def text_of(job: Job) -> str:
    """The job as JSON text, as the core takes it."""
    if isinstance(job, Mapping):
        return json.dumps(dict(job))
    if isinstance(job, str) and job.lstrip().startswith("{"):
        return job
    path = Path(job)
    try:
        if path.suffix in (".yaml", ".yml", ".sh"):
            return _core.imported_job(str(path))
        return path.read_text(encoding="utf-8")
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise _unreadable(error) from None


def tree_of(job: Job) -> dict[str, Any]:
    """The job as a dictionary."""
    tree = dict(job) if isinstance(job, Mapping) else _tree(text_of(job))
    if not isinstance(tree, dict):
        raise JobError({"code": "wrong-type", "pointer": "", "message": "expected an object {...}"}, tree)
    return tree


def _unreadable(error: Exception) -> JobError:
    return JobError({"code": "unreadable", "pointer": "", "message": str(error)})


def _tree(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _ask(question: Callable[[str], str], job: Job) -> str:
    text = text_of(job)
    answer = question(text)
    return answer if not answer.startswith('{"error":') else _checked(answer, _tree(text))


def _checked(answer: str, job: Any) -> str:
    if answer.startswith('{"error":'):
        raise JobError(json.loads(answer)["error"], job)
    return answer
