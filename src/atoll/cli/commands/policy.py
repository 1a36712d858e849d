"""``atoll policy``."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import Group
from atoll.cli.network import (
    NetworkParameter,
    decision_line,
    network_shown,
    policy_text,
    registries_shown,
    verdict_line,
)
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import note, show_json, show_json_line
from atoll.cli.sandboxes import asked, held
from atoll.cli.text import plain
from atoll.exit_codes import ExitCode
from atoll.types import EgressPolicy, Policy


@click.group(name="policy", cls=Group)
def command() -> None:
    """Set and test what a sandbox may reach, and show the decisions."""


@command.command(name="show")
@sandbox_argument
@json_option
def show_policy(sandbox: str, as_json: bool) -> None:
    r"""Show what a sandbox may reach: a preset's name, or the rules as TOML.

    For packages it lists the hosts of the registries, by the package client that names them.

    \b
    Example:
      atoll policy show work
      atoll policy show work > policy.toml
    """
    with asked(sandbox) as found:
        network = found.info().network
        registries = found.egress.registries() if network == "packages" else None
    if registries is not None and as_json:
        show_json({"preset": network, "registries": registries})
    elif as_json:
        show_json(network)
    elif isinstance(network, Policy):
        click.echo(policy_text(network), nl=False)
    else:
        click.echo(network)
        if registries is not None:
            click.echo(registries_shown(registries))


@command.command(name="set")
@sandbox_argument
@click.argument("network", metavar="POLICY", type=NetworkParameter())
@json_option
def set_policy(sandbox: str, network: EgressPolicy, as_json: bool) -> None:
    r"""Change what a sandbox may reach, at once, also on open connections. This does not wake it.

    POLICY is internet, packages, web-read-only, none, or a file in TOML or JSON.

    \b
    Example:
      atoll policy set work none
      atoll policy set work policy.toml
    """
    with held(sandbox) as found:
        found.set_network(network)
        info = found.info()
    if as_json:
        show_json(info.network)
    else:
        click.echo(network_shown(info.network))


@command.command(name="test")
@sandbox_argument
@click.argument("method")
@click.argument("url")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; repeatable.")
@click.option("--body", metavar="TEXT", help="The body of the request.")
@click.option(
    "--policy", "network", metavar="POLICY", type=NetworkParameter(), help="Judge by this policy instead."
)
@json_option
def test_policy(
    sandbox: str,
    method: str,
    url: str,
    headers: tuple[str, ...],
    body: str | None,
    network: EgressPolicy | None,
    as_json: bool,
) -> None:
    r"""Say what a request from a sandbox would get, and which rule decides. Nothing is sent to the server.

    A name that the policy knows is resolved, as for a connection. tcp://HOST:PORT asks about a connection that
    is not HTTP. The exit code is 1 if it would be refused, or held until somebody answers.

    \b
    Example:
      atoll policy test work GET https://example.com/
      atoll policy test work - tcp://example.com:22
    """
    given = dict(pair.partition("=")[::2] for pair in headers)
    with asked(sandbox) as found:
        verdict = found.egress.test(method, url, headers=given, body=body, policy=network)
    if as_json:
        show_json(verdict)
    else:
        click.echo(plain(verdict_line(verdict)))
    if verdict.action != "allow" and not verdict.observed:
        raise click.exceptions.Exit(ExitCode.ANSWER_IS_NO)


@command.command(name="log")
@sandbox_argument
@click.option("-f", "--follow", is_flag=True, help="Continue with new decisions until the sandbox is killed.")
@json_option
def show_decisions(sandbox: str, follow: bool, as_json: bool) -> None:
    r"""Show the decisions about a sandbox's connections, names and requests.

    --json prints a line for each.

    \b
    Example:
      atoll policy log work --follow
    """
    with asked(sandbox) as found:
        for decision in found.egress.decisions(follow=follow):
            if as_json:
                show_json_line(decision)
            else:
                click.echo(plain(decision_line(decision)))


@command.command(name="suggest")
@sandbox_argument
@json_option
def suggest_policy(sandbox: str, as_json: bool) -> None:
    r"""Print the smallest policy that covers what a sandbox has reached, as TOML for a person to read.

    Let the sandbox work under a policy with mode = "observe" first.

    \b
    Example:
      atoll policy suggest work > policy.toml
    """
    with asked(sandbox) as found:
        suggestion = found.egress.suggest()
    if as_json:
        show_json(suggestion.policy)
    else:
        click.echo(policy_text(suggestion.policy), nl=False)
    for one in suggestion.notes:
        note(plain(one))
