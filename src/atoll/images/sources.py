"""How this host reaches its package archive, so that a build reaches it the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from atoll.images.recipe import Recipe

# The components of a distribution's own archive. Other archives have other suites or components.
_OWN_COMPONENTS = {"main", "contrib", "non-free", "non-free-firmware"}
_DEFAULT_SUITE = "bookworm"

_OPTION = re.compile(r'^(?P<key>[^\s"]+) (?P<value>".*");$')
_FOR_THE_BUILD = re.compile(
    r"^Acquire::(https?|ftp|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date)\b", re.IGNORECASE
)
_FOR_THE_GUEST = re.compile(r"^Acquire::(Retries|ForceIPv[46]|Check-Valid-Until|Check-Date)\b", re.IGNORECASE)


def recipe_of_host(etc: Path, apt_config: str) -> Recipe:
    """Return the recipe for this host.

    Args:
        etc: The host's /etc.
        apt_config: The output of ``apt-config dump``; empty where there is no apt.
    """
    suite = suite_of_host(etc)
    own = _debian_suite(_text(etc / "os-release")) is not None
    options = _options(apt_config)
    secrets = [
        f'Dir::Etc::{key} "{path}"'
        for key, path in (("netrc", etc / "apt/auth.conf"), ("netrcparts", etc / "apt/auth.conf.d"))
        if path.exists()
    ]
    return Recipe(
        suite=suite,
        sources=_sources(etc / "apt", suite) if own else {},
        apt_options=(*(option for option in options if _FOR_THE_BUILD.match(option)), *secrets),
        guest_apt_options=tuple(option for option in options if _FOR_THE_GUEST.match(option)),
    )


def suite_of_host(etc: Path) -> str:
    """Return the release to build images of: the host's own on Debian, otherwise the default."""
    return _debian_suite(_text(etc / "os-release")) or _DEFAULT_SUITE


def one_line_entries(text: str, suite: str) -> str:
    """Return the entries of a ``.list`` file for the distribution's own archive of that release."""
    kept = []
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", " ", line.split("#")[0]).split()
        if len(words) > 3 and words[0] == "deb" and _is_own([words[2]], words[3:], suite):
            kept.append(line.split("#")[0].strip() + "\n")
    return "".join(kept)


def stanzas(text: str, suite: str) -> str:
    """Return the stanzas of a ``.sources`` file for the distribution's own archive of that release."""
    kept = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in stanza.splitlines() if line.strip() and not line.startswith("#")]
        fields = {
            key.strip().lower(): value.split() for key, _, value in (line.partition(":") for line in lines)
        }
        wanted = "deb" in fields.get("types", []) and fields.get("enabled", ["yes"]) != ["no"]
        if wanted and _is_own(fields.get("suites", []), fields.get("components", []), suite):
            kept.append("\n".join(lines) + "\n")
    return "\n".join(kept)


def _is_own(suites: Iterable[str], components: Iterable[str], suite: str) -> bool:
    own = {suite, f"{suite}-updates", f"{suite}-security"}
    found = set(components)
    return bool(set(suites)) and set(suites) <= own and "main" in found and found <= _OWN_COMPONENTS


def _sources(apt: Path, suite: str) -> dict[str, str]:
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    lists = "".join(one_line_entries(_text(file), suite) for file in files if file.suffix == ".list")
    modern = "\n".join(
        filter(None, (stanzas(_text(file), suite) for file in files if file.suffix == ".sources"))
    )
    return {name: text for name, text in (("host.list", lists), ("host.sources", modern)) if text}


def _options(apt_config: str) -> list[str]:
    matches = (_OPTION.match(line) for line in apt_config.splitlines())
    return [f"{match['key']} {match['value']}" for match in matches if match]


def _debian_suite(os_release: str) -> str | None:
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    return fields.get("VERSION_CODENAME", "").strip('"') or None if fields.get("ID") == "debian" else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
