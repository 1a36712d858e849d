"""An ask as a card for a person. Every line of the sandbox's own text is marked, and none is obeyed."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.cli.network import policy_text
from atoll.cli.text import age, plain, size
from atoll.types import Ask, PastAnswer, Policy

_LINES = 40
_LINE_CHARACTERS = 400
_MARK = "  | "


def card(ask: Ask, now_s: float) -> str:
    """Return all that matters about an ask, as lines."""
    return "\n".join(plain(line) for line in _lines(ask, now_s))


def rule_diff(ask: Ask) -> str:
    """Return the rule that ``always`` writes, as the lines that it adds to the policy; empty if there is none."""
    if ask.always is None:
        return ""
    text = policy_text(Policy(rules=(ask.always,)))
    return "\n".join(f"+ {plain(line)}" for line in text.splitlines())


def ending(ask: Ask) -> str:
    """Return how an ask is after an answer, as a sentence."""
    if ask.outcome == "pending":
        return f"approved by {', '.join(ask.approved_by)}; {ask.approvals - len(ask.approved_by)} more has to"
    others = ask.count - ask.passed
    rest = f", and {others} equal ones were refused" if ask.outcome == "allowed" and others > 0 else ""
    return f"{ask.outcome}{rest}"


def _lines(ask: Ask, now_s: float) -> Iterator[str]:
    who = ask.sandbox_name or ask.sandbox_id
    of_team = f" of team {ask.team}" if ask.team else ""
    behalf = f", for {ask.on_behalf_of}" if ask.on_behalf_of else ""
    times = f", {ask.count} equal ones" if ask.count > 1 else ""
    yield f"ask {ask.ask_id}: sandbox {who}{of_team}{behalf}{times}, {max(0, int(ask.deadline - now_s))} s left"
    if ask.kind == "request":
        yield f"  rule {ask.rule} asks before this request is sent"
    yield f"{_MARK}{_cut(ask.title if ask.kind == 'question' else f'{ask.method} {ask.url}')}"
    for name, value in ask.headers:
        yield f"{_MARK}{_cut(f'{name}: {value}')}"
    if ask.headers_left_out:
        yield f"  and {ask.headers_left_out} headers more"
    yield from _body(ask)
    yield from (_past(told, now_s) for told in ask.past)
    if ask.approvals > 1:
        by = f", so far {', '.join(ask.approved_by)}" if ask.approved_by else ""
        yield f"  it needs {ask.approvals} approvals{by}"


def _body(ask: Ask) -> Iterator[str]:
    if not ask.body:
        if ask.body_bytes:
            yield f"  with a body of {size(ask.body_bytes)}"
        return
    yield f"{_MARK}"
    lines = ask.body.decode(errors="backslashreplace").splitlines()
    shown = [_cut(line) for line in lines[:_LINES]]
    yield from (f"{_MARK}{line}" for line in shown)
    if shown != lines:
        yield f"  this is a part of {size(ask.body_bytes)}; --json shows all of it"


def _past(told: PastAnswer, now_s: float) -> str:
    by = f" by {told.by}" if told.by else ""
    reason = f": {told.reason}" if told.reason else ""
    return f"  {age(told.at, now_s)} ago such a one was {told.outcome}{by}{reason}"


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_CHARACTERS else f"{text[: _LINE_CHARACTERS - 1]}…"
