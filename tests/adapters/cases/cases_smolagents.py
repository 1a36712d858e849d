"""smolagents' own loops, with a scripted model, work in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from smolagents import CodeAgent, Model, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from atoll import Sandbox, Template
from atoll.adapters.smolagents import SandboxPythonExecutor, smolagents_tools
from atoll.tools import for_sandbox


class Scripted(Model):
    """A model that says what it was given, in turn."""

    def __init__(self, answers: list[ChatMessage]) -> None:
        super().__init__(model_id="scripted")
        self._answers = iter(answers)

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        return next(self._answers)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.create(Template("code-interpreter-v1")) as sandbox:
        yield sandbox


def code(text: str) -> ChatMessage:
    return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{text}\n</code>")


def call(number: int, name: str, arguments: dict[str, Any]) -> ChatMessage:
    asked = ChatMessageToolCall(
        id=str(number), type="function", function=ChatMessageToolCallFunction(name=name, arguments=arguments)
    )
    return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[asked])


def test_the_code_of_an_agent_runs_in_the_sandbox_and_its_variables_stay(sandbox: Sandbox) -> None:
    model = Scripted(
        [
            code("import socket\nname = socket.gethostname()\nprint('on', name)"),
            code("1 / 0"),
            code("final_answer({'host': name})"),
        ]
    )
    agent = CodeAgent(tools=[], model=model, executor=SandboxPythonExecutor(sandbox))
    assert agent.run("work") == {"host": sandbox.run("hostname").stdout.strip()}
    steps = [str(step.observations) + str(step.error) for step in agent.memory.steps[1:]]
    assert "on " in steps[0]
    assert "ZeroDivisionError" in steps[1]


def test_the_loop_calls_tools_and_sees_their_answers_and_failures(sandbox: Sandbox) -> None:
    model = Scripted(
        [
            call(1, "run", {"command": "echo from inside"}),
            call(2, "read_file", {"path": "missing"}),
            call(3, "final_answer", {"answer": "done"}),
        ]
    )
    with for_sandbox(sandbox) as tools:
        agent = ToolCallingAgent(tools=smolagents_tools(tools), model=model)
        assert agent.run("work") == "done"
    observed = [str(step.observations) for step in agent.memory.steps[1:]]
    assert "from inside" in observed[0]
    assert "[file_missing]" in observed[1]
