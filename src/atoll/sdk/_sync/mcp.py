# Made by scripts/unasync.py from sdk/_async/mcp.py: do not edit.
"""The address of an MCP server that a program runs in a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from atoll.errors import InvalidSpecError, StateError
from atoll.sdk._sync.forward import Forward
from atoll.types.internal import check_text


class McpAddress:
    """Leads to an MCP server inside that speaks streamable HTTP, while the context lasts.

    ``url`` is the port's address at the running ``atoll serve``. If that has no domain, or none runs, it is a
    port of 127.0.0.1 that is forwarded to the sandbox until the context ends.
    """

    def __init__(self, forward: Forward, served: Callable[[], str], path: str) -> None:
        check_text("path", path)
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise InvalidSpecError(f"path is {path!r}"[:300], hint="give one like /mcp")
        self._forward = forward
        self._served = served
        self._path = path
        self._url: str | None = None
        self._forwards = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url or 'not open'}>"

    @property
    def url(self) -> str:
        """The address for a client, such as ``http://127.0.0.1:40123/mcp``.

        Raises:
            StateError: The context has not been entered.
        """
        if self._url is None:
            raise StateError(
                "the address is not open", hint="enter it first: `with sandbox.mcp(port=8000) as server`"
            )
        return self._url

    def __enter__(self) -> McpAddress:
        parts = urlsplit(self._address())
        path, _, query = self._path.partition("?")
        query = "&".join(part for part in (query, parts.query) if part)
        self._url = parts._replace(path=path, query=query).geturl()
        return self

    def _address(self) -> str:
        try:
            served = self._served()
        except StateError:
            served = ""  # no server runs, or none serves this sandbox
        # names below localhost are of this machine too, and many programs cannot resolve them
        if served and not f".{urlsplit(served).hostname}".endswith(".localhost"):
            return served
        self._forward.__enter__()
        self._forwards = True
        return self._forward.url

    def __exit__(self, *error: object) -> None:
        self._url = None
        if self._forwards:
            self._forwards = False
            self._forward.__exit__(*error)
