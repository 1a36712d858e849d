"""Limits the sending rate of an interface with the kernel's token bucket (``tbf``)."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

from atoll.host import in_netns, new_netns, unpin
from atoll.network import netlink
from atoll.network.addresses import INTERFACE_INDEX
from atoll.network.netlink import ACK, CREATE, REPLACE, Message, NetlinkSocket, attribute, nested, text

_NEW_DISCIPLINE = 36
_DELETE_DISCIPLINE = 37
_KIND, _OPTIONS = 1, 2
_PARAMETERS, _RATE_64, _BURST = 1, 4, 6
_ROOT = 0xFFFFFFFF
_HANDLE = 0x10000
_ETHERNET = 1
_LOOPBACK_INDEX = 1
_MOST_U32 = 0xFFFFFFFF
# A packet of the guest may have 64 KiB.
_BURST_LEAST_BYTES = 128 << 10
_BURST_S = 0.02
_QUEUE_S = 0.2


def shape(rate_bytes_s: int | None, interface_index: int = INTERFACE_INDEX) -> None:
    """Limit the sending rate of an interface in this thread's namespace. None removes it. Idempotent.

    Raises:
        OSError: The kernel refused it.
    """
    with NetlinkSocket(netlink.ROUTE) as kernel:
        if rate_bytes_s is not None:
            kernel.change([_limiting(rate_bytes_s, interface_index)])
            return
        # There is no limit to remove.
        with contextlib.suppress(FileNotFoundError):
            kernel.change([Message(_DELETE_DISCIPLINE, ACK, _discipline(interface_index))])


def can_shape(directory: Path) -> bool:
    """Whether the kernel can do that. Tries it in a namespace that is briefly pinned in ``directory``."""
    pin = directory / "shaping.trial"
    unpin(pin)  # left by a process that was killed during the trial
    try:
        new_netns(pin)
        in_netns(pin, lambda: shape(1 << 20, _LOOPBACK_INDEX))
    except OSError:
        return False
    finally:
        unpin(pin)
    return True


def _limiting(rate_bytes_s: int, interface_index: int) -> Message:
    burst = max(_BURST_LEAST_BYTES, int(rate_bytes_s * _BURST_S))
    queue = min(_MOST_U32, burst + int(rate_bytes_s * _QUEUE_S))
    rate = struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(rate_bytes_s, _MOST_U32))
    parameters = rate + bytes(len(rate)) + struct.pack("=III", queue, 0, 0)
    options = [attribute(_PARAMETERS, parameters), attribute(_BURST, struct.pack("=I", burst))]
    if rate_bytes_s >= _MOST_U32:
        options.append(attribute(_RATE_64, struct.pack("=Q", rate_bytes_s)))
    body = _discipline(interface_index) + text(_KIND, "tbf") + nested(_OPTIONS, *options)
    return Message(_NEW_DISCIPLINE, ACK | CREATE | REPLACE, body)


def _discipline(interface_index: int) -> bytes:
    return struct.pack("=BxxxiIII", socket.AF_UNSPEC, interface_index, _HANDLE, _ROOT, 0)
