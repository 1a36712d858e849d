"""A real program as this suite knows it: what to install, what to leave running, and what must then be so."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Program:
    """One entry. Scripts are bash with ``-eu``, in a directory that is the program's own.

    ``check`` runs before a sleep, after it, and in a fork; ``$TURN`` is 1, 2 and 3 then. What ``start`` leaves in the
    background is never started again, so a check that counts with it sees whether memory was kept.
    """

    name: str
    check: str
    start: str = ""
    # Packages, with spaces between them.
    debian: str = ""
    pip: str = ""
    npm: str = ""
    # Programs that the check needs. A host that has all of them runs it as well, for the ratio; none means never.
    host: str = ""

    def __post_init__(self) -> None:
        assert not (self.start and self.host), (
            f"{self.name}: what is left running is not measured on the host"
        )

    @property
    def needs_registries(self) -> bool:
        """Whether it is more than the image has."""
        return bool(self.debian or self.pip or self.npm)


@dataclasses.dataclass(frozen=True)
class Family:
    """Programs that share a sandbox. ``prepare`` is run by root once, before anything is installed."""

    name: str
    programs: tuple[Program, ...]
    prepare: str = ""
