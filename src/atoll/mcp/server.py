"""The server of the Model Context Protocol, with all tools."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import MCPServer

from atoll.mcp import resources
from atoll.mcp.tools import forks, network, onsandbox, sandboxes
from atoll.mcp.tools.adding import Tools
from atoll.mcp.workplace import Workplace
from atoll.version import __version__

_INSTRUCTIONS = """\
You have a computer of your own: a sandbox with Linux, files and a network, apart from the user's machine. It is made
at the first call and keeps everything between calls and days: files, memory, running programs. Run commands with
`run`, and what must keep running, such as a server, with `add_service`. Before a risky step take a `snapshot`, and
`rollback` if it goes wrong. When there are several ways to try, `try_in_forks` runs each in a copy of the computer
at the same moment; `keep_fork` the best.
If the network refuses something, `network_log` says which rule decided; only the user can change the rules."""


def make_server(workplace: Workplace) -> MCPServer[Any]:
    """Return a server whose tools use the sandboxes of a workplace."""
    server: MCPServer[Any] = MCPServer(
        "atoll", title="atoll", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    tools = Tools(server)
    for room in (onsandbox, forks, sandboxes, network):
        room.add(tools, workplace)
    resources.add(server, workplace)
    return server
