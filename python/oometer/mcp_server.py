"""`oometer mcp`: the questions as tools for coding agents, over stdio (the Model Context Protocol's own SDK)."""

import argparse
import json
from typing import Any

import oometer
from oometer import html

INSTRUCTIONS = """oometer computes the peak GPU memory of PyTorch training and inference before it runs, to the byte.
A job is a JSON object: ask `explain` for its keys, or `import_files` to make one of a trainer's own files.
Ask `check` before a launch; if it does not fit, `advise`, or `gpus` for where it does."""


def main(arguments: list[str]) -> int:
    """Serves until the client closes."""
    argparse.ArgumentParser(prog="oometer mcp", description=__doc__).parse_args(arguments)
    try:
        server = build()
    except ImportError:
        print("oometer: this needs the MCP SDK: pip install 'oometer[mcp]'")
        return 2
    server.run()
    return 0


def build() -> Any:
    """The server with its tools. Answers are short: an agent reads every word."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("oometer", instructions=INSTRUCTIONS, version=oometer.__version__, log_level="WARNING")

    @server.tool()
    def check(job: dict[str, Any], gpu: str | None = None) -> str:
        """Whether a job fits on its GPU (or on `gpu`), in one sentence."""
        return _answer(lambda: str(oometer.check(job, gpu=gpu)))

    @server.tool()
    def estimate(job: dict[str, Any]) -> str:
        """A job's peak memory, what it consists of, the time of a step, and what is not modelled."""
        return _answer(lambda: _short(oometer.estimate(job)))

    @server.tool()
    def advise(job: dict[str, Any]) -> str:
        """How far batch and sequence can grow, which changes save how much, and the cheapest that is enough."""
        return _answer(lambda: str(oometer.advise(job)))

    @server.tool()
    def gpus(job: dict[str, Any]) -> str:
        """On which GPUs the job fits, and how many of each it needs."""
        return _answer(lambda: str(oometer.gpus(job)))

    @server.tool()
    def plan(job: dict[str, Any]) -> str:
        """Ways to lay a training out over its GPUs: the fastest that fits first."""
        return _answer(lambda: str(oometer.plan(job)))

    @server.tool()
    def import_files(files: dict[str, Any], gpu: str = "", gpus: int = 0) -> str:
        """A job of a trainer's own files (LLaMA-Factory, Axolotl, TRL, ms-swift, TrainingArguments, launch scripts).

        files: name -> content, as a JSON tree where it is YAML or JSON, as text where it is a shell script.
        """
        given = [{"name": name, "content": content} for name, content in files.items()]
        return _answer(lambda: _imported(oometer.import_files(*given, gpu=gpu, gpus=gpus)))

    @server.tool()
    def explain(pointer: str = "") -> str:
        """The keys of a job below a JSON pointer ("", "/training", "/data/lengths"), each with its words and default."""
        return _explained(pointer)

    @server.tool()
    def presets() -> str:
        """Models and GPUs that have a name."""
        names = oometer.presets()
        models = [f"{model['id']}: {model['title']}" for model in names["models"]]
        return "\n".join(["Models", *models, "", "GPUs", *(f"{gpu['id']}: {html.gib(gpu['usable_bytes'])}" for gpu in names["gpus"])])

    return server


def _answer(ask: Any) -> str:
    """An error is an answer too: it says what would be right, so that the agent can ask again."""
    try:
        return str(ask())
    except oometer.JobError as error:
        fixes = [f"- {fix['label']}: merge {json.dumps(fix['change'])}" for fix in error.fixes]
        return "\n".join([f"The job cannot be answered. {error}", *fixes])


def _short(report: oometer.Report) -> str:
    text = str(report)
    parts = [f"{name}: {html.gib(size)}" for name, size in report.breakdown.items() if size > 0]
    lines = [text.split("\n\n", 1)[0], "At the peak: " + ", ".join(parts)]
    for key, title in (("unmodelled", "Not modelled"), ("notes", "Notes")):
        items = [item if isinstance(item, str) else item.get("text", json.dumps(item)) for item in report.get(key, [])]
        if items:
            lines.append(f"{title}: " + "; ".join(items))
    return "\n".join(lines)


def _imported(answer: oometer.Imported) -> str:
    lines = [json.dumps(answer.job)]
    if answer["refused"]:
        lines.append(f"Refused: {answer['refused']['message']}")
    lines += [f"Missing: {one['kind']} {one['name']}: {one['text']}" for one in answer["missing"]]
    lines += [f"Not modelled: {one['key']}: {one['text']}" for one in answer["unmodelled"]]
    return "\n".join(lines)


def _explained(pointer: str) -> str:
    node: Any = oometer.schema()
    for part in pointer.split("/")[1:]:
        options = [node, *node.get("oneOf", []), *node.get("anyOf", [])]
        node = next((o["properties"][part] for o in options if part in o.get("properties", {})), None)
        if node is None:
            return f"A job has no {pointer}."
    lines = [node.get("description", "")]
    for option in [node, *node.get("oneOf", []), *node.get("anyOf", [])]:
        for key, its in option.get("properties", {}).items():
            values = f" ({', '.join(map(str, its['enum']))})" if "enum" in its else ""
            default = f" [{json.dumps(its['default'])}]" if "default" in its else ""
            lines.append(f"{pointer}/{key}{values}{default}: {its.get('description', '')}")
    return "\n".join(line for line in lines if line)
