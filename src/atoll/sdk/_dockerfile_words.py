"""Words of a Dockerfile: Docker's rules of quotes, escapes and variables, for steps that expand variables later."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from atoll.sdk._steps import deferred

# What stands for itself, until the word is a text: a dollar, a backslash, a backtick.
_DOLLAR, _BACKSLASH, _BACKTICK = "\ufdd0", "\ufdd1", "\ufdd2"
_MARKS = {"$": _DOLLAR, "\\": _BACKSLASH, "`": _BACKTICK}
_PLAIN = str.maketrans({mark: char for char, mark in _MARKS.items()})
_NAME = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)
_BEFORE_DOLLAR = re.compile(rf"{_BACKSLASH}+(?=[{_DOLLAR}$])")


class Word:
    """A word whose quotes are resolved, and whose known variables have their values.

    ``$`` and what follows is a variable that only the build knows. What stands for itself is marked.

    Raises:
        ValueError: A quote or a brace is missing, or a variable is used in a way that no step can.
    """

    _marked: str

    def __init__(self, text: str, escape: str, values: Mapping[str, Word]) -> None:
        from e2b_dockerfile_utils import ShellLex

        env = {name: word._marked for name, word in values.items()}
        self._marked = str(
            ShellLex(escape, env=env, skip_unset_env=True).process_word(_protected(text, escape))
        )
        rest = deferred(self._marked)
        if "${" in rest:
            raise ValueError(f"{text!r} has a form of variable that works only for an ARG with a value")

    @classmethod
    def of(cls, value: str) -> Word:
        """Return a word that stands for itself."""
        word = cls.__new__(cls)
        word._marked = "".join(_MARKS.get(char, char) for char in value)
        return word

    @property
    def is_known(self) -> bool:
        """Whether all of its variables are known."""
        return "$" not in self._marked

    @property
    def plain(self) -> str:
        """The text itself."""
        return self._marked.translate(_PLAIN)

    @property
    def step(self) -> str:
        """The text as steps take it: a dollar that stands for itself has a backslash before it."""
        doubled = _BEFORE_DOLLAR.sub(lambda found: found[0] * 2, self._marked)
        return doubled.replace(_DOLLAR, "\\$").translate(_PLAIN)

    @property
    def shell(self) -> str:
        """The text as one word of a shell line."""
        if self.is_known:
            return shlex.quote(self.plain)
        told = self._marked.replace(_BACKSLASH, "\\\\").replace(_BACKTICK, "\\`").replace('"', '\\"')
        return f'"{told.replace(_DOLLAR, chr(92) + "$")}"'


def _protected(text: str, escape: str) -> str:
    """Mark what stands for itself because of quotes and escapes, which the lexer then resolves."""
    out, quote, at = [], "", 0
    while at < len(text):
        char = text[at]
        after = text[at + 1 : at + 2]
        if quote == "'":
            quote = "" if char == "'" else quote
            out.append(char if char == "'" else _MARKS.get(char, char))
        elif char == escape and after in ("$", escape) and after:
            out.append(_MARKS[after])
            at += 1
        elif char == escape and quote and after != '"':
            out.append(_MARKS[char])
        elif char == escape and after:
            out += [char, after]
            at += 1
        elif name := _NAME.match(text, at):
            # braces keep it apart from what follows a quote
            out.append(f"${{{name[1]}}}")
            at = name.end() - 1
        elif char != escape and char in "\\`":
            out.append(_MARKS[char])
        else:
            if char in "'\"" and char != quote:
                quote = quote or char
            elif char == quote:
                quote = ""
            out.append(char)
        at += 1
    return "".join(out)
