"""Directory trees in a store, such as the layers of a disk: exact, as copies are."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.errors import DamagedError, UnsupportedError
from atoll.host import TreeDirectory, attributes_of, open_below, open_top, walk_tree
from atoll.store import Content, ContentWriter, Reader, Writer
from atoll.types.internal import msgpack_reader

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# So many entries share a block of the list, and so many files are open at once while they are written.
_BLOCK_ENTRIES = 512
_OPEN_FILES, _OPEN_BYTES = 128, 32 << 20
LIST_MOST_BYTES = 1 << 30


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """A name in a directory, or the top itself if the name is empty.

    Attributes:
        modified: Seconds and nanoseconds.
        link: The same for all names of one file, and 0 for a file with one name. Only the first of them has
            the rest.
        target: Where a symlink leads.
    """

    name: bytes
    mode: int
    owner: tuple[int, int]
    modified: tuple[int, int]
    device: int = 0
    link: int = 0
    attributes: dict[bytes, bytes] = {}
    target: bytes = b""
    content: Content | None = None


class StoredDirectory(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """The directory of the entries that follow: its depth below the top, and its name."""

    depth: int
    name: bytes


_Block = list[StoredEntry | StoredDirectory]
_read_block = msgpack_reader(_Block)


class Opened(NamedTuple):
    """A file that is being written: its descriptor, and what it will be."""

    descriptor: int
    entry: StoredEntry


def store_tree(writer: Writer, top: Path, *, pages: bool = False) -> Content:
    """Store a directory tree that does not change meanwhile, and return its list.

    The list has what ``copy_tree`` would copy: owners, modes, times, extended attributes, holes, hard links
    within the tree, devices, fifos and sockets. What the kernel notes for one mount of an overlay is left out.

    Args:
        writer: Stores it.
        top: The tree.
        pages: Whether equal pages of 4 KiB are to be found in its files, as in those of a checkpoint.

    Raises:
        OSError: Something cannot be read.
        StoreError: The store cannot be reached.
        UnsupportedError: It has more than ten million files.
    """
    blocks = bytearray()
    with open_top(top) as descriptor:
        told = _Teller(writer, pages=pages)
        for record in walk_tree(descriptor, told):
            told.add(record)
            if len(told.records) >= _BLOCK_ENTRIES:
                blocks += told.block()
                if len(blocks) > LIST_MOST_BYTES:
                    raise UnsupportedError(f"{top} has too many files to be stored")
    blocks += told.block()
    return writer.write(bytes(blocks))


def restore_tree(reader: Reader, tree: Content, into: Path) -> None:
    """Make an empty directory what was stored with ``store_tree``.

    No entry is reached through a symlink, so a list that somebody else made writes nothing elsewhere.

    Raises:
        DamagedError: The list or a content is not as it was written.
        OSError: Something cannot be written. The caller removes the part that was.
    """
    data = reader.read(tree, LIST_MOST_BYTES)
    try:
        with open_top(into) as top:
            with contextlib.closing(_Restored(reader, top)) as restored:
                for record in _records(data):
                    restored.add(record)
                restored.flush()
            # At last: what is written into a directory changes its times, and its mode may forbid it.
            _finish_directories(top, data)
    except (ValueError, OverflowError) as error:
        raise DamagedError(f"the list of a stored tree has an entry that cannot be: {error}") from None


class _Teller:
    """Reads entries, and stores what their files have."""

    def __init__(self, writer: Writer, *, pages: bool) -> None:
        self._writer = writer
        self._pages = pages
        self._content: ContentWriter | None = None
        self._contents: dict[int, ContentWriter] = {}
        self.records: list[StoredEntry | StoredDirectory] = []

    def of(
        self, directory: int, name: str, status: os.stat_result, *, link: int, content: bool
    ) -> StoredEntry:
        """Return an entry. ``block`` adds its content, because small ones share a frame."""
        if content and stat.S_ISREG(status.st_mode):
            self._content = self._begun(directory, name)
        is_device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
        target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else ""
        return StoredEntry(
            name=os.fsencode(name) if name != "." else b"",
            mode=status.st_mode,
            owner=(status.st_uid, status.st_gid),
            modified=divmod(status.st_mtime_ns, 10**9),
            device=status.st_rdev if is_device else 0,
            link=link,
            attributes={
                os.fsencode(key): value
                for key, value in attributes_of(f"/proc/self/fd/{directory}/{name}").items()
            },
            target=os.fsencode(target),
        )

    def _begun(self, directory: int, name: str) -> ContentWriter:
        descriptor = os.open(name, _READ, dir_fd=directory)
        try:
            return self._writer.begin_file(descriptor, os.fstat(descriptor).st_size, pages=self._pages)
        finally:
            os.close(descriptor)

    def add(self, record: StoredEntry | TreeDirectory) -> None:
        """Append a record to the list."""
        if isinstance(record, TreeDirectory):
            self.records.append(StoredDirectory(record.depth, record.name))
            return
        if self._content is not None:
            self._contents[len(self.records)], self._content = self._content, None
        self.records.append(record)

    def block(self) -> bytes:
        """Return the records since the last block, and begin another one."""
        for at, content in self._contents.items():
            self.records[at] = msgspec.structs.replace(self.records[at], content=content.finish())
        data = msgspec.msgpack.encode(self.records)
        self.records, self._contents = [], {}
        return len(data).to_bytes(4, "big") + data


class _Restored:
    """A tree that is being made."""

    def __init__(self, reader: Reader, top: int) -> None:
        self._reader = reader
        self._top = top
        self._path = _Path()
        self._here: int | None = None
        self._links: dict[int, str] = {}
        self._open: list[Opened] = []
        self._bytes = 0
        self._below = contextlib.ExitStack()

    def add(self, record: StoredEntry | StoredDirectory) -> None:
        """Make an entry, or go on in another directory."""
        if isinstance(record, StoredDirectory):
            self._below.close()
            self._here = self._below.enter_context(open_below(self._top, self._path.enter(record)))
        elif record.name:
            if self._here is None:
                raise DamagedError("the list of a stored tree has an entry in no directory")
            self._make(self._here, record)

    def close(self) -> None:
        """Close what is open."""
        self._below.close()
        self._let_go()

    def flush(self) -> None:
        """Write the contents of the files that were made, and then what else they are."""
        self._reader.write_files(
            [(each.entry.content, each.descriptor) for each in self._open if each.entry.content is not None]
        )
        for opened in self._open:
            _give(opened.descriptor, opened.entry)
        self._let_go()

    def _let_go(self) -> None:
        for opened in self._open:
            os.close(opened.descriptor)
        self._open, self._bytes = [], 0

    def _make(self, here: int, entry: StoredEntry) -> None:
        name = _checked(entry.name)
        if entry.link in self._links:
            parent, _, first = self._links[entry.link].rpartition("/")
            with open_below(self._top, parent) as there:
                os.link(first, name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
            return
        if entry.link:
            self._links[entry.link] = self._path.join(name)
        if stat.S_ISREG(entry.mode):
            self._open.append(Opened(os.open(name, _CREATE, 0o600, dir_fd=here), entry))
            self._bytes += entry.content.size if entry.content is not None else 0
            if len(self._open) >= _OPEN_FILES or self._bytes >= _OPEN_BYTES:
                self.flush()
        elif stat.S_ISDIR(entry.mode):
            os.mkdir(name, 0o700, dir_fd=here)
        elif stat.S_ISLNK(entry.mode):
            os.symlink(os.fsdecode(entry.target), name, dir_fd=here)
            _give_unopened(here, name, entry)
        else:
            os.mknod(name, stat.S_IFMT(entry.mode) | 0o600, entry.device, dir_fd=here)
            _give_unopened(here, name, entry)


class _Path:
    """The path of the directory whose entries follow."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def enter(self, directory: StoredDirectory) -> str:
        """Go to a directory, and return its path below the top."""
        if directory.depth == 0:
            self._names = []
        elif directory.depth - 1 <= len(self._names):
            self._names[directory.depth - 1 :] = [_checked(directory.name)]
        else:
            raise DamagedError("the list of a stored tree leaves out a directory")
        return "/".join(self._names)

    def join(self, name: str) -> str:
        """Return the path of a name in the directory."""
        return "/".join([*self._names, name])


def _records(data: bytes) -> Iterator[StoredEntry | StoredDirectory]:
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        try:
            records: _Block = _read_block(data[at + 4 : end])
        except msgspec.DecodeError:
            raise DamagedError("the list of a stored tree cannot be read") from None
        yield from records
        at = end


def _finish_directories(top: int, data: bytes) -> None:
    """Give the directories of a tree their owners, modes, attributes and times."""
    path = _Path()
    root: StoredEntry | None = None
    with contextlib.ExitStack() as below:
        here = top
        for record in _records(data):
            if isinstance(record, StoredDirectory):
                below.close()
                here = below.enter_context(open_below(top, path.enter(record)))
            elif not record.name:
                root = record
            elif stat.S_ISDIR(record.mode):
                # Its own content is there already, and nothing changes it any more.
                with open_below(here, _checked(record.name)) as directory:
                    _give(directory, record)
    if root is not None:
        _give(top, root)


def _give(descriptor: int, entry: StoredEntry) -> None:
    """Give an open file or directory what the entry says."""
    os.fchown(descriptor, *entry.owner)
    # After the owner, because changing it removes the setuid bit.
    os.fchmod(descriptor, stat.S_IMODE(entry.mode))
    for key, value in entry.attributes.items():
        os.setxattr(descriptor, key, value)
    os.utime(descriptor, ns=_times(entry))


def _give_unopened(directory: int, name: str, entry: StoredEntry) -> None:
    """Give a symlink, fifo, socket or device what the entry says."""
    os.chown(name, *entry.owner, dir_fd=directory, follow_symlinks=False)
    place = f"/proc/self/fd/{directory}/{name}"
    if not stat.S_ISLNK(entry.mode):
        os.chmod(place, stat.S_IMODE(entry.mode))
    for key, value in entry.attributes.items():
        os.setxattr(place, key, value, follow_symlinks=False)
    os.utime(name, ns=_times(entry), dir_fd=directory, follow_symlinks=False)


def _times(entry: StoredEntry) -> tuple[int, int]:
    at_ns = entry.modified[0] * 10**9 + entry.modified[1]
    return at_ns, at_ns


def _checked(name: bytes) -> str:
    """Return a name of one entry.

    Raises:
        DamagedError: It would lead elsewhere.
    """
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise DamagedError(f"a stored tree has an entry called {name!r}")
    return os.fsdecode(name)
