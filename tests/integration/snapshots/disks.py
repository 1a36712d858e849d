"""A small image and disks on it, for tests of layers."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.host import Holder, mounts_below, remove_tree
from atoll.snapshots import ImageRoots, Layers, Stack


class Disks:
    """Layers in a directory of a test's own, over an image with a few files."""

    def __init__(self, path: Path, complete: bool, holder: Holder) -> None:
        self.holder = holder
        self.path = path / "disks"
        self.complete = complete
        self.image = self.path / "image"
        self.layers = Layers(self.path / "layers", complete)
        self.image_roots = ImageRoots(complete=complete)
        self._stacks: dict[str, Stack] = {}

    def make_image(self) -> None:
        """Make the image, once."""
        if self.image.exists():
            return
        (self.image / "etc").mkdir(parents=True)
        (self.image / "etc/name").write_text("image")
        (self.image / "etc/gone").write_text("in the image")
        (self.image / "lib/deep/er").mkdir(parents=True)
        (self.image / "lib/deep/er/file").write_text("deep")
        (self.image / "tool").write_text("tool")
        os.link(self.image / "tool", self.image / "lib/tool")

    def directory(self, name: str) -> Path:
        """The directory of a sandbox."""
        return self.path / "sandboxes" / name

    def start(self, name: str, stack: Stack = ()) -> Path:
        """Mount a new sandbox's disk on ``stack`` and return its root."""
        self.make_image()
        self._stacks[name] = self.layers.branch(self.directory(name), stack)
        return self.again(name)

    def again(self, name: str) -> Path:
        """Mount a known sandbox's disk and return its root."""
        return self.layers.mount([self.image], self._stacks[name], self.directory(name))

    def stop(self, name: str) -> None:
        """Unmount it."""
        self.layers.unmount(self.directory(name))

    def freeze(self, name: str) -> Stack:
        """Unmount it and freeze its writable layer; the stack that its successors stand on."""
        self.stop(name)
        stack = self._stacks[name]
        return (self.layers.freeze(self.directory(name)), *stack)

    async def snapshot(self, name: str) -> Stack:
        """Copy its writable layer; the stack that the snapshot's children stand on."""
        copy = self.layers.copy(self.directory(name))
        await copy.first()
        return (await copy.last(), *self._stacks[name])

    def stack(self, name: str) -> Stack:
        """The stack that a sandbox was mounted on."""
        return self._stacks[name]

    def close(self) -> None:
        """Unmount and remove all."""
        for point in mounts_below(self.path) if self.path.exists() else []:
            self.layers.unmount(point.parent)
        remove_tree(self.path)
