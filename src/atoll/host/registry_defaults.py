"""Asks cargo and Maven for their registries where none is configured: atoll names no registry itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

_PROGRAM_S = 5
_LONGEST_BYTES = 1 << 20
# A project that needs a package: to look for the package, cargo reads its registry's description of itself.
# It reads no configuration but the one written here, and no project around this one.
_PROJECT = """\
[package]
name = "asks-for-the-registry"
version = "0.0.0"
[lib]
path = "lib.rs"
[dependencies]
is-asked-for-by-atoll = "1"
[workspace]
"""
_SUPER_POM = "org/apache/maven/model/pom-4.0.0.xml"
_UNREADABLE = (OSError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
_REPOSITORIES = (
    "{*}repositories/{*}repository",
    "{*}pluginRepositories/{*}pluginRepository",
)


def read(path: Path) -> bytes | None:
    """Return the content of a client's configuration file; None if it is missing or too large."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= _LONGEST_BYTES:
            return path.read_bytes()
    return None


def asked(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the output of a program within seconds; empty if the program is missing, or takes longer.

    It runs in the root directory, where no file of other users can configure it.
    """
    program = shutil.which(argv[0], path=environ.get("PATH"))
    if program is None:
        return ""
    with contextlib.suppress(OSError, ValueError), tempfile.TemporaryFile() as out:
        running = subprocess.Popen(
            (program, *argv[1:]),
            cwd="/",
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(_PROGRAM_S)
            out.seek(0)
            return out.read(_LONGEST_BYTES).decode(errors="replace")
        # with all that it started, as npm and cargo may be scripts
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    return ""


def cargos_own(environ: Mapping[str, str]) -> Iterator[str]:
    """The text of cargo's configuration, and the registries that it has used or uses by default."""
    home = Path(environ.get("CARGO_HOME") or Path(environ.get("HOME") or "/nonexistent", ".cargo"))
    configured = read(home / "config.toml") or read(home / "config") or b""
    lines = configured.decode(errors="replace").splitlines()
    yield "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    used = list(_cargos_index(home))
    yield from used
    if used or shutil.which("cargo", path=environ.get("PATH")) is None:
        return
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="atoll-cargo-") as name:
        place = Path(name)
        (place / "config.toml").write_bytes(configured)
        (place / "Cargo.toml").write_text(_PROJECT)
        # Without an automatic installation: rustup would fetch a toolchain of hundreds of MB.
        own = {"CARGO_HOME": name, "CARGO_NET_RETRY": "0", "RUSTUP_AUTO_INSTALL": "0"}
        asked(("cargo", "generate-lockfile", "--manifest-path", f"{name}/Cargo.toml"), {**environ, **own})
        yield from _cargos_index(place)


def _cargos_index(home: Path) -> Iterator[str]:
    """The registries in a cargo home: the host of each index, and the index's own configuration."""
    for path in sorted(home.glob("registry/index/*-*/config.json")):
        yield f"https://{path.parent.name.rpartition('-')[0]}/"
        yield (read(path) or b"").decode(errors="replace")


def mavens_own(environ: Mapping[str, str]) -> Iterator[str]:
    """The repositories and mirrors of Maven's settings, and of the model that every project inherits."""
    homes = _mavens_homes(environ)
    users = Path(environ.get("HOME") or "/nonexistent", ".m2/settings.xml")
    settings = [_xml(read(path)) for path in (users, *(home / "conf/settings.xml" for home in homes))]
    mirrors = [mirror for one in settings for mirror in one.iterfind("{*}mirrors/{*}mirror")]
    # A blocked mirror leads nowhere.
    mirrors = [mirror for mirror in mirrors if _said(mirror, "blocked") != "true"]
    yield from (_said(mirror, "url") for mirror in mirrors)
    for one in settings:
        for profile in one.iterfind("{*}profiles/{*}profile"):
            yield from _repositories(profile)
    if not any(_stands_for_central(mirror) for mirror in mirrors):
        for home in homes:
            yield from _repositories(_xml(_super_pom(home)))


def _mavens_homes(environ: Mapping[str, str]) -> list[Path]:
    """Where Maven may be installed."""
    homes = [Path(environ[name]) for name in ("MAVEN_HOME", "M2_HOME") if environ.get(name)]
    program = shutil.which("mvn", path=environ.get("PATH"))
    if program is not None:
        above = Path(program).resolve().parent.parent
        homes += [above, above / "libexec"]
    return homes


def _stands_for_central(mirror: ElementTree.Element) -> bool:
    of = {word.strip() for word in _said(mirror, "mirrorOf").split(",")}
    return bool(of & {"*", "central", "external:*"}) and "!central" not in of


def _repositories(model: ElementTree.Element) -> Iterator[str]:
    for kind in _REPOSITORIES:
        yield from (_said(repository, "url") for repository in model.iterfind(kind))


def _super_pom(home: Path) -> bytes | None:
    for jar in sorted((*home.glob("lib/maven-model-builder-*.jar"), *home.glob("lib/maven-impl-*.jar"))):
        with contextlib.suppress(*_UNREADABLE), zipfile.ZipFile(jar) as opened:
            if opened.getinfo(_SUPER_POM).file_size <= _LONGEST_BYTES:
                return opened.read(_SUPER_POM)
    return None


def _xml(text: bytes | None) -> ElementTree.Element:
    """Return the content of a file, without its comments; nothing if it cannot be read."""
    with contextlib.suppress(ElementTree.ParseError, ValueError):
        return ElementTree.fromstring(text or b"")
    return ElementTree.Element("nothing")


def _said(element: ElementTree.Element, name: str) -> str:
    return (element.findtext(f"{{*}}{name}") or "").strip()
