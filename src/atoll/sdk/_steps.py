"""The steps of a template as values: their keys, their variables, and when to store the state. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from atoll.errors import InvalidSpecError, TemplateBuildError
from atoll.types import CopyStep, EnvStep, ExecResult, RunStep, Step, TemplateSpec, UserStep, WorkdirStep

_VARIABLE = re.compile(r"\\(\$)|\$(?:(\w+)|\{(\w+)(?::?([-+])([^{}]*))?\})")
_VERSION = "2"
_SHOWN = 120
_LONGEST = 128 << 10
_TOGETHER = 1 << 20
_VARIABLES_MOST = 4096


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Expand ``$A``, ``${A}``, ``${A:-other}`` and ``${A:+other}`` in a text. A backslash protects a dollar.

    Raises:
        InvalidSpecError: The text would be longer than a variable may be. Without this bound, a few steps
            could fill the memory.
    """
    length = len(text)

    def value(found: re.Match[str]) -> str:
        nonlocal length
        said = meant(found)
        length += len(said)
        if length > _LONGEST:
            raise InvalidSpecError(f"{text[:80]!r} would be longer than {_LONGEST} characters")
        return said

    def meant(found: re.Match[str]) -> str:
        dollar, plain, name, how, other = found.groups()
        if dollar:
            return dollar
        known = env.get(plain or name, "")
        if how == "-":
            return known or other
        if how == "+":
            return other if known else ""
        return known

    return _VARIABLE.sub(value, text)


def check_env(env: Mapping[str, str]) -> None:
    """Refuse more variables than a sandbox can have, before they fill the memory.

    Raises:
        InvalidSpecError: The variables are too many, or too long together.
    """
    if len(env) > _VARIABLES_MOST or sum(map(len, env.values())) > _TOGETHER:
        raise InvalidSpecError(
            "there are too many variables, or they are too long",
            hint=f"give at most {_VARIABLES_MOST}, with {_TOGETHER >> 10} KiB together",
        )


def points(steps: Sequence[Step]) -> list[int]:
    """Return the steps after which a snapshot is worth its cost.

    These are the steps that run something, and the last of several copies. Repeating a step that changes no
    files (variables, user) costs nothing.
    """
    changing = [index for index, step in enumerate(steps) if isinstance(step, (RunStep, CopyStep))]
    after = {index: following for index, following in zip(changing, changing[1:], strict=False)}
    return [
        index
        for index in changing
        if isinstance(steps[index], RunStep) or index not in after or isinstance(steps[after[index]], RunStep)
    ]


def keys(spec: TemplateSpec, base: str, team: str | None, digests: Mapping[int, str]) -> list[str]:
    """Return a key for the state after each step, and one more for the finished template.

    Args:
        spec: What is built.
        base: What identifies the state that the build starts from.
        team: The team that owns the template. A team never starts from states that another team's steps made.
        digests: For each copy step, a digest of its files.
    """
    key = _hashed("", [_VERSION, base, team or "", msgspec.json.encode(spec.limits).decode()])
    found = []
    for index, step in enumerate(spec.steps):
        told = msgspec.json.encode(msgspec.structs.replace(step, force=False)).decode()
        key = _hashed(key, [told, digests.get(index, "")])
        found.append(key)
    return [*found, _hashed(key, ["end", spec.start_command or "", spec.ready_command or ""])]


def usable(spec: TemplateSpec) -> int:
    """Return how many first steps may come from earlier builds, plus one if the finished template may."""
    if spec.force:
        return 0
    return next((index for index, step in enumerate(spec.steps) if step.force), len(spec.steps) + 1)


def described(step: Step) -> str:
    """Describe a step in one line, for people."""
    match step:
        case RunStep():
            text = f"RUN {step.command if isinstance(step.command, str) else ' '.join(step.command)}"
        case CopyStep():
            text = f"COPY {' '.join(step.sources)} {step.target}"
        case EnvStep():
            text = f"ENV {' '.join(step.env)}"
        case WorkdirStep():
            text = f"WORKDIR {step.path}"
        case UserStep():
            text = f"USER {step.user}"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def failed(what: str, result: ExecResult) -> TemplateBuildError:
    """Return the error for a build's program that failed, with the last of its output, if any."""
    tail = (result.stderr or result.stdout).strip()[-2000:]
    said = f"{f': {result.memory_kill}' if result.memory_kill else ''}{f': {tail}' if tail else ''}"
    return TemplateBuildError(f"{what} ended with exit code {result.exit_code}{said}")


def _hashed(key: str, parts: Sequence[str]) -> str:
    return hashlib.sha256(msgspec.json.encode([key, *parts])).hexdigest()
