"""CrewAI's own loop, with a scripted model, works in a sandbox."""

from __future__ import annotations

import os
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
}

from crewai import Agent
from crewai.llms.base_llm import BaseLLM

from atoll import Sandbox
from atoll.adapters.crewai import crewai_tools
from atoll.tools import for_sandbox

ANSWERS = [
    'Thought: look\nAction: run\nAction Input: {"command": "echo from inside"}',
    'Thought: look\nAction: read_file\nAction Input: {"path": "missing"}',
    "Thought: I now know the final answer\nFinal Answer: done",
]


class Scripted(BaseLLM):
    """A model that says what it was given, in turn, and keeps what it read."""

    read: list[str] = []

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        self.read.append(str(messages))
        return ANSWERS[len(self.read) - 1]

    def supports_function_calling(self) -> bool:
        return False


def test_the_loop_calls_tools_and_sees_their_answers_and_failures() -> None:
    with Sandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        model = Scripted(model="scripted")
        agent = Agent(
            role="worker", goal="Work.", backstory="You work.", tools=crewai_tools(tools), llm=model
        )
        assert agent.kickoff("work").raw == "done"
    assert "stdout:\\nfrom inside" in model.read[1]
    assert "[file_missing]" in model.read[2]
