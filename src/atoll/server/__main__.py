"""Entry of the server's process: ``python -m atoll.server``, which is what ``atoll serve`` becomes."""

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

import click
import msgspec
import uvloop

from atoll.errors import AtollError, InvalidSpecError
from atoll.host import Home, give_up_rights, write_nowhere_but
from atoll.sdk import AsyncSupervisor, Keys
from atoll.server.access import Access
from atoll.server.accesslog import AccessLog
from atoll.server.app import make_app
from atoll.server.certificates import certificates
from atoll.server.imagenames import table_of
from atoll.server.listener import Listener, bound
from atoll.server.ownkey import passing_key
from atoll.server.parts import Parts
from atoll.server.settings import Settings, address_of
from atoll.server.starter import raise_limits, starting_elsewhere
from atoll.server.tokens import Tokens, read_secret

_FAILED = 125
_ENDING = (signal.SIGTERM, signal.SIGINT)
_HELP = """Serve the E2B API, and the ports of sandboxes, to other programs and machines.

\b
Example:
  atoll serve
  atoll serve --domain sandboxes.example.com --listen :443 --tls-cert chain.pem --tls-key key.pem
"""


@click.command(name="atoll serve", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--listen", metavar="ADDR", default="127.0.0.1:0", help="HOST:PORT; without it a free port here."
)
@click.option("--domain", metavar="D", help="Serve api.D and PORT-ID.D.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="The certificate's chain, for D and *.D.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key.")
@click.option(
    "--tls", type=click.Choice(["self-signed"]), help="Make a certificate, and say how to trust it."
)
@click.option(
    "--head-timeout", metavar="S", type=float, default=60.0, help="Seconds for a head; default: 60."
)
@click.option(
    "--body-timeout", metavar="S", type=float, default=600.0, help="Seconds of silence; default: 600."
)
@click.option("--env-file", type=click.Path(path_type=Path), help="Write what a client needs there.")
@click.option(
    "--access-log",
    type=click.Path(path_type=Path),
    help="Note each request there, as JSON; default: server/access.log in the home.",
)
@click.option(
    "--map-image",
    "images",
    metavar="FROM=TO",
    multiple=True,
    help="What an image stands for that templates start from; repeatable. docker.io/=MIRROR/ maps all of a registry.",
)
def serve(
    listen: str,
    domain: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls: str | None,
    head_timeout: float,
    body_timeout: float,
    env_file: Path | None,
    access_log: Path | None,
    images: tuple[str, ...],
) -> None:
    """Serve until a signal ends it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    host, port = address_of(listen)
    settings = Settings(
        host=host,
        port=port,
        domain=domain,
        tls_cert=tls_cert,
        tls_key=tls_key,
        head_timeout_s=head_timeout,
        body_timeout_s=body_timeout,
        env_file=env_file,
        access_log=access_log,
        images=table_of(images),
    ).check()
    directory = Home.default().path / "server"
    if tls is not None:
        settings = self_signed(settings, directory)
    with bound(settings) as sock, passing_key() as made:
        settings = msgspec.structs.replace(settings, port=sock.getsockname()[1])
        tokens = Tokens(read_secret(directory))
        log = AccessLog(settings.access_log or directory / "access.log")
        with contextlib.closing(log), starting_elsewhere(at_crash=partial(Keys.revoke, made.info.key_id)):
            raise_limits()
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            # it listens already, and nothing is written where others look afterwards
            _tell(client_variables(settings, made.key), settings.env_file)
            write_nowhere_but({directory, log.path.parent})
            give_up_rights()
            parts = Parts(settings=settings, tokens=tokens, access=Access(), log=log)
            uvloop.run(_run(parts, sock))


async def _run(parts: Parts, sock: socket.socket) -> None:
    server = Listener(make_app(parts), parts.settings, sock)
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, server.stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    with AsyncSupervisor.sharing():
        await server.serve()


def self_signed(settings: Settings, directory: Path) -> Settings:
    """The settings with a certificate of our own.

    Raises:
        InvalidSpecError: There is another one already.
    """
    if settings.tls_cert is not None:
        raise InvalidSpecError("there is a certificate already", hint="give --tls or --tls-cert, not both")
    made = certificates(directory / "tls", settings.domain)
    click.echo(
        f"Clients must trust {made.authority}. For Python: SSL_CERT_FILE={made.bundle}, for Node.js: "
        f"NODE_EXTRA_CA_CERTS={made.authority}",
        err=True,
    )
    return msgspec.structs.replace(settings, tls_cert=made.cert, tls_key=made.key, tls_bundle=made.bundle)


def client_variables(settings: Settings, key: str) -> dict[str, str]:
    """What an E2B client must have in its environment."""
    variables = {"E2B_API_KEY": key}
    if settings.tls_bundle is not None:
        variables |= {name: str(settings.tls_bundle) for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")}
    if settings.domain is not None and settings.tls_cert is not None:
        return variables | {"E2B_DOMAIN": str(settings.public_domain)}
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"
    url = f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"
    return variables | {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url}


def _tell(variables: dict[str, str], env_file: Path | None) -> None:
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    if env_file is not None:
        aside = env_file.with_name(f".{env_file.name}.{os.getpid()}")
        with open(aside, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(lines)
        aside.replace(env_file)
    click.echo(lines, nl=False)


def main() -> None:
    """Serve until a signal ends it; what went wrong is one line on standard error."""
    try:
        code = serve.main(prog_name="atoll serve", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(128 + signal.SIGINT)
    except AtollError as error:
        click.echo(f"atoll: {error}", err=True)
        sys.exit(_FAILED)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
