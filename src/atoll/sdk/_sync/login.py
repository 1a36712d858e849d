# Made by scripts/unasync.py from sdk/_async/login.py: do not edit.
"""The server that the programs of this user reach: what `atoll login` stores."""

from __future__ import annotations

import contextlib
import os

from atoll.errors import InvalidSpecError
from atoll.protocol import PROTOCOL_VERSION, RemoteHello
from atoll.sdk import _server
from atoll.sdk._sync.api import Api
from atoll.types.internal import check_text


class Login:
    """Chooses the server that the programs of this user reach, instead of this machine.

    ``ATOLL_URL`` and ``ATOLL_API_KEY`` come before what is stored. ``ATOLL_URL=local`` is this machine.
    """

    @staticmethod
    def store(url: str, key: str, *, ca: str | os.PathLike[str] | None = None) -> RemoteHello:
        """Store a server and its key for this user, after asking the server whether it takes the key.

        Args:
            url: Its address: ``https://HOST`` or ``https://HOST:PORT``; ``http`` for this machine alone.
            key: The API key.
            ca: A file with the authority of its certificate; None means the authorities of this machine.

        Raises:
            InvalidSpecError: The address or the key cannot be right, or the server is of another kind.
            DeniedError: The server does not take the key.
            SupervisorError: The server cannot be reached, or its certificate is not trusted.
            HostError: The file cannot be written.
        """
        for name, value in (("url", url), ("key", key)):
            check_text(name, value)
        server = _server.given(url, key, ca)
        with contextlib.closing(Api(server)) as api:
            hello = api.call("GET", "/hello", RemoteHello)
        if hello.protocol != PROTOCOL_VERSION:
            raise InvalidSpecError(
                f"{server.url} runs atoll {hello.version} with protocol {hello.protocol}, not {PROTOCOL_VERSION}",
                hint=f"install that version: pip install atoll=={hello.version}",
            )
        _server.store(server)
        return hello

    @staticmethod
    def forget() -> bool:
        """Forget the stored server and its key. Returns False if none was stored.

        Raises:
            HostError: The file cannot be removed.
        """
        return _server.forget()

    @staticmethod
    def where() -> str | None:
        """Return the address of the server that this process uses; None if it uses this machine.

        Raises:
            InvalidSpecError: The environment has an address or a key that cannot be right.
        """
        found = _server.chosen()
        return None if found is None else found.url
