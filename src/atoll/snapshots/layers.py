"""Writable layers of sandboxes, and the frozen layers below them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from atoll.errors import HostError, InternalError
from atoll.host import (
    Mounts,
    TreeUse,
    copy_attributes,
    copy_tree,
    is_mounted,
    mounts_below,
    open_top,
    remove_tree,
    tree_bytes,
    tree_outgrows,
    tree_use,
)
from atoll.snapshots.chains import Stack
from atoll.snapshots.hardlinks import links_are_settled, settle_links
from atoll.snapshots.layercopy import LayerCopy, copying
from atoll.snapshots.layerstore import ASIDE, ROOT, LayerStore, new_layer_id

_UPPER, _WORK = "upper", "work"
_FROZEN, _FREEZING = "frozen", "freezing"
_LINKED = "linked"
# A symlink. Its target says when entries at the top of a layer were moved away, its own time when they were
# moved back.
UNDONE = "undone"
_BUSY_S, _LOOK_S = 20.0, 0.002
_WIDE = 1000
_TMPFS = {"tmpfs", "ramfs"}


class Layers(LayerStore):
    """The disks of sandboxes: overlay mounts of an image, frozen layers and one writable layer on top.

    A sandbox's directory has ``upper`` (its writable layer), ``work`` (the kernel's) and ``root`` (the mount
    point). Files belong to uid 0 of the mount namespace that the process is in. Methods that are not
    ``async`` block, some of them as long as copying a disk takes: call those from a thread.

    Args:
        directory: Where the frozen layers are, on the file system of the sandboxes.
        complete: Whether the kernel gives this process the complete kind of overlay (root of the host).
            Otherwise a layer is never below another one, and ``branch`` copies.
    """

    def mount(self, image: Sequence[Path], stack: Stack, sandbox_dir: Path) -> Path:
        """Mount the sandbox's disk on top of its image's layers (the top one first), and return where.

        Does nothing if it is already mounted. If a crash interrupted a freeze, so that its layer is not in
        ``stack``, the freeze is undone first.

        Raises:
            HostError: The kernel refuses the mount.
        """
        root = sandbox_dir / ROOT
        if is_mounted(root):
            return root
        stack = self.undo_unknown_freeze(sandbox_dir, stack)
        self._assert_there(stack)
        self._make_upper(sandbox_dir / _UPPER, stack)
        for name in (_WORK, ROOT):
            _make_directory(sandbox_dir / name)
        lowers = [*(self.path(layer) for layer in stack), *image]
        try:
            self._overlay(lowers, sandbox_dir)
        except HostError as error:
            if not self._complete or _errno_of(error) != errno.ESTALE:
                raise
            self._forget_lowers(sandbox_dir)
            self._overlay(lowers, sandbox_dir)
        return root

    def unmount(self, sandbox_dir: Path) -> None:
        """Unmount the sandbox's disk if it is mounted. Nothing may run on it any more."""
        root = sandbox_dir / ROOT
        if is_mounted(root):
            self.settle(sandbox_dir)
            Mounts.unmount(root)

    def leave(self, sandbox_dir: Path) -> Callable[[], None]:
        """Unmount the sandbox's disk without waiting; nothing may use it any more.

        Returns the remaining work, which any thread may do. It takes as long as the host needs to write out
        the dirty pages of the home's whole file system. Until it is done, only a disk that ``freeze`` has
        frozen can be mounted again: the kernel regards the top directory of the old writable layer as in use.

        Raises:
            HostError: The disk is not mounted.
            OSError: The kernel refuses it.
        """
        root = sandbox_dir / ROOT
        if not is_mounted(root):
            raise HostError(f"the disk in {sandbox_dir} is not mounted")
        self.settle(sandbox_dir)
        left = Mounts.leave(root)
        if _is_wide(sandbox_dir / _UPPER):
            os.close(left)
            return lambda: None
        return partial(os.close, left)

    def settle(self, sandbox_dir: Path) -> None:
        """Complete the kernel's half-done work on a mounted disk.

        This adds the other names of hard-linked files of lower layers. The guest, which may be running, sees
        the same files, but times in the writable layer change. Unmounting does this too. Call it early if
        times must not change later: a second call does nothing unless more such files were written.

        Raises:
            OSError: Part of the work failed.
        """
        root = sandbox_dir / ROOT
        if self._complete and is_mounted(root):
            settle_links(root, sandbox_dir / _UPPER, sandbox_dir / _WORK, sandbox_dir / _LINKED)

    def freeze(self, sandbox_dir: Path) -> str:
        """Make the sandbox's writable layer immutable without a copy, and return its id.

        The disk must not be mounted. Call ``branch`` next, which gives the sandbox a new writable layer. If
        the process dies before the caller has recorded the new stack, the next ``mount`` undoes the freeze.
        """
        if mounts_below(sandbox_dir):
            raise InternalError(f"the disk in {sandbox_dir} is mounted")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        layer_id = new_layer_id()
        _write_note(sandbox_dir, layer_id)
        if _is_wide(sandbox_dir / _UPPER):
            os.rename(sandbox_dir / _UPPER, self.path(layer_id))
        else:
            # The directory itself stays: a mount that has just been left may still use it.
            (sandbox_dir / _FREEZING).mkdir()
            with open_top(sandbox_dir / _UPPER) as old, open_top(sandbox_dir / _FREEZING) as freezing:
                info = os.stat(old)
                _move_entries(old, freezing)
                copy_attributes(old, freezing, info)
            os.rename(sandbox_dir / _FREEZING, self.path(layer_id))
            os.rmdir(sandbox_dir / _UPPER)
        self._clear_work(sandbox_dir)
        return layer_id

    def branch(self, sandbox_dir: Path, stack: Stack) -> Stack:
        """Give a sandbox a new writable layer on top of ``stack`` and return the stack to mount it on.

        Its earlier writable layer is erased. As root of the host nothing is copied. Otherwise the top layer
        is copied into the new writable layer and leaves the stack.

        Raises:
            NoSpaceError: The disk is full.
            HostError: A file could not be copied.
        """
        sandbox_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _note(sandbox_dir) not in stack:
            (sandbox_dir / _FROZEN).unlink(missing_ok=True)
        self._clear_work(sandbox_dir)
        remove_tree(sandbox_dir / _UPPER)
        if not stack:
            return stack
        self._assert_there(stack[:1])
        if not self._complete:
            self.seed(sandbox_dir, stack[0])
            return stack[1:]
        self._make_upper(sandbox_dir / _UPPER, stack)
        return stack

    def seed(self, sandbox_dir: Path, layer_id: str) -> None:
        """Copy a layer's content into the sandbox's writable layer, which must not exist yet.

        Raises:
            NoSpaceError: The disk is full.
            HostError: A file could not be copied.
        """
        aside = sandbox_dir / f"{ASIDE}{_UPPER}"
        remove_tree(aside)
        try:
            with copying(self.path(layer_id)):
                copy_tree(self.path(layer_id), aside)
                os.rename(aside, sandbox_dir / _UPPER)
        except BaseException:
            remove_tree(aside)
            raise

    def copy(self, sandbox_dir: Path, layer_id: str | None = None) -> LayerCopy:
        """Begin to copy the writable layer of a sandbox into a new layer. The sandbox may be running.

        Args:
            layer_id: The new layer's id; None makes one.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        layer_id = layer_id or new_layer_id()
        return LayerCopy(
            sandbox_dir / _UPPER,
            self._directory / f"{ASIDE}{layer_id}",
            self.path(layer_id),
            settle=lambda: self.settle(sandbox_dir),
            stamped=_file_system(sandbox_dir) not in _TMPFS,
        )

    @staticmethod
    def noted_freeze(sandbox_dir: Path) -> str | None:
        """Return the layer of the sandbox's last freeze, finished or not.

        None if it was undone or forgotten.
        """
        return _note(sandbox_dir) or None

    @staticmethod
    def forget_freeze(sandbox_dir: Path) -> None:
        """Keep the last freeze for good. Call it when the stack with the frozen layer is on the disk."""
        (sandbox_dir / _FROZEN).unlink(missing_ok=True)

    @staticmethod
    def settled(sandbox_dir: Path) -> bool:
        """Whether an unmounted disk can be mounted on other layers with the same content."""
        return links_are_settled(sandbox_dir / _WORK, sandbox_dir / _LINKED)

    def sizes_changed(self, sandbox_dir: Path) -> int:
        """Return the size in bytes of a sandbox's writable layer; 0 if it has none."""
        return tree_bytes(sandbox_dir / _UPPER) if (sandbox_dir / _UPPER).exists() else 0

    def outgrows(self, sandbox_dir: Path, most_bytes: int) -> bool:
        """Whether copying a sandbox's writable layer takes longer than copying a file of ``most_bytes``."""
        return tree_outgrows(sandbox_dir / _UPPER, most_bytes)

    def use(self, sandbox_dir: Path) -> TreeUse:
        """Measure the writable layer of a sandbox."""
        return tree_use(sandbox_dir / _UPPER)

    def _assert_there(self, stack: Stack) -> None:
        for layer_id in stack:
            if not self.path(layer_id).is_dir():
                raise HostError(
                    f"the layer {layer_id} is missing in {self._directory}",
                    hint="the home has lost files: restore it from a backup, or delete what uses this layer",
                )

    def _overlay(self, lowers: Sequence[Path], sandbox_dir: Path) -> None:
        upper, work, root = (sandbox_dir / name for name in (_UPPER, _WORK, ROOT))
        until_s = time.monotonic() + _BUSY_S
        while True:
            try:
                Mounts.overlay(lowers, upper, work, root, complete=self._complete)
                return
            except HostError as error:
                # A process that has just ended, or a machine that is starting at the same time, still has the
                # earlier mount in its own mount namespace.
                if _errno_of(error) != errno.EBUSY or time.monotonic() > until_s:
                    raise
            time.sleep(_LOOK_S)

    def undo_unknown_freeze(self, sandbox_dir: Path, stack: Stack) -> Stack:
        """Give a sandbox its frozen writable layer back if its ``stack`` does not contain that layer.

        If something was written above the layer since, a power cut has lost the new stack, and this returns
        that stack. ``mount`` does this too. Call it before layers that are in no stack are removed.
        """
        layer_id = _note(sandbox_dir)
        upper = sandbox_dir / _UPPER
        if (sandbox_dir / _FREEZING).exists():
            with open_top(sandbox_dir / _FREEZING) as freezing, open_top(upper) as old:
                _move_entries(freezing, old)
            os.rmdir(sandbox_dir / _FREEZING)
            _unwrite_note(sandbox_dir)
            return stack
        if not layer_id or layer_id in stack or not self.path(layer_id).exists():
            return stack
        if not self._complete:
            if not upper.exists():
                self.seed(sandbox_dir, layer_id)
            return stack
        if upper.exists():
            if any(upper.iterdir()):
                return (layer_id, *stack)
            os.rmdir(upper)
        self.checksums.drop([layer_id])
        os.rename(self.path(layer_id), upper)
        _unwrite_note(sandbox_dir)
        return stack

    @staticmethod
    def _forget_lowers(sandbox_dir: Path) -> None:
        # The home was moved or restored from a backup, so the files below have other numbers than this layer
        # recorded.
        os.removexattr(sandbox_dir / _UPPER, "trusted.overlay.origin")
        Layers._clear_work(sandbox_dir)

    @staticmethod
    def _clear_work(sandbox_dir: Path) -> None:
        (sandbox_dir / _LINKED).unlink(missing_ok=True)
        remove_tree(sandbox_dir / _WORK)
        _make_directory(sandbox_dir / _WORK)

    def _make_upper(self, upper: Path, stack: Stack) -> None:
        if upper.exists():
            return
        _make_directory(upper)
        if stack:
            # The guest sees the writable layer's top directory as /.
            info = self.path(stack[0]).stat()
            os.chown(upper, info.st_uid, info.st_gid)
            upper.chmod(stat.S_IMODE(info.st_mode))
            os.utime(upper, ns=(info.st_atime_ns, info.st_mtime_ns))


def writable_layer(sandbox_dir: Path) -> Path:
    """Return the writable layer of a sandbox."""
    return sandbox_dir / _UPPER


def _write_note(sandbox_dir: Path, layer_id: str) -> None:
    # A symlink, because the file system's journal has it before the rename that follows. A file would have to
    # be flushed, which takes seconds if much is dirty.
    aside = sandbox_dir / f"{ASIDE}{_FROZEN}"
    aside.unlink(missing_ok=True)
    aside.symlink_to(layer_id)
    os.replace(aside, sandbox_dir / _FROZEN)


def _unwrite_note(sandbox_dir: Path) -> None:
    note, undone = sandbox_dir / _FROZEN, sandbox_dir / UNDONE
    with contextlib.suppress(OSError):  # the note must go on a full disk too
        since_ns = note.lstat().st_ctime_ns
        undone.unlink(missing_ok=True)
        undone.symlink_to(str(since_ns))
    note.unlink(missing_ok=True)


def _is_wide(upper: Path) -> bool:
    """Whether the top of a layer has too many entries to move them one by one."""
    with os.scandir(upper) as entries:
        return next(itertools.islice(entries, _WIDE, None), None) is not None


def _move_entries(source: int, target: int) -> None:
    for name in os.listdir(source):
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)


def _note(sandbox_dir: Path) -> str:
    try:
        return os.readlink(sandbox_dir / _FROZEN)
    except FileNotFoundError:
        return ""


def _make_directory(path: Path) -> None:
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o755)


def _file_system(path: Path) -> str:
    """Return the type of the file system that a directory is on."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def _errno_of(error: HostError) -> int | None:
    return getattr(error.__cause__, "errno", None)
