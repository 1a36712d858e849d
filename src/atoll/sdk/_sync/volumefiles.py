# Made by scripts/unasync.py from sdk/_async/volumefiles.py: do not edit.
"""Files in a volume, without a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from atoll.errors import FileError, FileMissingError, NotADirectoryInSandboxError
from atoll.protocol import AttributesRequest
from atoll.sdk._sync.api import Api, ref
from atoll.sdk._sync.http import Upload
from atoll.sdk._bytes import GIB, as_bytes, check_upload, sliced
from atoll.types import GuestPath, VolumeEntry
from atoll.types.internal import check_kind, check_number, path_text

_Entries = list[VolumeEntry]


class VolumeFiles:
    """Reads and writes the files of one volume. Paths begin at its root; a leading ``/`` may be left out.

    No path leads out of the volume: symbolic links are resolved inside it, absolute ones from its root. New
    files belong to user and group 1000 unless another number is given. Existing directories stay as they are.
    Every method raises VolumeNotFoundError when there is no such volume, and the ``FileError`` that fits.
    """

    def __init__(self, id_or_name: str, team: str | None = None) -> None:
        self._base = f"/v1/volumes/{ref(id_or_name)}"
        self._volume = id_or_name
        self._team = team

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of volume {self._volume!r}>"

    def _path(self, kind: str, path: GuestPath, **options: int | bool | None) -> str:
        query = [f"path={ref(path_text(path))}"]
        if self._team is not None:
            query.append(f"team={ref(self._team)}")
        for name, value in options.items():
            if value is not None:
                check_kind(name, value, int)
                query.append(f"{name}={int(value)}")
        return f"{self._base}/{kind}?{'&'.join(query)}"

    def stat(self, path: GuestPath) -> VolumeEntry:
        """Describe an entry. A symbolic link is not followed.

        Raises:
            FileMissingError: Nothing has that path.
        """
        with contextlib.closing(Api()) as api:
            return api.call("GET", self._path("entry", path), VolumeEntry)

    def exists(self, path: GuestPath) -> bool:
        """Tell whether something has that path, even if it is only a broken symbolic link."""
        try:
            self.stat(path)
        except (FileMissingError, NotADirectoryInSandboxError):
            return False
        return True

    def list(self, path: GuestPath = "/", *, depth: int = 1) -> _Entries:
        """List a directory down to ``depth`` levels, in lexical order; at most 100,000 entries.

        Raises:
            FileMissingError: There is no such directory.
            NotADirectoryInSandboxError: The path is not a directory.
            FileError: The directory has more entries.
        """
        with contextlib.closing(Api()) as api:
            return api.call("GET", self._path("dir", path, depth=depth), list[VolumeEntry])

    def mkdir(
        self,
        path: GuestPath,
        *,
        parents: bool = True,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> VolumeEntry:
        """Make a directory.

        Args:
            path: The directory's path.
            parents: Make the missing directories above it too, and accept an existing one.
            mode: Permission bits; None means 0o755.
            uid: Number of its owner.
            gid: Number of its group.

        Raises:
            FileTakenError: Something has that path.
            FileMissingError: The directory above is missing, without ``parents``.
        """
        with contextlib.closing(Api()) as api:
            where = self._path("dir", path, parents=parents, mode=mode, uid=uid, gid=gid)
            return api.call("POST", where, VolumeEntry)

    def read(self, path: GuestPath, *, max_bytes: int = GIB) -> str:
        """Return a file's text, decoded as UTF-8 with bad bytes replaced.

        Raises:
            FileMissingError: There is no such file.
            FileError: The file has more than ``max_bytes``, or is not a regular file.
        """
        return (self.read_bytes(path, max_bytes=max_bytes)).decode("utf-8", "replace")

    def read_bytes(self, path: GuestPath, *, max_bytes: int = GIB) -> bytes:
        """Return a file's bytes.

        Raises:
            FileMissingError: There is no such file.
            FileError: The file has more than ``max_bytes``, or is not a regular file.
        """
        check_number("max_bytes", max_bytes, least=0, hint="give the most bytes to read")
        read = bytearray()
        for piece in self.read_stream(path):
            if len(read) + len(piece) > max_bytes:
                raise FileError(f"{path} has more than {max_bytes} bytes", hint="use read_stream")
            read += piece
        return bytes(read)

    def read_stream(self, path: GuestPath) -> Iterator[bytes]:
        """Iterate over a file's bytes in constant memory.

        Raises:
            FileMissingError: There is no such file. The first step of the iteration raises this.
            FileError: The path is not a regular file.
        """
        with contextlib.closing(Api()) as api:
            answer = api.stream("GET", self._path("file", path))
            while piece := answer.read():
                yield piece

    def write(
        self,
        path: GuestPath,
        data: bytes | str | Upload,
        *,
        parents: bool = True,
        replace: bool = True,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> VolumeEntry:
        """Make ``data`` the content of a file. Readers see all of the old content or all of the new.

        Args:
            path: The file's path. An existing file is replaced; mode, owner and group stay unless given.
            data: Text (as UTF-8), bytes, a file opened for reading, or an iterable of pieces.
            parents: Make the missing directories above it.
            replace: False refuses to replace an existing file.
            mode: Permission bits; None means 0o644 for a new file.
            uid: Number of its owner.
            gid: Number of its group.

        Raises:
            IsADirectoryInSandboxError: ``path`` is a directory.
            FileTakenError: Something has that path, without ``replace``.
            FileMissingError: The directory above is missing, without ``parents``.
            NoSpaceError: The disk is full.
        """
        where = self._path("file", path, parents=parents, replace=replace, mode=mode, uid=uid, gid=gid)
        with contextlib.closing(Api()) as api:
            if isinstance(data, (str, bytes, bytearray, memoryview)):
                content = as_bytes(data)
                return api.upload(where, VolumeEntry, sliced(content), len(content))
            check_upload(data)
            return api.upload(where, VolumeEntry, data)

    def set_attributes(
        self, path: GuestPath, *, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> VolumeEntry:
        """Change permission bits, owner or group of a file or directory; None leaves a value as it is.

        Raises:
            FileMissingError: Nothing has that path.
            FileError: The path is neither a file nor a directory.
        """
        with contextlib.closing(Api()) as api:
            wanted = AttributesRequest(uid=uid, gid=gid, mode=mode)
            return api.call("POST", self._path("entry", path), VolumeEntry, wanted)

    def delete(self, path: GuestPath) -> None:
        """Delete a file, or a directory with all its content. A symbolic link is deleted itself.

        Raises:
            FileMissingError: Nothing has that path.
            InvalidSpecError: The path is the volume's root.
        """
        with contextlib.closing(Api()) as api:
            api.delete(self._path("entry", path))
