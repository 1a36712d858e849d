"""``atoll models``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from atoll.cli.lazy_commands import Group
from atoll.cli.model_options import budget_shown, budget_use_shown, dollars
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.cli.text import plain, table
from atoll.errors import InvalidSpecError
from atoll.policy import models_from_text
from atoll.sdk import Models
from atoll.types import ModelSetup


class SetupFile(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """The file of models in TOML or JSON."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ModelSetup:
        """Read the file."""
        if isinstance(value, ModelSetup):
            return value
        try:
            return models_from_text(Path(value).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise click.BadParameter(f"{value!r} cannot be read: {reason}", ctx, param) from None
        except InvalidSpecError as error:
            raise click.BadParameter(f"{value}: {error}", ctx, param) from None


@click.group(name="models", cls=Group)
def command() -> None:
    """Offer models to sandboxes, and show what they have used and what it cost."""


@command.command(name="set")
@click.argument("setup", metavar="FILE", type=SetupFile())
@json_option
def set_models(setup: ModelSetup, as_json: bool) -> None:
    r"""Offer the models of a file in TOML or JSON, in place of all before. Running sandboxes have them at once.

    The keys are secrets of the home: the file has their names.

    \b
    Example:
      atoll secret create openai-key
      atoll models set models.toml
    """
    _show(Models.set(setup), as_json)


@command.command(name="show")
@json_option
def show_models(as_json: bool) -> None:
    r"""Show the models that the home offers, without keys.

    \b
    Example:
      atoll models show --json > models.json
    """
    _show(Models.get(), as_json)


@command.command(name="usage")
@click.option("--sandbox", metavar="SANDBOX", help="Only by this sandbox; of a killed one, its id.")
@click.option("--team", metavar="TEAM", help="Only by the sandboxes of this team.")
@click.option("--since", metavar="DAY", help="Only from this day on in UTC, as 2026-11-28.")
@json_option
def show_usage(sandbox: str | None, team: str | None, since: str | None, as_json: bool) -> None:
    r"""Show what was used of which model on which day, and how far budgets are used now.

    \b
    Example:
      atoll models usage --team reef --since 2026-11-01
    """
    report = Models.usage(sandbox=sandbox, team=team, since=since)
    if as_json:
        show_json(report)
        return
    rows = [
        (
            use.day,
            use.sandbox_id,
            f"{use.provider}/{use.model}",
            f"{use.requests:,}",
            f"{use.tokens:,}",
            dollars(use.usd),
        )
        for use in report.uses
    ]
    click.echo(plain(table(("DAY", "SANDBOX", "MODEL", "REQUESTS", "TOKENS", "COST"), rows)))
    for budget in report.budgets:
        note(plain(budget_use_shown(budget)))


@command.command(name="prices")
@json_option
def show_prices(as_json: bool) -> None:
    r"""Show what a million tokens cost of the models of the home's providers, and how old the prices are.

    \b
    Example:
      atoll models prices
    """
    told = Models.prices()
    if as_json:
        show_json(told)
    else:
        rows = [
            (
                row.model,
                *(
                    f"{value:g}" if value is not None else "-"
                    for value in (
                        row.price.input,
                        row.price.cache_read,
                        row.price.cache_write,
                        row.price.output,
                    )
                ),
                "own" if row.own else "table",
            )
            for row in told.prices
        ]
        head = ("MODEL", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "FROM")
        click.echo(plain(table(head, rows)))
    if told.is_old:
        note(
            f"the table of prices is {told.age_days} days old: install a newer atoll, or set prices of your own"
        )
    elif not as_json:
        note(f"the table of prices is of {told.made_on}")


def _show(setup: ModelSetup, as_json: bool) -> None:
    if as_json:
        show_json(setup)
        return
    lines = [
        f"provider  {name}: {each.kind} at {each.address}, {len(each.keys)} keys"
        for name, each in setup.providers.items()
    ]
    lines += [f"alias     {alias}: {', '.join(models)}" for alias, models in setup.aliases.items()]
    lines += [
        f"team      {name}: {', '.join(access.allow)}; {budget_shown(access.budget)}"
        for name, access in setup.teams.items()
    ]
    lines += [f"key       {key}: {budget_shown(budget)}" for key, budget in setup.keys.items()]
    lines += [f"price     {model}" for model in setup.prices]
    lines.append(f"budget    {budget_shown(setup.budget)}")
    click.echo(plain("\n".join(lines)) if setup.providers else "this home offers no models")
