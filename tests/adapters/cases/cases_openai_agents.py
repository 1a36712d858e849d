"""The OpenAI Agents SDK's own loop, with a scripted model, works in a sandbox."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, RunConfig, Runner
from agents.editor import ApplyPatchOperation
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest

from atoll import AsyncSandbox
from atoll.adapters.openai_agents import apply_patch_tool, function_tools, shell_tool
from atoll.tools import for_sandbox


def test_the_loop_calls_function_tools_and_sees_their_answers_and_failures() -> None:
    async def work() -> None:
        async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
            model = ScriptedModel(
                [
                    [function_call("run", {"command": "echo from inside > note; cat note"}, call_id="1")],
                    [function_call("read_file", {"path": "missing"}, call_id="2")],
                    [assistant_message("done")],
                ]
            )
            agent = Agent(name="worker", model=model, tools=function_tools(tools))
            result = await Runner.run(agent, "work", run_config=RunConfig(tracing_disabled=True))
            assert result.final_output == "done"
            outputs = [
                each["output"]
                for each in result.to_input_list()
                if each.get("type") == "function_call_output"
            ]
            assert "from inside" in outputs[0]
            assert "[file_missing]" in outputs[1]

    asyncio.run(work())


def test_the_shell_and_the_patch_tools_act_in_the_sandbox() -> None:
    async def work() -> None:
        async with await AsyncSandbox.create() as sandbox:
            executor: Any = shell_tool(sandbox).executor
            action = ShellActionRequest(
                ["echo out; echo err >&2; exit 3", "exec sleep 1000", "true"], timeout_ms=5000
            )
            ran = await executor(ShellCommandRequest(None, ShellCallData("1", action)))
            assert [(each.stdout, each.stderr, each.exit_code) for each in ran.output[:1]] == [
                ("out\n", "err\n", 3)
            ]
            assert [each.status for each in ran.output] == ["completed", "timeout"]
            editor = apply_patch_tool(sandbox).editor
            made = await editor.create_file(ApplyPatchOperation("create_file", "a.txt", "+one\n+two"))
            assert made.status == "completed"
            again = await editor.create_file(ApplyPatchOperation("create_file", "a.txt", "+one"))
            assert again.status == "failed"
            changed = ApplyPatchOperation("update_file", "a.txt", "@@\n one\n-two\n+three", move_to="b.txt")
            assert (await editor.update_file(changed)).output == "wrote b.txt"
            assert (await sandbox.files.read("b.txt")).split() == ["one", "three"]
            await editor.delete_file(ApplyPatchOperation("delete_file", "b.txt"))
            assert "[file_missing]" in (await editor.update_file(changed)).output

    asyncio.run(work())
