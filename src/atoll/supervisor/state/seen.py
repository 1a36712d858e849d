"""What is known already and so raises no alert: the hosts of each team, and the secrets of each sandbox."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from atoll.host import append_log
from atoll.types.internal import from_json

# A guest that invents names must not fill memory. What has no place is told again, never forgotten for it.
HOSTS_MOST = 4096
_SECRETS_MOST = 256
_SLACK_LINES = 10_000
_log = logging.getLogger(__name__)


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """One fact in the file: a host of a team, or a secret of a sandbox."""

    kind: str
    of: str | None
    name: str


@dataclass(eq=False, repr=False)
class Seen:
    """Remembers across restarts. A lost line costs one alert more.

    Args:
        path: The file with a line for each fact.
    """

    path: Path
    _hosts: dict[str | None, set[str]] = field(default_factory=lambda: defaultdict(set), init=False)
    _secrets: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set), init=False)
    _lines: int = field(default=0, init=False)

    def load(self, exists: Callable[[str], bool]) -> None:
        """Read the file, and leave out what is about sandboxes that do not exist any more."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("cannot read what raises no alert: %s", error)
            return
        for text in lines:
            with contextlib.suppress(msgspec.DecodeError):  # the end of a torn write
                line = from_json(text, _Line)
                if line.kind == "host":
                    self._hosts[line.of].add(line.name)
                elif line.of is not None and exists(line.of):
                    self._secrets[line.of].add(line.name)
        self._lines = len(lines)
        self._keep_small()

    def host(self, team: str | None, host: str) -> bool:
        """Whether a team has reached this host before. From now on it has."""
        return self._known(self._hosts[team], HOSTS_MOST, _Line("host", team, host))

    def secret(self, sandbox_id: str, name: str) -> bool:
        """Whether a sandbox has used this secret before. From now on it has."""
        return self._known(self._secrets[sandbox_id], _SECRETS_MOST, _Line("secret", sandbox_id, name))

    def forget(self, sandbox_id: str) -> None:
        """Drop what is about a sandbox that is gone."""
        self._secrets.pop(sandbox_id, None)

    def _known(self, names: set[str], most: int, line: _Line) -> bool:
        if line.name in names:
            return True
        if len(names) < most:
            names.add(line.name)
            self._lines += 1
            try:
                append_log(self.path, msgspec.json.encode(line).decode())
                self._keep_small()
            except OSError as error:
                _log.warning("cannot keep what raises no alert: %s", error)
        return False

    def _keep_small(self) -> None:
        """Write the file anew once most of it is about sandboxes that are gone."""
        names = sum(map(len, (*self._hosts.values(), *self._secrets.values())))
        if self._lines <= 2 * names + _SLACK_LINES:
            return
        facts = [("host", of, name) for of, each in self._hosts.items() for name in each]
        facts += [("secret", of, name) for of, each in self._secrets.items() for name in each]
        new = self.path.with_suffix(".new")
        new.write_bytes(b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts))
        new.replace(self.path)
        self._lines = names
