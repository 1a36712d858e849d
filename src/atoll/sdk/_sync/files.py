# Made by scripts/unasync.py from sdk/_async/files.py: do not edit.
"""Files in a sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from atoll.errors import EditError, FileError, FileMissingError, NotADirectoryInSandboxError
from atoll.guest import file_from, files_from, files_request, get_file, put_file, watch
from atoll.sdk._sync.agent import SILENCE_S, Agent, Frames, bytes_of
from atoll.sdk._sync.http import Upload
from atoll.sdk._sync.watch import Watch
from atoll.sdk._bytes import CHUNK_BYTES, GIB, MIB, as_bytes, sliced
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._edits import edited
from atoll.types import FileInfo, GuestPath, check_number, local_path, path_text

# For calls that may touch many files.
_LONG_S = 600.0

_Files = list[FileInfo]
TreeProgress = Callable[[int, int | None], Any]


class Files:
    """Reads and writes the files of one sandbox. Relative paths start at the user's home, and ``~`` means it.

    Every method acts with the rights of ``user`` (None: the sandbox's default user), and new files belong to
    that user. Every method raises the ``FileError`` that fits (missing, taken, denied, is or is not a
    directory). It may also raise NoSpaceError when the disk is full, InvalidSpecError for an unknown user,
    and what every use of a sandbox raises: SandboxCrashedError, SandboxNotFoundError, StateError.
    """

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
        for piece in self.read_stream(path, user=user):
            if len(read) + len(piece) > max_bytes:
                raise FileError(
                    f"{path} has more than {max_bytes} bytes",
                    hint="use read_stream, or give max_bytes",
                    sandbox_id=self._agent.sandbox_id,
                )
            read += piece
        return bytes(read)

    def read_stream(self, path: GuestPath, *, user: str | None = None) -> Iterator[bytes]:
        """Iterate over a file's bytes in pieces of at most 64 KiB, in constant memory.

        Raises:
            FileMissingError: There is no such file. The first step of the iteration raises this.
        """
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
            check_number(
                "mode", mode, least=0, most=0o7777, whole=True, hint="give permission bits, like 0o644"
            )
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            request = put_file(path, user, mode=mode, body=None)
            return file_from(self._agent.call(request, body=data, timeout_s=None))
        content = as_bytes(data)
        if len(content) <= CHUNK_BYTES:
            # sent in one packet with the request's head, which wakes the agent only once
            request = put_file(path, user, mode=mode, body=content)
            return file_from(self._agent.call(request, timeout_s=None))
        request = put_file(path, user, mode=mode, body=None)
        body, length = sliced(content), len(content)
        return file_from(self._agent.call(request, body=body, length=length, timeout_s=None))

    def edit(
        self, path: GuestPath, old: str, new: str, *, user: str | None = None, max_bytes: int = 64 * MIB
    ) -> FileInfo:
        """Replace ``old``, which must be in the file exactly once, by ``new``.

        Mode and owner stay, and so does every other byte. The file is read and then written, so a change that
        is made inside between the two is lost.

        Args:
            path: The file's path.
            old: Text of the file; it may have several lines.
            new: The text for its place; an empty one removes ``old``.
            user: The user whose rights apply.
            max_bytes: The size of the largest file to edit.

        Raises:
            EditError: ``old`` is not there, or more than once. The message says where, or what is near.
            FileMissingError: There is no such file.
            FileError: The file has more than ``max_bytes``.
        """
        content = self.read_bytes(path, user=user, max_bytes=max_bytes)
        try:
            changed = edited(path_text(path), content, old, new)
        except EditError as error:
            error.sandbox_id = self._agent.sandbox_id
            raise
        return self.write(path, changed, user=user)

    def list(self, path: GuestPath = ".", *, depth: int = 1, user: str | None = None) -> _Files:
        """List a directory down to ``depth`` levels, in lexical order; at most 100,000 entries.

        Raises:
            FileMissingError: There is no such directory.
            NotADirectoryInSandboxError: The path is not a directory.
        """
        check_number("depth", depth, least=1, whole=True, hint="give how many levels to list, 1 or more")
        request = files_request("list", path, depth=depth, user=user)
        return files_from(self._agent.call(request, repeatable=True))

    def stat(self, path: GuestPath, *, follow: bool = False, user: str | None = None) -> FileInfo:
        """Describe a file. A symbolic link is described itself, or with ``follow`` the file it leads to.

        Raises:
            FileMissingError: Nothing has that path.
        """
        request = files_request("stat", path, follow=follow, user=user)
        return file_from(self._agent.call(request, repeatable=True))

    def exists(self, path: GuestPath, *, user: str | None = None) -> bool:
        """Tell whether something has that path, even if it is only a broken symbolic link."""
        try:
            self.stat(path, user=user)
        except (FileMissingError, NotADirectoryInSandboxError):
            return False
        return True

    def mkdir(self, path: GuestPath, *, parents: bool = True, user: str | None = None) -> None:
        """Make a directory.

        Args:
            path: The directory's path.
            parents: Make the missing directories above it too, and accept an existing one.
            user: The user whose rights apply.

        Raises:
            FileTakenError: Something has that path.
            FileMissingError: The directory above is missing, without ``parents``.
        """
        self._agent.call(files_request("mkdir", path, parents=parents, user=user))

    def move(
        self, path: GuestPath, to: GuestPath, *, timeout_s: float | None = _LONG_S, user: str | None = None
    ) -> FileInfo:
        """Rename a file or directory and return its info at the new place.

        A file that has the new name is replaced.

        Args:
            path: The file or directory.
            to: The new name. On another file system inside, this copies it there.
            timeout_s: Seconds to wait; None means as long as it takes. After that, the work goes on inside.
            user: The user whose rights apply.

        Raises:
            FileMissingError: There is nothing at ``path``.
            DeadlineError: It takes longer than ``timeout_s``.
        """
        check_timeout(timeout_s)
        request = files_request("move", path, to=to, user=user)
        self._agent.call(request, timeout_s=timeout_s, slow=True)
        return self.stat(to, user=user)

    def delete(
        self, path: GuestPath, *, timeout_s: float | None = _LONG_S, user: str | None = None
    ) -> None:
        """Delete a file, or a directory with all its content.

        Args:
            path: The file or directory.
            timeout_s: Seconds to wait; None means as long as it takes. After that, the work goes on inside.
            user: The user whose rights apply.

        Raises:
            FileMissingError: Nothing has that path.
            DeadlineError: It takes longer than ``timeout_s``.
        """
        check_timeout(timeout_s)
        self._agent.call(files_request("remove", path, user=user), timeout_s=timeout_s, slow=True)

    def upload(
        self,
        local: str | os.PathLike[str],
        path: GuestPath,
        *,
        on_progress: TreeProgress | None = None,
        user: str | None = None,
    ) -> None:
        """Copy a file, or a directory's content, from this host into the sandbox.

        A directory's content is added to the directory ``path``. Files and directories keep their permission
        bits. Symbolic links stay links. Sockets, pipes and devices are left out.

        Args:
            local: What to copy.
            path: The file or directory in the sandbox.
            on_progress: Called with the number of bytes copied and the total.
            user: Who owns it in the sandbox.

        Raises:
            FileNotFoundError: ``local`` is missing.
            InvalidSpecError: ``local`` is a pipe, a socket or a device.
        """
        from atoll.sdk._sync import trees

        trees.upload(self._agent, local_path("local", local), path, on_progress=on_progress, user=user)

    def download(
        self,
        path: GuestPath,
        local: str | os.PathLike[str],
        *,
        on_progress: TreeProgress | None = None,
        outside_links: bool = True,
        max_bytes: int | None = None,
        max_entries: int = 1_000_000,
        user: str | None = None,
    ) -> None:
        """Copy a file, or a directory's content, from the sandbox to this host.

        The sandbox is not trusted. Nothing is written outside ``local`` or through a symbolic link. Devices,
        pipes and setuid bits are left out, and hard links lead only to files of the same download. A single
        file appears at ``local`` only when it is complete. A directory's content is added to ``local``; if
        the call fails, what has arrived stays there.

        Args:
            path: The file or directory in the sandbox.
            local: The file or directory on this host; the directory above it must exist.
            on_progress: Called with the number of bytes copied and the total, which is None if unknown.
            outside_links: Keep symbolic links that lead out of the tree, such as those of a virtual
                environment. Your code must not follow them. False leaves them out.
            max_bytes: How many bytes of file content to write at most; None means no limit.
            max_entries: How many files, directories and links to make at most.
            user: The user in the sandbox whose rights apply.

        Raises:
            FileMissingError: Nothing has the path ``path``.
            FileError: The tree has more than ``max_bytes`` or ``max_entries``.
            AgentError: The sandbox sent an archive that must not be unpacked.
        """
        from atoll.sdk._sync import trees
        from atoll.sdk._unpack import Limits

        if max_bytes is not None:
            check_number("max_bytes", max_bytes, least=0, hint="give the most bytes to write")
        check_number("max_entries", max_entries, least=0, hint="give the most entries to make")
        limits = Limits(outside_links, max_bytes, max_entries)
        trees.download(
            self._agent, path, local_path("local", local), limits, on_progress=on_progress, user=user
        )

    def watch(self, path: GuestPath, *, recursive: bool = False, user: str | None = None) -> Watch:
        """Watch a directory. The watch reports every change after this call returns.

        Paths are relative to the directory.

        Args:
            path: The directory.
            recursive: Watch the directories below it too, including new ones.
            user: The user whose rights apply.

        Raises:
            FileMissingError: There is no such directory.
        """
        request = watch(path, user, recursive=recursive)
        frames = Frames(self._agent.open(request, Deadline(None, silence_s=SILENCE_S)))
        try:
            frames.next()
        except BaseException:
            frames.close()
            raise
        return Watch(frames, path_text(path), self._agent.sandbox_id)
