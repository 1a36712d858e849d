"""The connection to the guest agent of one sandbox."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress

from atoll.errors import (
    AgentError,
    AtollError,
    DeadlineError,
    NoSpaceError,
    NotFoundError,
    SandboxCrashedError,
    SandboxNotFoundError,
    StateError,
    UnresponsiveError,
)
from atoll.guest import Frame, FrameReader, GuestRequest, error_from
from atoll.protocol import AGENT_PORT, ToldLine
from atoll.remedies import UNRESPONSIVE_HINT
from atoll.sdk._async.api import AsyncApi, ref
from atoll.sdk._async.http import AsyncAnswer, AsyncPool, Upload
from atoll.sdk._bytes import MIB
from atoll.sdk._deadline import Deadline
from atoll.sdk._io_async import Stream, in_thread, sleep, user_socket
from atoll.sdk._space import space_hint
from atoll.sdk._telling import Hashed, Teller
from atoll.types import SandboxInfo

# a server in a sandbox keeps idle connections for longer: one that closes them first may reset a request
IDLE_S = 300.0
_CALL_S = 60.0
# the agent sends an empty frame every 15 seconds
SILENCE_S = 60.0
_ANSWER_BYTES = 64 * MIB
_ERROR_BYTES = MIB
_STATE_S = 10.0
_LOOKS = 20
_AFTER_CRASH = {
    "reboot": "its next use boots it from its disk",
    "rollback": "its next use goes back to its newest snapshot, or boots it from its disk if it has none",
    "stop": "it stays crashed: `resume` boots it from its disk, `rollback` goes back to a snapshot",
}
_LOSSES = (SandboxCrashedError, NotFoundError, StateError)
_LOOK_S = 0.1


class AsyncAgent:
    """Sends requests to the agent of one sandbox over connections that the supervisor dials."""

    def __init__(self, api: AsyncApi, sandbox_id: str) -> None:
        self.api = api
        self.sandbox_id = sandbox_id
        self._pools: list[AsyncPool] = []
        # a killed supervisor may have left the guest frozen, and perhaps nobody else starts another one
        self._pool = self.pool(AGENT_PORT)

    def pool(self, port: int) -> AsyncPool:
        """Return a pool of connections to a server in the sandbox, which ``close`` closes."""

        async def dial(within_s: float | None) -> Stream:
            return Stream(user_socket(await self.api.dial(self.sandbox_id, port, within_s)))

        pool = AsyncPool(dial, self._explain, idle_s=IDLE_S, on_silence=self.api.ensure)
        self._pools.append(pool)
        return pool

    async def call(
        self,
        request: GuestRequest,
        *,
        body: Upload | None = None,
        length: int | None = None,
        timeout_s: float | None = _CALL_S,
        repeatable: bool = False,
        slow: bool = False,
    ) -> bytes:
        """Make one call and return the answer's body.

        A ``slow`` call answers only when everything is done.
        """
        deadline = Deadline(timeout_s, silence_s=None if slow else SILENCE_S)
        answer = await self.open(request, deadline, body=body, length=length, repeatable=repeatable)
        return await answer.read_all(_ANSWER_BYTES)

    async def open(
        self,
        request: GuestRequest,
        deadline: Deadline,
        *,
        body: Upload | None = None,
        length: int | None = None,
        repeatable: bool = False,
    ) -> AsyncAnswer:
        """Make a call whose answer is read as it arrives. The answer's status is a success."""
        answer = await self._pool.ask(
            request, deadline, body=body, length=length, repeatable=repeatable or request.method == "GET"
        )
        if answer.status >= 400:
            error = error_from(answer.status, await answer.read_all(_ERROR_BYTES))
            error.sandbox_id = self.sandbox_id
            answer.close()
            if isinstance(error, NoSpaceError):
                with suppress(AtollError):  # it matters only for the remedy
                    error.remedy = space_hint(await self._info())
            raise error
        return answer

    async def _explain(self, error: OSError) -> AtollError:
        """Ask the supervisor why the guest's connection ended or was silent, for some seconds at most."""
        if isinstance(error, AtollError):
            return error
        for _ in range(_LOOKS):
            try:
                info = await self._info()
            except AtollError as told:
                return told
            told_by_state = self._told_by(info)
            if told_by_state is not None:
                return told_by_state
            if isinstance(error, TimeoutError):
                return DeadlineError(
                    f"the guest agent of sandbox {self.sandbox_id} did not answer in time",
                    hint="`atoll stats` shows how busy it is; give a longer timeout_s if the call has one",
                    sandbox_id=self.sandbox_id,
                )
            await sleep(_LOOK_S)
        return StateError(
            f"the connection to sandbox {self.sandbox_id} ended in the middle of the call: {error}",
            hint="the sandbox runs, but it was rolled back or suspended during the call; call again",
            sandbox_id=self.sandbox_id,
        )

    async def _info(self) -> SandboxInfo:
        path = f"/v1/sandboxes/{ref(self.sandbox_id)}"
        info: SandboxInfo = await self.api.call("GET", path, SandboxInfo, timeout_s=_STATE_S)
        return info

    def _told_by(self, info: SandboxInfo) -> AtollError | None:
        name = info.name or info.sandbox_id
        if info.state == "crashed":
            return SandboxCrashedError(
                f"sandbox {name} crashed: {info.reason or 'its processes died'}",
                hint=_AFTER_CRASH[info.on_crash],
                sandbox_id=info.sandbox_id,
            )
        if info.state == "killed":
            return SandboxNotFoundError(f"sandbox {name} was killed", sandbox_id=info.sandbox_id)
        if info.unresponsive_since is not None:
            return UnresponsiveError(
                f"the guest of sandbox {name} has not answered for {time.time() - info.unresponsive_since:.0f} s",
                hint=UNRESPONSIVE_HINT,
                sandbox_id=info.sandbox_id,
            )
        if info.state in ("paused", "suspended"):
            goes_on = "its programs continue when it wakes: `atoll attach --list` lists them"
            return StateError(
                f"sandbox {name} was {info.state} by another client during the call",
                hint=goes_on if info.has_memory else "only its disk was kept, so its programs have ended",
                sandbox_id=info.sandbox_id,
            )
        return None

    def tell(self, line: ToldLine, content: bytes | Hashed | None = None) -> None:
        """Tell the audit log what was done in the sandbox, later, in a thread.

        Args:
            line: What was done.
            content: What was copied, or what returns its hash.
        """
        Teller.of_process().add(self.api.place.where, self.sandbox_id, line, content)

    async def tell_rest(self) -> None:
        """Tell what is left of it, because the sandbox ends now."""
        if Teller.has(self.sandbox_id):
            await in_thread(Teller.of_process().finish, self.sandbox_id)

    def close(self) -> None:
        """Close idle connections."""
        for pool in self._pools:
            pool.close()


class AsyncFrames:
    """Reads the frames of one of the agent's streams."""

    def __init__(self, answer: AsyncAnswer) -> None:
        self._answer = answer
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._over: AtollError | None = None
        self._lost = False

    @property
    def lost(self) -> bool:
        """Tell whether the sandbox ended the stream: it slept, rolled back, crashed or was killed."""
        return self._lost or self._answer.cut

    def set_deadline(self, deadline: Deadline) -> None:
        """Bound all waits from now on."""
        self._answer.deadline = deadline

    async def next(self) -> Frame:
        """Wait for the next frame that is not empty.

        Raises:
            AgentError: The stream ended without its last frame.
            StateError: The stream ended in an earlier call, this side left it, or this side broke off a wait
                for it.
        """
        while True:
            while self._frames:
                frame = self._frames.pop()
                if frame.kind != "k":
                    return frame
            self._frames = self._reader.feed(await self._read())
            self._frames.reverse()

    async def _read(self) -> bytes:
        if self._over is not None:
            raise StateError(
                f"the stream has ended: {self._over.message}",
                hint="open it again; `processes.attach` finds a program that still runs",
                sandbox_id=self._over.sandbox_id,
            )
        try:
            data = await self._answer.read()
            if not data:
                raise AgentError("the guest agent's stream ended before its last frame")
        except AtollError as error:
            self._over = error
            self._lost = not self._answer.aborted and isinstance(error, _LOSSES)
            raise
        except BaseException:
            # a cancellation or Ctrl-C closed the answer; the agent is not at fault
            self._over = StateError("this program cancelled an earlier wait for it")
            raise
        return data

    async def until_end(self) -> None:
        """Read the rest after the last frame, so that the connection can be used again."""
        if await self._answer.read():
            self.close()

    def abort(self) -> None:
        """Make a waiting ``next`` end, in any thread or task."""
        self._answer.abort()

    def close(self) -> None:
        """Leave the stream. Idempotent."""
        if self._over is None:
            self._over = StateError("this program closed the stream")
        self._answer.close()


async def bytes_of(answer: AsyncAnswer) -> AsyncIterator[bytes]:
    """Iterate over the pieces of an answer's body.

    The answer is closed at the end, or when the iteration stops early.
    """
    try:
        while data := await answer.read():
            yield data
    finally:
        answer.close()
