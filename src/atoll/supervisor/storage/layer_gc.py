"""Frozen layers that nothing stands on any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from atoll.supervisor.state.references import layers_in_use
from atoll.supervisor.state.registry import Registry
from atoll.supervisor.storage.trash import Trash

if TYPE_CHECKING:
    from atoll.snapshots import Layers


class LayerGC:
    """Erases the layers that no sandbox and no snapshot stands on.

    ``lock`` is held while a layer is there that no row knows of yet, and while such layers are removed.

    Args:
        registry: Knows what stands on which layer.
        layers: The layers.
        trash: Erases them.
    """

    def __init__(self, registry: Registry, layers: Layers, trash: Trash) -> None:
        self.lock = asyncio.Lock()
        self._registry = registry
        self._layers = layers
        self._trash = trash

    async def collect(self, *, wait: bool = True) -> None:
        """Erase what is unused; without ``wait`` in the background."""
        async with self.lock:
            used = layers_in_use(self._registry)
            self._registry.merges.forget_but(used)
            unused = sorted(set(self._layers.ids()) - used)
            taken = [self._trash.take(self._layers.path(layer_id)) for layer_id in unused]
            self._layers.seals.drop(unused)
        if wait:
            await asyncio.gather(*(erasing for erasing in taken if erasing is not None))
