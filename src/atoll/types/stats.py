"""The use of the host by sandboxes."""

from __future__ import annotations

import msgspec

from atoll.types.limits import Limits
from atoll.types.models import ModelBudgetUse
from atoll.types.notebook import html_of


class SandboxStats(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """One sandbox's use of the host; None where this host cannot tell. Asking never wakes a sandbox.

    ``disk_bytes`` is the size of its writable layer. ``processes`` counts the processes inside without the
    agent; it is 0 when nothing runs. ``limits`` are those in force, including the default ones. ``held`` says
    how each is enforced: ``hard``, ``watched`` (noticed a moment later) or ``unavailable``. ``models`` is how far its
    budget for models is used, which its forks share; None without models.
    """

    state: str
    cpu_s: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    disk_bytes: int
    processes: int | None
    received_bytes: int
    sent_bytes: int
    limits: Limits = Limits()
    held: dict[str, str] = {}
    models: ModelBudgetUse | None = None

    def _repr_html_(self) -> str:
        return html_of(self)


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the host, or of the container that the supervisor is in.

    Sandboxes leave ``kept_free_bytes`` of it free: if less is available, some of them give way.
    """

    total_bytes: int
    available_bytes: int
    kept_free_bytes: int

    @property
    def spare_bytes(self) -> int:
        """How much more sandboxes may use. Below 0, they have to give way."""
        return self.available_bytes - self.kept_free_bytes

    def _repr_html_(self) -> str:
        return html_of(self)


class StatsSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox's use at one moment, ``at`` in Unix seconds; None where this host cannot tell.

    ``vcpus`` are the processors that it may use. ``cpu_percent`` is how much of them it used since the
    previous sample, from 0 to 100. A ``disk_limit_bytes`` of None is no limit.
    """

    at: float
    vcpus: float
    cpu_percent: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    disk_bytes: int
    disk_limit_bytes: int | None
