"""Every error this package raises.

AtollError                    base: .code .hint .sandbox_id .retryable
├─ InvalidSpecError           ValueError: change the request; never retried
│  └─ ForeignNameError        TypeError, AttributeError: atoll has another word for it
├─ UnsupportedError           this engine or host cannot do it; `atoll doctor` says why
├─ NotFoundError              LookupError: nothing has that id or name
│  ├─ SandboxNotFoundError
│  ├─ SnapshotNotFoundError
│  ├─ ImageNotFoundError
│  ├─ VolumeNotFoundError
│  ├─ TemplateNotFoundError
│  ├─ ProcessNotFoundError
│  ├─ ServiceNotFoundError
│  ├─ TeamNotFoundError
│  ├─ KeyNotFoundError
│  ├─ SecretNotFoundError
│  └─ AskNotFoundError
├─ NameTakenError             another one of its kind, in this home or team, has that name
├─ DeniedError                PermissionError: a key is missing, wrong, revoked or expired
├─ DelegationError            PermissionError: the sandbox's delegation does not allow it
│  └─ DelegationExpiredError  it has ended
├─ QuotaError                 a team would exceed its quota; it may be possible later
├─ InUseError                 something else still needs it
├─ StateError                 the sandbox's state does not allow it
│  ├─ AsleepError             it sleeps, and only `resume` wakes it
│  ├─ UnpluggedError          it is cut off and frozen until `replug`
│  ├─ AskAnswerError          an answer to an ask does not count
│  └─ DrainingError           the home is drained: nothing starts or wakes until `atoll undrain`
├─ SandboxCrashedError        its processes died; the next use does what `on_crash` says
├─ ExecTimeoutError           TimeoutError: the program ran past its timeout and was killed
├─ ExecFailedError            `check`: the exit code is not 0
├─ CodeFailedError            `CodeResult.check()`: the code raised an exception
├─ GitError                   git in the sandbox failed
├─ DeadlineError              TimeoutError: an answer did not come in time
│  └─ UnresponsiveError       the guest answers nothing at all: it hangs
├─ FileError                  OSError: an operation on a file in the sandbox failed
│  ├─ FileMissingError        FileNotFoundError
│  ├─ FileTakenError          FileExistsError
│  ├─ NotADirectoryInSandboxError   NotADirectoryError
│  ├─ IsADirectoryInSandboxError    IsADirectoryError
│  ├─ FileDeniedError         PermissionError
│  └─ EditError               `files.edit`: the old text is not there exactly once
├─ NoSpaceError               OSError: a disk is full
├─ DamagedError               what is stored is not what was written
├─ StoreError                 the store of archives cannot be reached, or refuses
│  └─ StoreConflictError      another supervisor has changed the record
├─ AgentError                 the guest agent answered against its protocol
├─ EngineError                the engine failed to start, stop or checkpoint a machine
├─ ImageBuildError            an image could not be built
├─ TemplateBuildError         a step of a template's build failed
├─ ImagePullError             an image could not be pulled from its registry, or is not valid
├─ EdgeError                  the process that judges requests does not run or does not answer
├─ HostMemoryError            too little of the host's memory is left for it
├─ HostError                  the host lacks something that atoll needs
│  └─ ShortageError           it is short of descriptors, processes or memory now
├─ SupervisorError            the supervisor could not be started or reached
├─ VersionMismatchError       client and supervisor speak different protocols
└─ InternalError              a fault of atoll itself
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from atoll.errors.base import AtollError
from atoll.errors.files import (
    EditError,
    FileDeniedError,
    FileError,
    FileMissingError,
    FileTakenError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
)

if TYPE_CHECKING:
    from atoll.types import CodeResult, ExecResult

__all__ = [
    "AgentError", "AskAnswerError", "AskNotFoundError", "AsleepError", "AtollError", "CodeFailedError", "DamagedError",
    "DeadlineError", "DelegationError", "DelegationExpiredError", "DeniedError", "DrainingError", "EdgeError",
    "EditError", "EngineError", "ExecFailedError", "ExecTimeoutError", "FileDeniedError", "FileError",
    "FileMissingError", "FileTakenError", "ForeignNameError", "GitError", "HostError", "HostMemoryError",
    "ImageBuildError", "ImageNotFoundError", "ImagePullError", "InUseError", "InternalError", "InvalidSpecError",
    "IsADirectoryInSandboxError", "KeyNotFoundError", "NameTakenError", "NoSpaceError", "NotADirectoryInSandboxError",
    "NotFoundError", "ProcessNotFoundError", "QuotaError", "SandboxCrashedError", "SandboxNotFoundError",
    "SecretNotFoundError", "ServiceNotFoundError", "ShortageError", "SnapshotNotFoundError", "StateError",
    "StoreConflictError", "StoreError", "SupervisorError", "TeamNotFoundError", "TemplateBuildError",
    "TemplateNotFoundError", "UnpluggedError", "UnresponsiveError", "UnsupportedError",
    "VersionMismatchError", "VolumeNotFoundError",
]  # fmt: skip


class InvalidSpecError(AtollError, ValueError):
    """The request itself is wrong: change it. Sending it again gives the same answer."""

    code = "invalid_spec"


class ForeignNameError(InvalidSpecError, TypeError, AttributeError):
    """An argument or attribute has another name here; the hint says which."""

    code = "foreign_name"


class UnsupportedError(AtollError):
    """Not possible with this engine or on this host."""

    code = "unsupported"


class NotFoundError(AtollError, LookupError):
    """Nothing has that id or name."""

    code = "not_found"


class SandboxNotFoundError(NotFoundError):
    """No sandbox of this home has that id or name; a killed one is gone for good."""

    code = "sandbox_not_found"


class SnapshotNotFoundError(NotFoundError):
    """No snapshot of this home has that id or name."""

    code = "snapshot_not_found"


class ImageNotFoundError(NotFoundError):
    """No image has that name."""

    code = "image_not_found"


class VolumeNotFoundError(NotFoundError):
    """No volume has that id, or that name within the team."""

    code = "volume_not_found"


class TemplateNotFoundError(NotFoundError):
    """No template, or no build or tag of it, has that id or name."""

    code = "template_not_found"


class ProcessNotFoundError(NotFoundError):
    """No process that atoll started in the sandbox has that pid."""

    code = "process_not_found"


class ServiceNotFoundError(NotFoundError):
    """No service of the sandbox has that name."""

    code = "service_not_found"


class TeamNotFoundError(NotFoundError):
    """No team has that name."""

    code = "team_not_found"


class KeyNotFoundError(NotFoundError):
    """No key has that id."""

    code = "key_not_found"


class SecretNotFoundError(NotFoundError):
    """No secret has that id, or that name within the team."""

    code = "secret_not_found"


class AskNotFoundError(NotFoundError):
    """No ask with that id waits: somebody has answered it, its time is over, or there was none."""

    code = "ask_not_found"


class NameTakenError(AtollError):
    """Another one of its kind has that name: in this home, or in the same team."""

    code = "name_taken"


class DeniedError(AtollError, PermissionError):
    """A key is missing, wrong, revoked or expired. The error does not say which."""

    code = "denied"
    errno: int = errno.EACCES


class DelegationError(AtollError, PermissionError):
    """The delegation of a sandbox, or the one to be handed on, does not allow it. Nothing was done."""

    code = "delegation"
    errno: int = errno.EACCES


class DelegationExpiredError(DelegationError):
    """The delegation has ended: the sandbox reaches nothing, and neither wakes nor has copies any more."""

    code = "delegation_expired"


class QuotaError(AtollError):
    """A team or a volume would use more than its quotas allow. Nothing was done; it may be possible later."""

    code = "quota"
    retryable = True


class InUseError(AtollError):
    """Something else still needs it, so it is not removed."""

    code = "in_use"
    retryable = True


class StateError(AtollError):
    """The sandbox's state does not allow it."""

    code = "wrong_state"


class AskAnswerError(StateError):
    """An answer to an ask does not count: it is to other bytes, is not the second one that it needs, or got lost."""

    code = "ask_answer"


class AsleepError(StateError):
    """The sandbox sleeps, and its lifecycle lets no use wake it: `resume` it first."""

    code = "asleep"


class UnpluggedError(StateError):
    """The sandbox is unplugged: without a network and frozen, and no use wakes it. `replug` undoes that."""

    code = "unplugged"


class DrainingError(StateError):
    """The home is drained, as before a reboot: no sandbox starts or wakes until that is over."""

    code = "draining"
    retryable = True


class SandboxCrashedError(AtollError):
    """The sandbox's processes died. The next use starts it again from its disk, or does what ``on_crash`` says."""

    code = "sandbox_crashed"
    retryable = True


class ExecTimeoutError(AtollError, TimeoutError):
    """The program ran past its ``timeout_s`` and its process group was killed.

    Attributes:
        result: What it wrote until then. The SDK always sets it.
    """

    code = "exec_timeout"
    result: ExecResult


class ExecFailedError(AtollError):
    """``run(check=True)`` or ``ExecResult.check()`` found another exit code than 0.

    Attributes:
        result: The result that was checked. The SDK always sets it.
    """

    code = "exec_failed"
    result: ExecResult


class CodeFailedError(AtollError):
    """``CodeResult.check()`` found that the code raised an exception.

    Attributes:
        result: The result that was checked. The SDK always sets it.
    """

    code = "code_failed"
    result: CodeResult


class GitError(AtollError):
    """Git failed in the sandbox. The message ends with what it said.

    Attributes:
        result: How git ended and what it wrote. The SDK always sets it.
    """

    code = "git_failed"
    result: ExecResult


class DeadlineError(AtollError, TimeoutError):
    """An answer of the supervisor or of the guest agent did not come in time."""

    code = "deadline"
    retryable = True


class UnresponsiveError(DeadlineError):
    """The guest answers nothing: its kernel or its agent hangs, or is far too busy. ``info`` says since when."""

    code = "unresponsive"
    retryable = False


class NoSpaceError(AtollError, OSError):
    """A disk is full: one inside the sandbox, or the one under the home."""

    code = "no_space"
    errno: int = errno.ENOSPC


class DamagedError(AtollError):
    """What is stored, a checkpoint or a database, differs from what was written: a disk failed, or it was changed."""

    code = "damaged"


class StoreError(AtollError):
    """The store of what is archived cannot be reached, or refuses. What is in it is as before."""

    code = "store_failed"
    retryable = True


class StoreConflictError(StoreError):
    """Another supervisor has changed the same record of the store in the meantime."""

    code = "store_conflict"
    retryable = False


class AgentError(AtollError):
    """The guest agent did not answer, or answered against the protocol. A guest can cause this at will."""

    code = "agent_failed"


class EngineError(AtollError):
    """The engine failed to start, stop or checkpoint a machine."""

    code = "engine_failed"


class ImageBuildError(AtollError):
    """An image could not be built."""

    code = "image_build_failed"


class TemplateBuildError(AtollError):
    """A step of a template's build failed."""

    code = "template_build_failed"


class ImagePullError(AtollError):
    """An image could not be pulled from its registry, or is not valid."""

    code = "image_pull_failed"


class EdgeError(AtollError):
    """The process that judges the requests of sandboxes does not run, or does not answer."""

    code = "edge"
    retryable = True


class HostMemoryError(AtollError):
    """Too little of the host's memory is left to start or wake a sandbox. It may be possible later."""

    code = "host_memory"
    retryable = True


class HostError(AtollError):
    """The host lacks something that atoll needs; the hint names the one command that fixes it."""

    code = "host_unfit"


class ShortageError(HostError):
    """The host is short of file descriptors, processes, threads or memory. The message says which limit it is."""

    code = "host_short"
    retryable = True


class SupervisorError(AtollError):
    """The supervisor could not be started or reached."""

    code = "supervisor_unavailable"
    retryable = True


class VersionMismatchError(AtollError):
    """Client and running supervisor speak different versions of the protocol."""

    code = "version_mismatch"


class InternalError(AtollError):
    """A fault of atoll itself; the supervisor's log has the details."""

    code = "internal"
