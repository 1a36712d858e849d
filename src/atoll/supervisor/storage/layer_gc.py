"""Removes frozen layers that nothing uses any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.references import layers_in_use
from atoll.supervisor.storage.trash import Trash

if TYPE_CHECKING:
    from atoll.snapshots import Layers


class LayerGC:
    """Erases the layers that no sandbox and no snapshot uses.

    ``lock`` is held while there is a layer that no row refers to yet, and while unused layers are removed.

    Args:
        inventory: Knows which layers are in use.
        layers: The layers.
        trash: Erases them.
    """

    def __init__(self, inventory: Inventory, layers: Layers, trash: Trash) -> None:
        self.lock = asyncio.Lock()
        self._inventory = inventory
        self._layers = layers
        self._trash = trash

    async def give_up(self, directory: Path) -> None:
        """Erase a directory soon, and the layers that nothing uses without it.

        If the disk has little space, this erases at once: somebody may need the space.
        """
        self._trash.take(directory)
        await self.collect(wait=False)
        await self._trash.make_room()

    async def collect(self, *, wait: bool = True) -> None:
        """Erase unused layers. Without ``wait`` this happens in the background."""
        async with self.lock:
            used = layers_in_use(self._inventory)
            self._inventory.merges.forget_but(used)
            unused = sorted(set(self._layers.ids()) - used)
            taken = [self._trash.take(self._layers.path(layer_id)) for layer_id in unused]
            self._layers.checksums.drop(unused)
        if wait:
            await asyncio.gather(*(erasing for erasing in taken if erasing is not None))
