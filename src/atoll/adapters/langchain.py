"""atoll for LangChain and LangGraph: the tools on a sandbox as LangChain's tools.

For example::

    from langchain.agents import create_agent
    from atoll import Sandbox
    from atoll.adapters.langchain import langchain_tools
    from atoll.tools import for_sandbox

    with Sandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        agent = create_agent("anthropic:claude-sonnet-4-5", langchain_tools(tools))
        print(agent.invoke({"messages": [("user", "Which Python runs here?")]})["messages"][-1].content)
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from atoll.tools import AsyncTool, AsyncTools, Tool, ToolResult, Tools

__all__ = ["langchain_tools"]


def langchain_tools(tools: Tools | AsyncTools) -> list[BaseTool]:
    """Return the tools as LangChain's.

    Pictures become image blocks. A failure is a tool message whose status is ``error``.

    Args:
        tools: Those of an ``AsyncSandbox`` can only be awaited (``ainvoke``).
    """
    return [_of_async(tool) if isinstance(tool, AsyncTool) else _of_sync(tool) for tool in tools]


def _of_sync(tool: Tool) -> BaseTool:
    def call(**arguments: Any) -> Any:
        return _content(tool.call(arguments))

    return StructuredTool.from_function(
        call,
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        handle_tool_error=True,
    )


def _of_async(tool: AsyncTool) -> BaseTool:
    async def call(**arguments: Any) -> Any:
        return _content(await tool.call(arguments))

    return StructuredTool.from_function(
        coroutine=call,
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        handle_tool_error=True,
    )


def _content(result: ToolResult) -> Any:
    if result.is_error:
        raise ToolException(result.text)
    if not result.pictures:
        return result.text
    blocks: list[dict[str, Any]] = [{"type": "text", "text": result.text}] if result.text else []
    for picture in result.pictures:
        blocks.append({"type": "image", "base64": picture.base64, "mime_type": picture.media_type})
    return blocks
