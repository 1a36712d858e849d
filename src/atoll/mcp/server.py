"""The server of the Model Context Protocol, with its tools."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from atoll.mcp import resources
from atoll.mcp.defaults import Defaults
from atoll.mcp.tools import forks, network, onsandbox, sandboxes
from atoll.mcp.tools.adding import Tools
from atoll.mcp.tools.wrong import unknown_arguments, wrong_arguments
from atoll.mcp.workplace import Workplace
from atoll.version import __version__

CORE = frozenset(
    {
        "run",
        "start",
        "output",
        "stop",
        "processes",
        "read_file",
        "write_file",
        "edit_file",
        "snapshot",
        "snapshots",
        "rollback",
        "try_in_forks",
        "keep_fork",
        "list_sandboxes",
        "url",
        "network_log",
    }
)
"""The tools that most work needs. `run` does everything else that a shell can do."""

_CODE = "run_code"
_INSTRUCTIONS = """\
You have a computer of your own: a sandbox with Linux, files and a network, apart from the user's machine. The first
call makes it. It keeps everything between calls, for days: files, memory, running programs. Run commands with `run`.
Run a program that must keep running, such as a server, with `{keeps}`. Before a risky step take a `snapshot`; if the
step goes wrong, use `rollback`. If there are several ways to try, `try_in_forks` runs each in a copy of the computer
at the same moment, and `keep_fork` keeps the best.
If the network refuses something, `network_log` says which rule decided; only the user can change the rules."""


class Server(MCPServer[Any]):
    """A server whose errors tell a model how to correct the arguments of a call."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: The tool is unknown, its arguments are wrong, or it failed.
        """
        tool = next((each for each in await self.list_tools() if each.name == name), None)
        known = [] if tool is None else list(tool.input_schema.get("properties", {}))
        if tool is not None and (unknown := [each for each in arguments if each not in known]):
            raise ToolError(unknown_arguments(name, unknown, known))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(wrong_arguments(name, error.__cause__, known)) from None
            raise


def make_server(workplace: Workplace) -> Server:
    """Return a server whose tools use the sandboxes of a workplace."""
    wanted = names_of(workplace.defaults)
    keeps = "start" if wanted is not None else "add_service"
    server = Server(
        "atoll",
        title="atoll",
        version=__version__,
        instructions=_INSTRUCTIONS.format(keeps=keeps),
        log_level="WARNING",
    )
    tools = Tools(server, wanted)
    for room in (onsandbox, forks, sandboxes, network):
        room.add(tools, workplace)
    resources.add(server, workplace)
    return server


def names_of(defaults: Defaults) -> frozenset[str] | None:
    """Return the names of the tools that a model sees; None means all."""
    if defaults.tools == "all":
        return None
    # whoever names a template wants what its sandboxes can do
    return CORE | {_CODE} if defaults.template is not None else CORE
