"""atoll for Microsoft's Agent Framework, which follows AutoGen: the tools on a sandbox as its function tools.

For example::

    from agent_framework import Agent
    from atoll import AsyncSandbox
    from atoll.adapters.agent_framework import function_tools
    from atoll.tools import for_sandbox

    async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        agent = Agent(client, tools=function_tools(tools))
        print(await agent.run("Which Python runs here?"))
"""

from __future__ import annotations

from typing import Any

from agent_framework import Content, FunctionTool

from atoll.tools import AsyncTool, AsyncTools, ToolResult

__all__ = ["function_tools"]


def function_tools(tools: AsyncTools) -> list[FunctionTool]:
    """Return the tools as function tools. Pictures become data contents; a failure is told to the model."""
    return [_function_tool(tool) for tool in tools]


def _function_tool(tool: AsyncTool) -> FunctionTool:
    async def call(**arguments: Any) -> ToolResult:
        return await tool.call(arguments)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        func=call,
        input_model=tool.parameters,
        result_parser=_contents,
    )


def _contents(result: ToolResult) -> list[Content]:
    found = [Content.from_text(result.text)] if result.text else []
    return [*found, *(Content.from_data(each.data, each.media_type) for each in result.pictures)]
