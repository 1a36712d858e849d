"""A stdio server of the Model Context Protocol inside a sandbox, as the streams that the official SDK takes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from atoll.errors import AtollError, UnsupportedError
from atoll.sdk._io_async import call
from atoll.sdk._output import Decoder, Tail

if TYPE_CHECKING:
    from atoll.sdk._async.process import AsyncProcess

_LOG = logging.getLogger("atoll")
# what the guest sends is parsed line by line, and must not fill this process's memory
_LONGEST_LINE_BYTES = 16 << 20
_LAST_WORDS_BYTES = 4096
_FLUSH_S = 0.5
_END_S = 5.0
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)
Streams = tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]


@asynccontextmanager
async def mcp_streams(
    start: Callable[[], Awaitable[AsyncProcess]], on_stderr: Callable[[str], Any] | None
) -> AsyncIterator[Streams]:
    """Start a server and give its read and write streams. At the end its input closes, and then it is killed.

    Raises:
        UnsupportedError: The package mcp is not installed.
    """
    parsed = _parser()
    process = await start()
    server = _Server(process, parsed, on_stderr)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(server.receive)
            group.start_soon(server.send)
            try:
                yield server.read, server.write
            finally:
                with anyio.CancelScope(shield=True):
                    await server.end()
    finally:
        server.close()


def _parser() -> Callable[[bytes], Any]:
    """Return what makes a line the official SDK's message, or the error that it gets instead."""
    try:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter
    except ImportError as error:
        raise UnsupportedError("the package mcp is not installed", hint="pip install 'atoll[mcp]'") from error

    def parsed(line: bytes) -> Any:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error

    return parsed


class _Server:
    """A server inside, and the pipes between it and a session."""

    def __init__(
        self,
        process: AsyncProcess,
        parsed: Callable[[bytes], Any],
        on_stderr: Callable[[str], Any] | None,
    ) -> None:
        self._process = process
        self._parsed = parsed
        self._on_stderr = on_stderr
        self._incoming, self.read = anyio.create_memory_object_stream[Any](0)
        self.write, self._outgoing = anyio.create_memory_object_stream[Any](0)
        self._last_words = Tail(_LAST_WORDS_BYTES)
        self._decoder = Decoder()
        self._flushed, self._ended = anyio.Event(), anyio.Event()
        self._ending = False
        # a cancelled caller still needs them: `end` cancels them
        self._receiving, self._sending = anyio.CancelScope(shield=True), anyio.CancelScope(shield=True)

    async def receive(self) -> None:
        """Pass the server's messages on until it ends. Then the session sees the end of its stream."""
        with self._receiving:
            await self._receive()

    async def _receive(self) -> None:
        line = bytearray()
        try:
            async with self._incoming:
                async for output in self._process:
                    if output.stream == "stderr":
                        await self._tell(output.data)
                        continue
                    line += output.data
                    if b"\n" not in output.data:
                        if len(line) > _LONGEST_LINE_BYTES:
                            _LOG.warning("the MCP server inside sent a line of over 16 MiB: it is left")
                            return
                        continue
                    *lines, rest = bytes(line).split(b"\n")
                    line = bytearray(rest)
                    for each in lines:
                        await self._pass(each)
            await self._explain()
        except AtollError as error:
            if not self._ending:
                _LOG.warning("the MCP server inside is lost: %s", error)
        finally:
            self._ended.set()

    async def _pass(self, line: bytes) -> None:
        # after its end a session takes nothing more, and the server's last output must not block the server
        if line.strip():
            with suppress(*_GONE):
                await self._incoming.send(self._parsed(line))

    async def _tell(self, data: bytes) -> None:
        self._last_words.add(data)
        text = self._decoder.output("stderr", data).text
        if self._on_stderr is not None and text:
            await call(self._on_stderr, text)

    async def _explain(self) -> None:
        """Say why the server has ended by itself."""
        if self._ending:
            return
        result = await self._process.wait()
        words = self._last_words.bytes().decode(errors="replace").strip()
        _LOG.warning(
            "the MCP server inside ended with exit code %d%s",
            result.exit_code,
            f": {words!r}" if words else "",
        )

    async def send(self) -> None:
        """Pass the session's messages on until it closes its stream."""
        with self._sending:
            await self._send()

    async def _send(self) -> None:
        try:
            async with self._outgoing:
                async for message in self._outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self._process.write_stdin(f"{text}\n")
        except AtollError:
            # the server has ended or takes nothing: the session must not wait for an answer
            self._incoming.close()
        finally:
            self._flushed.set()

    async def end(self) -> None:
        """Close the server's input, and kill it if it does not end by that."""
        self._ending = True
        self.read.close()
        self.write.close()
        with anyio.move_on_after(_FLUSH_S):
            await self._flushed.wait()
        with suppress(AtollError):
            with anyio.move_on_after(_END_S):
                await self._process.close_stdin()
                await self._ended.wait()
        if not self._ended.is_set():
            with anyio.move_on_after(_END_S), suppress(AtollError):
                await self._process.kill()
                await self._ended.wait()
        self._receiving.cancel()
        self._sending.cancel()

    def close(self) -> None:
        """Close all that this process has of it."""
        for stream in (self.read, self.write, self._incoming, self._outgoing):
            stream.close()
        self._process.close()
