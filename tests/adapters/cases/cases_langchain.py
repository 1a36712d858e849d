"""LangChain's and deepagents' own loops, with a scripted model, work in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from atoll import AsyncSandbox, Sandbox
from atoll.adapters.deepagents import SandboxBackend
from atoll.adapters.langchain import langchain_tools
from atoll.tools import for_sandbox


class Scripted(GenericFakeChatModel):
    """A model that asks for tools in turn, and takes any."""

    def bind_tools(self, tools: Any, **_: Any) -> Scripted:
        return self


def asking(*calls: tuple[str, dict[str, Any]]) -> Scripted:
    """A model that makes these calls, and then is done."""
    asked = [
        AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(number)}])
        for number, (name, arguments) in enumerate(calls)
    ]
    return Scripted(messages=iter([*asked, AIMessage("done")]))


def answers(state: dict[str, Any]) -> list[ToolMessage]:
    """What the tools said."""
    return [each for each in state["messages"] if isinstance(each, ToolMessage)]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def test_the_loop_calls_tools_and_sees_their_answers_and_failures(sandbox: Sandbox) -> None:
    model = asking(("run", {"command": "echo from inside"}), ("read_file", {"path": "missing"}))
    with for_sandbox(sandbox) as tools:
        state = create_agent(model, langchain_tools(tools)).invoke({"messages": [("user", "work")]})
    told, failed = answers(state)
    assert "from inside" in told.content
    assert failed.status == "error"
    assert "[file_missing]" in failed.content


def test_the_loop_awaits_the_tools_of_an_async_sandbox(sandbox: Sandbox) -> None:
    async def work() -> None:
        async with await AsyncSandbox.connect(sandbox.id) as same, for_sandbox(same) as tools:
            agent = create_agent(asking(("run", {"command": "echo awaited"})), langchain_tools(tools))
            [told] = answers(await agent.ainvoke({"messages": [("user", "work")]}))
            assert "awaited" in told.content

    asyncio.run(work())


def test_the_tools_of_deepagents_act_in_the_sandbox(sandbox: Sandbox) -> None:
    model = asking(
        ("write_file", {"file_path": "/home/user/deep/a.txt", "content": "one\ntwo\n"}),
        ("edit_file", {"file_path": "/home/user/deep/a.txt", "old_string": "two", "new_string": "three"}),
        ("read_file", {"file_path": "/home/user/deep/a.txt"}),
        ("grep", {"pattern": "three", "path": "/home/user/deep"}),
        ("glob", {"pattern": "*.txt", "path": "/home/user/deep"}),
        ("execute", {"command": "cat deep/a.txt; echo err >&2; exit 3"}),
    )
    agent = create_deep_agent(model, backend=SandboxBackend(sandbox))
    _, _, read, found, globbed, ran = answers(agent.invoke({"messages": [("user", "work")]}))
    assert sandbox.files.read("deep/a.txt") == "one\nthree\n"
    assert "three" in read.content
    assert "a.txt" in found.content
    assert "a.txt" in globbed.content
    assert "three" in ran.content
    assert "err" in ran.content
    assert "3" in ran.content


def test_the_backend_names_what_fails_and_ends_what_takes_too_long(sandbox: Sandbox) -> None:
    backend = SandboxBackend(sandbox)
    assert backend.id == sandbox.id
    missing, directory = backend.download_files(["/nowhere", "/etc"])
    assert (missing.error, directory.error) == ("file_not_found", "is_directory")
    denied, written = backend.upload_files([("/etc/x", b"x"), ("/tmp/deep/x", b"x")])
    assert (denied.error, written.error) == ("permission_denied", None)
    ended = backend.execute("echo begun; sleep 1000", timeout=5)
    assert ended.exit_code == 124
    assert "begun" in ended.output
