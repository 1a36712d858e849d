"""The programs that come with this package: ``runsc``, the guest agent, the puller of images, the relay
and the edge.
"""

from __future__ import annotations

import os
from pathlib import Path

from atoll.errors import HostError, UnsupportedError

_BIN = Path(__file__).resolve().parent.parent / "_bin"
# the processors whose wheels have programs, see hatch_build.py
_MACHINES = ("x86_64", "aarch64")


def _program(name: str) -> Path:
    path = _BIN / name
    if not os.access(path, os.X_OK):
        raise HostError(
            f"the program {path} is missing or not executable",
            hint="install atoll again from a wheel, or, in a source tree, build it with `pip install -e .`",
        )
    return path


def check_programs() -> None:
    """Refuse an install without programs, from the wheel for any machine.

    Raises:
        UnsupportedError: This install has no programs.
    """
    if (_BIN / "atoll-agent").is_file():
        return
    machine = os.uname().machine
    install = "install atoll's wheel for this machine, or, in a source tree, `pip install -e .`"
    raise UnsupportedError(
        f"this install of atoll has no engine, so it runs no sandboxes on this machine ({machine}); "
        f"wheels with one are for Linux on {' and '.join(_MACHINES)}",
        hint=f"{install if machine in _MACHINES else 'use such a machine'}, or reach a server: "
        "`atoll login https://api.sandboxes.example.com`, or set ATOLL_URL",
    )


def runsc_path() -> Path:
    """Return the gVisor program of this version.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("runsc")


def puller_path() -> Path:
    """Return the program that talks to registries and unpacks layers.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-puller")


def relay_path() -> Path:
    """Return the program that carries the traffic of sandboxes.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-relay")


def edge_path() -> Path:
    """Return the program that judges the requests of sandboxes.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-edge")


def agent_path() -> Path:
    """Return the program that is process 1 of every sandbox.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-agent")
