"""Keeps the egress decisions about each sandbox, in a file of decisions and as lines in its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from atoll.host import append_log, forget_log_head
from atoll.supervisor.state.acts import Acts
from atoll.supervisor.state.alert_rules import About
from atoll.supervisor.state.counters import Counters
from atoll.supervisor.state.journal import Journal
from atoll.types import EgressDecision

_FLUSH_S = 0.5
# A guest that tries a thousand names fills neither the disk nor the log.
_MOST_PENDING = 200
_LOG_LINES = 20
# Of those that were made without a supervisor, which may be many, so many are written at once.
_MOST_KEPT = 500
_MOST_BYTES, _KEEP_BYTES = 8 << 20, 4 << 20
_DONE = {"unplug": "unplugged at", "ask": "asks about"}
_log = logging.getLogger(__name__)

_Key = tuple[object, ...]


@dataclass(eq=False, repr=False)
class DecisionLog:
    """Keeps decisions. It counts equal decisions within half a second as one entry, unless they have a time of before.

    Args:
        path: Returns the path of the file of a sandbox.
        watched: Called with all decisions at once, also with those that get no entry.
    """

    path: Callable[[str], Path]
    journal: Journal
    acts: Acts
    counters: Counters
    watched: Callable[[About, Iterable[EgressDecision]], None] | None = None
    _pending: dict[str, dict[_Key, EgressDecision]] = field(default_factory=dict, init=False)
    _lost: dict[str, int] = field(default_factory=dict, init=False)
    _acting: dict[str, tuple[str | None, str | None]] = field(default_factory=dict, init=False)
    _flushing: asyncio.TimerHandle | None = field(default=None, init=False)

    def add(
        self,
        sandbox_id: str,
        decisions: Sequence[EgressDecision],
        delegation: str | None = None,
        team: str | None = None,
    ) -> None:
        """Note decisions about a sandbox. The file gets them within half a second.

        Args:
            delegation: The uid of what it acts under.
            team: Its team.
        """
        if self.watched is not None:
            self.watched(About(sandbox_id, team, delegation), decisions)
        self._acting[sandbox_id] = delegation, team
        pending = self._pending.setdefault(sandbox_id, {})
        for one in decisions:
            action = "observed" if one.observed else one.action
            self.counters.add("decisions", team or "", action, amount=one.count)
            key: _Key = (
                one.action,
                one.rule,
                one.host,
                one.port,
                one.scheme,
                one.method,
                one.path,
                one.observed,
            )
            if one.until is not None:
                key = (*key, one.at, one.reason)
            known = pending.get(key)
            if known is not None:
                pending[key] = msgspec.structs.replace(known, count=known.count + one.count)
            elif len(pending) < _MOST_PENDING or one.until is not None:
                pending[key] = one
            else:
                self._lost[sandbox_id] = self._lost.get(sandbox_id, 0) + one.count
        if len(pending) >= _MOST_KEPT:
            self.flush()
        elif self._flushing is None:
            # Nobody else has those of before any more.
            is_kept = any(one.until is not None for one in decisions)
            self._flushing = asyncio.get_running_loop().call_later(0 if is_kept else _FLUSH_S, self.flush)

    def flush(self) -> None:
        """Write all pending decisions now."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        pending, self._pending = self._pending, {}
        lost, self._lost = self._lost, {}
        acting, self._acting = self._acting, {}
        for sandbox_id, decisions in pending.items():
            self.acts.decided(sandbox_id, decisions.values(), *acting.get(sandbox_id, (None, None)))
            self.acts.log.settle()  # so that it shows if the log is late
            try:
                self._write(sandbox_id, list(decisions.values()))
            except OSError as error:
                if isinstance(error, FileNotFoundError):  # the sandbox has been killed meanwhile
                    self.acts.forget(sandbox_id)
                _log.info("cannot write the decisions about sandbox %s: %s", sandbox_id, error)
                continue
            self._tell(sandbox_id, list(decisions.values()), lost.get(sandbox_id, 0))

    def _write(self, sandbox_id: str, decisions: list[EgressDecision]) -> None:
        path = self.path(sandbox_id)
        append_log(path, "\n".join(msgspec.json.encode(one).decode() for one in decisions))
        forget_log_head(path, most_bytes=_MOST_BYTES, keep_bytes=_KEEP_BYTES)

    def _tell(self, sandbox_id: str, decisions: list[EgressDecision], lost: int) -> None:
        refused = [one for one in decisions if one.action != "allow"]
        for one in refused[:_LOG_LINES]:
            self.journal.tell(sandbox_id, line_of(one))
        more = sum(one.count for one in refused[_LOG_LINES:]) + lost
        if more:
            self.journal.tell(sandbox_id, f"network: {more} more were refused; see `atoll policy log`")


def line_of(decision: EgressDecision) -> str:
    """A decision as a line of a sandbox's log."""
    what = f"{decision.method} " if decision.method else ""
    where = decision.host if not decision.port else f"{decision.host}:{decision.port}"
    done = "would refuse" if decision.observed else _DONE.get(decision.action, "refused")
    times = f" ({decision.count} times)" if decision.count > 1 else ""
    return f"network: {done} {what}{where}{decision.path}{times}: {decision.reason}"
