"""The entry point of the server's process: ``atoll serve`` becomes ``python -m atoll.server``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import click
import msgspec
import uvloop

from atoll.errors import AtollError, InvalidSpecError
from atoll.exit_codes import ExitCode
from atoll.host import Home, give_up_rights, write_nowhere_but
from atoll.sdk import Keys, for_servers
from atoll.server.announcement import announced
from atoll.server.app import make_app
from atoll.server.auth.access import Access
from atoll.server.auth.access_log import AccessLog
from atoll.server.auth.operator_key import operator_key
from atoll.server.certificates import certificates, check_pair
from atoll.server.domain_names import notice, unresolved
from atoll.server.e2b.image_names import table_of
from atoll.server.environment import (
    check_env_file,
    client_variables,
    local_variables,
    login_line,
    tell,
    write_metrics_token,
)
from atoll.server.listener import Listener, bound
from atoll.server.settings import Settings, address_of
from atoll.server.supervisor_starter import raise_limits, supervisor_starter
from atoll.server.tokens import Tokens, read_secret
from atoll.types.internal import seconds_of

_ENDING = (signal.SIGTERM, signal.SIGINT)
_HELP = """Serve the E2B API, and the ports of sandboxes, to other programs and machines.

\b
Example:
  atoll serve
  atoll serve --domain sandboxes.example.com --listen :443 --tls-cert chain.pem --tls-key key.pem
"""


@click.command(name="atoll serve", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--listen",
    metavar="ADDR",
    default="127.0.0.1:0",
    help="HOST:PORT to listen on; default: a free port of this machine.",
)
@click.option("--domain", metavar="D", help="Serve api.D and PORT-ID.D.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="The certificate's chain, for D and *.D.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key.")
@click.option(
    "--tls", type=click.Choice(["self-signed"]), help="Create a certificate, and print how to trust it."
)
@click.option(
    "--head-timeout",
    metavar="LENGTH",
    default="60s",
    help="Time limit for the head of a request; default: 60s.",
)
@click.option(
    "--body-timeout", metavar="LENGTH", default="10m", help="How long a body may send nothing; default: 10m."
)
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    help="Write the variables that a client needs to this file.",
)
@click.option(
    "--access-log",
    type=click.Path(path_type=Path),
    help="Log each request to this file, as JSON; default: server/access.log in the home.",
)
@click.option(
    "--map-image",
    "images",
    metavar="FROM=TO",
    multiple=True,
    help="Use the image TO for templates that start from FROM; repeatable. docker.io/=MIRROR/ maps all of a registry.",
)
@click.option(
    "--private-range",
    "private_ranges",
    metavar="RANGE",
    multiple=True,
    help="Let clients allow this range of private addresses, such as 10.1.0.0/16, to sandboxes; repeatable.",
)
def serve(
    listen: str,
    domain: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls: str | None,
    head_timeout: str,
    body_timeout: str,
    env_file: Path | None,
    access_log: Path | None,
    images: tuple[str, ...],
    private_ranges: tuple[str, ...],
) -> None:
    """Serve until a signal ends it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    os.environ["ATOLL_URL"] = "local"  # a server serves this machine, wherever its user is logged in
    host, port = address_of(listen)
    settings = Settings(
        host=host,
        port=port,
        domain=domain,
        tls_cert=tls_cert,
        tls_key=tls_key,
        head_timeout_s=seconds_of(head_timeout),
        body_timeout_s=seconds_of(body_timeout),
        env_file=env_file,
        access_log=access_log,
        images=table_of(images),
        private_ranges=private_ranges,
    ).check()
    home = Home.default()
    home.make_top()
    directory = home.path / "server"
    if tls is not None:
        settings = self_signed(settings, directory)
    check_files(settings)
    tokens = Tokens(read_secret(directory))
    write_metrics_token(directory / "metrics-token", tokens.metrics())
    log = AccessLog(settings.access_log or directory / "access.log")
    with contextlib.closing(log), bound(settings) as sock:
        settings = msgspec.structs.replace(settings, port=sock.getsockname()[1])
        _serve(settings, tokens, log, sock, directory)


def check_files(settings: Settings) -> None:
    """Refuse unusable files, before a key is made and printed.

    Raises:
        InvalidSpecError: A file is missing, unusable or invalid.
    """
    if settings.tls_cert is not None and settings.tls_key is not None:
        check_pair(settings.tls_cert, settings.tls_key)
    if settings.env_file is not None:
        check_env_file(settings.env_file)


def _serve(settings: Settings, tokens: Tokens, log: AccessLog, sock: socket.socket, directory: Path) -> None:
    with (
        operator_key() as made,
        supervisor_starter(at_crash=partial(Keys.revoke, made.info.key_id)),
        announced(settings, directory),
    ):
        raise_limits()
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        # the server already listens here; later it may not write where other programs look
        tell(client_variables(settings, made.key), settings.env_file)
        click.echo(f"For atoll's own clients: {login_line(settings)}   # asks for the key", err=True)
        if settings.domain is not None and local_variables(settings):
            click.echo(
                f"On this machine https://localhost:{settings.port} reaches this server too.", err=True
            )
        write_nowhere_but({directory, log.path.parent})
        give_up_rights()
        uvloop.run(_run(settings, tokens, log, sock))


async def _run(settings: Settings, tokens: Tokens, log: AccessLog, sock: socket.socket) -> None:
    server = Listener(make_app(settings, tokens, Access(), log), settings, sock)
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, server.stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    noticing = asyncio.create_task(_notice_names(settings))
    try:
        with for_servers.sharing():
            await server.serve()
    finally:
        noticing.cancel()


async def _notice_names(settings: Settings) -> None:
    """Report which of the printed names lead nowhere on this machine."""
    if settings.domain is None or settings.tls_cert is None:
        return
    if missing := await unresolved(settings.domain):
        click.echo(notice(settings, missing), err=True)


def self_signed(settings: Settings, directory: Path) -> Settings:
    """Return the settings with a self-signed certificate.

    Raises:
        InvalidSpecError: The settings name another certificate already.
    """
    if settings.tls_cert is not None:
        raise InvalidSpecError("there is a certificate already", hint="give --tls or --tls-cert, not both")
    made = certificates(directory / "tls", settings.domain)
    click.echo(
        f"Clients must trust {made.authority}: SSL_CERT_FILE makes Python trust it, and NODE_EXTRA_CA_CERTS Node.js, "
        "with the values below.",
        err=True,
    )
    return msgspec.structs.replace(
        settings,
        tls_cert=made.cert,
        tls_key=made.key,
        tls_authority=made.authority,
        tls_bundle=made.bundle,
    )


def main() -> None:
    """Serve until a signal ends the server. A failure is one line on standard error."""
    try:
        code = serve.main(prog_name="atoll serve", standalone_mode=False)
    except click.ClickException as error:
        _fail(f"{error.format_message()} (see: atoll serve --help)")
    except (KeyboardInterrupt, click.Abort):
        sys.exit(ExitCode.INTERRUPTED)
    except AtollError as error:
        _fail(error.told_to("cli"))
    except OSError as error:
        _fail(str(error))
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _fail(why: str) -> NoReturn:
    click.echo(f"atoll: {why}", err=True)
    sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
