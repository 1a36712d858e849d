"""Notes what clients say that they did in sandboxes, without the values of secrets."""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from atoll.errors import HostError, InvalidSpecError
from atoll.network import Pace
from atoll.protocol import TOLD_CHARACTERS, TOLD_LINES_MOST, ToldLine, ToldRequest
from atoll.secrets import Mask
from atoll.supervisor.state.acts import Acts
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.tenants.secrets import Secrets
from atoll.types.internal import PASSWORD_MASK

_TEXT_CHARACTERS = 2000
_PATH_CHARACTERS = 1000
_USER_CHARACTERS = 100
_ARGUMENTS_MOST = 1000
_WITHHELD = "[withheld: the key of the secrets cannot be used]"
_NUMBER_MOST = 1 << 63
# Lines are counted in units of this size: so many at once, and then so many a second. What is over is only counted.
# Otherwise a client could fill the log with its claims until the oldest file goes, alone or with many sandboxes.
_UNIT_BYTES = 512
_SANDBOX_AT_ONCE, _SANDBOX_S = 2000, 8.0
_TEAM_AT_ONCE, _TEAM_S = 20_000, 32.0
# Around the texts of a line: its codes, its names and its time.
_LINE_BYTES = 400
# Of an address: it need not be a stored secret. The bound may cut it.
_PASSWORD = re.compile(r"(://[^\s/@:]*:)[^\s/@]+(?=@)")
_CUT_PASSWORD = re.compile(r"(://[^\s/@:]*:)[^\s/@]+(?=@|$)")
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class _Bound:
    pace: Pace
    more: int = 0


@dataclass(eq=False, repr=False)
class ClientLines:
    """Notes lines of clients, at a bounded rate for each sandbox and team.

    Args:
        boot_s: A clock that never jumps.
        wanted: Whether to note anything.

    Attributes:
        traced: Called with the id of a sandbox, and with the id of a trace that a program in it was given.
    """

    acts: Acts
    secrets: Secrets
    boot_s: Callable[[], float]
    wanted: bool = True
    traced: Callable[[str, str], None] | None = field(default=None, init=False)
    _masks: dict[str | None, Mask] = field(default_factory=dict, init=False)
    _changes: int = field(default=0, init=False)
    _of_sandboxes: WeakKeyDictionary[Sandbox, _Bound] = field(default_factory=WeakKeyDictionary, init=False)
    _of_teams: dict[str | None, Pace] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.secrets.follow(self._changed)

    async def take(self, sandbox: Sandbox, told: ToldRequest, caller: str | None) -> None:
        """Note what a client tells about a sandbox.

        Raises:
            InvalidSpecError: These are too many lines at once.
        """
        if len(told.lines) > TOLD_LINES_MOST:
            raise InvalidSpecError(
                f"these are {len(told.lines)} lines", hint=f"tell {TOLD_LINES_MOST} at once"
            )
        if self.traced is not None:
            for trace in {line.trace for line in told.lines if line.trace is not None}:
                self.traced(sandbox.row.sandbox_id, trace)
        if not self.wanted:
            return
        mask = await self._mask(sandbox.row.team)
        bound = self._bound(sandbox)
        bound.more += min(max(0, told.dropped), _NUMBER_MOST - 1 - bound.more)
        for line in told.lines:
            self._note(sandbox, bound, _shown(line, mask), line, caller)
        if bound.more and self._may(sandbox, bound, _LINE_BYTES):
            self._more(sandbox, bound, caller)
        self.acts.log.settle()

    def _note(
        self, sandbox: Sandbox, bound: _Bound, texts: dict[str, str], line: ToldLine, caller: str | None
    ) -> None:
        size = _LINE_BYTES + sum(len(text) for text in texts.values())
        if not self._may(sandbox, bound, size):
            bound.more += 1
            return
        if bound.more:
            self._more(sandbox, bound, caller)
        details: dict[str, str | int | float | None] = {**texts}
        if line.bytes is not None and 0 <= line.bytes < _NUMBER_MOST:
            details["bytes"] = line.bytes
        details["at"] = round(line.at, 3) if abs(line.at) < _NUMBER_MOST else None
        self.acts.told(line.act, sandbox.row, caller=caller, details=details)

    def _more(self, sandbox: Sandbox, bound: _Bound, caller: str | None) -> None:
        more, bound.more = bound.more, 0
        self.acts.told("client.more", sandbox.row, caller=caller, details={"count": more})

    def _may(self, sandbox: Sandbox, bound: _Bound, size: int) -> bool:
        team = sandbox.row.team
        of_team = self._of_teams.get(team)
        if of_team is None:
            of_team = self._of_teams[team] = Pace(_TEAM_S, _TEAM_AT_ONCE, self.boot_s)
        if bound.pace.wait_s() or of_team.wait_s():
            return False
        for pace in (bound.pace, of_team):
            pace.take(max(1, size / _UNIT_BYTES))
        return True

    def _bound(self, sandbox: Sandbox) -> _Bound:
        bound = self._of_sandboxes.get(sandbox)
        if bound is None:
            bound = self._of_sandboxes[sandbox] = _Bound(Pace(_SANDBOX_S, _SANDBOX_AT_ONCE, self.boot_s))
        return bound

    async def _mask(self, team: str | None) -> Mask | None:
        """Masks the values of a team's secrets. None if they cannot be opened: then no text may be noted.

        Those of other teams are left: what is masked tells whoever reads it that a text is a secret.
        """
        mask = self._masks.get(team)
        if mask is not None:
            return mask
        changes = self._changes
        try:
            mask = await asyncio.to_thread(_mask_of, self.secrets.all_for(team))
        except HostError as error:
            _log.info("what clients tell is noted without its texts: %s", error)
            return None
        if changes == self._changes:
            self._masks[team] = mask
        return mask

    def _changed(self, team: str | None, _: str) -> None:
        self._changes += 1
        self._masks.pop(team, None)


def _mask_of(opened: Callable[[], dict[str, str]]) -> Mask:
    return Mask(opened())


def _shown(line: ToldLine, mask: Mask | None) -> dict[str, str]:
    """The texts of a line, bounded and masked."""
    told = {"line": line.line, "path": line.path, "user": line.user}
    most = {"path": _PATH_CHARACTERS, "user": _USER_CHARACTERS}
    texts = {
        name: _bounded(text, most.get(name, _TEXT_CHARACTERS), mask)
        for name, text in told.items()
        if text is not None
    }
    if line.argv:
        parts, left = [], _TEXT_CHARACTERS
        for part in line.argv[:_ARGUMENTS_MOST]:
            parts.append(shlex.quote(_bounded(part, left, mask)))
            left -= len(parts[-1]) + 1
            if left <= 0:
                break
        texts["argv"] = " ".join(parts)
    if line.sha256 is not None and _is_hash(line.sha256):
        texts["sha256"] = line.sha256
    return texts


def _bounded(text: str, most: int, mask: Mask | None) -> str:
    if mask is None:
        return _WITHHELD
    if len(text) >= TOLD_CHARACTERS:
        # The client has cut it, perhaps within a value, which would not be found.
        most = min(most, max(0, len(text) - mask.longest))
    masked = mask.of(text, most)
    return (_CUT_PASSWORD if len(masked) >= most else _PASSWORD).sub(rf"\1{PASSWORD_MASK}", masked)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)
