"""The templates that atoll ships, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll.errors import TemplateNotFoundError
from atoll.sdk import AsyncTemplates, Templates
from atoll.toolkits import developer
from atoll.toolkits.code import template as code
from atoll.types import BuildInfo, BuildLine, TemplateSpec


@dataclass(frozen=True)
class Shipped:
    """A template that atoll ships.

    Args:
        spec: Returns the specification to build, with some of the languages.
        languages: The languages that it can have in addition.
        context: The directory with the files that it copies, if it copies any.
        about: Its description, in a line.
    """

    spec: Callable[[Sequence[str]], TemplateSpec]
    languages: tuple[str, ...]
    context: Path | None
    about: str


SHIPPED: Mapping[str, Shipped] = {
    code.NAME: Shipped(
        lambda languages: code.spec(languages=languages),
        code.LANGUAGES,
        code.CONTEXT,
        "Python, JavaScript, TypeScript and Bash in contexts: `sandbox.code`",
    ),
    developer.NAME: Shipped(
        developer.spec,
        (),
        None,
        "Node.js, npm, gcc, make, wget, jq and gh; E2B's clients get it as `base`",
    ),
}


def install(
    name: str,
    *,
    languages: Sequence[str] = (),
    team: str | None = None,
    public: bool | None = None,
    on_line: Callable[[BuildLine], Any] | None = None,
) -> BuildInfo:
    """Build a template that atoll ships, and return when sandboxes can be made of it.

    It reuses earlier build steps, and takes packages from registries.

    Args:
        name: Its name: ``code-interpreter-v1`` or ``developer``.
        languages: Additional languages of the code interpreter: ``"r"`` and ``"java"``.
        team: The team that owns it.
        public: Whether every team may use it; None leaves this as it is.
        on_line: Called with each line of its log.

    Raises:
        TemplateNotFoundError: atoll ships no template of that name.
        InvalidSpecError: The template cannot have one of the languages.
        TemplateBuildError: A step failed.
        QuotaError: The team has as many builds in progress as it may.
        NoSpaceError: The disk under the home is full.
    """
    wanted = shipped(name)
    return Templates.build(
        wanted.spec(languages), name, team=team, public=public, context=wanted.context, on_line=on_line
    )


async def install_async(
    name: str,
    *,
    languages: Sequence[str] = (),
    team: str | None = None,
    public: bool | None = None,
    on_line: Callable[[BuildLine], Any] | None = None,
) -> BuildInfo:
    """Do the work of ``install`` without blocking the event loop."""
    wanted = shipped(name)
    return await AsyncTemplates.build(
        wanted.spec(languages), name, team=team, public=public, context=wanted.context, on_line=on_line
    )


def shipped(name: str) -> Shipped:
    """Return a template that atoll ships.

    Raises:
        TemplateNotFoundError: There is none of that name.
    """
    if name not in SHIPPED:
        raise TemplateNotFoundError(f"atoll ships no template {name!r}", hint=f"give {', '.join(SHIPPED)}")
    return SHIPPED[name]
