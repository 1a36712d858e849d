# Made by scripts/unasync.py from sdk/_async/files.py: do not edit.
"""Files in a sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from atoll.errors import FileMissingError, NotADirectoryInSandboxError
from atoll.guest import (
    Search,
    change_mode,
    change_owner,
    file_from,
    files_from,
    files_request,
    glob_files,
    watch,
)
from atoll.sdk._sync.agent import SILENCE_S, Frames
from atoll.sdk._sync.contents import Contents
from atoll.sdk._sync.searching import MATCHES_BYTES, globs_of, searched
from atoll.sdk._sync.watch import Watch
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._foreign import Part
from atoll.types import FileInfo, GuestPath, SearchResult
from atoll.types.internal import check_number, check_text, local_path, path_text

# For calls that may touch many files.
_LONG_S = 600.0

_Files = list[FileInfo]
TreeProgress = Callable[[int, int | None], Any]


class Files(Contents, Part):
    """Reads and writes the files of one sandbox. Relative paths start at the user's home, and ``~`` means it.

    Every method acts with the rights of ``user`` (None: the sandbox's default user), and new files belong to
    that user. Every method raises the ``FileError`` that fits (missing, taken, denied, is or is not a
    directory). It may also raise NoSpaceError when the disk is full, InvalidSpecError for an unknown user,
    and what every use of a sandbox raises: SandboxCrashedError, SandboxNotFoundError, StateError.
    """

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
            timeout_s: Seconds to wait; None means as long as it takes. After that, the work continues inside.
            user: The user whose rights apply.

        Raises:
            FileMissingError: There is nothing at ``path``.
            DeadlineError: It takes longer than ``timeout_s``.
        """
        check_timeout(timeout_s)
        request = files_request("move", path, to=to, user=user)
        self._agent.call(request, timeout_s=timeout_s, slow=True)
        return self.stat(to, user=user)

    def copy(
        self, path: GuestPath, to: GuestPath, *, timeout_s: float | None = _LONG_S, user: str | None = None
    ) -> FileInfo:
        """Copy a file, or a directory with all its content, inside the sandbox; missing directories are made.

        The copy appears when it is complete, keeps permission bits and times, and belongs to ``user``.
        Symbolic links stay links. A file that has the new name is replaced, a directory is not.

        Args:
            path: The file or directory.
            to: The name of the copy.
            timeout_s: Seconds to wait; None means as long as it takes. After that, the work continues inside.
            user: The user whose rights apply.

        Raises:
            FileMissingError: There is nothing at ``path``.
            FileTakenError: ``to`` is a directory.
            DeadlineError: It takes longer than ``timeout_s``.
            UnsupportedError: The sandbox's guest agent comes from an older atoll.
        """
        check_timeout(timeout_s)
        request = files_request("copy", path, to=to, parents=True, user=user)
        return file_from(self._agent.call(request, timeout_s=timeout_s, slow=True))

    def chmod(
        self, path: GuestPath, mode: int, *, recursive: bool = False, user: str | None = None
    ) -> None:
        """Set the permission bits of a file or directory.

        Args:
            path: The file or directory; a symbolic link is followed.
            mode: The bits, like ``0o755``.
            recursive: Set them on everything in the directory too, but not through symbolic links. An entry
                that lies deeper than a path can name is refused.
            user: The user whose rights apply.

        Raises:
            FileMissingError: Nothing has that path.
            FileDeniedError: ``user`` does not own it.
            UnsupportedError: The sandbox's guest agent comes from an older atoll.
        """
        hint = "give permission bits, like 0o644"
        check_number("mode", mode, least=0, most=0o7777, whole=True, hint=hint)
        request = change_mode(path, mode, recursive=recursive, user=user)
        self._agent.call(request, timeout_s=_LONG_S, slow=True)

    def chown(
        self, path: GuestPath, owner: str, *, recursive: bool = False, user: str | None = None
    ) -> None:
        """Give a file or directory to another user.

        Args:
            path: The file or directory; a symbolic link is given away itself.
            owner: ``USER`` or ``USER:GROUP``, names or numbers. Without a group, it is the user's own.
            recursive: Give away everything in the directory too, but nothing through symbolic links.
            user: The user whose rights apply. Hardly anyone but ``"root"`` may do this. Relative paths start
                at this user's home.

        Raises:
            FileMissingError: Nothing has that path.
            FileDeniedError: ``user`` may not do that.
            InvalidSpecError: There is no such user or group.
            UnsupportedError: The sandbox's guest agent comes from an older atoll.
        """
        check_text("owner", owner)
        request = change_owner(path, owner, recursive=recursive, user=user)
        self._agent.call(request, timeout_s=_LONG_S, slow=True)

    def glob(
        self, pattern: str, path: GuestPath = ".", *, hidden: bool = False, user: str | None = None
    ) -> _Files:
        """Find files and directories by their path below a directory, in lexical order.

        Symbolic links are not followed. Directories that the user may not read are left out.

        Args:
            pattern: ``*`` and ``?`` stay within a name, ``**`` crosses directories, ``[a-z]`` and ``{a,b}``
                choose: ``src/**/*.{ts,tsx}``. ``*.py`` finds only files directly in ``path``.
            path: The directory.
            hidden: Also names that begin with a dot. Without it, a pattern must name them.
            user: The user whose rights apply.

        Raises:
            InvalidSpecError: The pattern is invalid.
            FileMissingError: There is no such directory.
            FileError: More than 100,000 entries match.
            UnsupportedError: The sandbox's guest agent comes from an older atoll.
        """
        check_text("pattern", pattern)
        request = glob_files(path, pattern, hidden=hidden, user=user)
        return files_from(self._agent.call(request, timeout_s=_LONG_S, repeatable=True, slow=True))

    def search(
        self,
        pattern: str,
        path: GuestPath = ".",
        *,
        glob: str | Sequence[str] | None = None,
        literal: bool = False,
        ignore_case: bool = False,
        hidden: bool = False,
        max_matches: int = 1000,
        timeout_s: float | None = 60.0,
        user: str | None = None,
    ) -> SearchResult:
        """Search the text of files for a pattern, line by line, inside the sandbox and on all its processors.

        It leaves out binary files, symbolic links and files that the user may not read. It also leaves out
        ``/proc``, ``/sys`` and ``/dev``, unless it begins in them.

        Args:
            pattern: A regular expression (RE2: no backreferences or lookaround). A match is within one line.
            path: The directory, or one file.
            glob: Only files that match one of these: ``*.py`` at any depth, ``src/**`` from ``path``. Files
                and directories that match one with ``!`` before it are left out: ``!node_modules``.
            literal: Take the pattern as plain text.
            ignore_case: Take upper and lower case as the same.
            hidden: Also search files and directories whose names begin with a dot.
            max_matches: How many matches to return at most, up to 100,000. Together their paths and texts have
                8 MiB at most. The result's ``truncated`` says if there were more.
            timeout_s: Seconds until the search is given up; None means no limit.
            user: The user whose rights apply.

        Raises:
            InvalidSpecError: The pattern or a glob is invalid.
            FileMissingError: Nothing has that path.
            DeadlineError: The search took longer than ``timeout_s``.
            UnsupportedError: The sandbox's guest agent comes from an older atoll.
        """
        check_text("pattern", pattern)
        hint = "give how many matches to return, from 1 to 100,000"
        check_number("max_matches", max_matches, least=1, most=100_000, whole=True, hint=hint)
        check_timeout(timeout_s)
        wanted = Search(
            pattern=pattern,
            path=path_text(path),
            max_matches=max_matches,
            max_bytes=MATCHES_BYTES,
            literal=literal,
            ignore_case=ignore_case,
            globs=globs_of(glob),
            hidden=hidden,
            user=user,
        )
        return searched(self._agent, wanted, timeout_s)

    def delete(
        self, path: GuestPath, *, timeout_s: float | None = _LONG_S, user: str | None = None
    ) -> None:
        """Delete a file, or a directory with all its content.

        Args:
            path: The file or directory.
            timeout_s: Seconds to wait; None means as long as it takes. After that, the work continues inside.
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

        A directory's content is added to the directory ``path``. Files and new directories keep their
        permission bits; directories that are there stay as they are. Symbolic links stay links. Sockets,
        pipes and devices are left out. If a directory is a link inside, its content goes through that link,
        provided that the link belongs to root or to ``user``.

        Args:
            local: The file or directory to copy.
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
