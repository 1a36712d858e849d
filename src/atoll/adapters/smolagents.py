"""atoll for smolagents: an executor for what a CodeAgent writes, and tools for a ToolCallingAgent.

For example::

    from smolagents import CodeAgent
    from atoll import Sandbox, Template
    from atoll.adapters.smolagents import SandboxPythonExecutor

    with Sandbox.create(Template("code-interpreter-v1")) as sandbox:
        agent = CodeAgent(tools=[], model=model, executor=SandboxPythonExecutor(sandbox))
        print(agent.run("What is the 118th Fibonacci number?"))
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import PIL.Image
from smolagents import AgentLogger, LogLevel, Tool
from smolagents.local_python_executor import CodeOutput
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from atoll import AtollError, Sandbox
from atoll.tools import Tool as SandboxTool
from atoll.tools import Tools, clipped
from atoll.types import CodeResult

__all__ = ["SandboxPythonExecutor", "smolagents_tools"]


class SandboxPythonExecutor(RemotePythonExecutor):
    """Runs the code of a CodeAgent in a sandbox of the template ``code-interpreter-v1``; variables stay.

    Args:
        sandbox: The sandbox. It stays the caller's.
        additional_imports: Packages to install in it first.
        logger: Where the agent logs; None makes one that shows errors.
        timeout_s: Seconds until a run is interrupted.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        *,
        timeout_s: float = 120.0,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR))
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self.installed_packages = self.install_packages(list(additional_imports))

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run code and return its last value.

        Raises:
            AgentError: It raised, or the sandbox could not run it. The agent tells its model.
        """
        try:
            result = self._sandbox.code.run(code, timeout_s=self._timeout_s)
        except AtollError as error:
            raise AgentError(f"{error.told_to('mcp')} [{error.code}]", self.logger) from error
        logs = clipped(result.stdout)
        if result.error is None:
            return CodeOutput(output=_value(result), logs=logs, is_final_answer=False)
        if result.error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(result.error.value, self.allow_pickle)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        raise AgentError(f"{logs}\n{clipped(result.error.traceback or str(result.error))}", self.logger)

    def cleanup(self) -> None:
        """Do nothing: the sandbox is the caller's."""


def smolagents_tools(tools: Tools) -> list[Tool]:
    """Return the tools for a ToolCallingAgent. They run in this process, and reach the sandbox from here.

    A picture is told only by its format: tools of smolagents return one value.
    """
    return [_Tool(tool) for tool in tools]


class _Tool(Tool):
    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, tool: SandboxTool) -> None:
        self.name = tool.name
        self.description = tool.description
        required = tool.parameters["required"]
        self.inputs = {
            name: _input(schema, name in required) for name, schema in tool.parameters["properties"].items()
        }
        self._tool = tool
        super().__init__()

    def forward(self, **arguments: Any) -> str:
        """Call it."""
        given = {name: value for name, value in arguments.items() if value is not None}
        result = self._tool.call(given)
        return result.text or f"a {result.pictures[0].format} picture"


def _input(schema: dict[str, Any], required: bool) -> dict[str, Any]:
    kind = schema.get("type") or schema["anyOf"][0]["type"]
    found = {"type": kind, "description": schema.get("description", "")}
    return found if required else {**found, "nullable": True}


def _value(result: CodeResult) -> Any:
    for output in result.outputs:
        if output.is_main and output.png_bytes:
            return PIL.Image.open(BytesIO(output.png_bytes))
    return result.text
