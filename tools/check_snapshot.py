"""Checks a memory snapshot with torch's own reader: what PyTorch's memory viewer opens must open there.

    check_snapshot.py SNAPSHOT.pickle [--allocated BYTES] [--reserved BYTES]

The trace is replayed event by event: each free must end a live allocation of that size, each block must lie in a mapped segment and
overlap no other, and what is alive at the end must be what the snapshot's segments say. With --allocated or --reserved the replay's
peak must be that number. Then torch.cuda._memory_viz makes its pages from it. Exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import bisect
import pickle
import sys
from pathlib import Path
from typing import Any

ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"}
FRAME = {"filename", "line", "name"}


class Replay:
    """The device's state as the trace's events build it."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.blocks: dict[int, int] = {}
        self.starts: list[int] = []
        self.mapped: dict[int, int] = {}
        self.reserved = self.allocated = self.peak_reserved = self.peak_allocated = 0

    def complain(self, index: int, event: dict[str, Any], text: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(f"event {index} ({event.get('action')} {event.get('size')} at {event.get('addr')}): {text}")

    def take(self, index: int, event: dict[str, Any]) -> None:
        action, address, size = event.get("action"), event.get("addr", 0), event.get("size", 0)
        if action not in ACTIONS:
            self.complain(index, event, "no such action")
        elif not isinstance(event.get("frames", []), list) or any(FRAME - set(f) for f in event.get("frames", [])):
            self.complain(index, event, "frames must be a list of filename, line, name")
        if action in ("segment_alloc", "segment_map"):
            self.mapped[address] = size
            self.reserved += size
            self.peak_reserved = max(self.peak_reserved, self.reserved)
        elif action in ("segment_free", "segment_unmap"):
            if self.mapped.pop(address, None) != size:
                self.complain(index, event, "no such segment")
            self.reserved -= size
        elif action == "alloc":
            self.allocate(index, event, address, size)
        elif action == "free_completed":
            if self.blocks.pop(address, None) != size:
                self.complain(index, event, "it frees what is not allocated with that size")
            else:
                self.starts.remove(address)
                self.allocated -= size

    def allocate(self, index: int, event: dict[str, Any], address: int, size: int) -> None:
        at = bisect.bisect_right(self.starts, address)
        before = self.starts[at - 1] if at else None
        if before is not None and before + self.blocks[before] > address:
            self.complain(index, event, f"it overlaps the block at {before}")
        if at < len(self.starts) and address + size > self.starts[at]:
            self.complain(index, event, f"it overlaps the block at {self.starts[at]}")
        if not any(start <= address and address + size <= start + length for start, length in joined(self.mapped)):
            self.complain(index, event, "it lies outside every segment")
        self.blocks[address] = size
        bisect.insort(self.starts, address)
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)


def joined(mapped: dict[int, int]) -> list[tuple[int, int]]:
    """Mapped ranges, neighbours put together (an expandable segment is mapped piece by piece)."""
    out: list[tuple[int, int]] = []
    for start in sorted(mapped):
        if out and out[-1][0] + out[-1][1] == start:
            out[-1] = (out[-1][0], out[-1][1] + mapped[start])
        else:
            out.append((start, mapped[start]))
    return out


def segments_problems(snapshot: dict[str, Any], replay: Replay) -> list[str]:
    problems, active = [], 0
    for segment in snapshot["segments"]:
        sizes = sum(block["size"] for block in segment["blocks"])
        if sizes != segment["total_size"]:
            problems.append(f"segment {segment['address']}: its blocks sum to {sizes}, not {segment['total_size']}")
        live = [b for b in segment["blocks"] if b["state"].startswith("active")]
        active += len(live)
        if sum(b["size"] for b in live) != segment["active_size"]:
            problems.append(f"segment {segment['address']}: active_size is not the sum of its active blocks")
        if sum(b.get("requested_size", 0) for b in live) != segment["requested_size"]:
            problems.append(f"segment {segment['address']}: requested_size is not the sum of its blocks'")
    total = sum(segment["total_size"] for segment in snapshot["segments"])
    if replay.mapped and total != replay.reserved:
        problems.append(f"the segments hold {total} bytes, the trace ends with {replay.reserved}")
    if replay.mapped and active != len(replay.blocks):
        problems.append(f"the segments hold {active} active blocks, the trace ends with {len(replay.blocks)}")
    return problems


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("snapshot", type=Path)
    arguments.add_argument("--allocated", type=int, help="the peak of the trace's allocations, in the trace's own (requested) bytes")
    arguments.add_argument("--reserved", type=int, help="the peak of the segments")
    given = arguments.parse_args()
    with given.snapshot.open("rb") as file:
        snapshot = pickle.load(file)  # noqa: S301  (our own file)
    problems: list[str] = []
    missing = {"segments", "device_traces"} - set(snapshot)
    if missing:
        problems.append(f"the snapshot lacks {missing}")
    replay = Replay(problems)
    events = next((trace for trace in snapshot.get("device_traces", []) if trace), [])
    for index, event in enumerate(events):
        replay.take(index, event)
    problems += segments_problems(snapshot, replay)
    for name, wanted in (("allocated", given.allocated), ("reserved", given.reserved)):
        found = getattr(replay, f"peak_{name}")
        if wanted is not None and found != wanted:
            problems.append(f"peak {name} is {found}, not {wanted}")

    from torch.cuda import _memory_viz as viewer

    pages = {"trace_plot": viewer.trace_plot(snapshot), "segment_plot": viewer.segment_plot(snapshot)}
    pages["segsum"], pages["trace"] = viewer.segsum(snapshot), viewer.trace(snapshot)
    for name, page in pages.items():
        if len(page) < 100:
            problems.append(f"torch's {name} is empty")
    print(f"{given.snapshot}: {len(events)} events, peak allocated {replay.peak_allocated:,d}, reserved {replay.peak_reserved:,d} bytes")
    print("torch's reader made " + ", ".join(f"{name} ({len(page):,d} characters)" for name, page in pages.items()))
    print("\n".join(problems) if problems else "all in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
