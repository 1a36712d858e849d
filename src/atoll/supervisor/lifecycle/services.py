"""Adds services to sandboxes, removes them, and tells how they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError, NameTakenError, ServiceNotFoundError, StateError
from atoll.guest import ServiceStatus, service_info
from atoll.supervisor.state.ids import check_env
from atoll.types import ServiceInfo, ServiceSpec
from atoll.types.internal import check_services, schedule_of

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.wake import Wakes
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox


@dataclass(kw_only=True, eq=False, repr=False)
class Services:
    """Changes the services of sandboxes."""

    inventory: Inventory
    wakes: Wakes
    agents: Agents

    async def add(self, sandbox: Sandbox, spec: ServiceSpec) -> ServiceInfo:
        """Add a service and start it. The sandbox is woken if it sleeps.

        Raises:
            InvalidSpecError: The service is invalid, or the sandbox has too many.
            NameTakenError: The sandbox has a service with that name.
            FileMissingError: Its directory is not in the sandbox.
            UnsupportedError: The sandbox's agent comes from an older atoll.
            StateError: The sandbox was put to sleep meanwhile.
        """
        check_services([spec])
        check_env(spec.env)
        await self.wakes.use(sandbox)
        async with sandbox.lock:
            running = _running(sandbox)
            row = sandbox.row
            if any(each.name == spec.name for each in row.services):
                raise NameTakenError(
                    f"sandbox {row.called} has a service {spec.name!r}",
                    hint="remove it first, or choose another name",
                    sandbox_id=row.sandbox_id,
                )
            if spec.schedule is not None:
                spec = msgspec.structs.replace(spec, added_at=self.inventory.now_s())
            services = (*row.services, spec)
            check_services(services)
            told = await running.alive(self.agents.put_service(running.link, spec), row.sandbox_id)
            try:
                await self.inventory.change(sandbox, services=services)
            except BaseException:
                with contextlib.suppress(AtollError):
                    await running.alive(self.agents.remove_service(running.link, spec.name), row.sandbox_id)
                raise
            return _planned(sandbox, service_info(spec, told))

    async def remove(self, sandbox: Sandbox, name: str) -> None:
        """Stop a service and forget it. The sandbox is woken if it sleeps.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
            StateError: The sandbox was put to sleep meanwhile.
        """
        _service(sandbox, name)
        await self.wakes.use(sandbox)
        async with sandbox.lock:
            running = _running(sandbox)
            gone = _service(sandbox, name)
            await running.alive(self.agents.remove_service(running.link, name), sandbox.sandbox_id)
            left = tuple(each for each in sandbox.row.services if each != gone)
            await self.inventory.change(sandbox, services=left)

    async def list(self, sandbox: Sandbox) -> list[ServiceInfo]:
        """How the services are, in the order in which they were added. This does not wake the sandbox."""
        services = sandbox.row.services
        told = await self._told(sandbox) if services else None
        return [_planned(sandbox, service_info(spec, told)) for spec in services]

    async def _told(self, sandbox: Sandbox) -> dict[str, ServiceStatus] | None:
        running = sandbox.running
        if running is None or sandbox.row.state != "running" or running.gone.is_set():
            return None
        try:
            return await running.alive(self.agents.services(running.link), sandbox.sandbox_id)
        except AtollError:
            if sandbox.running is not running or sandbox.row.state != "running":
                return None  # it has just been put to sleep
            raise


def _planned(sandbox: Sandbox, info: ServiceInfo) -> ServiceInfo:
    """The info with the last run of its schedule and the next."""
    if info.spec.schedule is None:
        return info
    next_at = schedule_of(info.spec.schedule).after(sandbox.row.scheduled_from(info.spec))
    return msgspec.structs.replace(info, last_run=sandbox.row.runs.get(info.name), next_at=next_at)


def joined_services(earlier: Iterable[ServiceSpec], added: Iterable[ServiceSpec]) -> tuple[ServiceSpec, ...]:
    """The services of a sandbox that starts from a snapshot with further services.

    Raises:
        InvalidSpecError: There are too many.
    """
    joined = {each.name: each for each in (*earlier, *added)}
    services = tuple(joined.values())
    check_services(services)
    return services


def _service(sandbox: Sandbox, name: str) -> ServiceSpec:
    for each in sandbox.row.services:
        if each.name == name:
            return each
    raise ServiceNotFoundError(
        f"sandbox {sandbox.row.called} has no service {name[:100]!r}",
        hint="`atoll service ls` lists them",
        sandbox_id=sandbox.sandbox_id,
    )


def _running(sandbox: Sandbox) -> RunningMachine:
    if sandbox.row.state != "running":
        raise StateError(
            f"sandbox {sandbox.row.called} was {sandbox.row.state} by another client during the call",
            hint="call again",
            sandbox_id=sandbox.sandbox_id,
        )
    return sandbox.require_running()
