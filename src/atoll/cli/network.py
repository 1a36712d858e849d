"""Egress policies on the command line."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import click

from atoll.cli.text import plain
from atoll.errors import InvalidSpecError
from atoll.policy import policy_from_text, to_toml
from atoll.types import EgressDecision, EgressPolicy, EgressVerdict, Policy, Preset


class NetworkParameter(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """The name of a preset, or the file of a policy in TOML or JSON."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> EgressPolicy:
        """Return the policy. A value that is no preset is a file."""
        if isinstance(value, Policy) or value in get_args(Preset):
            network: EgressPolicy = value
            return network
        try:
            text = Path(value).read_text("utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            known = ", ".join(get_args(Preset))
            raise click.BadParameter(
                f"{value!r} cannot be read: {reason}; give {known}, or a file in TOML or JSON", ctx, param
            ) from None
        try:
            return policy_from_text(text)
        except InvalidSpecError as error:
            raise click.BadParameter(f"{value}: {error}", ctx, param) from None


class CeilingParameter(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """The most that a team's sandboxes may reach: as ``NetworkParameter``, or ``off``."""

    name = "policy"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> EgressPolicy | Literal["off"]:
        """Return the policy, or ``off``."""
        return "off" if value == "off" else NetworkParameter().convert(value, param, ctx)


def network_shown(network: EgressPolicy) -> str:
    """Describe a policy in a few words."""
    if not isinstance(network, Policy):
        return network
    count = len(network.rules)
    rules = "no rule" if not count else "1 rule" if count == 1 else f"{count} rules"
    return f"a policy of {rules}{', only observed' if network.mode == 'observe' else ''}"


def policy_text(policy: Policy) -> str:
    """Return a policy as TOML that commands accept. A policy without rules says so."""
    return to_toml(policy) or "rules = []\n"


def registries_shown(registries: Mapping[str, Sequence[str]]) -> str:
    """Return the hosts that ``packages`` allows, by client, and how to add one, as comments."""
    width = max(map(len, registries), default=0)
    lines = ["GET and HEAD at the registries that the package clients on the host use:"]
    for client, hosts in registries.items():
        lines.append(f"  {client:<{width}}  {' '.join(hosts) or 'names none: its packages are refused'}")
    lines += [
        "To add hosts, stop the supervisor and give them to the next one, on that host:",
        "  atoll stop; export ATOLL_PACKAGE_HOSTS='HOST HOST'",
    ]
    return "\n".join(f"# {plain(line)}" for line in lines)


def verdict_line(verdict: EgressVerdict) -> str:
    """Describe the verdict on a request in one line."""
    rule = "" if verdict.rule is None else f" by rule {verdict.rule + 1}"
    passes = " (observed only: it passes)" if verdict.observed else ""
    reason = f": {verdict.reason}" if verdict.reason else ""
    changes = f" ({'; '.join(verdict.changes)})" if verdict.changes else ""
    return f"{verdict.action}{rule}{passes}{reason}{changes}"


def decision_line(decision: EgressDecision) -> str:
    """Describe a decision in one line: time, verdict, destination and reason."""
    moment = time.strftime("%H:%M:%S", time.localtime(decision.at))
    action = "would deny" if decision.observed else decision.action
    where = decision.host if not decision.port else f"{decision.host}:{decision.port}"
    what = f"{decision.method} {where}{decision.path}" if decision.method else where
    times = f" x{decision.count}" if decision.count > 1 else ""
    secrets = f"  with {', '.join(decision.secrets)}" if decision.secrets else ""
    return f"{moment}  {action:<10}  {what}{times}  {decision.reason}".rstrip() + secrets
