"""Frozen layers that nothing stands on any more."""

from __future__ import annotations

import asyncio

from atoll.supervisor.ownership import layers_in_use
from atoll.supervisor.parts import Parts


async def drop_unused_layers(parts: Parts, *, wait: bool = True) -> None:
    """Erase layers that no sandbox and no snapshot stands on; without ``wait`` in the background."""
    async with parts.layers_lock:
        used = layers_in_use(parts.table)
        parts.table.merges.forget_but(used)
        unused = sorted(set(parts.layers.ids()) - used)
        taken = [parts.trash.take(parts.layers.path(layer_id)) for layer_id in unused]
        parts.layers.seals.drop(unused)
    if wait:
        await asyncio.gather(*(erasing for erasing in taken if erasing is not None))
