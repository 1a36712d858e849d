"""The options of a program, its exit code, and the note on its end."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.cli.output import note
from atoll.cli.text import plain

if TYPE_CHECKING:
    from atoll import ExecResult


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The program's options on the command line. None means the sandbox's default."""

    argv: tuple[str, ...]
    cwd: str | None
    user: str | None
    env: Mapping[str, str]
    timeout_s: float | None

    @classmethod
    def of(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> ProgramOptions:
        """Read the options from the parsed command line."""
        return cls(
            argv=tuple(options["argv"]),
            cwd=options["cwd"],
            user=options["user"],
            env=env,
            timeout_s=options["timeout_s"],
        )

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments for the SDK, besides the program itself."""
        return {"cwd": self.cwd, "user": self.user, "env": dict(self.env), "timeout_s": self.timeout_s}


def code_of(result: ExecResult) -> int:
    """Return a program's exit code, after a note if the sandbox's memory limit killed something."""
    if result.memory_kill is not None:
        kill = result.memory_kill
        remedy = kill.hint if kill.is_for_host else "`atoll limits --memory` gives the sandbox more"
        note(f"{plain(str(kill))}; {remedy}")
    return result.exit_code


def stdin_is_input() -> bool:
    """Whether standard input is something to pass on: no terminal, not /dev/null, and not closed."""
    try:
        kind = os.fstat(0)
    except OSError:
        return False
    if stat.S_ISCHR(kind.st_mode):
        return not os.isatty(0) and kind.st_rdev != os.stat(os.devnull).st_rdev
    return True
