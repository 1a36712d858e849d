"""What clients are told about a sandbox."""

from __future__ import annotations

import msgspec

from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import SandboxInfo


def info_of(sandbox: Sandbox, quotas: TeamQuotas) -> SandboxInfo:
    """The information about a sandbox, with the limits that are in force for it."""
    return msgspec.structs.replace(sandbox.info(), limits_in_force=quotas.limits_within(sandbox.row))
