"""The OpenAI Agents SDK's sandbox agents, with a scripted model, work in sandboxes of atoll."""

from __future__ import annotations

import asyncio
import io
import urllib.request
from pathlib import Path

import pytest
from agents import RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.testing import ScriptedModel, assistant_message, function_call

from atoll import Sandbox
from atoll.adapters.openai_sandboxes import AtollSandboxClient, AtollSandboxOptions

DIAL = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8123))\""


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


def test_a_sandbox_agent_works_in_a_sandbox_that_is_gone_afterwards() -> None:
    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "cat given.txt; id -un; pwd"}, call_id="1")],
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(
        name="worker",
        model=model,
        instructions="Work.",
        default_manifest=Manifest(entries={"given.txt": File(content=b"from the manifest\n")}),
    )

    async def work() -> None:
        config = RunConfig(sandbox=SandboxRunConfig(client=AtollSandboxClient()), tracing_disabled=True)
        result = await Runner.run(agent, "work", run_config=config)
        outputs = [
            each["output"] for each in result.to_input_list() if each.get("type") == "function_call_output"
        ]
        assert "from the manifest" in outputs[0]
        assert "/workspace" in outputs[0]

    asyncio.run(work())
    assert list(Sandbox.list()) == []


def test_a_session_is_found_again_with_its_memory_and_restored_when_its_sandbox_is_gone(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        client = AtollSandboxClient()
        options = AtollSandboxOptions(exposed_ports=(8123,))
        session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path), options=options)
        async with session:
            await session.write(Path("deep/a.txt"), io.BytesIO(b"kept"))
            assert (await session.exec("echo out; exit 3")).exit_code == 3
            assert (await session.exec("id -un", user="root")).stdout == b"root\n"
            with pytest.raises(WorkspaceReadNotFoundError):
                await session.read(Path("missing"))
            with pytest.raises(ExecTimeoutError):
                await session.exec("exec sleep 1000", timeout=1)
            await session.exec("nohup python3 -m http.server 8123 >/dev/null 2>&1 &")
            await session.exec(f"until {DIAL}; do sleep 0.1; done")
        payload = client.serialize_session_state(session.state)
        again = await client.resume(client.deserialize_session_state(payload))
        async with again:
            endpoint = await again.resolve_exposed_port(8123)
            address = f"{endpoint.url_for('http')}deep/a.txt"
            assert await asyncio.to_thread(fetched, address) == b"kept"
            assert await again.running()
        await client.delete(again)
        other = await client.resume(
            client.deserialize_session_state(client.serialize_session_state(again.state))
        )
        async with other:
            assert (await other.read(Path("deep/a.txt"))).read() == b"kept"
        await client.delete(other)

    asyncio.run(work())
    assert list(Sandbox.list()) == []
