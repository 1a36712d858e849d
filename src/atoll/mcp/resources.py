"""Resources: files and logs of sandboxes, for clients that attach them to a conversation."""

from __future__ import annotations

from typing import Any

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError

from atoll.mcp.tools.adding import explained
from atoll.mcp.workplace import Workplace
from atoll.sdk import AsyncSandbox
from atoll.tools import MOST_CHARACTERS, MOST_FILE_BYTES

_MOST = 1000


def add(server: MCPServer[Any], workplace: Workplace) -> None:
    """Add the resources."""

    async def sandboxes() -> str:
        return msgspec.json.encode([info async for info in AsyncSandbox.list(limit=_MOST)]).decode()

    async def log(sandbox: str) -> str:
        used = await workplace.sandbox(sandbox)
        text = "".join([piece async for piece in used.logs()])
        return text[-MOST_CHARACTERS:]

    async def file(sandbox: str, path: str) -> bytes:
        used = await workplace.sandbox(sandbox)
        return await used.files.read_bytes(f"/{path}", max_bytes=MOST_FILE_BYTES)

    server.resource(
        "atoll://sandboxes", name="sandboxes", description="All sandboxes.", mime_type="application/json"
    )(explained(sandboxes, ResourceError))
    server.resource(
        "atoll://sandboxes/{sandbox}/log", name="log", description="A sandbox's log.", mime_type="text/plain"
    )(explained(log, ResourceError))
    server.resource(
        "atoll://sandboxes/{sandbox}/files/{+path}", name="file", description="A file in a sandbox, by path."
    )(explained(file, ResourceError))
