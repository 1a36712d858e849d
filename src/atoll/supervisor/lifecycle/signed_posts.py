"""Posts signed JSON to one address outside."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from atoll.supervisor.lifecycle.off_loop import off_loop

# For one try, from the connection to the last byte of the answer.
BOUND_S = 10.0
_ANSWER_BYTES = 64 << 10
_PIECE_BYTES = 16 << 10
_OK, _REDIRECTS, _SERVER_ERRORS = range(200, 300), range(300, 400), 500
_PASSING = (408, 425, 429)


class PostError(Exception):
    """The receiver has not taken it.

    Args:
        may_pass: Whether another try can do better.
    """

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


@dataclass(eq=False, repr=False)
class SignedPosts:
    """Posts to one address. Follows no redirect, and takes the proxies of the environment for https.

    Args:
        url: The address. It may hold a secret, so no error names it.
        key: What bodies are signed with.
        bound_s: Seconds for one post.
    """

    url: str
    key: bytes
    unix_s: Callable[[], float]
    bound_s: float = BOUND_S
    _at: SplitResult = field(init=False)
    _trust: ssl.SSLContext | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._at = urlsplit(self.url)
        if self._at.scheme == "https":
            self._trust = ssl.create_default_context()

    async def post(self, event: str, body: bytes) -> bytes:
        """Post a body, and return the start of the answer's body.

        Raises:
            PostError: The receiver was not reached in time, or refused it.
        """
        headers = {
            "content-type": "application/json",
            "user-agent": "atoll",
            "atoll-event": event,
            "atoll-signature": signature(self.key, int(self.unix_s()), body),
        }
        connection = self._connection()
        try:
            async with asyncio.timeout(self.bound_s):
                status, answer = await off_loop(lambda: self._exchange(connection, body, headers))
        except TimeoutError:
            raise PostError(f"no answer in {self.bound_s:g} s", may_pass=True) from None
        except (OSError, http.client.HTTPException, ValueError, RuntimeError) as error:
            raise PostError(f"{type(error).__name__}: {error}", may_pass=True) from None
        finally:
            _abort(connection)
        if status not in _OK:
            told = (
                f"status {status}, and redirects are not followed"
                if status in _REDIRECTS
                else f"status {status}"
            )
            raise PostError(told, may_pass=status in _PASSING or status >= _SERVER_ERRORS)
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._at.hostname or "", self._at.port
        if self._trust is None:
            return http.client.HTTPConnection(host, port, timeout=self.bound_s)
        proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get("https")
        if not proxy:
            return http.client.HTTPSConnection(host, port, timeout=self.bound_s, context=self._trust)
        by = urlsplit(proxy if "://" in proxy else f"//{proxy}")
        connection = http.client.HTTPSConnection(
            by.hostname or "", by.port or 80, timeout=self.bound_s, context=self._trust
        )
        login = {}
        if by.username is not None:
            words = f"{unquote(by.username)}:{unquote(by.password or '')}".encode()
            login = {"proxy-authorization": f"Basic {base64.b64encode(words).decode()}"}
        connection.set_tunnel(host, port or 443, login)
        return connection

    def _exchange(
        self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        end_s = time.monotonic() + self.bound_s
        query = f"?{self._at.query}" if self._at.query else ""
        with contextlib.closing(connection):
            connection.request("POST", f"{self._at.path or '/'}{query}", body, headers)
            response = connection.getresponse()
            answer = bytearray()
            while len(answer) < _ANSWER_BYTES and (piece := response.read1(_PIECE_BYTES)):
                answer += piece
                if time.monotonic() > end_s:  # else a receiver that drips would keep this thread
                    raise TimeoutError
            return response.status, bytes(answer)


def signature(key: bytes, at: int, body: bytes) -> str:
    """Return the value of the header ``atoll-signature`` for a body that is sent at that Unix second."""
    code = hmac.new(key, b"%d.%b" % (at, body), hashlib.sha256).hexdigest()
    return f"t={at},v1={code}"


def _abort(connection: http.client.HTTPConnection) -> None:
    """Have a thread that still waits for the receiver end."""
    taken: socket.socket | None = connection.sock
    if taken is not None:
        with contextlib.suppress(OSError, ValueError):
            taken.shutdown(socket.SHUT_RDWR)
