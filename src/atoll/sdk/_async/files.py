"""Files in a sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from atoll.errors import FileError, FileMissingError, NotADirectoryInSandboxError
from atoll.guest import file_from, files_from, files_request, get_file, put_file, watch
from atoll.sdk._async.agent import SILENCE_S, AsyncAgent, AsyncFrames, bytes_of
from atoll.sdk._async.http import Upload
from atoll.sdk._async.watch import AsyncWatch
from atoll.sdk._bytes import CHUNK_BYTES, GIB, as_bytes, sliced
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.types import FileInfo, GuestPath, check_number, local_path, path_text

# What may have to touch many files.
_LONG_S = 600.0

_Files = list[FileInfo]
TreeProgress = Callable[[int, int | None], Any]


class AsyncFiles:
    """The files of one sandbox. Relative paths start at the user's home; ``~`` is it.

    Everything is done with the rights of ``user``, the sandbox's default user when None, and what is made belongs
    to that user. Every method raises the ``FileError`` that fits (missing, taken, denied, is or is not a
    directory), NoSpaceError when the disk is full, InvalidSpecError for an unknown user, and what every use of a
    sandbox raises: SandboxCrashedError, SandboxNotFoundError, StateError.
    """

    def __init__(self, agent: AsyncAgent) -> None:
        self._agent = agent

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of sandbox {self._agent.sandbox_id}>"

    async def read(self, path: GuestPath, *, user: str | None = None, max_bytes: int = GIB) -> str:
        """Return a file's text: UTF-8, bad bytes replaced.

        Raises:
            FileMissingError: There is no such file.
            FileError: It has more than ``max_bytes``; ``read_stream`` reads any size.
        """
        return (await self.read_bytes(path, user=user, max_bytes=max_bytes)).decode("utf-8", "replace")

    async def read_bytes(self, path: GuestPath, *, user: str | None = None, max_bytes: int = GIB) -> bytes:
        """Return a file's bytes.

        Raises:
            FileMissingError: There is no such file.
            FileError: It has more than ``max_bytes``; ``read_stream`` reads any size.
        """
        check_number("max_bytes", max_bytes, least=0, hint="give the most bytes to read")
        read = bytearray()
        async for piece in self.read_stream(path, user=user):
            if len(read) + len(piece) > max_bytes:
                raise FileError(
                    f"{path} has more than {max_bytes} bytes",
                    hint="use read_stream, or give max_bytes",
                    sandbox_id=self._agent.sandbox_id,
                )
            read += piece
        return bytes(read)

    async def read_stream(self, path: GuestPath, *, user: str | None = None) -> AsyncIterator[bytes]:
        """Iterate over a file's bytes in pieces of at most 64 KiB, in constant memory.

        Raises:
            FileMissingError: There is no such file; raised by the first step of the iteration.
        """
        answer = await self._agent.open(get_file(path, user), Deadline(None, silence_s=SILENCE_S))
        async for piece in bytes_of(answer):
            yield piece

    async def write(
        self, path: GuestPath, data: bytes | str | Upload, *, mode: int | None = None, user: str | None = None
    ) -> FileInfo:
        """Make ``data`` the content of a file, and make the directories above it.

        Args:
            path: Where; a file that is there is replaced.
            data: Text (as UTF-8), bytes, a file opened for reading, or an iterable of pieces.
            mode: Permission bits; None keeps those of a file that is there, and gives 0o644 to a new one.
            user: Whose rights.

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
            return file_from(await self._agent.call(request, body=data, timeout_s=None))
        content = as_bytes(data)
        if len(content) <= CHUNK_BYTES:
            # in one packet with the request's head, which wakes the agent once
            request = put_file(path, user, mode=mode, body=content)
            return file_from(await self._agent.call(request, timeout_s=None))
        request = put_file(path, user, mode=mode, body=None)
        body, length = sliced(content), len(content)
        return file_from(await self._agent.call(request, body=body, length=length, timeout_s=None))

    async def list(self, path: GuestPath = ".", *, depth: int = 1, user: str | None = None) -> _Files:
        """List a directory down to ``depth`` levels, in lexical order; at most 100,000 entries.

        Raises:
            FileMissingError: There is no such directory.
            NotADirectoryInSandboxError: It is something else.
        """
        check_number("depth", depth, least=1, whole=True, hint="give how many levels to list, 1 or more")
        request = files_request("list", path, depth=depth, user=user)
        return files_from(await self._agent.call(request, repeatable=True))

    async def stat(self, path: GuestPath, *, follow: bool = False, user: str | None = None) -> FileInfo:
        """Describe a file; a symbolic link itself, or with ``follow`` what it leads to.

        Raises:
            FileMissingError: There is nothing.
        """
        request = files_request("stat", path, follow=follow, user=user)
        return file_from(await self._agent.call(request, repeatable=True))

    async def exists(self, path: GuestPath, *, user: str | None = None) -> bool:
        """Whether something has that path, be it a broken symbolic link."""
        try:
            await self.stat(path, user=user)
        except (FileMissingError, NotADirectoryInSandboxError):
            return False
        return True

    async def mkdir(self, path: GuestPath, *, parents: bool = True, user: str | None = None) -> None:
        """Make a directory.

        Args:
            path: Where.
            parents: Make those above it too, and do not mind when it is there.
            user: Whose rights.

        Raises:
            FileTakenError: Something has that path.
            FileMissingError: The directory above is missing, without ``parents``.
        """
        await self._agent.call(files_request("mkdir", path, parents=parents, user=user))

    async def move(
        self, path: GuestPath, to: GuestPath, *, timeout_s: float | None = _LONG_S, user: str | None = None
    ) -> FileInfo:
        """Rename a file or directory; a file that has the new name is replaced. Returns it at its new place.

        Args:
            path: What.
            to: Its new name; on another file system inside it is copied there.
            timeout_s: Seconds to wait for it; None is as long as it takes. It goes on inside when they are over.
            user: Whose rights.

        Raises:
            FileMissingError: There is nothing at ``path``.
            DeadlineError: It takes longer.
        """
        check_timeout(timeout_s)
        request = files_request("move", path, to=to, user=user)
        await self._agent.call(request, timeout_s=timeout_s, slow=True)
        return await self.stat(to, user=user)

    async def remove(
        self, path: GuestPath, *, timeout_s: float | None = _LONG_S, user: str | None = None
    ) -> None:
        """Remove a file, or a directory with all that is in it.

        Args:
            path: What.
            timeout_s: Seconds to wait for it; None is as long as it takes. It goes on inside when they are over.
            user: Whose rights.

        Raises:
            FileMissingError: There is nothing.
            DeadlineError: It takes longer.
        """
        check_timeout(timeout_s)
        await self._agent.call(files_request("remove", path, user=user), timeout_s=timeout_s, slow=True)

    async def upload(
        self,
        local: str | os.PathLike[str],
        path: GuestPath,
        *,
        on_progress: TreeProgress | None = None,
        user: str | None = None,
    ) -> None:
        """Copy a file, or a directory's content, of this host into the sandbox.

        A directory's content is added to what the directory ``path`` has; both keep permission bits. Symbolic links
        stay links; sockets, pipes and devices are left out.

        Args:
            local: What to copy.
            path: The file or directory in the sandbox.
            on_progress: Called with the bytes done and the total.
            user: Who owns it in the sandbox.

        Raises:
            FileNotFoundError: ``local`` is missing.
            InvalidSpecError: ``local`` is a pipe, a socket or a device.
        """
        from atoll.sdk._async import trees

        await trees.upload(self._agent, local_path("local", local), path, on_progress=on_progress, user=user)

    async def download(
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
        """Copy a file, or a directory's content, of the sandbox to this host.

        The sandbox is not trusted: nothing is written outside ``local`` or through a symbolic link, devices, pipes
        and setuid bits are left out, and hard links lead only to files of the same download. A file appears at
        ``local`` when it is whole. A directory's content is added to what ``local`` has, and stays there as far as
        it came when the call fails.

        Args:
            path: The file or directory in the sandbox.
            local: The file or directory on this host; the directory above it must be there.
            on_progress: Called with the bytes done and the total, None where that is not known.
            outside_links: Keep symbolic links that lead out of the tree, as they are, such as a virtual environment
                has; do not follow those in code of yours. False leaves them out.
            max_bytes: The most bytes of file content to write; None is no limit.
            max_entries: The most files, directories and links to make.
            user: Whose rights in the sandbox.

        Raises:
            FileMissingError: There is nothing at ``path``.
            FileError: It has more than ``max_bytes`` or ``max_entries``.
            AgentError: The sandbox sent an archive that must not be unpacked.
        """
        from atoll.sdk._async import trees
        from atoll.sdk._unpack import Limits

        if max_bytes is not None:
            check_number("max_bytes", max_bytes, least=0, hint="give the most bytes to write")
        check_number("max_entries", max_entries, least=0, hint="give the most entries to make")
        limits = Limits(outside_links, max_bytes, max_entries)
        await trees.download(
            self._agent, path, local_path("local", local), limits, on_progress=on_progress, user=user
        )

    async def watch(self, path: GuestPath, *, recursive: bool = False, user: str | None = None) -> AsyncWatch:
        """Watch a directory: what happens in it after this call returns is told, with paths relative to it.

        Args:
            path: The directory.
            recursive: Watch those below it too, also new ones.
            user: Whose rights.

        Raises:
            FileMissingError: There is no such directory.
        """
        request = watch(path, user, recursive=recursive)
        frames = AsyncFrames(await self._agent.open(request, Deadline(None, silence_s=SILENCE_S)))
        try:
            await frames.next()
        except BaseException:
            frames.close()
            raise
        return AsyncWatch(frames, path_text(path), self._agent.sandbox_id)
