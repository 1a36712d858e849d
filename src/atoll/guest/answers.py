"""Answers of the guest agent, read into values. All of them come from a guest, so all of them are checked."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from atoll import errors
from atoll.errors import AgentError, AtollError
from atoll.types import FileInfo, MemoryKill, ProcessInfo, SearchMatch, TerminalSize
from atoll.types.internal import from_json

_Value = TypeVar("_Value")
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Pid = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
_Text = Annotated[str, Meta(max_length=65536)]
# Unix seconds and milliseconds of any file or program, and seconds to wait
_Millis = Annotated[float, Meta(ge=0, le=1e16)]
_Seconds = Annotated[float, Meta(ge=0, le=1e12)]
_MESSAGE_CHARS = 2000
# Each value of an answer takes memory here that its few bytes do not show. A list of 100,000 files has 900,000.
_VALUES_MOST = 1_000_000
_COMMA_OR_TEXT = re.compile(rb',|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_PROCESSES_MOST = 100_000
_FILES_MOST = 100_000

_CLASS_OF: dict[str, type[AtollError]] = {
    "invalid": errors.InvalidSpecError,
    "user_unknown": errors.InvalidSpecError,
    "cwd_missing": errors.FileMissingError,
    "program_missing": errors.FileMissingError,
    "shell_missing": errors.FileMissingError,
    "denied": errors.FileDeniedError,
    "process_not_found": errors.ProcessNotFoundError,
    "file_missing": errors.FileMissingError,
    "file_taken": errors.FileTakenError,
    "not_a_directory": errors.NotADirectoryInSandboxError,
    "is_a_directory": errors.IsADirectoryInSandboxError,
    "file_failed": errors.FileError,
    "no_space": errors.NoSpaceError,
    "busy": errors.InUseError,
    "service_missing": errors.ServiceNotFoundError,
}
_HINT_OF = {
    "user_unknown": "name a user of the image, or none for its default user",
    "cwd_missing": "create the directory first, or give another cwd",
    "program_missing": "install it, or name it by its absolute path",
    "shell_missing": "use `exec`, which runs a program without a shell",
    "service_missing": "`atoll service ls` lists them",
    "no_space": "remove files inside",
}
_OLDER = "the sandbox's guest agent comes from an older atoll, which cannot do this"
_OLDER_HINT = (
    "a checkpoint keeps its agent; after `suspend(memory=False)`, the next use starts the present one"
)


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended.

    ``exit_code`` is 128 + N after signal N; ``error`` is the agent's own failure with it. ``missed`` means
    that the guest dropped output before this client began to follow. ``memory_kill`` is set if the program,
    or a child of it, was killed when memory was nearly used up.
    """

    exit_code: Annotated[int, Meta(ge=0, le=255)]
    signal: Annotated[int, Meta(ge=0, le=127)] = 0
    timed_out: bool = False
    error: str = ""
    missed: bool = False
    memory_kill: MemoryKill | None = None


class AgentStats(msgspec.Struct, frozen=True, kw_only=True):
    """The activity in the guest, without the agent's own.

    ``waiting`` counts the commands whose end a client waits for. ``keep_awake_s`` is how long a program
    inside wants the sandbox to stay awake. ``wake_at`` is when to wake the sandbox if it sleeps then, in Unix
    seconds; 0 means never.
    """

    processes: _Count
    waiting: _Count = 0
    keep_awake_s: _Seconds = 0.0
    wake_at: _Seconds = 0.0
    memory_bytes: _Count = 0
    generation: _Count = 0


class Freed(msgspec.Struct, frozen=True, kw_only=True):
    """The program that the agent killed for the host's memory, and its size; none with ``killed`` False."""

    killed: bool
    name: Annotated[str, Meta(max_length=64)] = ""
    held_bytes: _Count = 0


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's answer before a suspend: when to wake the sandbox, in Unix seconds; 0 means never.

    ``hooks`` counts the hooks to run first.
    """

    hooks: _Count = 0
    wake_at: _Seconds = 0.0


class SearchEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a search ended; ``error`` is the agent's own failure with it."""

    files: _Count = 0
    matches: _Count = 0
    unreadable: _Count = 0
    truncated: bool = False
    error: _Text = ""


class _ErrorBody(msgspec.Struct):
    code: str = ""
    message: str = ""


class _FileAnswer(msgspec.Struct):
    file: FileInfo


class _FilesAnswer(msgspec.Struct):
    files: Annotated[list[FileInfo], Meta(max_length=_FILES_MOST)]


class _UnpackedAnswer(msgspec.Struct):
    files: _Count


class _TimeAnswer(msgspec.Struct):
    time_ns: _Count


class _ProcessRow(msgspec.Struct):
    pid: Pid
    argv: list[str] | None = None
    cwd: str = ""
    user: str = ""
    started_at_ms: _Millis = 0
    pty: TerminalSize | None = None
    tag: str | None = None


class _ProcessesAnswer(msgspec.Struct):
    processes: Annotated[list[_ProcessRow], Meta(max_length=_PROCESSES_MOST)] | None = None


def decoded(body: bytes, kind: type[_Value]) -> _Value:
    """Read a JSON body.

    Raises:
        AgentError: It does not follow the protocol.
    """
    check_values(body)
    try:
        return from_json(body, kind)
    except msgspec.DecodeError as error:
        raise AgentError(f"the guest agent sent an invalid answer: {error}") from None


def check_values(body: bytes) -> None:
    """Refuse JSON with more values than any answer has, before decoding it.

    Raises:
        AgentError: There are too many values.
    """
    if body.count(b",") <= _VALUES_MOST:
        return
    commas = (1 for found in _COMMA_OR_TEXT.finditer(body) if found[0] == b",")
    if sum(islice(commas, _VALUES_MOST + 1)) > _VALUES_MOST:
        raise AgentError(f"the guest agent sent an answer of more than {_VALUES_MOST:,} values")


def error_from(status: int, body: bytes) -> AtollError:
    """Return the error in an answer with a status of 400 or more. Never fails, whatever the guest's data."""
    try:
        told = decoded(body, _ErrorBody)
    except AgentError:
        told = _ErrorBody()
    if _is_unknown(status, told):
        # Quote the agent too: an agent with damaged memory would answer the same.
        return errors.UnsupportedError(f"{_OLDER}: {told.message[:_MESSAGE_CHARS]}", hint=_OLDER_HINT)
    message = told.message[:_MESSAGE_CHARS] or f"the guest agent answered with status {status}"
    kind = _CLASS_OF.get(told.code, AgentError)
    return kind(message, hint=_HINT_OF.get(told.code))


def _is_unknown(status: int, told: _ErrorBody) -> bool:
    """Tell whether the agent says that it lacks the requested route or operation on files."""
    return told.code == "invalid" and (status == 404 or told.message.startswith("there is no operation "))


def file_from(body: bytes) -> FileInfo:
    """Read the description of one file."""
    return decoded(body, _FileAnswer).file


def files_from(body: bytes) -> list[FileInfo]:
    """Read the list of a directory."""
    return decoded(body, _FilesAnswer).files


def matches_from(payload: bytes) -> list[SearchMatch]:
    """Read the matches in a frame of a search."""
    return decoded(payload, list[SearchMatch])


def search_end_from(payload: bytes) -> SearchEnd:
    """Return how a search ended, from its last frame."""
    return decoded(payload, SearchEnd)


def unpacked_from(body: bytes) -> int:
    """Read how many entries of a tar were unpacked."""
    return decoded(body, _UnpackedAnswer).files


def time_from(body: bytes) -> int:
    """Read the guest's clock, in Unix nanoseconds."""
    return decoded(body, _TimeAnswer).time_ns


def stats_from(body: bytes) -> AgentStats:
    """Read the activity in the guest."""
    return decoded(body, AgentStats)


def freed_from(body: bytes) -> Freed:
    """Read which program was killed for the host's memory."""
    return decoded(body, Freed)


def last_words_from(body: bytes) -> LastWords:
    """Read the agent's answer before a suspend."""
    return decoded(body, LastWords)


def processes_from(body: bytes) -> list[ProcessInfo]:
    """Read the programs that are running."""
    return [
        ProcessInfo(
            pid=row.pid,
            argv=row.argv or [],
            cwd=row.cwd,
            user=row.user,
            started_at=row.started_at_ms / 1000,
            pty=row.pty is not None,
            tag=row.tag or None,
        )
        for row in decoded(body, _ProcessesAnswer).processes or []
    ]
