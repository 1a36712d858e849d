"""Agent Framework's own loop, with a scripted client, works in a sandbox."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

from atoll import AsyncSandbox
from atoll.adapters.agent_framework import function_tools
from atoll.tools import for_sandbox

CALLS = [("run", {"command": "echo from inside"}), ("read_file", {"path": "missing"})]


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """A client whose model asks for tools in turn."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        async def answer() -> ChatResponse:
            answered = len([each for each in messages if each.role == "tool"])
            if answered < len(CALLS):
                name, arguments = CALLS[answered]
                said = Content.from_function_call(call_id=str(answered), name=name, arguments=arguments)
            else:
                said = Content.from_text("done")
            return ChatResponse(messages=[Message(role="assistant", contents=[said])])

        return answer()


def test_the_loop_calls_tools_and_sees_their_answers_and_failures() -> None:
    async def work() -> None:
        async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
            response = await Agent(Scripted(), tools=function_tools(tools)).run("work")
            assert response.text.endswith("done")
            results = [
                str(content.result)
                for message in response.messages
                for content in message.contents
                if content.type == "function_result"
            ]
            assert "from inside" in results[0]
            assert "[file_missing]" in results[1]

    asyncio.run(work())
