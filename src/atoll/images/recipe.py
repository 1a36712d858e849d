"""The recipe of the image ``base``. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

BASE = "base"
SCRIPT = Path(__file__).with_name("base.sh")

PACKAGES = (
    "bash",
    "bzip2",
    "ca-certificates",
    "cron",
    "curl",
    "file",
    "git",
    "iproute2",
    "jq",
    "less",
    "nano",
    "ncurses-base",
    "ncurses-bin",
    "netbase",
    "openssh-client",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    "ripgrep",
    "sudo",
    "tzdata",
    "unzip",
    "vim-tiny",
    "xz-utils",
)
USER = "user"
CWD = "/home/user"
APT_OPTIONS = "apt-options"
ENV = {
    "LANG": "C.UTF-8",
    "PATH": "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}

_DPKG_OPTIONS = (
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/lib/python3*/EXTERNALLY-MANAGED",
)
_APT_OPTIONS = (
    'APT::Install-Recommends "false"',
    'APT::Sandbox::User "root"',
    'Acquire::Languages "none"',
)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the result of a build, except the state of the package archive.

    ``sources`` are apt's source lists by file name (``.list`` or ``.sources``); empty means the
    distribution's default. ``apt_options`` and ``guest_apt_options`` are lines of apt's configuration; the
    latter are kept in the image.
    """

    suite: str
    sources: Mapping[str, str] = {}
    apt_options: tuple[str, ...] = ()
    guest_apt_options: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """Return 64 hexadecimal digits that change if the recipe would make another image.

        How this host reaches its package archive does not count.
        """
        parts = (
            self.suite,
            *PACKAGES,
            *_DPKG_OPTIONS,
            SCRIPT.read_text(),
            USER,
            CWD,
            repr(sorted(ENV.items())),
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def files(self) -> dict[str, str]:
        """Return the files that the command reads, by name. Every user of the host can see its arguments.

        A proxy's address among apt's options may contain a password.
        """
        options = "".join(f"{option};\n" for option in (*_APT_OPTIONS, *self.apt_options))
        return {APT_OPTIONS: options, **self.sources}

    def argv(self, rootfs: Path, sources_directory: Path) -> list[str]:
        """Return the command that builds it into ``rootfs``, for uid 0 of the host or of a user namespace.

        It gets its own mount and process namespaces, so that nothing of it outlives its first process. The
        files of ``files`` must be in ``sources_directory``.
        """
        options = [f"--aptopt={sources_directory / APT_OPTIONS}"]
        options += [f"--dpkgopt={option}" for option in _DPKG_OPTIONS]
        mirrors = [str(sources_directory / name) for name in self.sources]
        return [
            "unshare", "--mount", "--pid", "--fork", "--kill-child",
            "mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--verbose",
            f"--include={','.join(PACKAGES)}", *options, f"--customize-hook={SCRIPT}",
            self.suite, str(rootfs), *mirrors,
        ]  # fmt: skip


def digest(fingerprint: str, installed: Iterable[str]) -> str:
    """Return the image's digest, ``sha256-`` and 64 hexadecimal digits, of recipe and installed packages."""
    text = "\n".join((fingerprint, *sorted(installed)))
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()


def installed_packages(dpkg_status: str) -> list[str]:
    """Return ``name version architecture`` of each installed package, from the text of dpkg's status file."""
    found = []
    for stanza in dpkg_status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            found.append(f"{fields['Package']} {fields['Version']} {fields['Architecture']}")
    return sorted(found)
