"""atoll for Pydantic AI: the tools on a sandbox as a toolset.

For example::

    from pydantic_ai import Agent
    from atoll import AsyncSandbox
    from atoll.adapters.pydantic_ai import SandboxToolset
    from atoll.tools import for_sandbox

    async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        agent = Agent("anthropic:claude-sonnet-4-5", toolsets=[SandboxToolset(tools)])
        print((await agent.run("Which Python runs here?")).output)
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from atoll.tools import AsyncTool, AsyncTools

__all__ = ["SandboxToolset"]

# the tools check their arguments themselves, and tell a model what is wrong
_ANYTHING = SchemaValidator(core_schema.dict_schema())


class SandboxToolset(AbstractToolset[Any]):
    """The tools on a sandbox. A failure is a failed tool call, which the model reads and which ends no run.

    Args:
        tools: The tools. They stay the caller's to close.
        id: Tells the toolset from others of the agent; None is ``atoll-SANDBOX``.
    """

    def __init__(self, tools: AsyncTools, *, id: str | None = None) -> None:
        self._tools = tools
        self._id = id or f"atoll-{tools.sandbox.id}"

    @property
    def id(self) -> str:
        """Tells the toolset from others of the agent."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by name."""
        return {tool.name: self._described(tool) for tool in self._tools}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool. Pictures are returned as binary content.

        Raises:
            ToolFailed: It failed.
        """
        result = await self._tools.call(name, tool_args)
        if result.is_error:
            raise ToolFailed(result.text)
        if not result.pictures:
            return result.text
        pictures = [BinaryContent(each.data, media_type=each.media_type) for each in result.pictures]
        return [result.text, *pictures] if result.text else pictures

    def _described(self, tool: AsyncTool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING)
