# Made by scripts/unasync.py from sdk/_async/contents.py: do not edit.
"""The content of files in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from atoll.errors import EditError, FileError
from atoll.guest import file_from, files_from, get_file, put_file, put_files
from atoll.sdk._sync.agent import SILENCE_S, Agent, bytes_of
from atoll.sdk._sync.http import Upload
from atoll.sdk._bytes import CHUNK_BYTES, GIB, MIB, as_bytes, check_upload, sliced
from atoll.sdk._deadline import Deadline
from atoll.sdk._edits import edited
from atoll.sdk._io_sync import pieces
from atoll.sdk._pack import packed_files
from atoll.sdk._telling import Digest, file_line
from atoll.types import FileInfo, GuestPath
from atoll.types.internal import check_kind, check_number, path_text

_Files = list[FileInfo]
_MODE_HINT = "give permission bits, like 0o644"


class Contents:
    """Gives the files of a sandbox their methods for content."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of sandbox {self._agent.sandbox_id}>"

    def read(self, path: GuestPath, *, user: str | None = None, max_bytes: int = GIB) -> str:
        """Return a file's text, decoded as UTF-8 with bad bytes replaced.

        Raises:
            FileMissingError: There is no such file.
            FileError: The file has more than ``max_bytes``. ``read_stream`` reads files of any size.
        """
        return (self.read_bytes(path, user=user, max_bytes=max_bytes)).decode("utf-8", "replace")

    def read_bytes(self, path: GuestPath, *, user: str | None = None, max_bytes: int = GIB) -> bytes:
        """Return a file's bytes.

        Raises:
            FileMissingError: There is no such file.
            FileError: The file has more than ``max_bytes``. ``read_stream`` reads files of any size.
        """
        check_number("max_bytes", max_bytes, least=0, hint="give the most bytes to read")
        read = bytearray()
        for piece in self._pieces(path, user):
            if len(read) + len(piece) > max_bytes:
                raise FileError(
                    f"{path} has more than {max_bytes} bytes",
                    hint="use read_stream, or give max_bytes",
                    sandbox_id=self._agent.sandbox_id,
                )
            read += piece
        content = bytes(read)
        self._agent.tell(file_line(path_text(path), len(content), user, written=False), content)
        return content

    def read_stream(self, path: GuestPath, *, user: str | None = None) -> Iterator[bytes]:
        """Iterate over a file's bytes in pieces of at most 64 KiB, in constant memory.

        Raises:
            FileMissingError: There is no such file. The first step of the iteration raises this.
        """
        with Digest() as digest:
            try:
                for piece in self._pieces(path, user):
                    digest.add(piece)
                    yield piece
                digest.complete = True
            finally:
                if digest.size or digest.complete:
                    line = file_line(path_text(path), digest.size, user, written=False)
                    self._agent.tell(line, digest.hashed)

    def _pieces(self, path: GuestPath, user: str | None) -> Iterator[bytes]:
        answer = self._agent.open(get_file(path, user), Deadline(None, silence_s=SILENCE_S))
        for piece in bytes_of(answer):
            yield piece

    def write(
        self, path: GuestPath, data: bytes | str | Upload, *, mode: int | None = None, user: str | None = None
    ) -> FileInfo:
        """Make ``data`` the content of a file, and make the missing directories above it.

        Args:
            path: The file's path. An existing file is replaced.
            data: Text (as UTF-8), bytes, a file opened for reading, or an iterable of pieces.
            mode: Permission bits; None keeps those of an existing file and gives 0o644 to a new one.
            user: The user whose rights apply.

        Raises:
            FileDeniedError: ``user`` may not write there.
            IsADirectoryInSandboxError: ``path`` is a directory.
            NoSpaceError: The disk is full.
        """
        if mode is not None:
            check_number("mode", mode, least=0, most=0o7777, whole=True, hint=_MODE_HINT)
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            check_upload(data)
            request = put_file(path, user, mode=mode, body=None)
            with Digest() as digest:
                info = file_from(self._agent.call(request, body=_hashed(data, digest), timeout_s=None))
                digest.complete = True
            self._agent.tell(file_line(path_text(path), digest.size, user, written=True), digest.hashed)
            return info
        content = as_bytes(data)
        if len(content) <= CHUNK_BYTES:
            # sent in one packet with the request's head, which wakes the agent only once
            request = put_file(path, user, mode=mode, body=content)
            info = file_from(self._agent.call(request, timeout_s=None))
        else:
            request = put_file(path, user, mode=mode, body=None)
            body, length = sliced(content), len(content)
            info = file_from(self._agent.call(request, body=body, length=length, timeout_s=None))
        self._agent.tell(file_line(path_text(path), len(content), user, written=True), content)
        return info

    def edit(
        self, path: GuestPath, old: str, new: str, *, user: str | None = None, max_bytes: int = 64 * MIB
    ) -> FileInfo:
        """Replace ``old``, which must be in the file exactly once, by ``new``.

        Mode and owner stay, and so does every other byte. Readers see all of the old content or all of the
        new. The file is read and then written, so a change that is made inside between the two is lost.

        Args:
            path: The file's path.
            old: Text of the file; it may have several lines.
            new: The text for its place; an empty one removes ``old``.
            user: The user whose rights apply.
            max_bytes: The size of the largest file to edit.

        Raises:
            EditError: ``old`` is not there, or more than once. The message says where, or shows similar text.
            FileMissingError: There is no such file.
            FileError: The file has more than ``max_bytes``.
        """
        content = self.read_bytes(path, user=user, max_bytes=max_bytes)
        try:
            changed = edited(path_text(path), content, old, new)
        except EditError as error:
            error.sandbox_id = self._agent.sandbox_id
            raise
        request = put_file(path, user, mode=None, body=None, whole=True)
        body, length = sliced(changed), len(changed)
        info = file_from(self._agent.call(request, body=body, length=length, timeout_s=None))
        self._agent.tell(file_line(path_text(path), length, user, written=True), changed)
        return info

    def write_many(
        self, files: Mapping[GuestPath, bytes | str], *, mode: int | None = None, user: str | None = None
    ) -> _Files:
        """Write many files in one request, and make the missing directories above them.

        Of each file, readers see all of the old content or all of the new. If the call fails, the files that
        were written before stay. A file with several hard links, or of another user, is written in place.

        Args:
            files: Maps each path to its text (as UTF-8) or bytes; at most 100,000 files.
            mode: Permission bits of all of them; None keeps those of existing files and gives 0o644 to new
                ones.
            user: The user whose rights apply.

        Raises:
            FileDeniedError: ``user`` may not write one of the files.
            IsADirectoryInSandboxError: One of the paths is a directory.
            NoSpaceError: The disk is full.
            UnsupportedError: The sandbox's guest agent comes from an older atoll.
        """
        check_kind("files", files, Mapping)
        if mode is not None:
            check_number("mode", mode, least=1, most=0o7777, whole=True, hint=_MODE_HINT)
        if not files:
            return []
        given = [(path_text(path), as_bytes(data)) for path, data in files.items()]
        answer = self._agent.call(put_files(user), body=packed_files(given, mode or 0), timeout_s=None)
        for path, data in given:
            self._agent.tell(file_line(path, len(data), user, written=True), data)
        return files_from(answer)


def _hashed(data: Upload, digest: Digest) -> Iterator[bytes]:
    """Iterate over what is sent, and hash it."""
    for piece in pieces(data):
        digest.add(piece)
        yield piece
