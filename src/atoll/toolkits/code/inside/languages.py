"""The languages that can be run, and how each sets a variable of its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from jupyter_client.kernelspec import KernelSpecManager


@dataclass(frozen=True)
class Language:
    """A language.

    Args:
        name: What it is called.
        kernel: The name of the kernel's specification.
        set_line: How a variable is set, with ``{name}`` and ``{value}``, both as JSON strings.
        unset_line: How it is removed.
        displays_values: Whether its kernel shows the values of lines as it shows pictures, with no other mark.
        first_runs: Code that leaves nothing, after which the kernel has loaded what the first run needs.
    """

    name: str
    kernel: str
    set_line: str
    unset_line: str
    displays_values: bool = False
    first_runs: tuple[str, ...] = ()

    def environment(self, wanted: Mapping[str, str | None]) -> str:
        """Return code that sets variables; None removes one."""
        return "\n".join(
            self.unset_line.format(name=json.dumps(name))
            if value is None
            else self.set_line.format(name=json.dumps(name), value=json.dumps(value))
            for name, value in wanted.items()
        )


_PYTHON = Language(
    "python",
    "python3",
    "__import__('os').environ[{name}] = {value}",
    "__import__('os').environ.pop({name}, None)",
    # the value of the first is shown; the second forgets it
    first_runs=("print()\nsum(range(2))", "get_ipython().displayhook.flush()"),
)
_DENO = ("Deno.env.set({name}, {value});", "Deno.env.delete({name});")
LANGUAGES = {
    each.name: each
    for each in (
        _PYTHON,
        Language("javascript", "deno", *_DENO, first_runs=("1 + 1",)),
        Language("typescript", "deno", *_DENO),
        Language("bash", "bash", "", ""),
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
# Languages that the template has when it is asked for them.
_ADDED = {
    "r": Language(
        "r",
        "ir",
        "do.call(Sys.setenv, setNames(list({value}), {name}))",
        "Sys.unsetenv({name})",
        displays_values=True,
    ),
    # a running Java machine cannot change its environment
    "java": Language("java", "java", "", ""),
}


def language_of(name: str | None) -> Language | None:
    """Return a language by any of its names, or by that of its kernel; Python without one.

    It is None if no kernel of it is installed.
    """
    text = (name or "python").strip().lower()
    known = LANGUAGES.get(_OTHER_NAMES.get(text, text))
    if known is not None:
        return known
    added = _ADDED.get(text) or Language(text, text, "", "")
    return added if added.kernel in KernelSpecManager().find_kernel_specs() else None
