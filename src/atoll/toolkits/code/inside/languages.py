"""The languages that can be run, how each sets a variable, and how it gets new random numbers."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jupyter_client.kernelspec import KernelSpecManager

from .seeding import DENO, PYTHON


@dataclass(frozen=True)
class Language:
    """A language.

    Args:
        name: Its name.
        kernel: The name of the kernel's specification.
        set_line: Code that sets a variable, with ``{name}`` and ``{value}``, both quoted.
        unset_line: Code that removes one.
        quoted: Writes a text as a literal of the language.
        seeding: Code that seeds the random numbers anew, with ``SEED`` or ``SHORT_SEED`` for a number.
        displays_values: Whether its kernel shows the values of lines as it shows pictures, with no other mark.
        first_runs: Code that has the kernel load everything for its first run, and leaves nothing.
    """

    name: str
    kernel: str
    set_line: str = ""
    unset_line: str = ""
    quoted: Callable[[str], str] = json.dumps
    seeding: str = ""
    displays_values: bool = False
    first_runs: tuple[str, ...] = ()

    def environment(self, wanted: Mapping[str, str | None]) -> str:
        """Return code that sets variables; None removes one."""
        if not self.set_line:
            return ""
        return "\n".join(
            self.unset_line.format(name=self.quoted(name))
            if value is None
            else self.set_line.format(name=self.quoted(name), value=self.quoted(value))
            for name, value in wanted.items()
        )

    def seed(self) -> str:
        """Return code that makes its random numbers differ from those of other copies of the sandbox."""
        short, long = str(secrets.randbits(31)), str(secrets.randbits(128))
        return self.seeding.replace("SHORT_SEED", short).replace("SEED", long)


_PYTHON = Language(
    "python",
    "python3",
    "__import__('os').environ[{name}] = {value}",
    "__import__('os').environ.pop({name}, None)",
    seeding=PYTHON,
    # the first shows a value; the second forgets it
    first_runs=("print()\nsum(range(2))", "get_ipython().displayhook.flush()"),
)
_DENO = ("Deno.env.set({name}, {value});", "Deno.env.delete({name});", json.dumps, DENO)
LANGUAGES = {
    each.name: each
    for each in (
        _PYTHON,
        Language("javascript", "deno", *_DENO, first_runs=("1 + 1",)),
        Language("typescript", "deno", *_DENO),
        Language("bash", "bash", "export {name}={value}", "unset {name}", shlex.quote, "RANDOM=SHORT_SEED"),
    )
}
_OTHER_NAMES = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "node": "javascript",
    "ts": "typescript",
    "deno": "typescript",
    "sh": "bash",
    "shell": "bash",
}
# Languages that the template has only on request.
_ADDED = {
    "r": Language(
        "r",
        "ir",
        "do.call(Sys.setenv, setNames(list({value}), {name}))",
        "Sys.unsetenv({name})",
        seeding="set.seed(SHORT_SEED)",
        displays_values=True,
    ),
    # a running Java machine cannot change its environment
    "java": Language("java", "java", "System.setProperty({name}, {value});", "System.clearProperty({name});"),
}


def language_of(name: str | None) -> Language | None:
    """Return a language by one of its names, or by its kernel's name; Python without a name.

    Return None if it has no kernel here.
    """
    text = (name or "python").strip().lower()
    known = LANGUAGES.get(_OTHER_NAMES.get(text, text))
    if known is not None:
        return known
    added = _ADDED.get(text) or Language(text, text)
    return added if added.kernel in KernelSpecManager().find_kernel_specs() else None
