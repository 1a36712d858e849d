"""Notes in the audit log what is done, and by whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from atoll.audit import AuditLog
from atoll.errors import AtollError
from atoll.network import Billed, Pace
from atoll.policy import masked
from atoll.protocol import ours
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.types import Alert, Ask, Delegation, EgressDecision, ModelBudget
from atoll.types.internal import usd_of

# What a change of a sandbox's row tells with its new value. All else shows in the act itself, or is no act.
_SETTINGS = ("name", "network", "limits", "lifecycle", "services", "volumes", "metadata")
_TEXT_CHARACTERS = 2000
# Of one sandbox: so many lines at once, and then one a second. A guest that asks without an end would otherwise
# fill the log with itself, until the oldest file goes.
_DECISIONS_AT_ONCE, _DECISIONS_S = 200, 1.0
# The edge and the relay have kept such a pace themselves with what they have kept. This is for one that does not.
_KEPT_AT_ONCE, _KEPT_S = 100_000, 1.0
Details = dict[str, str | int | float | None]


@dataclass(eq=False, repr=False)
class Acts:
    """Notes acts: what clients ask for, what happens to sandboxes, and what is decided about their way out.

    Args:
        boot_s: A clock that never jumps.
        watched: Called with what has happened to a sandbox.
    """

    log: AuditLog
    boot_s: Callable[[], float]
    watched: Callable[[str, SandboxRow], None] | None = None
    _paces: dict[str, Pace] = field(default_factory=dict, init=False)
    _kept_paces: dict[str, Pace] = field(default_factory=dict, init=False)
    _more: Counter[str] = field(default_factory=Counter, init=False)

    def check(self) -> None:
        """Find out whether further acts can be noted.

        Raises:
            NoSpaceError: The log cannot be written, and too much waits for that.
        """
        self.log.check()

    def asked(
        self,
        act: str,
        *,
        caller: str | None,
        named: dict[str, str],
        sandbox_id: str | None,
        team: str | None,
        delegation: str | None,
        error: BaseException | None,
    ) -> None:
        """Note what a client asked for, and how that ended.

        Args:
            named: What the client named, such as a snapshot.
            delegation: What the sandbox acts under.
        """
        self.log.note(
            act,
            caller=caller,
            sandbox_id=sandbox_id,
            team=team,
            delegation=delegation,
            outcome="ok" if error is None else _code(error),
            details=_details(named),
        )
        self.log.settle()

    def arrived(self, verb: str, old: SandboxRow | None, new: SandboxRow) -> None:
        """Note what has happened to a sandbox."""
        details: Details = {}
        if old is None:
            details = {"image": new.image, "snapshot": new.snapshot_id, "by": new.made_by}
            details |= _delegated(new.delegation)
        elif new.unplugged is not None and old.unplugged is None:  # before its state: it is paused by that
            details = {"reason": new.unplugged.reason}
        elif new.state in ("paused", "suspended"):
            details = {"cause": new.sleep_cause}
        elif new.state == "crashed":
            details = {"reason": new.reason}
        if new.state == "killed":
            if more := self._more[new.sandbox_id]:
                details["decisions"] = more
            self.forget(new.sandbox_id)
        self._of_sandbox(f"sandbox.{verb}", new, {name: value for name, value in details.items() if value})
        if self.watched is not None:
            self.watched(verb, new)

    def changed(self, old: SandboxRow, new: SandboxRow) -> None:
        """Note which settings of a sandbox have changed."""
        if old.state == "killed" or new.state == "killed":
            return
        changes = {name: _shown(name, new) for name in _SETTINGS if getattr(new, name) != getattr(old, name)}
        if changes:
            self._of_sandbox("sandbox.changed", new, changes)

    def stored(self, snapshot: SnapshotRow) -> None:
        """Note that a snapshot was made."""
        details: dict[str, Any] = {"snapshot": snapshot.snapshot_id, "automatic": int(snapshot.automatic)}
        self.log.note(
            "snapshot.created",
            sandbox_id=snapshot.sandbox_id,
            team=snapshot.team,
            delegation=snapshot.delegation_uid,
            details=_details(details),
        )

    def told(self, act: str, row: SandboxRow, *, caller: str | None, details: Details) -> None:
        """Note what a client says that it did in a sandbox. The details are bounded, and have no secret."""
        self.log.note(
            act,
            source="client",
            sandbox_id=row.sandbox_id,
            team=row.team,
            caller=caller,
            delegation=row.delegation_uid,
            details={name: value for name, value in details.items() if value is not None},
        )

    def decided(
        self,
        sandbox_id: str,
        decisions: Iterable[EgressDecision],
        delegation: str | None = None,
        team: str | None = None,
    ) -> None:
        """Note what was decided about a sandbox's way out. What comes too often is only counted."""
        note = partial(self.log.note, sandbox_id=sandbox_id, team=team, delegation=delegation)
        for one in decisions:
            is_kept = one.until is not None and self._may_keep(sandbox_id)
            if not is_kept and not self._may_note(sandbox_id, one.count, delegation, team):
                continue
            told = {
                name: ", ".join(value) if isinstance(value, tuple) else value
                for name, value in msgspec.structs.asdict(one).items()
                if name not in ("at", "action") and value not in ("", False, None, ())
            }
            note(f"egress.{one.action}", at=one.at if is_kept else None, details=_details(told))

    def ask_begun(self, ask: Ask) -> None:
        """Note that a sandbox asks somebody about an act."""
        if self._may_note(ask.sandbox_id, 1, ask.delegation, ask.team):
            details = {"ask": ask.ask_id, "title": ask.title, "digest": ask.digest, "rule": ask.rule}
            self.log.note(
                "ask.begun",
                sandbox_id=ask.sandbox_id,
                team=ask.team,
                delegation=ask.delegation,
                details=_details(details),
            )

    def ask_ended(self, ask: Ask, *, by: str) -> None:
        """Note how an ask ended, and who has answered it."""
        if by or self._may_note(ask.sandbox_id, 1, ask.delegation, ask.team):
            told = {"ask": ask.ask_id, "digest": ask.digest, "passed": ask.passed, "reason": ask.reason}
            self.log.note(
                f"ask.{ask.outcome}",
                sandbox_id=ask.sandbox_id,
                team=ask.team,
                delegation=ask.delegation,
                details=_details(
                    {**told, "title": ask.title, "approved_by": ", ".join(ask.approved_by), "by": by}
                ),
            )

    def ask_untold(self, ask: Ask, channel: str, why: str) -> None:
        """Note that a channel was not told of an ask."""
        if self._may_note(ask.sandbox_id, 1, ask.delegation, ask.team):
            told = {"ask": ask.ask_id, "channel": channel, "reason": why}
            self.log.note(
                "ask.untold",
                sandbox_id=ask.sandbox_id,
                team=ask.team,
                delegation=ask.delegation,
                details=_details(told),
            )

    def alerted(self, alert: Alert) -> None:
        """Note an alert. There are few of them, whatever a guest does."""
        told = {
            "alert": alert.alert_id,
            "title": alert.title,
            "count": alert.count,
            "subjects": ", ".join(alert.subjects),
        }
        self._of_alert(f"alert.{alert.rule}", alert, told)

    def alert_untold(self, alert: Alert, why: str) -> None:
        """Note that the webhook was not told of an alert."""
        self._of_alert("alert.untold", alert, {"alert": alert.alert_id, "reason": why})

    def model_called(self, bill: Billed, row: SandboxRow | None) -> None:
        """Note what a sandbox has used of a model. What costs nothing and comes too often is only counted.

        Args:
            row: The sandbox; None if it is gone.
        """
        delegation, team = (None, None) if row is None else (row.delegation_uid, row.team)
        is_free = not bill.nanos and not bill.usage.tokens
        if is_free and not self._may_note(bill.sandbox, 1, delegation, team):
            return
        told = {
            "asked": bill.asked,
            "provider": bill.provider,
            "model": bill.model,
            **msgspec.structs.asdict(bill.usage),
            "usd": usd_of(bill.nanos),
            "status": bill.status,
            "ending": bill.ending,
            "estimated": int(bill.estimated),
        }
        self.log.note(
            "model.called",
            sandbox_id=bill.sandbox,
            team=team,
            delegation=delegation,
            details=_details(told),
        )
        self.log.settle()

    def model_budget_lost(self, budget: str, *, tokens: int, nanos: int) -> None:
        """Note that an edge ended with a part of a budget, which counts as spent."""
        self.log.note("model.lost", details={"budget": budget, "tokens": tokens, "usd": usd_of(nanos)})

    def forget(self, sandbox_id: str) -> None:
        """Drop the counts of a sandbox that is gone."""
        self._paces.pop(sandbox_id, None)
        self._kept_paces.pop(sandbox_id, None)
        self._more.pop(sandbox_id, None)

    def _may_keep(self, sandbox_id: str) -> bool:
        """Whether what was kept while no supervisor ran gets a line with its time, beside the pace of now."""
        pace = self._kept_paces.get(sandbox_id)
        if pace is None:
            pace = self._kept_paces[sandbox_id] = Pace(_KEPT_S, _KEPT_AT_ONCE, self.boot_s)
        if pace.wait_s():
            return False
        pace.take()
        return True

    def _may_note(self, sandbox_id: str, count: int, delegation: str | None, team: str | None) -> bool:
        """Whether a guest's doing gets a line. What comes too often is only counted."""
        pace = self._paces.get(sandbox_id)
        if pace is None:
            pace = self._paces[sandbox_id] = Pace(_DECISIONS_S, _DECISIONS_AT_ONCE, self.boot_s)
        if pace.wait_s():
            self._more[sandbox_id] += count
            return False
        pace.take()
        if more := self._more.pop(sandbox_id, 0):
            self.log.note(
                "egress.more",
                sandbox_id=sandbox_id,
                team=team,
                delegation=delegation,
                details={"count": more},
            )
        return True

    def _of_alert(self, act: str, alert: Alert, details: dict[str, Any]) -> None:
        self.log.note(
            act,
            sandbox_id=alert.sandbox_id,
            team=alert.team,
            delegation=alert.delegation,
            details=_details(details),
        )

    def _of_sandbox(self, act: str, row: SandboxRow, details: dict[str, Any]) -> None:
        self.log.note(
            act,
            sandbox_id=row.sandbox_id,
            team=row.team,
            delegation=row.delegation_uid,
            details=_details(details),
        )


def _delegated(delegation: Delegation | None) -> Details:
    """What the uid of a delegation does not say: another one of the chain may be asked about later."""
    if delegation is None or delegation.is_root:
        return {}
    return {
        "parent": delegation.parent_uid,
        "for": delegation.on_behalf_of,
        "scopes": " ".join(delegation.scopes),
        "until": delegation.expires_at,
        **_models_of(delegation.models),
    }


def _models_of(budget: ModelBudget | None) -> Details:
    if budget is None:
        return {}
    return {"models_usd": budget.usd, "models_tokens": budget.tokens, "models_per": budget.per}


def _shown(name: str, row: SandboxRow) -> object:
    if name == "network":
        return masked(row.network)
    if name == "services":  # their variables may hold anything
        return [service.name for service in row.services]
    return getattr(row, name)


def _details(values: dict[str, Any]) -> Details:
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> str | int | float | None:
    if isinstance(value, (int, float)) or value is None:
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:_TEXT_CHARACTERS]


def _code(error: BaseException) -> str:
    told = ours(error)
    return told.code if isinstance(told, AtollError) else type(told).__name__
