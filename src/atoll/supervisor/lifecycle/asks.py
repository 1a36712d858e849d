"""Asks people about acts of sandboxes: requests that the edge holds, and questions of programs outside."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import (
    AskAnswerError,
    AskNotFoundError,
    AtollError,
    InvalidSpecError,
)
from atoll.supervisor.state.ask_listeners import GAP_S
from atoll.supervisor.state.asks import AskTable
from atoll.types import Answer, Ask, AskOutcome, AskPage, Policy, Rule

if TYPE_CHECKING:
    from atoll.network import HeldRequest, Inspection
    from atoll.supervisor.lifecycle.limit_changes import LimitChanges
    from atoll.supervisor.state.acts import Acts
    from atoll.supervisor.state.ask_listeners import AskListeners
    from atoll.supervisor.state.asks import PendingAsk
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.sandbox import Sandbox

NOBODY = "nobody is there who could answer; `atoll asks --follow` or `sandbox.on_ask` on the host would have to run"
# After `always`, equal requests that wait already pass as well, until the new rule is in force.
_ALWAYS_S = 60.0
_SETTLE_S = 5.0
_TITLE_CHARACTERS = 200
_QUESTIONS_MOST = 64
_REASON_CHARACTERS = 500
_FOR_MOST_S = 24 * 3600
LOCAL_USER = "the user of this machine"
WEBHOOK = "the webhook"
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Asks:
    """Keeps asks until somebody has answered, or their time is over."""

    inventory: Inventory
    listeners: AskListeners
    limits: LimitChanges
    acts: Acts
    inspection: Inspection | None
    unix_s: Callable[[], float]
    table: AskTable = field(default_factory=AskTable)

    def held(self, request: HeldRequest, rule: Rule, body: bytes) -> None:
        """A request is held."""
        ask = self._of_request(request, rule, body)
        self.table.add(ask)
        if not request.again:  # else somebody heard of it before
            self.acts.ask_begun(ask)
            self._look_who_listens(ask)

    def counted(self, ask_id: str, count: int) -> None:
        """So many equal requests are held now."""
        with contextlib.suppress(AtollError):
            self.table.change(self.table.of(ask_id), count=count)

    def ended(self, ask_id: str, outcome: str, passed: int) -> None:
        """A request is held no more."""
        known: dict[str, AskOutcome] = {
            "allowed": "allowed",
            "denied": "denied",
            "expired": "expired",
            "changed": "changed",
        }
        self._end(ask_id, known.get(outcome, "gone"), passed)

    def unanswered(self, ask_id: str, error: str) -> None:
        """The edge did not take an answer."""
        _log.warning("the edge did not take the answer to ask %s: %s", ask_id[:32], error)

    def lost(self) -> None:
        """The edge has ended, and held requests with it."""
        for ask in self.table.pending():
            if ask.kind == "request":
                self._end(ask.ask_id, "gone", 0)

    async def question(self, sandbox: Sandbox, title: str, body: str, deadline_s: float) -> Ask:
        """Ask about something that is no request, and return the ask when it has ended."""
        row = sandbox.row
        going = [one for one in self.table.pending(None, row.sandbox_id) if one.kind == "question"]
        if len(going) >= _QUESTIONS_MOST:
            raise InvalidSpecError(
                f"{len(going)} questions about this sandbox wait already", hint="wait for their answers"
            )
        now = self.unix_s()
        ask = Ask(
            ask_id=secrets.token_hex(8),
            sandbox_id=row.sandbox_id,
            sandbox_name=row.name,
            team=row.team,
            delegation=row.delegation_uid,
            on_behalf_of=_on_behalf_of(row),
            kind="question",
            title=title,
            digest=question_digest(title, body),
            at=now,
            deadline=now + deadline_s,
            body=body.encode(),
            body_bytes=len(body.encode()),
        )
        pending = self.table.add(ask)
        self.acts.ask_begun(ask)
        self._look_who_listens(ask)
        try:
            async with asyncio.timeout(deadline_s):
                await pending.ended.wait()
        except TimeoutError:
            self._end(ask.ask_id, "expired", 0)
        finally:
            self._end(ask.ask_id, "gone", 0)  # the caller has left
        return pending.value

    async def answer(self, ask_id: str, answer: Answer, by: str) -> Ask:
        """Answer an ask, and return it as it is then: it waits on if one more has to approve it.

        Args:
            by: Who answers.

        Raises:
            AskNotFoundError: There is none, or it has ended.
            AskAnswerError: The answer is to something else than what would be sent, or the same one has approved it
                already, or the edge has not confirmed it.
            InvalidSpecError: ``always`` can write no rule for it.
        """
        pending = self.table.of(ask_id)
        ask = pending.value
        if answer.digest != ask.digest:
            raise AskAnswerError(
                f"the answer is to other bytes than those of ask {ask_id}",
                hint="look at the ask again, and give its digest",
            )
        if answer.always and ask.always is None:
            raise InvalidSpecError(
                "no rule can allow just this", hint="allow it once or for some time, or change the policy"
            )
        if answer.allow:
            is_enough = self._approved(pending, by)
            answer = pending.approved(answer)
            if not is_enough:
                return pending.value
        pending.answered_by, pending.reason = by, answer.reason
        if ask.kind == "question":
            self._end(ask_id, "allowed" if answer.allow else "denied", int(answer.allow))
        else:
            await self._settle(pending, answer)
        if answer.allow and answer.always and pending.value.outcome == "allowed":
            await self._write_rule(pending.value)
        return pending.value

    def get(self, ask_id: str, team: str | None = None) -> Ask:
        """Return an ask that waits, or one that has ended lately.

        Args:
            team: Only an ask of this team's sandboxes; None is any.

        Raises:
            AskNotFoundError: There is none.
        """
        ask = self.table.get(ask_id)
        if team not in (None, ask.team):
            raise AskNotFoundError(
                f"there is no ask {ask_id[:64]!r}", hint="`atoll asks` lists those that wait"
            )
        return ask

    def page(self, team: str | None, sandbox_id: str | None) -> AskPage:
        """Return the asks of a team's sandboxes, or of one, that wait; None is all."""
        return AskPage(
            asks=[msgspec.structs.replace(one, body=None) for one in self.table.pending(team, sandbox_id)]
        )

    def close(self) -> None:
        """End the questions, and have no client wait for asks any more."""
        for ask in self.table.pending():
            if ask.kind == "question":
                self._end(ask.ask_id, "gone", 0)
        self.table.close()

    def _look_who_listens(self, ask: Ask) -> None:
        """Refuse an ask that nobody hears of. Who was there just before has a while to come back."""
        if self.listeners.is_heard(ask.team, ask.sandbox_id):
            return
        if self.listeners.may_be_heard(ask.team, ask.sandbox_id):
            asyncio.get_running_loop().call_later(GAP_S, self._refuse_unheard, ask)
        else:
            self._refuse_unheard(ask)

    def _refuse_unheard(self, ask: Ask) -> None:
        if self.listeners.is_heard(ask.team, ask.sandbox_id):
            return
        with contextlib.suppress(AtollError):  # it has ended, or the edge has
            self.table.of(ask.ask_id).reason = NOBODY
            if ask.kind == "question":
                self._end(ask.ask_id, "denied", 0)
            else:
                self._send(ask, allow=False, reason=NOBODY, code="ask_nobody")

    def _approved(self, pending: PendingAsk, by: str) -> bool:
        """Count an approval. It is true when there are enough."""
        ask = pending.value
        if _person(by) in map(_person, ask.approved_by):
            raise AskAnswerError(
                f"{_person(by)} has approved ask {ask.ask_id} already",
                hint="another key, or this machine's user, has to",
            )
        self.table.change(pending, approved_by=(*ask.approved_by, by))
        return len(pending.value.approved_by) >= ask.approvals

    async def _settle(self, pending: PendingAsk, answer: Answer) -> None:
        for_s = max(answer.for_s, _ALWAYS_S) if answer.always else answer.for_s
        self._send(pending.value, allow=answer.allow, reason=answer.reason, for_s=for_s)
        try:
            async with asyncio.timeout(_SETTLE_S):
                await pending.ended.wait()
        except TimeoutError:
            raise AskAnswerError(
                f"the answer to ask {pending.value.ask_id} is not confirmed",
                hint="`atoll asks` shows whether it waits",
            ) from None

    def _send(
        self, ask: Ask, *, allow: bool, reason: str, for_s: float = 0.0, code: str = "ask_denied"
    ) -> None:
        assert self.inspection is not None  # it has told of the request
        answer = {"ask": ask.ask_id, "digest": ask.digest, "reason": reason, "for_s": for_s}
        told = {"action": "allow"} if allow else {"action": "deny", "code": code}
        self.inspection.answer(ask.sandbox_id, {**answer, **told})

    def _end(self, ask_id: str, outcome: AskOutcome, passed: int) -> None:
        pending = self.table.end(ask_id, outcome, passed=passed, at=self.unix_s())
        if pending is not None:
            self.acts.ask_ended(pending.value, by=pending.answered_by)

    async def _write_rule(self, ask: Ask) -> None:
        sandbox = self.inventory.sandbox(ask.sandbox_id)
        network = sandbox.row.network
        if ask.always is None or not isinstance(network, Policy):
            return
        at = next((at for at, rule in enumerate(network.rules) if always_rule(ask, rule) == ask.always), None)
        if at is not None:
            rules = (*network.rules[:at], ask.always, *network.rules[at:])
            await self.limits.change_network(sandbox, msgspec.structs.replace(network, rules=rules), {})

    def _of_request(self, request: HeldRequest, rule: Rule, body: bytes) -> Ask:
        row = None
        with contextlib.suppress(AtollError):  # it is only being made
            row = self.inventory.sandbox(request.sandbox).row
        ask = Ask(
            ask_id=request.ask,
            sandbox_id=request.sandbox,
            sandbox_name=None if row is None else row.name,
            team=None if row is None else row.team,
            delegation=None if row is None else row.delegation_uid,
            on_behalf_of="" if row is None else _on_behalf_of(row),
            kind="request",
            title="",
            digest=request.digest,
            at=request.at,
            deadline=request.deadline,
            count=request.count,
            rule=rule.name or str(request.rule + 1),
            approvals=1 if rule.ask is None else rule.ask.approvals,
            scheme=request.scheme,
            method=request.method,
            host=request.host,
            port=request.port,
            path=request.path,
            headers=tuple(request.headers),
            headers_left_out=request.headers_left_out,
            body_bytes=request.body_bytes,
            body=body,
        )
        title = f"{ask.method} {ask.url}"
        if len(title) > _TITLE_CHARACTERS:
            title = f"{title[: _TITLE_CHARACTERS - 1]}…"
        return msgspec.structs.replace(ask, title=title, always=always_rule(ask, rule))


def check_answer(given: Answer) -> None:
    """Check an answer by itself, whatever it is about.

    Raises:
        InvalidSpecError: It makes no sense.
    """
    if not 0 <= given.for_s <= _FOR_MOST_S:
        raise InvalidSpecError(f"for_s is {given.for_s}", hint=f"give seconds from 0 to {_FOR_MOST_S}")
    if len(given.reason) > _REASON_CHARACTERS or not (given.reason == "" or given.reason.isprintable()):
        raise InvalidSpecError(
            "the reason is no plain sentence",
            hint=f"give one line of at most {_REASON_CHARACTERS} characters",
        )
    if not given.allow and (given.for_s or given.always):
        raise InvalidSpecError("only an approval is for some time, or for always", hint="leave that out")


def _person(by: str) -> str:
    """Who stands behind an approval: the user of the machine has set the webhook."""
    return LOCAL_USER if by == WEBHOOK else by


def always_rule(ask: Ask, rule: Rule) -> Rule | None:
    """Return a rule that allows only such requests, as narrow as the rule that asks; None if there can be none."""
    path = ask.path.partition("?")[0]
    if rule.action != "ask" or "*" in path or not path.startswith("/"):
        return None
    return msgspec.structs.replace(
        rule,
        action="allow",
        ask=None,
        name=f"{rule.name}, approved" if rule.name else "",
        hosts=(ask.host,),
        ports=(ask.port,),
        methods=(ask.method,),
        paths=(path,),
    )


def _on_behalf_of(row: SandboxRow) -> str:
    return "" if row.delegation is None else row.delegation.on_behalf_of


def question_digest(title: str, body: str) -> str:
    """Return the digest of a question."""
    parts = (text.encode() for text in (title, body))
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()
