"""The rules that find what a person may want to know at once, and how often they say so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from atoll.network import Pace
from atoll.remedies import harmless
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.alert_book import AlertBook
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.seen import Seen
from atoll.types import Alert, AlertRule, EgressDecision

MINUTE_S = 60.0
_LOOK_S = 5.0
_SUBJECTS_MOST = 8
_SUBJECT_CHARACTERS = 253
_WINDOWS_MOST = 10_000
_CANARY = "a canary appeared"


class About(NamedTuple):
    """The sandbox that an alert is about."""

    sandbox_id: str
    team: str | None = None
    delegation: str | None = None


class _Kind(NamedTuple):
    """What equal alerts have in common."""

    rule: AlertRule
    sandbox_id: str
    part: str = ""


@dataclass(eq=False)
class _Group:
    """Equal alerts of a sandbox within a minute, of which the first one was told."""

    about: About
    until_s: float
    count: int = 0
    subjects: list[str] = field(default_factory=list)


@dataclass(eq=False)
class _Refusals:
    """The refusals of a sandbox since a moment."""

    since_s: float
    count: int = 0


@dataclass(eq=False, repr=False)
class AlertRules:
    """Raises alerts about what sandboxes do. A hostile guest can neither flood people nor have them miss a rule.

    The first alert of a rule and a sandbox is told at once. Equal ones of the next minute are one more, with their
    number. Of each team and rule, so many are told in a minute; one more says how many were left out.

    Args:
        name_of: Returns the name of a sandbox, if it has one.
        tell: Called with each alert.
        boot_s: A clock that never jumps.
    """

    settings: Settings
    seen: Seen
    book: AlertBook
    name_of: Callable[[str], str | None]
    tell: Callable[[Alert], None]
    boot_s: Callable[[], float]
    _groups: dict[_Kind, _Group] = field(default_factory=dict, init=False)
    _refusals: dict[str, _Refusals] = field(default_factory=dict, init=False)
    _paces: dict[tuple[str | None, AlertRule], Pace] = field(default_factory=dict, init=False)
    _left_out: Counter[str | None] = field(default_factory=Counter, init=False)
    _left_out_until_s: float = field(default=0.0, init=False)
    _settling: asyncio.TimerHandle | None = field(default=None, init=False)
    _on: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._on = frozenset(self.settings.alert_rules.split())

    def decided(self, about: About, decisions: Iterable[EgressDecision]) -> None:
        """Look at decisions about a sandbox's way out."""
        for one in decisions:
            if one.action in ("deny", "unplug") and not one.observed:
                self._refused(about, one)
                continue
            if one.action != "allow" and not one.observed:  # somebody is asked first
                continue
            if "host" in self._on and not self.seen.host(about.team, one.host):
                self.found("host", about, one.host)
            if "secret" in self._on:
                for name in one.secrets:
                    if not self.seen.secret(about.sandbox_id, name):
                        self.found("secret", about, f"{name}, at {one.host}")

    def arrived(self, verb: str, row: SandboxRow) -> None:
        """Look at what has happened to a sandbox."""
        if verb == "killed":
            self.seen.forget(row.sandbox_id)
            self._refusals.pop(row.sandbox_id, None)
        elif verb == "unplugged" and row.unplugged is not None:
            reason = row.unplugged.reason or "nobody said why"
            rule: AlertRule = "canary" if reason.startswith(_CANARY) else "unplugged"
            self.found(rule, About(row.sandbox_id, row.team, row.delegation_uid), reason)

    def found(self, rule: AlertRule, about: About, subject: str, count: int = 1, part: str = "") -> None:
        """Raise an alert, or count it if an equal one was raised in this minute.

        Args:
            subject: What it is about. A guest may have chosen it.
            part: Tells apart what a minute must not join, though it is of one rule and sandbox.
        """
        if rule not in self._on:
            return
        subject = harmless(subject, kept="")[:_SUBJECT_CHARACTERS]
        kind = _Kind(rule, about.sandbox_id, part)
        group = self._groups.get(kind)
        if group is None:
            if len(self._groups) < _WINDOWS_MOST:
                self._groups[kind] = _Group(about, self.boot_s() + MINUTE_S)
                self._settle_later()
            self._raise(rule, about, count, [subject])
            return
        group.count += count
        if len(group.subjects) < _SUBJECTS_MOST and subject not in group.subjects:
            group.subjects.append(subject)

    def close(self) -> None:
        """Tell of what was counted, and end."""
        if self._settling is not None:
            self._settling.cancel()
        for kind, group in self._groups.items():
            if group.count:
                self._raise(kind.rule, group.about, group.count, group.subjects)
        self._tell_left_out()

    def settle(self) -> None:
        """Tell of what was counted in the minutes that are over."""
        self._settling = None
        now_s = self.boot_s()
        for kind, group in list(self._groups.items()):
            if group.until_s > now_s:
                continue
            if group.count:
                self._raise(kind.rule, group.about, group.count, group.subjects)
                self._groups[kind] = _Group(group.about, now_s + MINUTE_S)
            else:
                del self._groups[kind]
        if self._left_out and self._left_out_until_s <= now_s:
            self._tell_left_out()
        if self._groups or self._left_out:
            self._settle_later()
        else:
            self._paces.clear()

    def _refused(self, about: About, one: EgressDecision) -> None:
        most = self.settings.alert_refusals
        if "refusals" not in self._on:
            return
        now_s = self.boot_s()
        known = self._refusals.get(about.sandbox_id)
        if known is None or now_s - known.since_s > MINUTE_S:
            if len(self._refusals) >= _WINDOWS_MOST:
                self._refusals = {
                    of: each for of, each in self._refusals.items() if now_s - each.since_s <= MINUTE_S
                }
            known = self._refusals[about.sandbox_id] = _Refusals(now_s)
        before, known.count = known.count, known.count + one.count
        if known.count >= most:
            what = f"{one.method} " if one.method else ""
            where = one.host if not one.port else f"{one.host}:{one.port}"
            self.found("refusals", about, f"{what}{where}", one.count if before >= most else known.count)

    def _raise(self, rule: AlertRule, about: About, count: int, subjects: list[str]) -> None:
        pace = self._paces.get((about.team, rule))
        if pace is None:
            most = self.settings.alerts_a_minute
            pace = self._paces[about.team, rule] = Pace(most / MINUTE_S, most, self.boot_s)
        if pace.wait_s():
            if not self._left_out:
                self._left_out_until_s = self.boot_s() + MINUTE_S
            self._left_out[about.team] += 1
            self._settle_later()
            return
        pace.take()
        self._make(rule, about, count, subjects)

    def _make(self, rule: AlertRule, about: About, count: int, subjects: list[str]) -> None:
        alert_id = self.book.next_id()
        alert = Alert(
            alert_id=alert_id,
            at=round(self.book.unix_s(), 6),
            rule=rule,
            title=_title(rule, count, subjects),
            sandbox_id=about.sandbox_id or None,
            sandbox_name=self.name_of(about.sandbox_id) if about.sandbox_id else None,
            team=about.team,
            delegation=about.delegation,
            count=count,
            subjects=tuple(subjects),
        )
        self.book.add(alert)
        self.tell(alert)

    def _tell_left_out(self) -> None:
        left_out, self._left_out = self._left_out, Counter()
        for team, count in left_out.items():
            self._make("more", About("", team), count, [])

    def _settle_later(self) -> None:
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(_LOOK_S, self.settle)


def _title(rule: AlertRule, count: int, subjects: list[str]) -> str:
    shown = "; ".join(subjects)
    match rule:
        case "refusals":
            return f"{count} refusals within a minute, such as {shown}"
        case "canary" | "unplugged":
            return f"unplugged: {shown}"
        case "host":
            return f"{_times(count, 'new host')}: {shown}"
        case "budget":
            return shown
        case "secret":
            return f"{_times(count, 'first use')} of a secret: {shown}"
        case "more":
            return f"{_times(count, 'more alert')} within a minute"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
