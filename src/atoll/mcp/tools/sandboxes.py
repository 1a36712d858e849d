"""Tools that make, list and end sandboxes."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from atoll.mcp.tools.adding import Tools, reporter
from atoll.mcp.tools.arguments import Named, Which
from atoll.mcp.workplace import Workplace
from atoll.sdk import AsyncSandbox
from atoll.tools import columns

_MOST = 200


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    found = Sandboxes(workplace)
    tools.add(found.create_sandbox, title="Create a sandbox")
    tools.add(found.list_sandboxes, title="List sandboxes", reads=True)
    tools.add(found.use_sandbox, title="Choose the current sandbox")
    tools.add(found.suspend_sandbox, title="Put a sandbox to sleep")
    tools.add(found.kill_sandbox, title="Kill a sandbox", destroys=True)
    tools.add(found.url, title="Address of a port")


class Sandboxes:
    """Makes, lists and ends sandboxes.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def create_sandbox(
        self,
        ctx: Context[Any, Any],
        name: Annotated[
            str | None, Field(description="Lower case letters, digits and -. Leave it out for none.")
        ] = None,
        image: Annotated[
            str | None, Field(description="An image such as python:3.12; default: a Debian.")
        ] = None,
        template: Annotated[
            str | None,
            Field(
                description="A template such as code-interpreter-v1, which `run_code` needs. Not with an image."
            ),
        ] = None,
    ) -> str:
        """Create another computer, apart from the current one, and return its id. It stays until it is killed."""
        made = await self._workplace.create(name, image, template, on_progress=reporter(ctx))
        return f"created {made.id}{f', named {made.name}' if made.name else ''}"

    async def list_sandboxes(self) -> str:
        """List the sandboxes of this home with id, name, state and image. The current one has a `*`."""
        rows = [
            (
                "*" if self._workplace.current in (info.name, info.sandbox_id) else " ",
                info.sandbox_id,
                info.name or "-",
                info.state,
                info.image,
            )
            async for info in AsyncSandbox.list(limit=_MOST)
        ]
        return columns(rows) or "none"

    async def use_sandbox(self, sandbox: Named) -> str:
        """Make a sandbox the current one: later calls that name no sandbox mean it."""
        found = await self._workplace.sandbox(sandbox)
        self._workplace.current = found.id
        return f"the current sandbox is {found.name or found.id}"

    async def suspend_sandbox(self, sandbox: Which = None) -> str:
        """Put a sandbox to sleep on disk, memory and running programs included. Its next use wakes it."""
        used = await self._workplace.sandbox(sandbox)
        await used.suspend()
        return f"{used.name or used.id} sleeps"

    async def kill_sandbox(self, sandbox: Named) -> str:
        """End a sandbox and erase its disk and memory for good. Its snapshots stay."""
        killed = await self._workplace.kill(sandbox)
        return f"killed {killed.name or killed.id}"

    async def url(
        self,
        port: Annotated[int, Field(description="The port that a server inside listens on.", ge=1, le=65535)],
        sandbox: Which = None,
    ) -> str:
        """Return an address on the user's machine that leads to a port inside, for a browser."""
        return await self._workplace.url(await self._workplace.sandbox(sandbox), port)
