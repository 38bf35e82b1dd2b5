"""An agent's session over stdio, with the SDK's own client: will this fit, and if not, what then?"""

import asyncio
import os
import sys
from typing import Any

import pytest

mcp = pytest.importorskip("mcp")

JOB = {
    "version": 1,
    "model": {"preset": "llava-1.5-7b"},
    "data": {"micro_batch_size": 8, "sequence_length": 2048},
    "training": {"stage": "finetune"},
    "gpu": {"name": "h100-80gb"},
}


def session(talk: Any) -> None:
    async def whole() -> None:
        server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "oometer", "mcp"], env=dict(os.environ))
        async with mcp.Client(server) as client:

            async def ask(tool: str, **arguments: Any) -> str:
                result = await client.call_tool(tool, arguments)
                return "\n".join(part.text for part in result.content)

            await talk(client, ask)

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_the_tools_say_what_they_are() -> None:
    async def talk(client: Any, ask: Any) -> None:
        tools = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        assert set(tools) == {"check", "estimate", "advise", "gpus", "plan", "import_files", "explain", "presets"}
        assert all(tools.values())

    session(talk)


def test_a_session() -> None:
    async def talk(client: Any, ask: Any) -> None:
        assert (await ask("check", job=JOB)).startswith("Does not fit on h100-80gb")
        assert "Cheapest combination that is enough" in await ask("advise", job=JOB)
        assert "h200" in await ask("gpus", job=JOB)
        assert "/training/activation_checkpointing" in await ask("explain", pointer="/training")
        better = {**JOB, "training": {"stage": "pretrain", "activation_checkpointing": "non-reentrant"}}
        assert (await ask("check", job=better)).startswith("Fits on h100-80gb")
        answer = await ask("estimate", job=better)
        assert "At the peak: " in answer
        assert len(answer) < 3000

    session(talk)


def test_a_mistake_is_answered_with_what_would_be_right() -> None:
    async def talk(client: Any, ask: Any) -> None:
        answer = await ask("check", job={**JOB, "model": {"preset": "llava-1.5-7"}})
        assert 'did you mean "llava-1.5-7b"' in answer

    session(talk)


def test_a_trainers_file() -> None:
    async def talk(client: Any, ask: Any) -> None:
        content = {"per_device_train_batch_size": 2, "model_name_or_path": "Qwen/Qwen2.5-0.5B", "num_train_epochs": 1}
        assert '"micro_batch_size": 2' in await ask("import_files", files={"train.json": content}, gpu="t4")

    session(talk)
