"""The package registries that this host's own clients use, for the policy that lets a sandbox read from them."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from atoll.host.registry_defaults import asked, cargos_own, mavens_own, read

_URL = re.compile(r"https?://[^\s\"'<>,|\]\[]+")
_HOST = re.compile(r"[a-z0-9][a-z0-9.-]*\.[a-z0-9-]+")
_COMMENTS = ("#", ";", "//")


@dataclass(frozen=True, kw_only=True)
class _Client:
    """A package client: where its registries are configured, and how it tells them.

    Args:
        programs: Its names; a program of any of these names means that the host has it.
        variables: Patterns of the environment variables that name a registry.
        files: Its configuration; ``~`` is the user's home.
        question: Arguments to its first program, which then prints its registries, the built-in one included.
        own: Yields text with the addresses that it uses.
    """

    programs: tuple[str, ...]
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    question: tuple[str, ...] = ()
    own: Callable[[Mapping[str, str]], Iterator[str]] | None = None


def registry_hosts(environ: Mapping[str, str], more: str = "") -> dict[str, tuple[str, ...]]:
    """Return the hosts of package registries, by the name of the client that uses them.

    A client on this host that names no registry has no hosts. This reads the clients' configuration, and asks
    the clients that have a registry built in. It may take seconds: call it in a thread.

    Args:
        environ: The environment, in which clients are configured too.
        more: Further hosts, separated by spaces or commas; the result has them under the name of their
            setting.
    """
    with ThreadPoolExecutor(max_workers=len(_CLIENTS)) as threads:
        told = threads.map(lambda client: _hosts(list(_texts(client, environ))), _CLIENTS.values())
        found = dict(zip(_CLIENTS, told, strict=True))
    found = {name: hosts for name, hosts in found.items() if hosts or _has(_CLIENTS[name], environ)}
    further = {host for host in more.replace(",", " ").split() if "." in host}
    return found | ({"ATOLL_PACKAGE_HOSTS": tuple(sorted(further))} if further else {})


def _has(client: _Client, environ: Mapping[str, str]) -> bool:
    return any(shutil.which(program, path=environ.get("PATH")) for program in client.programs)


def _hosts(texts: list[str]) -> tuple[str, ...]:
    found = set()
    for url in (url for text in texts for url in _URL.findall(text)):
        with contextlib.suppress(ValueError):
            found.add(urlsplit(url).hostname or "")
    return tuple(sorted(host for host in found if _HOST.fullmatch(host)))


def _texts(client: _Client, environ: Mapping[str, str]) -> Iterator[str]:
    yield from (environ[name] for name in environ if any(re.fullmatch(one, name) for one in client.variables))
    home = Path(environ.get("HOME") or "/nonexistent")
    for name in client.files:
        for path in _paths(home / name[2:] if name.startswith("~/") else Path(name)):
            lines = (read(path) or b"").decode(errors="replace").splitlines()
            yield "\n".join(line for line in lines if not line.lstrip().startswith(_COMMENTS))
    if client.question:
        yield asked((client.programs[0], *client.question), environ)
    if client.own is not None:
        yield from client.own(environ)


def _paths(path: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path.iterdir()) if path.is_dir() else [path]
    return []


def _gos_own(environ: Mapping[str, str]) -> Iterator[str]:
    """Go's proxy and checksum database, which it names without a scheme."""
    for word in asked(("go", "env", "GOPROXY", "GOSUMDB"), environ).split():
        yield word if "://" in word else f"https://{word}"


def _pips_own(environ: Mapping[str, str]) -> Iterator[str]:
    """The index that pip uses when nobody has configured another one, and where that index keeps its files."""
    if importlib.util.find_spec("pip") is None:
        return
    with contextlib.suppress(ImportError, AttributeError):
        from pip._internal.models.index import PyPI

        yield PyPI.url
        yield f"https://{PyPI.file_storage_domain}"


_CLIENTS = {
    "apt": _Client(programs=("apt-get",), files=("/etc/apt/sources.list", "/etc/apt/sources.list.d")),
    "bundler": _Client(programs=("bundle",), variables=("BUNDLE_MIRROR__ALL",), files=("~/.bundle/config",)),
    "cargo": _Client(programs=("cargo",), variables=("CARGO_REGISTRIES_.*_INDEX",), own=cargos_own),
    "composer": _Client(programs=("composer",)),
    "gem": _Client(programs=("gem",), files=("~/.gemrc",)),
    "go": _Client(programs=("go",), variables=("GOPROXY",), files=("~/.config/go/env",), own=_gos_own),
    "gradle": _Client(programs=("gradle",)),
    "maven": _Client(programs=("mvn",), own=mavens_own),
    "npm": _Client(
        programs=("npm",),
        variables=("NPM_CONFIG_REGISTRY", "npm_config_registry"),
        files=("~/.npmrc", "/etc/npmrc"),
        question=("config", "get", "registry"),
    ),
    "pip": _Client(
        programs=("pip", "pip3"),
        variables=("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
        files=("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf"),
        own=_pips_own,
    ),
    "uv": _Client(
        programs=("uv",),
        variables=("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"),
        files=("~/.config/uv/uv.toml",),
    ),
    "yarn": _Client(
        programs=("yarn",),
        variables=("YARN_NPM_REGISTRY_SERVER",),
        files=("~/.yarnrc.yml",),
        question=("config", "get", "registry"),
    ),
}
