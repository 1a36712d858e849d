"""The entry point: ``atoll mcp`` becomes ``python -m atoll.mcp``."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import NoReturn, get_args

import anyio
import click

from atoll.errors import AtollError, InvalidSpecError, UnsupportedError
from atoll.exit_codes import ExitCode
from atoll.mcp.defaults import TOOL_SETS, Defaults, ToolSet
from atoll.mcp.install import CLIENTS, NAME, entry, install
from atoll.policy import policy_from_text
from atoll.types import EgressPolicy, Preset

TOKEN = "ATOLL_MCP_TOKEN"
_HELP = """Give a model computers of its own, by the Model Context Protocol.

\b
Example:
  atoll mcp install claude
  atoll mcp --network packages
  atoll mcp --http 127.0.0.1:7000

Without --http it speaks on standard input and output, as clients expect that start it. With --http, clients send
the token of ATOLL_MCP_TOKEN; without that, one is made and printed.
"""
_SANDBOX = "The sandbox for calls that name none; its first use makes it; default: mcp."
_TOOLS = "The tools that a model sees: those that most work needs, or all."
_NETWORK = "What new sandboxes may reach: a preset's name or a policy's file; default: internet."


@click.group(
    name="atoll mcp",
    help=_HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--sandbox", metavar="NAME", default="mcp", help=_SANDBOX)
@click.option("--image", help="The image of new sandboxes; default: base.")
@click.option(
    "--template", metavar="NAME", help="The template of new sandboxes, such as code-interpreter-v1."
)
@click.option("--network", metavar="POLICY", help=_NETWORK)
@click.option("--tools", type=click.Choice(TOOL_SETS), default=Defaults.tools, show_default=True, help=_TOOLS)
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP there instead.")
@click.pass_context
def command(
    context: click.Context,
    sandbox: str,
    image: str | None,
    template: str | None,
    network: str | None,
    tools: ToolSet,
    http: str | None,
) -> None:
    """Serve, unless a subcommand is given."""
    defaults = Defaults(
        sandbox=sandbox,
        image=image,
        template=template,
        network=None if network is None else network_of(network),
        tools=tools,
    )
    if image is not None and template is not None:
        raise InvalidSpecError("an image and a template are given", hint="give one of them")
    if context.invoked_subcommand is not None:
        return
    require_package()
    from atoll.mcp import serving

    if http is None:
        anyio.run(serving.serve_stdio, defaults)
        return
    host, port = address_of(http)
    token = os.environ.get(TOKEN)
    if not token:
        token = serving.new_token()
        click.echo(f"token: {token}", err=True)
    click.echo(f"listening at http://{http}{serving.PATH}", err=True)
    anyio.run(serving.serve_http, defaults, host, port, token)


@command.command(name="install")
@click.argument("client", type=click.Choice(sorted(CLIENTS)))
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="The file of the configuration; default: where the client keeps it.",
)
@click.option("--print", "only_print", is_flag=True, help="Print what to write into it, and change nothing.")
@click.pass_context
def install_command(context: click.Context, client: str, file: Path | None, only_print: bool) -> None:
    """Write the configuration of a client, so that it starts `atoll mcp` with the options given before."""
    wanted = CLIENTS[client]
    options = options_of(context.parent.params if context.parent else {})
    if only_print:
        click.echo(json.dumps({wanted.key: {NAME: entry(options)}}, indent=2))
        return
    path = file or wanted.path
    try:
        install(wanted, path.resolve(), options)
    except OSError as error:
        raise InvalidSpecError(f"{path} cannot be written: {error.strerror}", hint="give --file") from error
    click.echo(f"{path} has atoll now; {wanted.then}")


@command.command(name="proxy")
@click.argument("name", metavar="SANDBOX")
@click.argument("argv", metavar="[-- ARGV...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--port", type=click.IntRange(1, 65535), help="Port on which a server inside speaks HTTP.")
@click.option("--path", default="/mcp", show_default=True, help="The path of its address.")
@click.option("--cwd", metavar="DIR", help="Directory inside in which ARGV starts; default: the user's home.")
@click.option("--user", metavar="NAME", help="Run ARGV as this user inside.")
def proxy_command(
    name: str, argv: tuple[str, ...], port: int | None, path: str, cwd: str | None, user: str | None
) -> None:
    r"""Use an MCP server inside a sandbox as if it ran here, on standard input and output.

    ARGV starts the server, which then speaks on its standard streams; or a running server listens on --port.
    A sleeping sandbox wakes.

    \b
    Example:
      claude mcp add inside -- atoll mcp proxy work -- python3 server.py
      atoll mcp proxy work --port 8000
    """
    if (port is None) == (not argv):
        raise InvalidSpecError("proxy takes one of --port and a program", hint="give either of them")
    if port is None:
        from atoll.mcp import proxy

        sys.exit(proxy.relay(name, argv, cwd=cwd, user=user))
    if not path.startswith("/"):
        raise InvalidSpecError(f"--path is {path!r}", hint="give one like /mcp")
    require_package()
    from atoll.mcp import proxy_http

    anyio.run(proxy_http.serve, name, port, path)


def require_package() -> None:
    """Refuse to continue without the official SDK.

    Raises:
        UnsupportedError: It is not installed.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UnsupportedError("the package mcp is not installed", hint="pip install 'atoll[mcp]'")


def options_of(given: dict[str, str | None]) -> list[str]:
    """Return the options of ``atoll mcp`` that differ from their defaults, with files by absolute paths."""
    found = []
    for name in ("sandbox", "image", "template", "network", "tools"):
        value = given.get(name)
        if value is None or value == getattr(Defaults(), name):
            continue
        if name == "network" and value not in get_args(Preset):
            value = str(Path(value).resolve())
        found += [f"--{name}", value]
    return found


def network_of(value: str) -> EgressPolicy:
    """Return a preset, or the policy in a file in TOML or JSON.

    Raises:
        InvalidSpecError: It is neither.
    """
    presets: tuple[Preset, ...] = get_args(Preset)
    for preset in presets:
        if value == preset:
            return preset
    try:
        text = Path(value).read_text("utf-8")
    except (OSError, ValueError) as error:
        known = ", ".join(presets)
        raise InvalidSpecError(
            f"the policy {value!r} cannot be read", hint=f"give {known}, or a file in TOML or JSON"
        ) from error
    return policy_from_text(text)


def address_of(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        InvalidSpecError: It is not ``HOST:PORT``.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidSpecError(f"{text!r} is not an address to listen on", hint="give HOST:PORT")
    return host.strip("[]"), int(port)


def main() -> NoReturn:
    """Run the command. A failure is one line on standard error."""
    try:
        command(prog_name="atoll mcp", standalone_mode=False)
    except click.Abort:
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        click.echo(f"atoll: {error.format_message()}", err=True)
    except AtollError as error:
        click.echo(f"atoll: {error.told_to('cli')}", err=True)
    except OSError as error:
        click.echo(f"atoll: {error}", err=True)
    else:
        sys.exit(ExitCode.DONE)
    sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
