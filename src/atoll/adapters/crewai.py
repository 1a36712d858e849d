"""atoll for CrewAI: the tools on a sandbox as CrewAI's tools.

For example::

    from atoll import Sandbox
    from atoll.adapters.crewai import crewai_tools
    from atoll.tools import for_sandbox
    from crewai import Agent

    with Sandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        agent = Agent(role="worker", goal="Work.", backstory="You work.", tools=crewai_tools(tools))
        print(agent.kickoff("Which Python runs here?").raw)
"""

from __future__ import annotations

from typing import Any

from crewai.tools import BaseTool
from crewai.utilities.pydantic_schema_utils import create_model_from_schema
from pydantic import PrivateAttr

from atoll.tools import Tool, Tools

__all__ = ["crewai_tools"]


def crewai_tools(tools: Tools) -> list[BaseTool]:
    """Return the tools as CrewAI's. Nothing is cached: the same command may answer otherwise the next time.

    A failure is told to the model. A picture is told only by its format.
    """
    return [_of(tool) for tool in tools]


class _SandboxTool(BaseTool):
    _tool: Tool = PrivateAttr()

    def _run(self, **arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        result = self._tool.call(given)
        return result.text or f"a {result.pictures[0].format} picture"


def _never(*_: Any) -> bool:
    return False


def _of(tool: Tool) -> BaseTool:
    made = _SandboxTool(
        name=tool.name,
        description=tool.description,
        args_schema=create_model_from_schema({**tool.parameters, "title": tool.name}),
        cache_function=_never,
    )
    made._tool = tool
    return made
