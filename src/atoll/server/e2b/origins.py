"""Holds sandboxes to the network of the snapshot or template that they were made of."""

from __future__ import annotations

from atoll.errors import SnapshotNotFoundError
from atoll.policy import masked
from atoll.sdk import AsyncSnapshots
from atoll.types import EgressPolicy, SandboxInfo
from atoll.types.internal import ORIGIN_ATTRIBUTE


def is_within(network: EgressPolicy, origin: EgressPolicy) -> bool:
    """Tell whether a sandbox may have a network if its snapshot's sandbox had the network ``origin``."""
    return network == "none" or origin in ("internet", masked(network))


async def may_get(info: SandboxInfo, network: EgressPolicy) -> bool:
    """Tell whether a client may give a sandbox a network.

    A sandbox of a snapshot without the internet, or a fork of such a sandbox, gets the snapshot's network or
    none. Once the snapshot is deleted, nobody knows its network any more.
    """
    origin = info.attributes.get(ORIGIN_ATTRIBUTE)
    if origin is None or network == "none":
        return True
    try:
        snapshot = await AsyncSnapshots.get(origin)
    except SnapshotNotFoundError:
        return False
    return is_within(network, snapshot.network)
