"""Frozen layers that nothing stands on any more."""

from __future__ import annotations

from atoll.supervisor.ownership import layers_in_use
from atoll.supervisor.parts import Parts


async def drop_unused_layers(parts: Parts) -> list[str]:
    """Erase layers that no sandbox and no snapshot stands on; gives their ids."""
    async with parts.layers_lock:
        used = layers_in_use(parts.table)
        parts.table.merges.forget_but(used)
        unused = sorted(set(parts.layers.ids()) - used)
        for layer_id in unused:
            parts.trash.take(parts.layers.path(layer_id))
    return unused
