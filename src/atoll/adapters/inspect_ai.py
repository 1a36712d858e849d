"""Sandboxes for Inspect: ``sandbox="atoll"`` in a task. Inspect finds this module by its entry point.

Before the samples of a task, its image is pulled or its Dockerfile is built. If the configuration has a
``setup``, that runs once, and every sample starts from a snapshot of what it left, memory and disk.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from atoll import AsyncImages, AsyncSandbox, AsyncSnapshots, Boot, Limits, SnapshotInfo, Wait
from atoll.adapters.dockerfiles import build, template_name
from atoll.errors import (
    AgentError,
    EngineError,
    ExecTimeoutError,
    FileMissingError,
    InvalidSpecError,
    NotADirectoryInSandboxError,
    SandboxCrashedError,
    SandboxNotFoundError,
    SnapshotNotFoundError,
    StateError,
    SupervisorError,
)
from atoll.types.internal import one_source

__all__ = ["AtollSandboxConfig", "AtollSandboxEnvironment"]

# the label of its sandboxes and the comment of its snapshots, by which `inspect sandbox cleanup atoll` finds them
_MADE_FOR = "inspect_ai"
_FILE_S = 600.0
_END_S = 60.0
# a shell's codes for a program that is not there, and for one that cannot be run
_MISSING, _NOT_RUN = 127, 126


class AtollSandboxConfig(BaseModel, frozen=True):
    """What the sandboxes of a task are made of.

    Args:
        image: An image, such as ``python:3.12``. Without one, a template or a Dockerfile, it is ``base``.
        template: A template instead, ``NAME`` or ``NAME:TAG``.
        dockerfile: A Dockerfile instead. Its path is relative to the task's file, and its directory is the
            context.
        setup: A shell line that runs once, before the samples, and may reach the internet. Each sample starts
            from the state it leaves.
        network: What the samples may reach: a preset's name, such as ``none`` or ``packages``.
        cwd: The directory of commands and relative paths. None means the one of the image's own user.
        env: Variables for every program.
        vcpus: Processors of each sandbox.
        memory_mib: Memory of each sandbox in MiB.
        disk_mib: What each sandbox may write, in MiB.
    """

    model_config = ConfigDict(extra="forbid")

    image: str | None = None
    template: str | None = None
    dockerfile: str | None = None
    setup: str | None = None
    network: Literal["none", "packages", "web-read-only", "internet"] | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    vcpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


@sandboxenv(name="atoll")
class AtollSandboxEnvironment(SandboxEnvironment):
    """One sandbox, as Inspect sees it.

    Args:
        sandbox: The sandbox. It is killed when its sample has ended.
        cwd: The directory of commands and relative paths.
    """

    def __init__(self, sandbox: AsyncSandbox, cwd: str) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._cwd = cwd

    @classmethod
    def config_files(cls) -> list[str]:
        """Take a Dockerfile beside a task that names no configuration."""
        return ["Dockerfile"]

    @classmethod
    def is_docker_compatible(cls) -> bool:
        """Let ``--sandbox atoll`` take the Dockerfile of a task that was written for Docker."""
        return True

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Read a configuration from a log."""
        return AtollSandboxConfig(**config)

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Run two samples per processor at once, as for Docker."""
        return 2 * len(os.sched_getaffinity(0))

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Pull the image or build the Dockerfile, and run ``setup``, before any sample needs them."""
        wanted = _read(config)
        if wanted.dockerfile is not None:
            await build(Path(wanted.dockerfile))
        elif wanted.template is None:
            await AsyncImages.ensure(wanted.image or "base")
        if wanted.setup is not None and wanted not in _prepared:
            _prepared[wanted] = await _set_up(wanted)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Make the sandbox of a sample."""
        wanted = _read(config)
        sandbox = await _create(wanted, task_name, _prepared.get(wanted))
        try:
            return {"default": cls(sandbox, wanted.cwd or (await sandbox.info()).cwd)}
        except BaseException:
            await _kill(sandbox)
            raise

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Kill the sandbox of a sample, also of one that was cancelled."""
        for environment in environments.values():
            await _kill(environment.as_type(AtollSandboxEnvironment).sandbox)

    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        """Delete the snapshot that the samples started from, unless ``--no-sandbox-cleanup`` keeps them."""
        snapshot = _prepared.pop(_read(config), None)
        if snapshot is not None and cleanup:
            with anyio.move_on_after(_END_S, shield=True), contextlib.suppress(SnapshotNotFoundError):
                await AsyncSnapshots.delete(snapshot.snapshot_id)

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Kill the sandbox of this id, or everything that evaluations have left."""
        async for info in AsyncSandbox.list(metadata={"made_for": _MADE_FOR}):
            if id in (None, info.sandbox_id):
                await _kill(AsyncSandbox.of(info))
        if id is None:
            for snapshot in await AsyncSnapshots.list():
                if snapshot.comment == _MADE_FOR:
                    await AsyncSnapshots.delete(snapshot.snapshot_id)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program and wait for it. Of each stream, the last part within Inspect's limit is returned.

        A command that ran too long is not repeated, and no process of this host waits for it, so
        ``timeout_retry`` and ``concurrency`` change nothing.

        Raises:
            TimeoutError: ``timeout`` seconds have passed, and the program and its group were killed.
            PermissionError: The user may not execute the program.
            SandboxUnavailableError: The sandbox is gone.
        """
        with _unavailable():
            try:
                result = await self.sandbox.exec(
                    cmd,
                    stdin=input,
                    cwd=self._path(cwd or "."),
                    env=env,
                    user=user,
                    timeout_s=timeout,
                    max_output_bytes=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
                )
            except (FileMissingError, NotADirectoryInSandboxError) as error:
                return ExecResult(False, _MISSING, "", str(error))
            except InvalidSpecError as error:
                if user is None:
                    raise
                return ExecResult(False, _NOT_RUN, "", str(error))
            except ExecTimeoutError as error:
                late = TimeoutError(f"Command timed out after {timeout} seconds")
                if error.result is not None:
                    late.truncated_output = error.result.stdout + error.result.stderr  # type: ignore[attr-defined]
                raise late from error
        return ExecResult(result.exit_code == 0, result.exit_code, result.stdout, result.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and make the missing directories above it.

        Raises:
            TimeoutError: It took ten minutes.
            PermissionError: The default user may not write there.
            IsADirectoryError: It is a directory.
            SandboxUnavailableError: The sandbox is gone.
        """
        with _unavailable(), anyio.fail_after(_FILE_S):
            await self.sandbox.files.write(self._path(file), contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file. Line ends stay as they are.

        Raises:
            TimeoutError: It took ten minutes.
            FileNotFoundError: There is no such file.
            PermissionError: The default user may not read it.
            IsADirectoryError: It is a directory.
            UnicodeDecodeError: It is not UTF-8, and text was asked for.
            OutputLimitExceededError: It is larger than Inspect's limit.
            SandboxUnavailableError: The sandbox is gone.
        """
        read = bytearray()
        with _unavailable(), anyio.fail_after(_FILE_S):
            async for piece in self.sandbox.files.read_stream(self._path(file)):
                read += piece
                if len(read) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                    raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return read.decode("utf-8") if text else bytes(read)

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Return the command that opens a terminal in the sandbox.

        Raises:
            ConnectionError: The sandbox is gone.
        """
        try:
            await AsyncSandbox.get(self.sandbox.id)
        except SandboxNotFoundError as error:
            raise ConnectionError(str(error)) from error
        argv = ["atoll", "shell", *(["--user", user] if user else []), "--cwd", self._cwd, self.sandbox.id]
        home = os.environ.get("ATOLL_HOME")
        return SandboxConnection(
            type="atoll",
            command=shlex.join(["env", f"ATOLL_HOME={home}", *argv] if home else argv),
            container=self.sandbox.id,
        )

    def default_polling_interval(self) -> float:
        """Ask five times a second, as for Docker: the sandbox is on this host."""
        return 0.2

    def _path(self, path: str) -> str:
        return posixpath.join(self._cwd, path)


# What ``setup`` left, by the configuration of the tasks that run in this process.
_prepared: dict[AtollSandboxConfig, SnapshotInfo] = {}


def _read(config: SandboxEnvironmentConfigType | None) -> AtollSandboxConfig:
    """Return a configuration whose paths are absolute. A text is the path of a Dockerfile, or an image."""
    if config is None:
        return AtollSandboxConfig()
    if isinstance(config, str):
        is_dockerfile = "Dockerfile" in Path(config).name
        config = AtollSandboxConfig(dockerfile=config) if is_dockerfile else AtollSandboxConfig(image=config)
    if not isinstance(config, AtollSandboxConfig):
        raise InvalidSpecError(
            f"the sandbox atoll is given a {type(config).__name__}",
            hint="give an AtollSandboxConfig, a Dockerfile or an image; compose files are for Docker",
        )
    if sum(part is not None for part in (config.image, config.template, config.dockerfile)) > 1:
        raise InvalidSpecError(
            "the sandbox atoll is given more than one thing to start from",
            hint="give one of image, template and dockerfile",
        )
    if config.dockerfile is None:
        return config
    return config.model_copy(update={"dockerfile": str(Path(config.dockerfile).absolute())})


async def _create(
    wanted: AtollSandboxConfig, task_name: str, snapshot: SnapshotInfo | None = None
) -> AsyncSandbox:
    template = template_name(Path(wanted.dockerfile)) if wanted.dockerfile else wanted.template
    return await AsyncSandbox.create(
        snapshot or one_source(image=wanted.image, template=template),
        env=wanted.env,
        metadata={"made_for": _MADE_FOR, "task": task_name},
        network=wanted.network,
        limits=Limits(vcpus=wanted.vcpus, memory_mib=wanted.memory_mib, disk_mib=wanted.disk_mib),
        # a sample must not go on as if nothing had happened
        boot=Boot(on_crash="stop"),
        keep=True,
        wait=Wait(on_progress=False),
    )


async def _set_up(wanted: AtollSandboxConfig) -> SnapshotInfo:
    """Run ``setup`` in a sandbox and return a snapshot of what it left."""
    assert wanted.setup is not None
    sandbox = await _create(wanted.model_copy(update={"network": None}), "setup")
    try:
        await sandbox.run(wanted.setup, cwd=wanted.cwd, timeout_s=None, check=True)
        return await sandbox.snapshot(comment=_MADE_FOR)
    finally:
        await _kill(sandbox)


async def _kill(sandbox: AsyncSandbox) -> None:
    with anyio.move_on_after(_END_S, shield=True), contextlib.suppress(SandboxNotFoundError):
        await sandbox.kill()


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """Tell Inspect that it is the sandbox that failed, not what ran in it."""
    try:
        yield
    except (
        AgentError,
        EngineError,
        SandboxCrashedError,
        SandboxNotFoundError,
        StateError,
        SupervisorError,
    ) as error:
        raise SandboxUnavailableError(str(error)) from error
