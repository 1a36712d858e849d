"""A sentry and a gofer that wait for a checkpoint, so that half of a restore is done in advance."""

from __future__ import annotations

import asyncio
import contextlib
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from atoll.engines.base import MachinePlan, PrestartedMachine, PrestartPlan, Uplink
from atoll.engines.gvisor.checkpoint_files import NAMES
from atoll.engines.gvisor.control import ControlSocket, RefusedCallError
from atoll.engines.gvisor.earlier_pages import earlier_pages_in
from atoll.engines.gvisor.launch import START_TIMEOUT_S
from atoll.engines.gvisor.machine import GvisorMachine, HostParts
from atoll.engines.gvisor.machine_paths import MachinePaths
from atoll.engines.gvisor.spec import late_spec
from atoll.errors import AtollError, EngineError
from atoll.host import Mounts, to_the_end

# From gVisor's configuration: a queueing discipline of first in, first out.
_FIFO = 1
_STATE, _CREATING = "containerManager.ContainerRuntimeState", 1
_BEGINS_S, _LOOK_S = 3.0, 0.05
# Without a guest a sentry has nothing to wait for.
_TOLD_S = 10.0
_ALL_IPV4 = bytes(10) + b"\xff\xff" + bytes(4)  # 0.0.0.0 as Go writes it


class PrestartedLostError(EngineError):
    """A prestarted machine cannot be used, and its intended guest has not run."""


class GvisorPrestarted(PrestartedMachine):
    """A prestarted gVisor machine; see ``PrestartedMachine``."""

    def __init__(self, plan: PrestartPlan, parts: HostParts) -> None:
        self.machine_id = plan.machine_id
        self.plan = plan
        self._processes = [process for process in (parts.sentry, parts.gofer) if process is not None]
        self.machine = GvisorMachine(plan.machine_id, plan.state_dir, parts, plan.place)

    async def kill(self) -> None:
        """See ``PrestartedMachine.kill``."""
        await self.machine.kill()

    async def restore(self, plan: MachinePlan, uplink: Uplink | None) -> GvisorMachine:
        """Restore the plan's guest in it. On any exception the caller must kill it.

        Raises:
            PrestartedLostError: The guest has not run.
            EngineError, OSError: The guest may have run for a moment.
        """
        if any(process.has_ended for process in self._processes):
            raise PrestartedLostError("it ended while it waited")
        try:
            await to_the_end(asyncio.to_thread(mount_root, plan, self.plan.place))
            await self._control.call(
                "containerManager.SetNetworkArgs",
                _network(uplink),
                fds=[] if uplink is None else [uplink.socket_fd],
                timeout_s=_TOLD_S,
            )
            await self.machine.limit(plan.limits, keep_free_percent=plan.keep_free_percent)
            if plan.growth is not None:
                await self.machine.limit_growth(plan.growth)
        except (AtollError, OSError) as error:
            raise PrestartedLostError(str(error)) from error
        await self._restore(plan)
        self.machine.earlier.directory = plan.earlier_pages
        await to_the_end(asyncio.to_thread(self.machine.earlier.keep, plan.checkpoint))
        return self.machine

    async def _restore(self, plan: MachinePlan) -> None:
        assert plan.checkpoint is not None, "there is nothing to restore"
        earlier = earlier_pages_in(plan.checkpoint)
        argument = {
            "HavePagesFile": True,
            "Background": True,
            "Bases": list(earlier),
            "Late": late_spec(plan),
        }
        try:
            with _opened(plan.checkpoint, earlier.values(), MachinePaths(plan.state_dir).console) as fds:
                await self._control.call(
                    "containerManager.Restore", argument, fds=fds, timeout_s=START_TIMEOUT_S
                )
        except RefusedCallError as error:
            raise PrestartedLostError(error.message) from error

    @property
    def _control(self) -> ControlSocket:
        return ControlSocket(MachinePaths(self.plan.state_dir).control_socket(self.machine_id))


async def has_guest(control: ControlSocket, machine_id: str) -> bool:
    """Whether a sentry has a guest, or will have one soon.

    A prestarted machine has none if its owner died before naming a checkpoint to restore.

    Raises:
        EngineError: The sentry does not answer.
    """
    try:
        async with asyncio.timeout(_BEGINS_S):
            while await control.call(_STATE, machine_id) == _CREATING:  # noqa: ASYNC110 - only the sentry knows
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        return False
    return True


def mount_root(plan: MachinePlan, place: Path) -> None:
    """Mount the plan's root and its binds at ``place``, where the waiting gofer sees them too.

    Raises:
        OSError: The kernel refuses it.
    """
    Mounts.bind(plan.rootfs, place, read_only=False)
    for bind in plan.binds:
        assert not bind.shared, "a prestarted machine cannot restore a sandbox with volumes"
        Mounts.bind_below(Path(bind.source), place, bind.target.lstrip("/"))


@contextlib.contextmanager
def _opened(checkpoint: Path, earlier: Iterable[Path], console: Path) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        fds = []
        for path, flags in (
            *((checkpoint / name, os.O_RDONLY) for name in NAMES),
            *((path, os.O_RDONLY) for path in earlier),
            (console, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ):
            fds.append(os.open(path, flags | os.O_CLOEXEC, 0o600))
            stack.callback(os.close, fds[-1])
        yield fds


def _network(uplink: Uplink | None) -> dict[str, Any]:
    """Return the message that ``runsc restore`` would send the sentry about the guest's network namespace."""
    addresses, routes = [_address("127.0.0.1", 8)], [_route("127.0.0.0", b"\xff\0\0\0")]
    if Path("/proc/net/if_inet6").exists():
        addresses.append(_address("::1", 128))
        routes.append(_route("::1", b"\xff" * 16))
    loopback = {"Name": "lo", "Addresses": addresses, "Routes": routes}
    told: dict[str, Any] = {"LoopbackLinks": [loopback], "AllowConnectedOnSave": True, "IsRestore": True}
    if uplink is None:
        return told
    network, mask = _network_of(uplink.address, uplink.prefix_bits)
    link = {
        "Name": uplink.name,
        "MTU": uplink.mtu,
        "Addresses": [_address(uplink.address, uplink.prefix_bits)],
        "Routes": [_route(network, mask)],
        "GSOMaxSize": uplink.gso_bytes or 65536,
        "GVisorGSOEnabled": not uplink.gso_bytes,
        "RXChecksumOffload": True,
        "LinkAddress": _base64(uplink.hardware),
        "QDisc": _FIFO,
        "Neighbors": [{"IP": uplink.gateway, "HardwareAddr": _base64(uplink.gateway_hardware)}],
        "NumChannels": 1,
    }
    default = {"Route": _route("0.0.0.0", _ALL_IPV4, uplink.gateway), "Name": uplink.name}  # noqa: S104
    return {**told, "FDBasedLinks": [link], "Defaultv4Gateway": default}


def _network_of(address: str, prefix_bits: int) -> tuple[str, bytes]:
    network = ip_interface(f"{address}/{prefix_bits}").network
    return str(network.network_address), network.netmask.packed


def _address(address: str, prefix_bits: int) -> dict[str, Any]:
    return {"Address": address, "PrefixLen": prefix_bits}


def _route(destination: str, mask: bytes, gateway: str = "") -> dict[str, Any]:
    return {"Destination": {"IP": destination, "Mask": _base64(mask)}, "Gateway": gateway}


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
