"""An answer in a notebook: plain HTML with its own style, legible on light and dark ground."""

from html import escape
from typing import Any

_COLOURS = {
    "parameters": "#4477aa",
    "gradients": "#66ccee",
    "optimizer_states": "#228833",
    "activations": "#ccbb44",
    "temporaries": "#ee6677",
    "buffers_and_inputs": "#aa3377",
    "kv_cache": "#997700",
    "allocator_rounding": "#bbbbbb",
}


def preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def report(data: dict[str, Any], verdict: str) -> str:
    """The verdict, a bar of what fills the GPU, and the same in figures."""
    peak, usable = data["peak"], data["gpu"]["usable_bytes"]
    parts = {key.replace("_", " "): (size, _COLOURS.get(key, "#888888")) for key, size in data["breakdown"].items()}
    parts["reserved, not allocated"] = (peak["reserved"] - peak["allocated"], "#dddddd")
    parts["outside allocator"] = (peak["outside_allocator"], "#888888")
    whole = max(usable, peak["total"])
    bar = "".join(
        f'<span title="{escape(name)}: {gib(size)}" style="width:{100 * size / whole:.3f}%;background:{colour};height:1.2em"></span>'
        for name, (size, colour) in parts.items()
        if size > 0
    )
    limit = f'<span style="position:absolute;left:{100 * usable / whole:.3f}%;top:-3px;bottom:-3px;border-left:2px solid"></span>'
    rows = "".join(
        f'<tr><td style="text-align:left"><span style="display:inline-block;width:.8em;height:.8em;background:{colour}">'
        f"</span> {escape(name)}</td><td>{gib(size)}</td></tr>"
        for name, (size, colour) in parts.items()
        if size > 0
    )
    return (
        f"<div><strong>{escape(verdict)}</strong>"
        f'<div style="position:relative;display:flex;margin:.5em 0;max-width:60em;border:1px solid #8888">{bar}{limit}</div>'
        f"<table>{rows}<tr><th>total</th><th>{gib(peak['total'])}</th></tr></table></div>"
    )
