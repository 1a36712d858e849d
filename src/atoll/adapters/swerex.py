"""Sandboxes for SWE-ReX: a deployment, and a runtime that needs no server of SWE-ReX inside."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger

from atoll import AtollError, Boot, Lifecycle, Limits, Sandbox, Wait
from atoll.adapters.bash_sessions import BashSession
from atoll.adapters.dockerfiles import build, template_name
from atoll.errors import ExecTimeoutError, SandboxNotFoundError
from atoll.types.internal import one_source

__all__ = ["AtollDeployment", "AtollDeploymentConfig", "AtollRuntime"]

_MOST_READ_BYTES = 256 << 20


class AtollDeploymentConfig(BaseModel):
    """What the sandbox of a deployment is made of.

    Args:
        image: An image, such as ``python:3.12``. Without any of these four, it is ``base``.
        template: A template instead, ``NAME`` or ``NAME:TAG``.
        dockerfile: A Dockerfile instead. Its directory is the context.
        snapshot: The id or name of a snapshot instead: a repository that is set up already, for example.
        network: What the sandbox may reach: a preset's name, such as ``none`` or ``packages``.
        env: Variables for every program.
        vcpus: Processors of the sandbox.
        memory_mib: Its memory in MiB.
        disk_mib: What it may write, in MiB.
        timeout_s: Seconds after which it is killed in any case.
    """

    model_config = ConfigDict(extra="forbid")

    image: str | None = None
    template: str | None = None
    dockerfile: str | None = None
    snapshot: str | None = None
    network: Literal["none", "packages", "web-read-only", "internet"] | None = None
    env: dict[str, str] = {}
    vcpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    timeout_s: float | None = None
    type: Literal["atoll"] = "atoll"

    def get_deployment(self) -> AtollDeployment:
        """Return a deployment that is not started."""
        return AtollDeployment.from_config(self)


class AtollDeployment(AbstractDeployment):
    """One sandbox, which ``start`` makes and ``stop`` kills. It may be used from one event loop after another.

    Args:
        logger: Where SWE-ReX's messages go.
        **options: What ``AtollDeploymentConfig`` takes.
    """

    def __init__(self, *, logger: logging.Logger | None = None, **options: Any) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._config = AtollDeploymentConfig(**options)
        self._hooks = CombinedDeploymentHook()
        self._runtime: AtollRuntime | None = None

    @classmethod
    def from_config(cls, config: AtollDeploymentConfig) -> AtollDeployment:
        """Return a deployment that is not started."""
        return cls(**config.model_dump())

    def add_hook(self, hook: DeploymentHook) -> None:
        """Tell this hook of each step of the start."""
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Tell whether the sandbox is there.

        Raises:
            DeploymentNotStartedError: It was not started, or was stopped.
        """
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Make the sandbox. The first one of an image or a Dockerfile also pulls or builds it."""
        if self._runtime is not None:
            return
        config = self._config
        template = config.template
        if config.dockerfile is not None:
            self._hooks.on_custom_step("Building the Dockerfile")
            path = Path(config.dockerfile)
            await build(path)
            template = template_name(path)
        self._hooks.on_custom_step("Creating a sandbox")
        sandbox = await asyncio.to_thread(
            Sandbox.create,
            one_source(image=config.image, template=template, snapshot=config.snapshot),
            network=config.network,
            env=config.env,
            metadata={"made_for": "swerex"},
            limits=Limits(vcpus=config.vcpus, memory_mib=config.memory_mib, disk_mib=config.disk_mib),
            lifecycle=Lifecycle(ttl_s=config.timeout_s),
            boot=Boot(on_crash="stop"),
            keep=True,
            wait=Wait(on_progress=False),
        )
        self._runtime = AtollRuntime(sandbox, logger=self.logger)

    async def stop(self) -> None:
        """Kill the sandbox. Nothing of it is left."""
        if self._runtime is None:
            return
        runtime, self._runtime = self._runtime, None
        await runtime.close()
        with contextlib.suppress(SandboxNotFoundError):
            await asyncio.to_thread(runtime.sandbox.kill)

    @property
    def runtime(self) -> AtollRuntime:
        """The runtime of the sandbox.

        Raises:
            DeploymentNotStartedError: The deployment was not started, or was stopped.
        """
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime


class AtollRuntime(AbstractRuntime):
    """Runs commands and shell sessions in one sandbox, and reads and writes its files.

    It may be used from one event loop after another. A call that is cancelled goes on until its timeout.

    Args:
        sandbox: The sandbox. ``close`` ends its sessions and leaves it running.
        logger: Where SWE-ReX's messages go.
    """

    def __init__(self, sandbox: Sandbox, *, logger: logging.Logger | None = None) -> None:
        self.logger = logger or get_logger("rex-runtime")
        self.sandbox = sandbox
        self._sessions: dict[str, BashSession] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Tell whether a program can be run in the sandbox."""
        try:
            await asyncio.to_thread(self.sandbox.exec, ["true"], timeout_s=timeout or 10.0)
        except AtollError as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=True)

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        """Start a shell that keeps its variables and directory.

        Raises:
            SessionExistsError: There is a session of that name.
            CommandTimeoutError: The files to source took longer than ``startup_timeout``.
        """
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session!r} already exists")
        session = self._sessions[request.session] = BashSession(self.sandbox)
        try:
            return await asyncio.to_thread(session.start, request)
        except BaseException:
            del self._sessions[request.session]
            session.close()
            raise

    async def run_in_session(self, action: Action) -> Observation:
        """Run a command in a session, or interrupt what runs there.

        Raises:
            SessionDoesNotExistError: There is no such session.
            SessionNotInitializedError: The session's shell has ended.
            BashIncorrectSyntaxError: The command is no shell text.
            CommandTimeoutError: It took longer than its timeout. It goes on until it is interrupted.
            NonZeroExitCodeError: ``check`` is ``"raise"`` and the command failed.
        """
        return await asyncio.to_thread(self._session(action.session).run, action)

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        """End a session's shell.

        Raises:
            SessionDoesNotExistError: There is no such session.
        """
        session = self._session(request.session)
        del self._sessions[request.session]
        await asyncio.to_thread(session.close)
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Run a program, outside of all sessions. ``env`` is added to the sandbox's own variables.

        Raises:
            CommandTimeoutError: It took longer than ``timeout`` and was killed.
            NonZeroExitCodeError: ``check`` is set and the command failed.
            FileNotFoundError: There is no such program or directory.
        """
        try:
            result = await asyncio.to_thread(
                self.sandbox.exec,
                _argv(command),
                cwd=command.cwd,
                env=command.env,
                timeout_s=command.timeout,
            )
        except ExecTimeoutError as error:
            raise CommandTimeoutError(
                f"Timeout ({command.timeout}s) exceeded while running command"
            ) from error
        answer = CommandResponse(
            stdout=result.stdout_bytes.decode(errors="backslashreplace"),
            stderr=result.stderr_bytes.decode(errors="backslashreplace"),
            exit_code=result.exit_code,
        )
        if command.check and result.exit_code != 0:
            message = (
                f"Command {command.command!r} failed with exit code {result.exit_code}. "
                f"Stdout:\n{answer.stdout!r}\nStderr:\n{answer.stderr!r}"
            )
            raise NonZeroExitCodeError(f"{command.error_msg}: {message}" if command.error_msg else message)
        return answer

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """Read a text file of at most 256 MiB.

        Raises:
            FileNotFoundError, PermissionError, IsADirectoryError: As of any file.
            UnicodeDecodeError: It has another encoding.
        """
        content = await asyncio.to_thread(
            self.sandbox.files.read_bytes, request.path, max_bytes=_MOST_READ_BYTES
        )
        return ReadFileResponse(
            content=content.decode(request.encoding or "utf-8", request.errors or "strict")
        )

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Write a text file, and make the missing directories above it."""
        await asyncio.to_thread(self.sandbox.files.write, request.path, request.content)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copy a file, or a directory's content, from this host into the sandbox."""
        await asyncio.to_thread(self.sandbox.files.upload, request.source_path, request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """End all sessions."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await asyncio.to_thread(session.close)
        return CloseResponse()

    def _session(self, name: str) -> BashSession:
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]


def _argv(command: Command) -> list[str]:
    """Return what to run, as ``subprocess.run`` reads it."""
    given = [command.command] if isinstance(command.command, str) else list(command.command)
    argv = ["/bin/sh", "-c", *given] if command.shell else given
    return ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *argv] if command.merge_output_streams else argv
