"""The host's nameservers."""

from __future__ import annotations

import ipaddress
from pathlib import Path

_RESOLV_CONF = Path("/etc/resolv.conf")
_DNS_PORT = 53


class HostNameservers:
    """The nameservers of /etc/resolv.conf, which is read again when it changes."""

    def __init__(self, path: Path = _RESOLV_CONF) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._servers: list[tuple[str, int]] = []

    def __call__(self) -> list[tuple[str, int]]:
        """Return addresses and ports in the order to ask them.

        Without the file the host itself is the nameserver.
        """
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._seen:
                self._servers = parse(self._path.read_text(errors="replace"))
                self._seen = (status.st_mtime_ns, status.st_ino)
        except OSError:
            self._seen, self._servers = None, parse("")
        return self._servers


def parse(text: str) -> list[tuple[str, int]]:
    """Return the nameservers of a resolv.conf.

    If it has none, the host itself is it, as for the C library.
    """
    servers = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver" and _is_address(words[1]):
            servers.append((words[1], _DNS_PORT))
    return servers or [("127.0.0.1", _DNS_PORT)]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
