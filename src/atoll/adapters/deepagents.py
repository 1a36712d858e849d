"""atoll for deepagents: a sandbox as its backend, so that its own tools act there.

For example::

    from deepagents import create_deep_agent
    from atoll import Sandbox
    from atoll.adapters.deepagents import SandboxBackend

    with Sandbox.create() as sandbox:
        agent = create_deep_agent("anthropic:claude-sonnet-4-5", backend=SandboxBackend(sandbox))
        agent.invoke({"messages": [("user", "Write the first ten primes into /home/user/primes.txt")]})
"""

from __future__ import annotations

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from atoll import AtollError, Sandbox
from atoll.errors import (
    ExecTimeoutError,
    FileDeniedError,
    FileMissingError,
    InvalidSpecError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
)
from atoll.tools import KEPT_BYTES

__all__ = ["SandboxBackend"]

_TIMEOUT_S = 1800
_TIMED_OUT = 124
_MOST_BYTES = 256 << 20
_ERRORS = (
    (FileMissingError, "file_not_found"),
    (FileDeniedError, "permission_denied"),
    (IsADirectoryInSandboxError, "is_directory"),
    (NotADirectoryInSandboxError, "invalid_path"),
    (InvalidSpecError, "invalid_path"),
)


class SandboxBackend(BaseSandbox):
    """A sandbox as a backend of deepagents: its shell and its files. The image must have ``python3``.

    Args:
        sandbox: The sandbox. It stays the caller's.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command, both streams as they came.

        Args:
            command: A shell line.
            timeout: Seconds until it is killed; None is half an hour, and 0 no limit.
        """
        timeout_s = _TIMEOUT_S if timeout is None else timeout or None
        try:
            result = self._sandbox.run(
                f"exec 2>&1\n{command}", timeout_s=timeout_s, max_output_bytes=KEPT_BYTES
            )
        except ExecTimeoutError as error:
            output = f"{error.result.stdout}\nkilled after {timeout_s} s"
            return ExecuteResponse(output, _TIMED_OUT, error.result.truncated)
        return ExecuteResponse(result.stdout + result.stderr, result.exit_code, result.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files; what fails is told for each."""
        return [FileUploadResponse(path, self._written(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files, of 256 MiB at most each; what fails is told for each."""
        return [self._read(path) for path in paths]

    def _written(self, path: str, content: bytes) -> str | None:
        try:
            self._sandbox.files.write(path, content)
        except AtollError as error:
            return _named(error)
        return None

    def _read(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path, self._sandbox.files.read_bytes(path, max_bytes=_MOST_BYTES))
        except AtollError as error:
            return FileDownloadResponse(path, None, _named(error))


def _named(error: AtollError) -> str:
    return next(
        (name for kind, name in _ERRORS if isinstance(error, kind)), f"{error.told_to('mcp')} [{error.code}]"
    )
