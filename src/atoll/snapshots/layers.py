"""Writable layers of sandboxes and the frozen ones below them."""

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
from atoll.snapshots.layerstore import ASIDE, LayerStore, new_layer_id

_UPPER, _WORK, _ROOT = "upper", "work", "root"
_FROZEN, _FREEZING = "frozen", "freezing"
_LINKED = "linked"
# A symlink that says since when entries at the top of a layer were moved there and back; until when, says its own time.
UNDONE = "undone"
_BUSY_S, _LOOK_S = 20.0, 0.002
_WIDE = 1000
_TMPFS = {"tmpfs", "ramfs"}


class Layers(LayerStore):
    """The disks of sandboxes: overlay mounts of an image, frozen layers and one writable layer on top.

    A sandbox's directory has ``upper`` (its writable layer), ``work`` (the kernel's) and ``root`` (where it
    is mounted). Everything is as uid 0 of the mount namespace that the process is in. Methods that are not
    ``async`` block, some of them for as long as copying a disk takes: call those from a thread.

    Args:
        directory: Where the frozen layers lie, on the file system of the sandboxes.
        complete: Whether the kernel gives this process the complete kind of overlay (root of the host).
            Without it, a layer is never below another one, and branching copies.
    """

    def mount(self, image: Sequence[Path], stack: Stack, sandbox_dir: Path) -> Path:
        """Mount the sandbox's disk, on top of its image's layers (the top one first), and return where.

        Does nothing when it is mounted already.

        A freeze that a crash kept from being known, since ``stack`` does not have its layer, is undone first.

        Raises:
            HostError: The kernel refuses the mount.
        """
        root = sandbox_dir / _ROOT
        if is_mounted(root):
            return root
        stack = self.undo_unknown_freeze(sandbox_dir, stack)
        self._assert_there(stack)
        self._make_upper(sandbox_dir / _UPPER, stack)
        for name in (_WORK, _ROOT):
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
        """Unmount the sandbox's disk, if it is mounted. Nothing runs on it any more."""
        root = sandbox_dir / _ROOT
        if is_mounted(root):
            self.settle(sandbox_dir)
            Mounts.unmount(root)

    def leave(self, sandbox_dir: Path) -> Callable[[], None]:
        """Unmount the sandbox's disk without waiting; nothing uses it any more.

        Returns what is left to be done, by any thread. It takes as long as the host needs to write out what is dirty
        on the whole file system of the home, and until it is done only a disk that ``freeze`` has frozen can be mounted
        again: the kernel counts the old writable layer's top directory as in use.

        Raises:
            HostError: It is not mounted.
            OSError: The kernel refuses it.
        """
        root = sandbox_dir / _ROOT
        if not is_mounted(root):
            raise HostError(f"the disk in {sandbox_dir} is not mounted")
        self.settle(sandbox_dir)
        left = Mounts.leave(root)
        if _is_wide(sandbox_dir / _UPPER):
            os.close(left)
            return lambda: None
        return partial(os.close, left)

    def settle(self, sandbox_dir: Path) -> None:
        """Complete what the kernel has done by half on a mounted disk: names of hard-linked files of lower layers.

        Says the same to the guest, which may be running, but changes times in the writable layer. Unmounting does it
        too; where times are to stay what they are from now on, call it before. The second time it does nothing unless
        more such files were written.

        Raises:
            OSError: It is not all done.
        """
        root = sandbox_dir / _ROOT
        if self._complete and is_mounted(root):
            settle_links(root, sandbox_dir / _UPPER, sandbox_dir / _WORK, sandbox_dir / _LINKED)

    def freeze(self, sandbox_dir: Path) -> str:
        """Make the sandbox's writable layer an immutable one and return its id. It is unmounted. Costs no
        copy.

        Follow it with ``branch``, which gives the sandbox its next writable layer. Should the process die
        before the caller has written down the new stack, the next ``mount`` undoes it.
        """
        if mounts_below(sandbox_dir):
            raise InternalError(f"the disk in {sandbox_dir} is mounted")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        layer_id = new_layer_id()
        _write_note(sandbox_dir, layer_id)
        if _is_wide(sandbox_dir / _UPPER):
            os.rename(sandbox_dir / _UPPER, self.path(layer_id))
        else:
            # Not the directory itself: a mount that has just been left may still have it in use.
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

        Its earlier writable layer is erased. As root of the host nothing is copied; otherwise the top layer
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
        """Copy a layer's content to become the sandbox's writable layer, which does not exist yet.

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
        """Begin to copy the writable layer of a sandbox, which may be running, into a new layer.

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
        """The layer that the last freeze of a sandbox has made or was making, unless that was undone or forgotten."""
        return _note(sandbox_dir) or None

    @staticmethod
    def forget_freeze(sandbox_dir: Path) -> None:
        """Once the stack with the frozen layer is on the disk: a freeze is not to be undone any more."""
        (sandbox_dir / _FROZEN).unlink(missing_ok=True)

    @staticmethod
    def settled(sandbox_dir: Path) -> bool:
        """Whether a disk that is not mounted can be mounted on other layers that say the same."""
        return links_are_settled(sandbox_dir / _WORK, sandbox_dir / _LINKED)

    def sizes_changed(self, sandbox_dir: Path) -> int:
        """Bytes that the writable layer of a sandbox occupies; 0 when it has none."""
        return tree_bytes(sandbox_dir / _UPPER) if (sandbox_dir / _UPPER).exists() else 0

    def outgrows(self, sandbox_dir: Path, most_bytes: int) -> bool:
        """Whether copying the writable layer of a sandbox takes longer than copying a file of ``most_bytes``."""
        return tree_outgrows(sandbox_dir / _UPPER, most_bytes)

    def use(self, sandbox_dir: Path) -> TreeUse:
        """What is in the writable layer of a sandbox."""
        return tree_use(sandbox_dir / _UPPER)

    def _assert_there(self, stack: Stack) -> None:
        for layer_id in stack:
            if not self.path(layer_id).is_dir():
                raise HostError(
                    f"the layer {layer_id} is missing in {self._directory}",
                    hint="the home has lost a part of its files: restore it from a backup, or delete what stands on it",
                )

    def _overlay(self, lowers: Sequence[Path], sandbox_dir: Path) -> None:
        upper, work, root = (sandbox_dir / name for name in (_UPPER, _WORK, _ROOT))
        until_s = time.monotonic() + _BUSY_S
        while True:
            try:
                Mounts.overlay(lowers, upper, work, root, complete=self._complete)
                return
            except HostError as error:
                # A process that has just ended, or a machine that is just being started beside, still has the
                # earlier mount in its own mount namespace.
                if _errno_of(error) != errno.EBUSY or time.monotonic() > until_s:
                    raise
            time.sleep(_LOOK_S)

    def undo_unknown_freeze(self, sandbox_dir: Path, stack: Stack) -> Stack:
        """Give a sandbox its writable layer back that was frozen, when its ``stack`` does not know of that.

        Where something was written above it since, a power cut has undone the new stack: it is returned.

        ``mount`` does it too; call it before layers are removed that no stack has.
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
        self.seals.drop([layer_id])
        os.rename(self.path(layer_id), upper)
        _unwrite_note(sandbox_dir)
        return stack

    @staticmethod
    def _forget_lowers(sandbox_dir: Path) -> None:
        # The home was moved or restored from a backup, so the files below have other numbers than this
        # layer noted.
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
            # The writable layer's top directory is what the guest sees as /.
            info = self.path(stack[0]).stat()
            os.chown(upper, info.st_uid, info.st_gid)
            upper.chmod(stat.S_IMODE(info.st_mode))
            os.utime(upper, ns=(info.st_atime_ns, info.st_mtime_ns))


def _write_note(sandbox_dir: Path, layer_id: str) -> None:
    # A symlink, because it is in the file system's journal before the rename that follows: a file would have to be
    # flushed, and with much that is dirty that takes seconds.
    aside = sandbox_dir / f"{ASIDE}{_FROZEN}"
    aside.unlink(missing_ok=True)
    aside.symlink_to(layer_id)
    os.replace(aside, sandbox_dir / _FROZEN)


def _unwrite_note(sandbox_dir: Path) -> None:
    note, undone = sandbox_dir / _FROZEN, sandbox_dir / UNDONE
    with contextlib.suppress(OSError):  # on a full disk, too, the note must go
        since_ns = note.lstat().st_ctime_ns
        undone.unlink(missing_ok=True)
        undone.symlink_to(str(since_ns))
    note.unlink(missing_ok=True)


def _is_wide(upper: Path) -> bool:
    """Whether so much lies at the top of a layer that its entries are not to be moved one by one."""
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
    """The type of the file system that a directory lies on."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def _errno_of(error: HostError) -> int | None:
    return getattr(error.__cause__, "errno", None)
