"""atoll for the OpenAI Agents SDK: function tools, and executors of its shell and its patches.

For example::

    from agents import Agent, Runner
    from atoll import AsyncSandbox
    from atoll.adapters.openai_agents import function_tools
    from atoll.tools import for_sandbox

    async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        agent = Agent(name="worker", tools=function_tools(tools))
        print((await Runner.run(agent, "Which Python runs here?")).final_output)
"""

from __future__ import annotations

from typing import Any

from agents import (
    ApplyPatchTool,
    FunctionTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    ToolOutputImage,
    ToolOutputText,
    apply_diff,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult

from atoll import AsyncSandbox, AtollError
from atoll.errors import ExecTimeoutError
from atoll.tools import KEPT_BYTES, MOST_FILE_BYTES, AsyncTool, AsyncTools, ToolResult, clipped

__all__ = ["SandboxEditor", "SandboxShell", "apply_patch_tool", "function_tools", "shell_tool"]

_TIMEOUT_S = 120.0


def function_tools(tools: AsyncTools) -> list[FunctionTool]:
    """Return the tools as function tools. Pictures become images; a failure is told to the model."""
    return [_function_tool(tool) for tool in tools]


def shell_tool(sandbox: AsyncSandbox, *, cwd: str | None = None) -> ShellTool:
    """Return the SDK's shell tool, whose commands run in a sandbox.

    Args:
        sandbox: Where.
        cwd: The directory of each command; None is the user's home.
    """
    return ShellTool(executor=SandboxShell(sandbox, cwd=cwd))


def apply_patch_tool(sandbox: AsyncSandbox) -> ApplyPatchTool:
    """Return the SDK's patch tool, which changes files of a sandbox. Relative paths start at the user's home."""
    return ApplyPatchTool(editor=SandboxEditor(sandbox))


class SandboxShell:
    """An executor of ``ShellTool``. Each command has a shell of its own; the first timeout ends a call.

    Args:
        sandbox: Where.
        cwd: The directory of each command; None is the user's home.
    """

    def __init__(self, sandbox: AsyncSandbox, *, cwd: str | None = None) -> None:
        self._sandbox = sandbox
        self._cwd = cwd

    async def __call__(self, request: ShellCommandRequest) -> ShellResult | str:
        """Run the commands of a call. A failure of the sandbox is told to the model."""
        action = request.data.action
        timeout_s = action.timeout_ms / 1000 if action.timeout_ms else _TIMEOUT_S
        outputs: list[ShellCommandOutput] = []
        try:
            for command in action.commands:
                outputs.append(await self._run(command, timeout_s))
                if outputs[-1].status == "timeout":
                    break
        except AtollError as error:
            return f"{error.told_to('mcp')} [{error.code}]"
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    async def _run(self, command: str, timeout_s: float) -> ShellCommandOutput:
        try:
            result = await self._sandbox.run(
                command, cwd=self._cwd, timeout_s=timeout_s, max_output_bytes=KEPT_BYTES
            )
            outcome = ShellCallOutcome(type="exit", exit_code=result.exit_code)
        except ExecTimeoutError as error:
            result, outcome = error.result, ShellCallOutcome(type="timeout")
        return ShellCommandOutput(
            stdout=clipped(result.stdout), stderr=clipped(result.stderr), outcome=outcome, command=command
        )


class SandboxEditor:
    """An editor of ``ApplyPatchTool``.

    Args:
        sandbox: Whose files it changes.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Write a new file."""
        return await self._patched(operation, "create")

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Apply a diff to a file, and move it if the operation says so."""
        return await self._patched(operation, "default")

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Delete a file."""
        try:
            await self._sandbox.files.delete(operation.path)
        except AtollError as error:
            return _failed(error)
        return ApplyPatchResult(status="completed", output=f"deleted {operation.path}")

    async def _patched(self, operation: ApplyPatchOperation, mode: Any) -> ApplyPatchResult:
        files = self._sandbox.files
        try:
            before = ""
            if mode == "create":
                if await files.exists(operation.path):
                    return ApplyPatchResult(status="failed", output=f"{operation.path} exists: update it")
            else:
                before = (await files.read_bytes(operation.path, max_bytes=MOST_FILE_BYTES)).decode()
            await files.write(operation.path, apply_diff(before, operation.diff or "", mode))
            if operation.move_to:
                await files.move(operation.path, operation.move_to)
        except (AtollError, ValueError) as error:
            return _failed(error)
        return ApplyPatchResult(status="completed", output=f"wrote {operation.move_to or operation.path}")


def _failed(error: Exception) -> ApplyPatchResult:
    code = f" [{error.code}]" if isinstance(error, AtollError) else ""
    return ApplyPatchResult(status="failed", output=f"{error}{code}")


def _function_tool(tool: AsyncTool) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> Any:
        return _output(await tool.call(arguments))

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def _output(result: ToolResult) -> Any:
    if not result.pictures:
        return result.text
    images = [ToolOutputImage(image_url=picture.url) for picture in result.pictures]
    return [ToolOutputText(text=result.text), *images] if result.text else images
