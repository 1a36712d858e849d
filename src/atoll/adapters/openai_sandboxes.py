"""atoll as a provider of the OpenAI Agents SDK's sandbox agents.

For example::

    from agents import RunConfig, Runner
    from agents.run_config import SandboxRunConfig
    from agents.sandbox import SandboxAgent
    from atoll.adapters.openai_sandboxes import AtollSandboxClient, AtollSandboxOptions

    agent = SandboxAgent(name="worker", instructions="Work in the sandbox.")
    sandbox = SandboxRunConfig(client=AtollSandboxClient(), options=AtollSandboxOptions())
    print((await Runner.run(agent, "Which Python runs here?", run_config=RunConfig(sandbox=sandbox))).final_output)
"""

from __future__ import annotations

import contextlib
import io
import uuid
from pathlib import Path, PurePath
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User

from atoll import AsyncSandbox, AtollError, Lifecycle
from atoll.errors import ExecTimeoutError as AtollExecTimeoutError
from atoll.errors import FileMissingError, SandboxNotFoundError
from atoll.sdk import AsyncForward
from atoll.types.internal import one_source

__all__ = ["AtollSandboxClient", "AtollSandboxOptions", "AtollSession", "AtollSessionState"]

_MOST_BYTES = 1 << 30
_OUTPUT_BYTES = 16 << 20
_STEP_S = 120.0
_TAR_S = 600.0
_LEASE = Lifecycle(ttl_s=1800, on_expiry="suspend")


class AtollSandboxOptions(BaseSandboxClientOptions):
    """What new sandboxes are made of.

    Args:
        image: Their image; None is ``base``.
        template: Their template instead.
        network: A preset of what they may reach; None is ``internet``.
        exposed_ports: Ports that ``resolve_exposed_port`` may give an address for.
    """

    type: Literal["atoll"] = "atoll"
    image: str | None = None
    template: str | None = None
    network: str | None = None
    exposed_ports: tuple[int, ...] = ()


class AtollSessionState(SandboxSessionState):
    """What it takes to find a session's sandbox again, in another process, too."""

    type: Literal["atoll"] = "atoll"
    sandbox_id: str
    options: AtollSandboxOptions = AtollSandboxOptions()


class AtollSession(BaseSandboxSession):
    """A session in a sandbox. Shut down, it sleeps with its memory and programs; resumed, they go on.

    Args:
        state: Its state.
        sandbox: Its sandbox.
    """

    state: AtollSessionState

    def __init__(self, state: AtollSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox
        self._forwards: dict[int, AsyncForward] = {}

    async def running(self) -> bool:
        """Tell whether the sandbox is there; one that sleeps wakes at its next use."""
        try:
            await self.sandbox.info()
        except SandboxNotFoundError:
            return False
        return True

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Read a file of the workspace.

        Raises:
            WorkspaceReadNotFoundError: It is not there.
            WorkspaceArchiveReadError: It cannot be read.
        """
        place = await self._validate_path_access(path)
        try:
            content = await self.sandbox.files.read_bytes(
                place.as_posix(), max_bytes=_MOST_BYTES, user=_name_of(user)
            )
        except FileMissingError as error:
            raise WorkspaceReadNotFoundError(path=place, cause=error) from error
        except AtollError as error:
            raise WorkspaceArchiveReadError(path=place, cause=error) from error
        return io.BytesIO(content)

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file of the workspace.

        Raises:
            WorkspaceArchiveWriteError: It cannot be written.
        """
        place = await self._validate_path_access(path, for_write=True)
        try:
            await self.sandbox.files.write(place.as_posix(), data.read(), user=_name_of(user))
        except AtollError as error:
            raise WorkspaceArchiveWriteError(path=place, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar.

        Raises:
            WorkspaceArchiveReadError: It cannot be read.
        """
        root, archive = self._root, self._archive
        left_out = [
            f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())
        ]
        try:
            argv = ["tar", "cf", archive, "--no-wildcards", *left_out, "-C", root, "."]
            await self.sandbox.exec(argv, timeout_s=_TAR_S, check=True)
            content = await self.sandbox.files.read_bytes(archive, max_bytes=_MOST_BYTES)
            await self.sandbox.files.delete(archive)
        except AtollError as error:
            raise WorkspaceArchiveReadError(path=Path(root), cause=error) from error
        return io.BytesIO(content)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpack a tar into the workspace, inside the sandbox: it can harm nothing else.

        Raises:
            WorkspaceArchiveWriteError: It cannot be unpacked.
        """
        try:
            await self.sandbox.files.write(self._archive, data.read())
            argv = ["tar", "xf", self._archive, "--no-same-owner", "-C", self._root]
            await self.sandbox.exec(argv, timeout_s=_TAR_S, check=True)
            await self.sandbox.files.delete(self._archive)
        except AtollError as error:
            raise WorkspaceArchiveWriteError(path=Path(self._root), cause=error) from error

    @property
    def _root(self) -> str:
        return PurePath(self.state.manifest.root).as_posix()

    @property
    def _archive(self) -> str:
        return f"/tmp/openai-agents-{self.state.session_id.hex}.tar"

    async def _exec_internal(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109  # the library calls it so
    ) -> ExecResult:
        argv, user = [str(part) for part in command], None
        if argv[:2] == ["sudo", "-u"] and argv[3:4] == ["--"]:  # what the library puts first for another user
            user, argv = argv[2], argv[4:]
        cwd = self._root if self.state.workspace_root_ready else None
        try:
            env = await self.state.manifest.environment.resolve()
            result = await self.sandbox.exec(
                argv, cwd=cwd, env=env, user=user, timeout_s=timeout, max_output_bytes=_OUTPUT_BYTES
            )
        except AtollExecTimeoutError as error:
            raise ExecTimeoutError(command=argv, timeout_s=timeout, cause=error) from error
        except AtollError as error:
            raise ExecTransportError(command=argv, cause=error, retryable=error.retryable) from error
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=result.exit_code)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        place: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return place

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    async def _prepare_backend_workspace(self) -> None:
        try:
            user = (await self.sandbox.exec(["id", "-un"], timeout_s=_STEP_S, check=True)).stdout.strip()
            make = ["install", "-d", "-o", user, self._root]
            await self.sandbox.exec(make, user="root", timeout_s=_STEP_S, check=True)
        except AtollError as error:
            raise WorkspaceStartError(path=Path(self._root), cause=error) from error

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        if port not in self._forwards:
            forward = self.sandbox.ports.forward(port)
            await forward.__aenter__()
            self._forwards[port] = forward
        return ExposedPortEndpoint(host="127.0.0.1", port=self._forwards[port].port, tls=False)

    async def _shutdown_backend(self) -> None:
        while self._forwards:
            _, forward = self._forwards.popitem()
            await forward.__aexit__(None, None, None)
        with contextlib.suppress(AtollError):  # it may be gone, or asleep already
            await self.sandbox.suspend()
        self.sandbox.close()


class AtollSandboxClient(BaseSandboxClient[AtollSandboxOptions]):
    """Makes sessions in sandboxes, finds them again, and ends them."""

    backend_id = "atoll"
    supports_default_options = True

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: AtollSandboxOptions | None = None,
    ) -> SandboxSession:
        """Make a session in a new sandbox.

        It sleeps half an hour after its last use, and stays until ``delete``, or ``atoll kill``.
        """
        chosen = options or AtollSandboxOptions()
        wanted = self._validate_manifest_for_create(manifest or Manifest())
        session_id = uuid.uuid4()
        stored = resolve_snapshot(snapshot, str(session_id))
        sandbox = await _created(chosen)
        state = AtollSessionState(
            session_id=session_id,
            manifest=wanted,
            snapshot=stored,
            exposed_ports=chosen.exposed_ports,
            sandbox_id=sandbox.id,
            options=chosen,
        )
        return self._wrapped(AtollSession(state, sandbox))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End a session and erase its sandbox."""
        inner = session._inner
        if not isinstance(inner, AtollSession):
            raise TypeError(f"{type(inner).__name__} is no session of atoll")
        with contextlib.suppress(SandboxNotFoundError):
            await inner.sandbox.kill()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Return a session again. If its sandbox is gone, a new one gets the workspace of its snapshot."""
        if not isinstance(state, AtollSessionState):
            raise TypeError(f"{type(state).__name__} is no state of atoll")
        state.assert_path_grants_rebound()
        try:
            sandbox = await AsyncSandbox.connect(state.sandbox_id)
            is_there = True
        except SandboxNotFoundError:
            sandbox = await _created(state.options)
            is_there = False
            state.sandbox_id = sandbox.id
            state.workspace_root_ready = False
        inner = AtollSession(state, sandbox)
        inner._set_start_state_preserved(is_there)
        return self._wrapped(inner)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Read a state from what ``serialize_session_state`` wrote."""
        return self._deserialize_session_state_payload(payload, AtollSessionState)

    def _wrapped(self, inner: AtollSession) -> SandboxSession:
        return self._wrap_session(inner, instrumentation=Instrumentation())


async def _created(options: AtollSandboxOptions) -> AsyncSandbox:
    network: Any = options.network
    return await AsyncSandbox.create(
        one_source(image=options.image, template=options.template),
        network=network,
        lifecycle=_LEASE,
        metadata={"made-by": "openai-agents"},
        keep=True,
    )


def _name_of(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user
