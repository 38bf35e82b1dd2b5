"""What is wrong with a job, as an exception."""

from typing import Any


class JobError(ValueError):
    """A job that cannot be answered.

    code: stable, for programs: "unknown-key", "out-of-range", ...
    pointer: JSON pointer (RFC 6901) of the place in the job; "" is the whole of it.
    message: one sentence for people.
    found: what stands at that place, if anything does; None otherwise.
    expected: what would be right, in words; "" where the message does not say it.
    fixes: known ways out, [{"label", "change"}], each change a merge patch (RFC 7386) on the job.
    """

    def __init__(self, error: dict[str, Any], job: Any = None) -> None:
        self.code: str = error["code"]
        self.pointer: str = error["pointer"]
        self.message: str = error["message"]
        self.fixes: list[dict[str, Any]] = error.get("fixes", [])
        self.found: Any = _at(job, self.pointer)
        self.expected: str = _expected(self.message)
        super().__init__(f"{self.pointer}: {self.message}" if self.pointer else self.message)


def _at(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value if pointer else None


def _expected(message: str) -> str:
    """The core's sentences say it in one of these ways."""
    for mark in ("expected ", "did you mean ", "the keys here are: "):
        _, found, rest = message.partition(mark)
        if found:
            return rest.rstrip("?")
    return ""
