"""Pydantic AI's own loop, with a function as its model, works in a sandbox."""

from __future__ import annotations

import asyncio
import base64

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from atoll import AsyncSandbox
from atoll.adapters.pydantic_ai import SandboxToolset
from atoll.tools import for_sandbox

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CALLS = [
    ToolCallPart("run", {"command": "echo from inside"}),
    ToolCallPart("run", {"cmd": "wrong"}),
    ToolCallPart("read_file", {"path": "dot.png"}),
]


def test_the_loop_calls_the_toolset_and_sees_answers_failures_and_pictures() -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert "run" in [tool.name for tool in info.function_tools]
        answered = len([each for each in messages if isinstance(each, ModelResponse)])
        return ModelResponse(parts=[CALLS[answered] if answered < len(CALLS) else TextPart("done")])

    async def work() -> None:
        async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
            await sandbox.files.write("dot.png", PNG)
            result = await Agent(FunctionModel(model), toolsets=[SandboxToolset(tools)]).run("work")
            assert result.output == "done"
            parts = [part for message in result.all_messages() for part in message.parts]
            returned = [part for part in parts if isinstance(part, ToolReturnPart)]
            assert "from inside" in str(returned[0].content)
            assert "it takes a JSON object of command" in str(returned[1].content)
            assert returned[1].outcome == "failed"
            assert any(isinstance(each, BinaryContent) and each.data == PNG for each in returned[2].content)

    asyncio.run(work())
