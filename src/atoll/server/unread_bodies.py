"""Handles answers to requests with a partly unread body. Such a connection serves no other request."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The HTTP server itself reads the rest of smaller bodies.
_SMALL_BYTES = 4096


def closing_after_unread_body(app: ASGIApp) -> ASGIApp:
    """Wrap the application so that answers announce when the connection ends.

    Otherwise a client would use it again. The HTTP server announces this only if it knows it when it sends
    the head.
    """

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["http_version"].startswith("2") or not _has_much(scope):
            await app(scope, receive, send)
            return
        over = False

        async def noticing() -> Message:
            nonlocal over
            message = await receive()
            over = over or not message.get("more_body", False)
            return message

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start" and not over:
                kept = [(name, value) for name, value in message.get("headers", ()) if name != b"connection"]
                message = {**message, "headers": [*kept, (b"connection", b"close")]}
            await send(message)

        await app(scope, noticing, telling)

    return around


def _has_much(scope: Scope) -> bool:
    named = dict(scope["headers"])
    length = named.get(b"content-length", b"0")
    return b"transfer-encoding" in named or not length.isdigit() or int(length) > _SMALL_BYTES
