"""Changes the defaults of a sandbox's programs: variables, user, directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atoll.errors import InvalidSpecError, StateError
from atoll.guest import GuestInit
from atoll.protocol import DefaultsRequest
from atoll.supervisor.state.ids import check_env
from atoll.supervisor.state.sandbox import Sandbox

if TYPE_CHECKING:
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.storage.images import SupervisorImages

_LONGEST = 4096
_MOST_START_COMMANDS = 16


@dataclass(kw_only=True, eq=False, repr=False)
class Defaults:
    """Changes the defaults of a sandbox's programs."""

    inventory: Inventory
    images: SupervisorImages
    agents: Agents

    async def change(self, sandbox: Sandbox, wanted: DefaultsRequest) -> None:
        """Set the given values for programs started from now on, also in later snapshots and copies.

        Raises:
            InvalidSpecError: The variables, the user or the directory are invalid.
            StateError: The sandbox does not run.
        """
        check_env(wanted.env or {})
        if wanted.user is not None and not 0 < len(wanted.user) <= _LONGEST:
            raise InvalidSpecError("the user name is empty or too long")
        if wanted.cwd is not None and not (wanted.cwd.startswith("/") and len(wanted.cwd) <= _LONGEST):
            raise InvalidSpecError(f"{wanted.cwd[:200]!r} is not an absolute path")
        async with sandbox.lock:
            if sandbox.row.state != "running":
                raise StateError(
                    f"cannot change the defaults of sandbox {sandbox.row.called}: it is {sandbox.row.state}",
                    hint="wake it first",
                    sandbox_id=sandbox.sandbox_id,
                )
            given = {"env": wanted.env, "user": wanted.user, "cwd": wanted.cwd}
            changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            if wanted.start_command is not None:
                changes["start_commands"] = (*sandbox.row.start_commands, wanted.start_command)[
                    -_MOST_START_COMMANDS:
                ]
            row = sandbox.row.but(**changes)
            image = self.images.facts(row.image_digest)
            told = GuestInit(
                env={**image.env, **row.env} if wanted.env is not None else None,
                user=wanted.user,
                cwd=wanted.cwd,
            )
            running = sandbox.require_running()
            await running.alive(self.agents.init(running.link, told), sandbox.sandbox_id)
            await self.inventory.change(sandbox, **changes)
