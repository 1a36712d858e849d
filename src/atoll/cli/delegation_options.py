"""The options that say for whom a new sandbox acts, what it may do and spend at most, and until when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from atoll.cli.leases import Length
from atoll.cli.model_options import budget_shown
from atoll.cli.text import moment
from atoll.types import Delegation, DelegationSpec, ModelBudget
from atoll.types.internal import SCOPES

F = TypeVar("F", bound=Callable[..., Any])


def delegation_options(command: F) -> F:
    """Add ``--on-behalf-of``, ``--scope``, ``--expires`` and those of a budget, ``--delegation-usd`` and so on."""
    for add in (
        click.option(
            "--delegation-per",
            type=click.Choice(["day", "total"]),
            default="day",
            help="For what time the limits of its delegation are: a day in UTC, or in all; default: day.",
        ),
        click.option(
            "--delegation-tokens",
            type=int,
            metavar="N",
            help="The tokens that it and all that come of it may use of models together.",
        ),
        click.option(
            "--delegation-usd",
            type=float,
            metavar="DOLLARS",
            help="What it and all that come of it may spend on models together, in dollars.",
        ),
        click.option(
            "--expires",
            "expires_s",
            type=Length(off=False, least_s=0.001),
            metavar="LENGTH",
            help="End its delegation after this time: it then reaches nothing and sleeps for good.",
        ),
        click.option(
            "--scope",
            "scopes",
            type=click.Choice(["none", *SCOPES]),
            multiple=True,
            help="What it may do at most, or none of that; repeatable; default: all that its delegation allows.",
        ),
        click.option(
            "--on-behalf-of",
            "on_behalf_of",
            metavar="NAME",
            help="The person or agent that it works for, as the audit log shows it.",
        ),
    ):
        command = add(command)
    return command


def delegation(options: Mapping[str, Any]) -> DelegationSpec | None:
    """Return the delegation that these options ask for; None without any of them.

    Raises:
        InvalidSpecError: A value is invalid.
    """
    scopes = tuple(scope for scope in options["scopes"] if scope != "none")
    usd, tokens = options["delegation_usd"], options["delegation_tokens"]
    spec = DelegationSpec(
        on_behalf_of=options["on_behalf_of"],
        scopes=scopes if options["scopes"] else None,
        expires_in_s=options["expires_s"],
        models=None
        if usd is None and tokens is None
        else ModelBudget(usd=usd, tokens=tokens, per=options["delegation_per"]),
    )
    return None if spec == DelegationSpec() else spec


def delegation_shown(delegation: Delegation) -> str:
    """Return a delegation as a line for people."""
    for_whom = f" for {delegation.on_behalf_of}" if delegation.on_behalf_of else ""
    until = "" if delegation.expires_at is None else f", until {moment(delegation.expires_at)}"
    child = "" if delegation.parent_uid is None else f", child of {delegation.parent_uid}"
    scopes = " ".join(delegation.scopes) or "no scopes"
    models = "" if delegation.models is None else f", {budget_shown(delegation.models)} for models"
    return f"{delegation.uid} by {delegation.issuer}{for_whom}: {scopes}{models}{until}{child}"
