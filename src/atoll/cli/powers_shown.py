"""A sandbox's powers as lines for a person, always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atoll.cli.delegation_options import delegation_shown
from atoll.cli.limit_options import described
from atoll.cli.text import plain
from atoll.types import Powers

_SHOWN = 6
_SHOWN_LESS = 3


def power_lines(powers: Powers) -> list[str]:
    """Return the lines. Long lists are cut, and say so; ``--json`` has all of them."""
    return [
        f"{'' if number else name:<11}{plain(text)}"
        for name, texts in _sections(powers)
        for number, text in enumerate(texts)
    ]


def _sections(powers: Powers) -> Iterator[tuple[str, Sequence[str]]]:
    who = powers.name or powers.sandbox_id
    yield "sandbox", [f"{who}{f' of team {powers.team}' if powers.team else ''}, at worst"]
    if powers.delegation is not None:
        yield "acts under", [delegation_shown(powers.delegation)]
    yield "look at", _cut(powers.warnings, _SHOWN) or ["nothing that stands out"]
    yield "network", list(_network(powers))
    if powers.ceiling is not None:
        texts = [each.text for each in powers.ceiling]
        yield "ceiling", _cut(texts, _SHOWN_LESS) or ["It lets nothing through."]
    yield "secrets", list(_secrets(powers))
    if powers.models:
        yield "models", powers.models
    yield "volumes", _cut([each.text for each in powers.volumes], _SHOWN_LESS) or ["none"]
    listens = f" Its services listen at {_few(powers.listens)}." if powers.listens else ""
    yield "ports", [powers.ports_text + listens]
    yield "limits", [described(powers.limits) or "none"]
    yield "runs", powers.runs
    yield "wakes", powers.wakes
    if powers.hooks:
        yield "host", [f"Programs of the host's user hear of it: {_few(powers.hooks)}."]
    yield "held by", powers.held_by


def _network(powers: Powers) -> Iterator[str]:
    if powers.unplugged:
        yield "It is unplugged: nothing passes until somebody replugs it. Then:"
    if powers.observes:
        yield "The policy only observes."
    texts = [each.text for each in powers.reaches]
    yield from _cut(texts, _SHOWN) or ["It reaches nothing, and no name exists for it."]
    if powers.proxy is not None:
        yield f"Some or all of it goes through the proxy {powers.proxy}."
    if powers.passthrough:
        yield f"TLS to these names is never opened: {_few(powers.passthrough)}."


def _secrets(powers: Powers) -> Iterator[str]:
    yield from _cut([each.text for each in powers.secrets], _SHOWN_LESS) or ["none"]
    if powers.canaries:
        yield f"To send one of its team's {powers.canaries} canaries unplugs it."


def _cut(texts: Sequence[str], most: int) -> list[str]:
    left = len(texts) - most
    return [*texts[:most], *([f"… and {left} more; --json has all"] if left > 0 else [])]


def _few(values: Sequence[object]) -> str:
    left = len(values) - _SHOWN_LESS
    return ", ".join(map(str, values[:_SHOWN_LESS])) + (f" and {left} more" if left > 0 else "")
