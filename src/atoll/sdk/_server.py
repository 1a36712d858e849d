"""The server that this process reaches, if it does not use this machine: by environment, or by `atoll login`."""

from __future__ import annotations

import ipaddress
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from atoll.errors import HostError, InvalidSpecError
from atoll.types.internal import as_json, from_json

URL, KEY, CA = "ATOLL_URL", "ATOLL_API_KEY", "ATOLL_CA"
HERE = "local"
_BINARY = getattr(os, "O_BINARY", 0)
_PORTS = {"https": 443, "http": 80}
_LOGIN = "`atoll login URL` stores a server and its key"


@dataclass(frozen=True)
class Server:
    """An `atoll serve` and the key for it.

    Args:
        url: ``https://HOST`` or ``https://HOST:PORT``; ``http`` for this machine alone.
        key: The API key.
        ca: A file with the authority of the server's certificate; None means the authorities of this machine.
    """

    url: str
    key: str = field(repr=False)
    ca: str | None = None

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.url.startswith("https:")

    @property
    def address(self) -> tuple[str, int]:
        """The host name and port to connect to."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    @property
    def host(self) -> str:
        """The value of the header ``Host``."""
        return urlsplit(self.url).netloc

    def check(self) -> Server:
        """Return this server if its address is one that a key may be sent to.

        Raises:
            InvalidSpecError: It is not, or the key cannot be a key.
        """
        try:
            parts = urlsplit(self.url)
            host, _ = self.address
        except (ValueError, KeyError):
            raise InvalidSpecError(f"{self.url!r} is not the address of a server", hint=_example()) from None
        if not host or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidSpecError(f"{self.url!r} is not the address of a server", hint=_example())
        if not self.tls and not _is_here(host):
            raise InvalidSpecError(
                f"{self.url} would send the key unencrypted", hint="give https; http is for this machine"
            )
        if not self.key or not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise InvalidSpecError(f"there is no key for {self.url}", hint=f"set {KEY}; {_LOGIN}")
        return self


class _Login(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    key: str
    ca: str | None = None


def chosen() -> Server | None:
    """Return the server to use; None means this machine.

    The environment comes before what `atoll login` stored. ``ATOLL_URL=local`` means this machine.

    Raises:
        InvalidSpecError: The address or the key cannot be right.
        HostError: What was stored cannot be read.
    """
    url = os.environ.get(URL)
    if url == HERE:
        return None
    login = _read()
    if url:
        url = url.rstrip("/")
        key = os.environ.get(KEY) or (login.key if login is not None and login.url == url else "")
        return Server(url, key, os.environ.get(CA) or (login.ca if login is not None else None)).check()
    return None if login is None else Server(login.url, login.key, os.environ.get(CA) or login.ca).check()


def given(url: str, key: str, ca: str | os.PathLike[str] | None) -> Server:
    """Return the server that a user names.

    Raises:
        InvalidSpecError: The address or the key cannot be right, or there is no such file.
    """
    file = None if ca is None else os.path.abspath(ca)
    if file is not None and not os.path.isfile(file):
        raise InvalidSpecError(f"there is no file {file}", hint="give the file of the server's authority")
    return Server(url.rstrip("/"), key.strip(), file).check()


def store(server: Server) -> Path:
    """Store a server for later processes of this user. Only the user can read the file.

    Raises:
        HostError: It cannot be written.
    """
    path = login_file()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        with open(descriptor, "wb") as file:
            file.write(as_json(_Login(url=server.url, key=server.key, ca=server.ca)))
        aside.replace(path)
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}") from error
    return path


def forget() -> bool:
    """Forget the stored server. Returns False if none was stored.

    Raises:
        HostError: The file cannot be removed.
    """
    try:
        login_file().unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HostError(f"{login_file()} cannot be removed: {error.strerror}") from error
    return True


def login_file() -> Path:
    """Return where a login is stored."""
    base = os.environ.get("XDG_CONFIG_HOME") or (os.environ.get("APPDATA") if _is_windows() else None)
    base = base or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base, "atoll", "login.json")


def _read() -> _Login | None:
    path = login_file()
    try:
        return from_json(path.read_bytes(), _Login)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise HostError(
            f"{path} is no stored login: {error}", hint="run `atoll logout`, then log in"
        ) from None


def _is_windows() -> bool:
    return sys.platform == "win32"


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _example() -> str:
    return "give one like https://api.sandboxes.example.com"
