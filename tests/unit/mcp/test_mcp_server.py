"""The server without a sandbox: which tools a model sees, and what it is told of wrong arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver.exceptions import ToolError

from atoll.errors import SandboxNotFoundError
from atoll.mcp.defaults import Defaults
from atoll.mcp.server import CORE, make_server
from atoll.mcp.workplace import Workplace


def described(**decided: Any) -> dict[str, int]:
    """The bytes that each tool costs a model."""

    async def listed() -> dict[str, int]:
        tools = await make_server(Workplace(Defaults(**decided))).list_tools()
        return {
            tool.name: len(json.dumps(tool.model_dump(mode="json", exclude_none=True, by_alias=True)))
            for tool in tools
        }

    return anyio.run(listed)


def refused(tool: str, **arguments: Any) -> str:
    async def call() -> None:
        await make_server(Workplace(Defaults(tools="all"))).call_tool(tool, arguments)

    with pytest.raises(ToolError) as raised:
        anyio.run(call)
    return str(raised.value)


def test_a_model_sees_the_core_unless_all_are_asked_for() -> None:
    core, everything = described(), described(tools="all")
    assert set(core) == CORE
    assert len(core) * 2 <= len(everything)
    assert sum(core.values()) <= 14_000


def test_who_gives_a_template_gets_the_tool_for_code_too() -> None:
    assert set(described(template="code-interpreter-v1")) == CORE | {"run_code"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "the arguments of `run` are wrong: `command` is missing"),
        ({"command": "x", "timeout_s": -1}, "`timeout_s` is -1 and should be greater than 0"),
        ({"command": ["ls"]}, "`command` is ['ls'] and should be a valid string"),
        ({"command": "x", "timeout": 5}, "`run` has no argument `timeout`"),
    ],
)
def test_a_wrong_argument_is_told_in_words_that_a_model_can_use(arguments: dict[str, Any], said: str) -> None:
    told = refused("run", **arguments)
    assert said in told
    assert "it takes `command`, `cwd`" in told
    assert "://" not in told and "validation error" not in told


def test_a_remedy_is_a_tool() -> None:
    class Nowhere(Workplace):
        async def sandbox(self, *_: Any, **__: Any) -> Any:
            raise SandboxNotFoundError("there is no sandbox x", hint="`atoll ls` lists them")

    async def call() -> None:
        await make_server(Nowhere(Defaults())).call_tool("run", {"command": "true"})

    with pytest.raises(ToolError, match=r"there is no sandbox x \(`list_sandboxes` lists them\)"):
        anyio.run(call)


def test_a_sandbox_is_made_from_a_template() -> None:
    made: list[tuple[Any, ...]] = []

    class Making(Workplace):
        async def create(self, *arguments: Any, **_: Any) -> Any:
            made.append(arguments)
            raise SandboxNotFoundError("not here")

    async def call() -> None:
        server = make_server(Making(Defaults(tools="all")))
        await server.call_tool("create_sandbox", {"template": "code-interpreter-v1"})

    with pytest.raises(ToolError):
        anyio.run(call)
    assert made == [(None, None, "code-interpreter-v1")]


def test_the_guide_lists_every_tool_and_marks_the_core() -> None:
    page = (Path(__file__).parents[3] / "docs/guide/mcp.md").read_text()
    table = page.partition("| tool | does |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    named = dict(re.findall(r"`(\w+)`(†?)", " ".join(cells)))
    assert set(named) == set(described(tools="all"))
    assert {name for name, mark in named.items() if mark} == CORE
