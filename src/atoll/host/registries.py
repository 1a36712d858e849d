"""The package registries that this host's own clients use, for the policy that lets a sandbox read from them."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

_URL = re.compile(r"https?://[^\s\"'<>,|\]\[]+")
_PROGRAM_S = 5
# Clients that say which registry they use, also where nobody has configured one.
_PROGRAMS = (
    ("npm", "config", "get", "registry"),
    ("go", "env", "GOPROXY", "GOSUMDB"),
    ("yarn", "config", "get", "registry"),
)
_VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "YARN_NPM_REGISTRY_SERVER",
    "GOPROXY",
    "CARGO_REGISTRIES_CRATES_IO_INDEX",
    "BUNDLE_MIRROR__ALL",
)
_FILES = (
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "/etc/pip.conf",
    "~/.config/uv/uv.toml",
    "~/.npmrc",
    "/etc/npmrc",
    "~/.yarnrc.yml",
    "~/.config/go/env",
    "~/.cargo/config.toml",
    "~/.m2/settings.xml",
    "~/.gemrc",
    "~/.bundle/config",
)
_APT = Path("/etc/apt")
_LONGEST_BYTES = 1 << 20


def registry_hosts(environ: Mapping[str, str], more: str = "") -> frozenset[str]:
    """Return the hosts of package registries: those that clients on this host use, and ``more``.

    It reads the clients' configuration and asks those clients that are installed. Takes up to seconds: call it
    in a thread.

    Args:
        environ: The environment, in which clients are configured too.
        more: Further hosts, separated by spaces or commas.
    """
    texts = [environ.get(name, "") for name in _VARIABLES]
    texts += _configured(environ)
    texts += _asked(environ)
    texts += _pips_own()
    hosts = {urlsplit(url).hostname or "" for text in texts for url in _URL.findall(text)}
    hosts |= set(more.replace(",", " ").split())
    return frozenset(host for host in hosts if "." in host)


def _configured(environ: Mapping[str, str]) -> Iterator[str]:
    home = Path(environ.get("HOME") or "/nonexistent")
    paths = [home / name[2:] if name.startswith("~/") else Path(name) for name in _FILES]
    paths += [_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*"))]
    for path in paths:
        with contextlib.suppress(OSError):
            if path.stat().st_size <= _LONGEST_BYTES:
                lines = path.read_text("utf-8", errors="replace").splitlines()
                yield "\n".join(line for line in lines if not line.lstrip().startswith(("#", ";", "//")))


def _asked(environ: Mapping[str, str]) -> Iterator[str]:
    for argv in _PROGRAMS:
        if shutil.which(argv[0], path=environ.get("PATH")) is None:
            continue
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            told = subprocess.run(
                argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROGRAM_S
            )
            text = told.stdout.decode(errors="replace")
            yield text
            # a checksum database is named without a scheme
            yield from (f"https://{word}" for word in text.split() if argv[0] == "go" and "://" not in word)


def _pips_own() -> Iterator[str]:
    """The index that pip uses when nobody has configured another one, and where that index keeps its files."""
    if importlib.util.find_spec("pip") is None:
        return
    with contextlib.suppress(ImportError, AttributeError):
        from pip._internal.models.index import PyPI

        yield PyPI.url
        yield f"https://{PyPI.file_storage_domain}"
