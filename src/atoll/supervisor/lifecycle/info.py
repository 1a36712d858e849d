"""The view of a sandbox for clients."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import Limits, SandboxInfo


def info_of(sandbox: Sandbox, quotas: TeamQuotas) -> SandboxInfo:
    """The information about a sandbox, with the limits that are in force for it."""
    return msgspec.structs.replace(sandbox.info(), limits_in_force=quotas.limits_within(sandbox.row))


def infos_of(quotas: TeamQuotas) -> Callable[[Sandbox], SandboxInfo]:
    """Do the work of ``info_of`` for many sandboxes at once, which mostly have the same limits."""
    known: dict[tuple[Limits, str | None, bool], Limits] = {}

    def info(sandbox: Sandbox) -> SandboxInfo:
        row = sandbox.row
        like = (row.limits, row.team, row.engine_disk)
        if like not in known:
            known[like] = quotas.limits_within(row)
        return msgspec.structs.replace(sandbox.info(), limits_in_force=known[like])

    return info
