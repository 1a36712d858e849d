"""The errors of files in a sandbox."""

from __future__ import annotations

import errno

from atoll.errors.base import AtollError


class FileError(AtollError, OSError):
    """An operation on a file inside the sandbox failed."""

    code = "file_failed"
    errno: int = errno.EIO


class FileMissingError(FileError, FileNotFoundError):
    """No file has that path."""

    code = "file_missing"
    errno: int = errno.ENOENT


class FileTakenError(FileError, FileExistsError):
    """Something else has that path already."""

    code = "file_taken"
    errno: int = errno.EEXIST


class NotADirectoryInSandboxError(FileError, NotADirectoryError):
    """The path, or a part of it, is not a directory."""

    code = "not_a_directory"
    errno: int = errno.ENOTDIR


class IsADirectoryInSandboxError(FileError, IsADirectoryError):
    """The path is a directory where a file is needed."""

    code = "is_a_directory"
    errno: int = errno.EISDIR


class FileDeniedError(FileError, PermissionError):
    """The user inside the sandbox may not do that."""

    code = "file_denied"
    errno: int = errno.EACCES


class EditError(FileError):
    """``files.edit`` did not find the old text exactly once. The file was not changed."""

    code = "edit_failed"
