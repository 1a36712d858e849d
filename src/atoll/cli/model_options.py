"""The options that give a new sandbox models, and budgets as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from atoll.types import ModelAccess, ModelBudget, ModelBudgetUse

F = TypeVar("F", bound=Callable[..., Any])


def model_options(command: F) -> F:
    """Add ``--model``, ``--model-usd``, ``--model-tokens`` and ``--model-per``."""
    for add in (
        click.option(
            "--model-per",
            type=click.Choice(["day", "total"]),
            default="day",
            help="For what time the limits on models are: a day in UTC, or in all; default: day.",
        ),
        click.option(
            "--model-tokens", type=int, metavar="N", help="The tokens that it may use of its models."
        ),
        click.option(
            "--model-usd", type=float, metavar="DOLLARS", help="What it may spend on its models, in dollars."
        ),
        click.option(
            "--model",
            "models",
            metavar="NAME",
            multiple=True,
            help="A model that it may use, of those that `atoll models show` lists: an alias, or a pattern such "
            "as openai/gpt-*; repeatable; default: none.",
        ),
    ):
        command = add(command)
    return command


def model_access(options: Mapping[str, Any]) -> ModelAccess | None:
    """Return the models that these options ask for; None without any of them.

    Raises:
        InvalidSpecError: A value is invalid.
    """
    usd, tokens = options["model_usd"], options["model_tokens"]
    if not options["models"] and usd is None and tokens is None:
        return None
    allow = tuple(options["models"]) or ("*",)
    return ModelAccess(allow=allow, usd=usd, tokens=tokens, per=options["model_per"])


def dollars(usd: float) -> str:
    """Return an amount with as many digits as it needs to be seen."""
    return f"${usd:,.2f}" if usd == 0 or usd >= 1 else f"${usd:.6f}"


def budget_shown(budget: ModelBudget) -> str:
    """Return a budget as text."""
    parts = [] if budget.usd is None else [dollars(budget.usd)]
    parts += [] if budget.tokens is None else [f"{budget.tokens:,} tokens"]
    return f"{' and '.join(parts)} {_per(budget.per)}" if parts else "no limit"


def budget_use_shown(use: ModelBudgetUse) -> str:
    """Return how far a budget is used, as a line."""
    usd = f"{dollars(use.spent_usd)}{'' if use.usd is None else f' of {dollars(use.usd)}'}"
    tokens = f"{use.spent_tokens:,}{'' if use.tokens is None else f' of {use.tokens:,}'} tokens"
    held = f", {dollars(use.held_usd)} held for requests" if use.held_usd else ""
    return f"{use.budget}: {usd}, {tokens} {_per(use.per)}{held}"


def _per(per: str) -> str:
    return "a day" if per == "day" else "in all"
