"""Lines up two allocation traces and shows where they first differ.

    trace_diff.py OURS THEIRS [--all [N]] [--context N] [--iteration N] [--phase NAME] [--identity]

OURS is `oometer log JOB.json`, or `-` for standard input; THEIRS a trace of real_trace.py or rank_trace.py, or a FakeTensor trace with
lines ["A", id, bytes, op, module, ...] and ["F", id]. Allocations must come in the same order with the same bytes; the frees between
two allocations are compared as a multiset of bytes (`--identity`: of the allocations that they end). Exit status 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PHASES = {"fwd": "forward", "bwd": "backward", "recompute": "backward", "opt": "optimizer", "step": "optimizer"}
PHASES |= {"zero": "optimizer", "zero_grad": "optimizer", "wrap": "init", "inputs": "init"}  # oometer's log has four
KEEP_SHORT = 46


@dataclass
class Event:
    """One line of a trace; `ordinal` counts allocations, and a free has that of the allocation it ends."""

    kind: str
    size: int
    storage: Any
    op: str
    module: str
    phase: str
    iteration: int
    ordinal: int = -1
    detail: str = ""

    def text(self) -> str:
        sign = "+" if self.kind == "alloc" else "-"
        of = f" (of #{self.ordinal})" if self.kind == "free" else f" #{self.ordinal}"
        where = f"{self.iteration}.{self.phase[:4]}"
        module = self.module if len(self.module) <= KEEP_SHORT else "…" + self.module[-KEEP_SHORT + 1 :]
        return f"{sign}{self.size:<12d} {where:7s} {self.op or '.':28.28s} {module}{of} {self.detail}".rstrip()


@dataclass
class Step:
    """An allocation (none at the end of a trace) and the frees just before it."""

    frees: list[Event] = field(default_factory=list)
    alloc: Event | None = None


def events(lines: Iterator[str]) -> Iterator[Event]:
    live: dict[Any, Event] = {}
    count = 0
    phase, iteration = "init", 0
    for text in lines:
        if not text.strip():
            continue
        line = json.loads(text)
        if isinstance(line, list):
            line = listed(line, phase, iteration)
        if line.get("event") not in ("alloc", "free"):
            continue
        phase, iteration = line.get("phase", phase), line.get("iteration", iteration)
        detail = " ".join(str(line[k]) for k in ("shape", "shapes", "node", "frame", "role") if line.get(k))
        event = Event(line["event"], line.get("bytes", 0), line.get("storage"), line.get("op", ""), line.get("module", ""), "", iteration)
        event.phase = PHASES.get(phase, phase)
        event.detail = detail
        if event.kind == "alloc":
            event.ordinal, count = count, count + 1
            live[event.storage] = event
        else:
            made = live.pop(event.storage, None)
            if made is None:
                raise SystemExit(f"a free of storage {event.storage}, which is not alive: {text.strip()}")
            event.size, event.ordinal = made.size, made.ordinal
        yield event


def listed(line: list[Any], phase: str, iteration: int) -> dict[str, Any]:
    if line[0] == "F":
        return {"event": "free", "storage": line[1], "phase": phase, "iteration": iteration}
    names = ("storage", "bytes", "op", "module", "class", "phase", "iteration", "shape", "dtype")
    return {"event": "alloc", **dict(zip(names, line[1:10], strict=False))}


def steps(trace: list[Event]) -> list[Step]:
    out = [Step()]
    for event in trace:
        if event.kind == "free":
            out[-1].frees.append(event)
        else:
            out[-1].alloc = event
            out.append(Step())
    return out


@dataclass
class Difference:
    ours: int
    theirs: int
    kind: str
    skipped: tuple[int, int] = (0, 0)
    frees: tuple[list[Event], list[Event]] = field(default_factory=lambda: ([], []))


class Comparison:
    """Walks two lists of steps side by side; after a difference in the allocations it finds where they agree again."""

    def __init__(self, ours: list[Step], theirs: list[Step], identity: bool) -> None:
        self.ours, self.theirs, self.identity = ours, theirs, identity
        self.pairs: dict[int, int] = {}  # ordinal in theirs -> ordinal in ours

    def size(self, side: list[Step], at: int) -> int | None:
        return side[at].alloc.size if at < len(side) and side[at].alloc else None

    def agree(self, i: int, j: int, needed: int) -> bool:
        for k in range(needed):
            ours, theirs = self.size(self.ours, i + k), self.size(self.theirs, j + k)
            if ours != theirs:
                return False
            if ours is None:
                return True
        return True

    def resynchronise(self, i: int, j: int, window: int = 400) -> tuple[int, int] | None:
        for distance in range(1, window):
            for di in range(distance + 1):
                if self.agree(i + di, j + distance - di, 3 if distance < 8 else 6):
                    return di, distance - di
        return None

    def free_difference(self, i: int, j: int, owed: Counter[Any]) -> tuple[list[Event], list[Event]]:
        """Frees of this step that the other side does not have (nor owes from an earlier difference)."""
        ours, theirs = self.ours[i].frees, self.theirs[j].frees
        a = [(e, e.ordinal if self.identity else e.size) for e in ours]
        b = [(e, self.pairs.get(e.ordinal, -1 - e.ordinal) if self.identity else e.size) for e in theirs]
        left, right = Counter(k for _, k in a), Counter(k for _, k in b)
        only_a, only_b = left - right, right - left
        for key, count in list(only_a.items()):  # we freed late, or will
            settled = min(count, max(0, -owed[key]))
            owed[key] += count
            only_a[key] -= settled
        for key, count in list(only_b.items()):
            settled = min(count, max(0, owed[key]))
            owed[key] -= count
            only_b[key] -= settled
        return pick(a, only_a), pick(b, only_b)

    def __iter__(self) -> Iterator[Difference]:
        i = j = 0
        owed: Counter[Any] = Counter()
        while i < len(self.ours) and j < len(self.theirs):
            frees = self.free_difference(i, j, owed)
            if frees[0] or frees[1]:
                yield Difference(i, j, "frees", frees=frees)
            ours, theirs = self.ours[i].alloc, self.theirs[j].alloc
            if ours is None and theirs is None:
                return
            if ours is None or theirs is None or ours.size != theirs.size:
                found = self.resynchronise(i, j)
                yield Difference(i, j, "alloc", skipped=found or (len(self.ours) - i, len(self.theirs) - j))
                if found is None:
                    return
                for side, start, count in ((self.ours, i, found[0]), (self.theirs, j, found[1])):
                    for step in side[start + 1 : start + count + 1]:
                        for event in step.frees:
                            owed[event.size] += 1 if side is self.ours else -1
                i, j = i + found[0], j + found[1]
                ours, theirs = self.ours[i].alloc, self.theirs[j].alloc
                if ours is None or theirs is None:
                    return
            self.pairs[theirs.ordinal] = ours.ordinal
            i, j = i + 1, j + 1


def pick(events: list[tuple[Event, Any]], wanted: Counter[Any]) -> list[Event]:
    out = []
    for event, key in events:
        if wanted[key] > 0:
            wanted[key] -= 1
            out.append(event)
    return out


# ---------------------------------------------------------------------------------------------- what is printed


def around(side: list[Step], at: int, context: int) -> list[str]:
    lines: list[str] = []
    for index in range(max(0, at - context), min(len(side), at + context + 1)):
        mark = ">>" if index == at else "  "
        lines += [f"{mark} {e.text()}" for e in side[index].frees]
        alloc = side[index].alloc
        lines.append(f"{mark} {alloc.text() if alloc else '(end of trace)'}")
    return lines


def brief(comparison: Comparison, difference: Difference) -> str:
    ours, theirs = comparison.ours[difference.ours], comparison.theirs[difference.theirs]
    here = theirs.alloc or ours.alloc or (theirs.frees or ours.frees or [None])[0]
    place = f"{here.iteration}.{here.phase} {here.module} {here.op}" if here else "the end"
    if difference.kind == "frees":
        lines = [f"frees before {place} (ours #{difference.ours}, theirs #{difference.theirs})"]
        lines += [f"    only ours    {e.text()}" for e in difference.frees[0]]
        lines += [f"    only theirs  {e.text()}" for e in difference.frees[1]]
        return "\n".join(lines)
    lines = [f"allocation at {place} (ours #{difference.ours}, theirs #{difference.theirs})"]
    for name, side, start, count in (
        ("only ours  ", comparison.ours, difference.ours, difference.skipped[0]),
        ("only theirs", comparison.theirs, difference.theirs, difference.skipped[1]),
    ):
        allocations = [s.alloc.text() for s in side[start : start + count] if s.alloc]
        lines += [f"    {name}  {text}" for text in allocations[:12]]
        if len(allocations) > 12:
            lines.append(f"    {name}  ... {len(allocations) - 12} more")
    return "\n".join(lines)


def peaks(trace: list[Event]) -> dict[tuple[int, str], tuple[int, int, Event]]:
    """By iteration and phase: peak of live requested bytes, number of allocations, and the allocation at the peak."""
    out: dict[tuple[int, str], tuple[int, int, Event]] = {}
    live = 0
    for event in trace:
        live += event.size if event.kind == "alloc" else -event.size
        if event.kind == "alloc":
            key = (event.iteration, event.phase)
            peak, count, at = out.get(key, (-1, 0, event))
            out[key] = (live, count + 1, event) if live > peak else (peak, count + 1, at)
    return out


def summary(ours: list[Event], theirs: list[Event]) -> list[str]:
    a, b = peaks(ours), peaks(theirs)
    lines = [f"{'phase':16s}{'ours':>18s}{'theirs':>18s}{'difference':>14s}{'allocs':>9s}{'theirs':>8s}  peak at (theirs)"]
    for key in dict.fromkeys((*b, *a)):
        x, y = a.get(key), b.get(key)
        difference = f"{x[0] - y[0]:14,d}" if x and y else f"{'-':>14s}"
        numbers = [f"{v[0]:18,d}" if v else f"{'-':>18s}" for v in (x, y)]
        at = f"{y[2].op} {y[2].module}" if y else ""
        count = f"{x[1] if x else 0:9d}{y[1] if y else 0:8d}"
        lines.append(f"{key[0]} {key[1]:14s}{numbers[0]}{numbers[1]}{difference}{count}  {at}")
    return lines


def load(path: str, given: argparse.Namespace) -> tuple[list[Event], list[Event]]:
    """The whole trace, and the part that is compared."""
    whole = list(events(sys.stdin if path == "-" else iter(Path(path).read_text().splitlines())))
    part = [e for e in whole if given.iteration is None or e.iteration == given.iteration]
    return whole, [e for e in part if given.phase is None or e.phase == given.phase]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ours")
    arguments.add_argument("theirs")
    arguments.add_argument("--all", type=int, nargs="?", const=40, help="go on past the first difference, and print up to N (40)")
    arguments.add_argument("--context", type=int, default=5, help="allocations shown before and after the first difference")
    arguments.add_argument("--iteration", type=int, help="compare this iteration only (0 is the initialisation)")
    arguments.add_argument("--phase", help="compare this phase only")
    arguments.add_argument("--identity", action="store_true", help="a free must end the same allocation, not just one as big")
    given = arguments.parse_args()
    (whole_ours, ours), (whole_theirs, theirs) = load(given.ours, given), load(given.theirs, given)
    print("\n".join(summary(whole_ours, whole_theirs)))
    comparison = Comparison(steps(ours), steps(theirs), given.identity)
    count = 0
    for difference in comparison:
        count += 1
        if count == 1:
            print("\nfirst difference: " + brief(comparison, difference))
            print("\n  ours:")
            print("\n".join(around(comparison.ours, difference.ours, given.context)))
            print("\n  theirs:")
            print("\n".join(around(comparison.theirs, difference.theirs, given.context)))
            if given.all is None:
                return 1
            print()
        elif count <= given.all:
            print(f"{count}. {brief(comparison, difference)}")
    print(f"{count} differences" if count else "\nno difference")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
