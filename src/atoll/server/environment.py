"""Prints the environment variables that clients need, and writes them to a file if one is named."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from atoll.errors import HostError, InvalidSpecError
from atoll.server.settings import Settings


def client_variables(settings: Settings, key: str) -> dict[str, str]:
    """Return the variables that an E2B client needs."""
    variables = {"E2B_API_KEY": key}
    if settings.tls_bundle is not None:
        # Python trusts this file instead of its usual ones; Node.js trusts it in addition
        variables |= {
            "SSL_CERT_FILE": str(settings.tls_bundle),
            "NODE_EXTRA_CA_CERTS": str(settings.tls_authority),
        }
    if settings.domain is not None and settings.tls_cert is not None:
        return variables | {"E2B_DOMAIN": str(settings.public_domain)}
    return variables | _urls(_own_url(settings))


def login_line(settings: Settings) -> str:
    """Return the command with which atoll's own SDK and command line use this server."""
    named = settings.domain is not None and settings.tls_cert is not None
    url = f"https://api.{settings.public_domain}" if named else _own_url(settings)
    authority = "" if settings.tls_authority is None else f" --ca {shlex.quote(str(settings.tls_authority))}"
    return f"atoll login {url}{authority}"


def _own_url(settings: Settings) -> str:
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"
    return f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def local_variables(settings: Settings) -> dict[str, str]:
    """Return variables that lead clients on this machine to a self-signed server, without its domain.

    The result is empty if that does not work: the certificate is not our own and may not cover localhost, or
    nothing listens on loopback.
    """
    if settings.tls_authority is None or not settings.on_loopback:
        return {}
    return _urls(f"{settings.scheme}://localhost:{settings.port}")


def _urls(url: str) -> dict[str, str]:
    return {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url}


def check_env_file(path: Path) -> None:
    """Refuse a file that cannot be written.

    Raises:
        InvalidSpecError: The path is no plain file, or its directory is missing or not writable.
    """
    if path.is_dir():
        raise InvalidSpecError(f"{path} is a directory", hint="give --env-file a file in it")
    if path.exists() and not path.is_file():
        # the write would replace such a file, for example a device
        raise InvalidSpecError(f"{path} is not a plain file", hint="give --env-file another one")
    if not path.parent.is_dir():
        raise InvalidSpecError(
            f"there is no directory {path.parent} for {path.name}",
            hint="create it, or give another --env-file",
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InvalidSpecError(
            f"this user may not write in {path.parent}", hint="give an --env-file somewhere else"
        )


def tell(variables: dict[str, str], env_file: Path | None) -> None:
    """Print the variables, and write them to the file completely or not at all.

    Raises:
        HostError: The file cannot be written.
    """
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    if env_file is not None:
        try:
            _write(env_file, lines)
        except OSError as error:
            raise HostError(
                f"{env_file} cannot be written: {error.strerror}", hint="give another --env-file"
            ) from error
    click.echo(lines, nl=False)


def write_metrics_token(path: Path, token: str) -> None:
    """Write the token of ``/metrics`` to a file that only this user can read.

    Raises:
        HostError: The file cannot be written.
    """
    try:
        _write(path, token)
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}", hint="make room for it") from error


def _write(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        try:
            file.write(text)
            file.flush()
            aside.replace(path)
        except OSError:
            aside.unlink()
            raise
