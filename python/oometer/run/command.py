"""`oometer run`: starts the script on the stand-in device and reports what its processes found."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oometer
from oometer import html
from oometer.run import places

FITS, DOES_NOT_FIT, BAD_INPUT = 0, 1, 2
LIBRARIES = ("liboometer_cuda.so", "liboometer_nvml.so")


class RunError(Exception):
    """Why there is no answer, in a sentence."""


@dataclass(frozen=True)
class Device:
    """The GPU that the stand-in is, from the catalogue."""

    id: str
    name: str
    capability: str
    multiprocessors: int
    usable: int  # bytes, as cudaMemGetInfo gives them
    outside: int  # bytes of these that the CUDA context and NCCL take

    def environment(self, count: int, ends: bool) -> dict[str, str]:
        return {
            "OOMETER_DEVICE_NAME": f"{self.name} (oometer stand-in)",
            "OOMETER_DEVICE_CAPABILITY": self.capability,
            "OOMETER_DEVICE_MULTIPROCESSORS": str(self.multiprocessors),
            "OOMETER_DEVICE_COUNT": str(count),
            "OOMETER_DEVICE_TOTAL": str(self.usable),
            "OOMETER_DEVICE_TAKEN": str(self.outside),
            "OOMETER_DEVICE_ENDS": str(int(ends)),
        }


def find_device(gpu: str, world: int) -> Device:
    """A GPU by its id; what lies outside the allocator is `estimate`'s figure for a plain job there."""
    job: dict[str, Any] = {"version": 1, "model": {"preset": "llama-3-8b"}, "gpu": {"name": gpu}}
    if world > 1:
        job["parallel"] = {"strategy": "ddp", "data": world}
    try:
        outside = oometer.summary(job)["peak"]["outside_allocator"]
    except oometer.JobError as error:
        raise RunError(str(error).removeprefix("/gpu/name: ")) from None
    row = next(row for row in oometer.presets()["gpus"] if row["id"] == gpu)
    if row["vendor"] != "nvidia":
        raise RunError(f"{gpu}: the stand-in is an NVIDIA GPU; AMD's are not supported yet")
    return Device(gpu, row["name"], row["compute_capability"], row["sm_count"], row["usable_bytes"], outside)


def libraries() -> str:
    """The stand-in's two libraries, for LD_PRELOAD."""
    folder = Path(os.environ.get("OOMETER_STANDIN") or Path(__file__).parent / "lib")
    paths = [folder / name for name in LIBRARIES]
    if not sys.platform.startswith("linux") or not all(path.exists() for path in paths):
        raise RunError(f"the stand-in device is not in {folder}: it is built for Linux alone")
    return ":".join(map(str, paths))


def environment(folder: str, device: Device, options: argparse.Namespace, ends: bool) -> dict[str, str]:
    site = str(Path(__file__).parent / "site")
    package = str(Path(oometer.__file__).parent.parent)
    path = os.pathsep.join(p for p in (site, os.environ.get("PYTHONPATH"), package) if p)
    out = {
        **os.environ,
        "LD_PRELOAD": ":".join(p for p in (libraries(), os.environ.get("LD_PRELOAD")) if p),
        "PYTHONPATH": path,
        "OOMETER_RUN": folder,
        "OOMETER_RUN_STEPS": str(options.steps),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_DISABLE_TORCH_CHECK": "1",
        "WANDB_MODE": "disabled",
        **device.environment(options.gpus, ends),
    }
    out.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    out.setdefault("OMP_NUM_THREADS", "1")
    out.pop("CUDA_VISIBLE_DEVICES", None)
    if options.fake_world:
        out |= {"OOMETER_RUN_WORLD": str(options.fake_world), "OOMETER_RUN_RANK": str(options.rank)}
    if options.sandbox:
        out["OOMETER_RUN_SANDBOX"] = "1"
    if options.holders:
        out["OOMETER_RUN_HOLDERS"] = "1"
    if options.snapshot:
        out["OOMETER_RUN_SNAPSHOT"] = str(Path(options.snapshot).absolute())
    return out


def start(options: argparse.Namespace, device: Device, ends: bool) -> tuple[list[dict[str, Any]], bool]:
    """Runs the command once; what each of its processes found, the lowest rank first, and whether Ctrl-C ended it."""
    with tempfile.TemporaryDirectory(prefix="oometer-run-") as folder:
        env = environment(folder, device, options, ends)
        # The script's words are not the answer's.
        process = subprocess.Popen(options.command, env=env, stdout=sys.stderr, start_new_session=True)
        try:
            code = process.wait(timeout=options.timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            stopped = [one["stopped_at"] for one in _found(folder) if one["stopped_at"]] or _stacks(folder)
            where = f"; it was at {stopped[0]}" if stopped else ""
            raise RunError(f"no end after {options.timeout} s (--timeout), and fewer than {options.steps} optimizer steps{where}") from None
        except KeyboardInterrupt:
            _end(process)
            code = 130
        found = _found(folder)
        failures = sorted(Path(folder).glob("*.failed"), key=lambda file: file.stat().st_mtime)  # the script's before its launcher's
        failure = failures[0].read_text(encoding="utf-8") if failures else ""
        crashes = _stacks(folder)
    if code < 0 and code != -signal.SIGINT:
        where = f"; it was at {crashes[0]}" if crashes else ""
        raise RunError(f"the command was ended by {signal.Signals(-code).name}{where}")
    if crashes:
        raise RunError(f"a process of the command crashed at {crashes[0]}")
    if not found:
        _check_gpus(options, failure)
        raise RunError(f"the command exited with {code} before it used the GPU{': ' if failure else ''}{failure}")
    return found, code in (130, -signal.SIGINT)


def _stacks(folder: str) -> list[str]:
    """Where processes were whose stack faulthandler wrote; the whole stacks go to the errors."""
    found = []
    for file in sorted(Path(folder).glob("*.stack")):
        text = file.read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(text)
        frames = re.findall(r'File "(.*)", line (\d+) in', text.partition("Current thread")[2].partition("\n\n")[0])
        own = [f"{path}:{line}" for path, line in frames if not any(part in path for part in places.LIBRARIES)]
        if frames:
            found.append(own[0] if own else ":".join(frames[0]))
    return found


def _check_gpus(options: argparse.Namespace, failure: str) -> None:
    if "invalid device ordinal" in failure or "number of accelerators available" in failure:
        raise RunError(f"the script wants more GPUs than --gpus {options.gpus}: {failure}")


def _found(folder: str) -> list[dict[str, Any]]:
    found = [json.loads(file.read_text(encoding="utf-8")) for file in Path(folder).glob("*.json")]
    return sorted(found, key=lambda one: one["rank"])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The whole group: launchers have children. Those that can write what they know first."""
    os.killpg(process.pid, signal.SIGINT)
    for _ in range(50):
        if process.poll() is not None:
            return
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGRTMAX)  # faulthandler says where
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def report(options: argparse.Namespace) -> dict[str, Any]:
    """The answer, in the words of `estimate`'s report."""
    device = find_device(options.gpu, options.fake_world or options.gpus)
    found, stopped = start(options, device, ends=options.limit)
    limited = found
    if not options.limit and max(one["peak"]["reserved"] for one in found) + device.outside > device.usable:
        limited, _ = start(options, device, ends=True)  # the allocator gives back what it can before it gives up
    worst = max(found, key=lambda one: one["peak"]["reserved"])
    dead = next((one["out_of_memory"] for one in limited if one["out_of_memory"]), None)
    failed = next((one["failure"] for one in found if one["failure"]), None)
    _check_gpus(options, failed or "")
    if failed and not worst["steps"]:
        raise RunError(f"the script failed before its first optimizer step: {failed}")
    reserved = worst["peak"]["reserved"]
    total = reserved + device.outside
    notes = [
        "CUDA context and NCCL are `estimate`'s figures for this GPU; cuDNN is off, so convolutions have PyTorch's own workspaces",
        f"{options.steps} optimizer steps were asked for, {len(worst['steps'])} were run; what comes later is not seen",
    ]
    if options.fake_world:
        notes.append(f"rank {options.rank} of {options.fake_world} alone: what it gathers from the others is its own")
    notes += worst["notes"]
    if not worst["steps"]:
        notes.append("no step of a torch.optim.Optimizer was seen: the peak is that of the whole script")
    if worst["device_peak"] > reserved:
        notes.append(f"{worst['device_peak'] - reserved} bytes more were allocated outside PyTorch's allocator, and are not in the total")
    if place := worst["synthesised_at"].get("a scalar of bool"):
        notes.append(
            f"the script branches on a value that is not known, at {place}: the peak is that of the way which it takes where the value "
            "is true (OOMETER_RUN_BOOLEAN=0: of the other one)"
        )
    if failed:
        notes.append(f"the script failed after its steps: {failed}")
    if stopped:
        notes.append("it was stopped by Ctrl-C")
    verdict = "does-not-fit" if dead else "unknown" if failed or stopped else "tight" if total > device.usable else "fits"
    return {
        "verdict": verdict,
        "fits": verdict in ("fits", "tight"),
        "headroom": device.usable - total,
        "peak": {"allocated": worst["peak"]["allocated"], "reserved": reserved, "outside_allocator": device.outside, "total": total},
        "gpu": {"name": device.id, "usable_bytes": device.usable},
        "out_of_memory": dead,
        "steps": worst["steps"],
        "between": worst["between"],
        "ranks": [{"rank": one["rank"], **one["peak"]} for one in found] if len(found) > 1 else [],
        "holders": worst["holders"],
        "synthesised": worst["synthesised"],
        "synthesised_at": worst["synthesised_at"],
        "versions": worst["versions"],
        "notes": notes,
    }


def table(answer: dict[str, Any]) -> str:
    """The answer for people."""
    peak, gpu, gib = answer["peak"], answer["gpu"], html.gib
    words = {"fits": "Fits", "tight": "Tight", "does-not-fit": "Does not fit", "unknown": "It ended too early to know whether it fits"}[
        answer["verdict"]
    ]
    spare = f"{gib(answer['headroom'])} to spare" if answer["headroom"] >= 0 else f"{gib(-answer['headroom'])} too much"
    needs = "needed" if answer["verdict"] == "unknown" else "needs"
    lines = [f"{words} on {gpu['name']}: {needs} {gib(peak['total'])} of {gib(gpu['usable_bytes'])}, {spare}."]
    if answer["out_of_memory"]:
        lines.append(answer["out_of_memory"])
    lines += ["", "Peak"]
    lines += [f"  {name.replace('_', ' '):<20} {gib(size):>12}" for name, size in peak.items()]
    lines += ["", "Optimizer steps (peaks)"]
    for i, step in enumerate(answer["steps"], 1):
        lines.append(f"  {i:<20} {gib(step['allocated']):>12} allocated {gib(step['reserved']):>12} reserved")
    between = answer["between"]
    lines.append(f"  {'before and between':<20} {gib(between['allocated']):>12} allocated {gib(between['reserved']):>12} reserved")
    if answer["ranks"]:
        lines += ["", "Ranks (peaks)"]
        lines += [
            f"  rank {row['rank']:<15} {gib(row['allocated']):>12} allocated {gib(row['reserved']):>12} reserved" for row in answer["ranks"]
        ]
    if holders := answer["holders"]:
        for what in ("modules", "lines"):
            lines += ["", f"Who holds the peak, by {what[:-1]}", *(f"  {gib(size):>12}  {who}" for who, size in holders[what][:10])]
    if answer["synthesised"]:
        lines += ["", "Values read from the device that are not known, and how often"]
        at = answer["synthesised_at"]
        lines += [f"  {what:<40} {times:>6}  first at {at.get(what, '?')}" for what, times in answer["synthesised"].items()]
    lines += ["", "Notes", *(f"  - {note}" for note in answer["notes"])]
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="oometer run",
        usage="oometer run [OPTIONS] -- python train.py ...",
        description="Runs a script as it is in real PyTorch on a GPU that is not there, and prints the peak. Exit code: "
        "0 fits, 1 does not fit, 2 no answer.",
    )
    out.add_argument("--gpu", default="h100-80gb", help="a GPU of `oometer presets` (default: %(default)s)")
    out.add_argument("--gpus", type=int, default=1, help="how many the process sees (default: %(default)s)")
    out.add_argument("--fake-world", type=int, default=None, metavar="N", help="one rank of N, without the others")
    out.add_argument("--rank", type=int, default=0, help="which one of --fake-world (default: %(default)s)")
    out.add_argument("--steps", type=int, default=3, help="optimizer steps to run (default: %(default)s)")
    out.add_argument("--limit", action="store_true", help="run out of memory where the GPU would; else the whole need is learnt first")
    out.add_argument("--timeout", type=float, default=None, metavar="SECONDS", help="end the script after so long")
    out.add_argument("--sandbox", action="store_true", help="leave out what the script would save with torch or safetensors")
    out.add_argument("--holders", action="store_true", help="say who holds the peak, by module and by line of code")
    out.add_argument("--snapshot", metavar="FILE", help="write a memory snapshot for the page and PyTorch's viewer")
    out.add_argument("--json", action="store_true", help="the answer as JSON")
    out.add_argument("command", nargs=argparse.REMAINDER, help="what would be launched, after --")
    return out


def main(arguments: list[str]) -> int:
    """Runs, prints the answer and returns the exit code."""
    options = parser().parse_args(arguments)
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    try:
        if not options.command:
            raise RunError("expected a command after --, such as: oometer run -- python train.py")
        if shutil.which(options.command[0]) is None:
            raise RunError(f"{options.command[0]}: no such command")
        if options.steps < 1 or options.gpus < 1:
            raise RunError("expected --steps and --gpus of 1 or more")
        if options.fake_world is not None and not 0 <= options.rank < options.fake_world:
            raise RunError("expected --fake-world of 1 or more, and --rank below it")
        answer = report(options)
    except RunError as error:
        print(f"oometer: {error}", file=sys.stderr)
        return BAD_INPUT
    print(json.dumps(answer) if options.json else table(answer))
    return {"does-not-fit": DOES_NOT_FIT, "unknown": BAD_INPUT}.get(answer["verdict"], FITS)
