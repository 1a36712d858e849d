"""Writes the configuration of MCP clients, so that they start ``atoll mcp``."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atoll.errors import InvalidSpecError
from atoll.host import write_atomically

NAME = "atoll"


@dataclass(frozen=True)
class Client:
    """A client, and where it keeps its servers.

    Args:
        file: The file, below the user's home.
        elsewhere: The file on systems other than Linux, if it differs.
        key: The table of servers in the file.
        then: The next step for the user.
    """

    file: str
    key: str
    then: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The path of its configuration on this machine."""
        return Path.home() / self.elsewhere.get(sys.platform, self.file)


def _elsewhere(file: str) -> dict[str, str]:
    return {"darwin": f"Library/Application Support/{file}", "win32": f"AppData/Roaming/{file}"}


CLIENTS: Mapping[str, Client] = {
    "claude": Client(".claude.json", "mcpServers", "start Claude Code again, and ask it to run `uname -a`"),
    "claude-desktop": Client(
        ".config/Claude/claude_desktop_config.json",
        "mcpServers",
        "start Claude Desktop again",
        _elsewhere("Claude/claude_desktop_config.json"),
    ),
    "cursor": Client(".cursor/mcp.json", "mcpServers", "open Cursor's settings, MCP, and switch atoll on"),
    "vscode": Client(
        ".config/Code/User/mcp.json",
        "servers",
        "run `MCP: List Servers` in VS Code",
        _elsewhere("Code/User/mcp.json"),
    ),
}


def entry(options: Sequence[str]) -> dict[str, Any]:
    """Return the entry for this server in a client's configuration.

    Args:
        options: Options of ``atoll mcp``, such as ``--network packages``.
    """
    found: dict[str, Any] = {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-P", "-m", "atoll.mcp", *options],
    }
    home = os.environ.get("ATOLL_HOME")
    if home:
        found["env"] = {"ATOLL_HOME": home}
    return found


def install(client: Client, path: Path, options: Sequence[str]) -> None:
    """Write the entry into a client's configuration and leave everything else in it as it is.

    Raises:
        InvalidSpecError: The file is there, and is no JSON object.
        OSError: It cannot be read or written.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        text = "{}"
    try:
        document = json.loads(text or "{}")
        servers = document.setdefault(client.key, {})
        servers[NAME] = entry(options)
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidSpecError(
            f"{path} cannot be changed: {error}", hint="add the output of `--print` by hand"
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode(), mode=mode)
