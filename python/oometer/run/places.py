"""Where in the user's own code something happens."""

import sys
from collections.abc import Iterable
from typing import Any

LIBRARIES = ("site-packages", "/lib/python3", "oometer/run", "<frozen")  # what is not the user's own code, in its file's path


def place_of(frames: Iterable[Any]) -> str:
    """The innermost of these frames that is the user's, as " (train.py:5)"; nothing where there is none."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    own = [frame for frame in frames if frame.filename == script or not any(part in frame.filename for part in LIBRARIES)]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
