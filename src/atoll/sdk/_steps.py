"""The steps of a template as values: their keys, the points between them that are kept, variables in them. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from atoll.errors import InvalidSpecError, TemplateBuildError
from atoll.types import CopyStep, EnvStep, ExecResult, RunStep, Step, TemplateSpec, UserStep, WorkdirStep

_VARIABLE = re.compile(r"\\(\$)|\$(?:(\w+)|\{(\w+)(?::?([-+])([^{}]*))?\})")
_VERSION = "1"
_SHOWN = 120
_LONGEST = 128 << 10
_TOGETHER = 1 << 20
_VARIABLES_MOST = 4096


def expanded(text: str, env: Mapping[str, str]) -> str:
    """The text with the values of ``$A``, ``${A}``, ``${A:-other}``, ``${A:+other}``; a backslash saves a dollar.

    Raises:
        InvalidSpecError: It would be longer than a variable can be: step by step, a few could be all of the memory.
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
    """Refuse more variables than a sandbox can have, before they are all of the memory.

    Raises:
        InvalidSpecError: They are too many, or too long together.
    """
    if len(env) > _VARIABLES_MOST or sum(map(len, env.values())) > _TOGETHER:
        raise InvalidSpecError(
            "the variables are too many", hint=f"give {_VARIABLES_MOST}, of {_TOGETHER >> 10} KiB together"
        )


def points(steps: Sequence[Step]) -> list[int]:
    """The steps after which a snapshot is worth its cost: those that ran something, and the last of several copies.

    What changes no files (variables, user) is done again for nothing.
    """
    changing = [index for index, step in enumerate(steps) if isinstance(step, (RunStep, CopyStep))]
    after = {index: following for index, following in zip(changing, changing[1:], strict=False)}
    return [
        index
        for index in changing
        if isinstance(steps[index], RunStep) or index not in after or isinstance(steps[after[index]], RunStep)
    ]


def keys(spec: TemplateSpec, base: str, team: str | None, digests: Mapping[int, str]) -> list[str]:
    """A key for the state after each step, and one more for the finished template.

    Args:
        spec: What is built.
        base: What tells the state that it starts from, from all others.
        team: Whose it is: one team never starts from what another's steps have made.
        digests: Of each copy step, what tells the content of its files.
    """
    key = _hashed("", [_VERSION, base, team or "", msgspec.json.encode(spec.limits).decode()])
    found = []
    for index, step in enumerate(spec.steps):
        told = msgspec.json.encode(msgspec.structs.replace(step, force=False)).decode()
        key = _hashed(key, [told, digests.get(index, "")])
        found.append(key)
    return [*found, _hashed(key, ["end", spec.start_command or "", spec.ready_command or ""])]


def usable(spec: TemplateSpec) -> int:
    """How many of the first steps may be taken from earlier builds; one more when the finished template may."""
    if spec.force:
        return 0
    return next((index for index, step in enumerate(spec.steps) if step.force), len(spec.steps) + 1)


def described(step: Step) -> str:
    """A step in a line, for people."""
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
    """A program of a build that did not end with 0, and the last of what it said, if it said anything."""
    tail = (result.stderr or result.stdout).strip()[-2000:]
    said = f"{f': {result.memory_kill}' if result.memory_kill else ''}{f': {tail}' if tail else ''}"
    return TemplateBuildError(f"{what} ended with exit code {result.exit_code}{said}")


def _hashed(key: str, parts: Sequence[str]) -> str:
    return hashlib.sha256(msgspec.json.encode([key, *parts])).hexdigest()
