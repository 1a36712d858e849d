"""Speaks the protocol on standard input and output, and over HTTP to a server inside."""

from __future__ import annotations

import logging
from typing import Any

import anyio
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY

from atoll.sdk import AsyncSandbox

_WAIT_S = 60.0
_LOG = logging.getLogger("atoll")


async def serve(name: str, port: int, path: str) -> None:
    """Pass messages both ways until standard input ends, or the server inside is gone.

    Args:
        name: The sandbox.
        port: The port that the server inside listens on.
        path: The path of its address.
    """
    async with await AsyncSandbox.connect(name) as sandbox:
        await sandbox.ports.wait(port, timeout_s=_WAIT_S)
        async with (
            sandbox.ports.forward(port) as forward,
            streamable_http_client(f"{forward.url}{path}") as (far_read, far_write),
            stdio_server() as (near_read, near_write),
        ):
            versions = _Versions()
            async with anyio.create_task_group() as group:

                async def outwards() -> None:
                    async for message in near_read:
                        if isinstance(message, Exception):
                            _LOG.warning("the client sent something that is no message: %s", message)
                        else:
                            await far_write.send(versions.headed(message))
                    group.cancel_scope.cancel()

                async def inwards() -> None:
                    async for message in far_read:
                        if isinstance(message, Exception):
                            _LOG.warning("the server sent something that is no message: %s", message)
                        else:
                            versions.learn(message)
                            await near_write.send(message)
                    group.cancel_scope.cancel()

                group.start_soon(outwards)
                group.start_soon(inwards)


class _Versions:
    """Gives each message the headers that the official client would send with it."""

    def __init__(self) -> None:
        self._agreed: str | None = None

    def learn(self, message: SessionMessage) -> None:
        """Take the version from the server's answer to ``initialize``."""
        result = getattr(message.message, "result", None)
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if self._agreed is None and isinstance(version, str) and version.isascii() and version.isprintable():
            self._agreed = version

    def headed(self, message: SessionMessage) -> SessionMessage:
        """Return the message with its headers."""
        method: str | None = getattr(message.message, "method", None)
        params: dict[str, Any] = getattr(message.message, "params", None) or {}
        own = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
        headers: dict[str, str] = {}
        if isinstance(own, str) and method is not None:
            headers = {MCP_PROTOCOL_VERSION_HEADER: own, MCP_METHOD_HEADER: method}
            named = params.get(NAME_BEARING_METHODS.get(method, ""))
            if isinstance(named, str):
                headers[MCP_NAME_HEADER] = encode_header_value(named)
        elif self._agreed is not None and method != "initialize":
            headers = {MCP_PROTOCOL_VERSION_HEADER: self._agreed}
        return SessionMessage(message.message, ClientMessageMetadata(headers=headers) if headers else None)
