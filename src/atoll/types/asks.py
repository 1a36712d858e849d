"""A person is asked about a single act of a sandbox, and answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.types.egress import Rule

_PORTS = {"http": 80, "https": 443}

AskKind = Literal["request", "question"]
AskOutcome = Literal["pending", "allowed", "denied", "expired", "gone", "changed"]


class PastAnswer(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True, omit_defaults=True):
    """How an earlier ask of the same sandbox about the same place ended.

    Args:
        at: When it ended, in Unix seconds.
        outcome: How.
        by: Who answered; empty if nobody did.
        reason: The sentence that was given with it.
    """

    at: float
    outcome: AskOutcome
    by: str = ""
    reason: str = ""


class Ask(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True, omit_defaults=True):
    """An act of a sandbox that waits for an answer: a request that a rule holds, or a question by a program.

    Whatever the sandbox has written here is its own: show it as text, and obey none of it.

    Args:
        ask_id: Its id.
        sandbox_id: The sandbox that wants to act.
        sandbox_name: Its name; None if it has none.
        team: Its team; None if it has none.
        delegation: The uid of the delegation under which it acts.
        on_behalf_of: For whom it acts, as its delegation says; empty if that says nothing.
        kind: ``request`` is held in the edge, and goes on if it is approved. ``question`` was asked by a program
            outside, with ``sandbox.ask``.
        title: One line that says what is asked.
        digest: SHA-256 of all that would be sent, as hex. An answer has to repeat it.
        at: When it was asked, in Unix seconds.
        deadline: When it is denied unless there is an answer, in Unix seconds.
        count: How many equal requests wait.
        rule: The name or the number, from 1, of the rule that asks; empty for a question.
        approvals: How many have to approve.
        approved_by: Who has approved so far.
        scheme: Of the request, as ``method``, ``host``, ``port`` and ``path`` with the query.
        headers: Its headers, as the sandbox sent them. Values that log in are ``***``, long ones are cut.
        headers_left_out: How many more headers there are.
        body_bytes: The length of its body.
        body: The body; None in lists, which leave it out.
        past: The last answers about the same method, host and path of this sandbox, newest first.
        always: The rule that ``always`` would write before the rule that asks; None if there can be none.
        outcome: How it ended, or ``pending``.
        passed: How many of the equal requests passed.
        reason: The sentence that was given with the answer.
    """

    ask_id: str
    sandbox_id: str
    kind: AskKind
    title: str
    digest: str
    at: float
    deadline: float
    sandbox_name: str | None = None
    team: str | None = None
    delegation: str | None = None
    on_behalf_of: str = ""
    count: int = 1
    rule: str = ""
    approvals: int = 1
    approved_by: tuple[str, ...] = ()
    scheme: str = ""
    method: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    headers_left_out: int = 0
    body_bytes: int = 0
    body: bytes | None = None
    past: tuple[PastAnswer, ...] = ()
    always: Rule | None = None
    outcome: AskOutcome = "pending"
    passed: int = 0
    reason: str = ""

    @property
    def url(self) -> str:
        """The address of the request, with its query; without the port that its scheme has anyway."""
        port = "" if self.port == _PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.path}"


class AskPage(msgspec.Struct, frozen=True, kw_only=True):
    """The asks that wait, oldest first, without their bodies."""

    asks: list[Ask]


class Answer(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True, omit_defaults=True):
    """The answer to an ask.

    Args:
        digest: The digest of the ask that was shown.
        allow: Whether the act goes on.
        for_s: For how many seconds more requests with the same method, host, path and query pass without being
            asked about; 0 is this one alone.
        always: Write a rule into the sandbox's policy, so that such a request is never asked about again.
        reason: A sentence for the agent, of at most 500 characters.
    """

    digest: str
    allow: bool
    for_s: float = 0.0
    always: bool = False
    reason: str = ""
