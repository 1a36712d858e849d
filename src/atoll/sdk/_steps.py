"""The steps of a template as values: their keys, their variables, and when to store the state. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from atoll.errors import InvalidSpecError, TemplateBuildError
from atoll.types import (
    CopyStep,
    EnvStep,
    ExecResult,
    Limits,
    RunStep,
    Step,
    TemplateSpec,
    UserStep,
    WorkdirStep,
)
from atoll.types.internal import check_kind, converted

# a backslash protects a dollar, two before it are one; the other value of a variable may have variables too
_OTHER = r"(?:[^{}]|\$\{[^{}]*\})*"
_VARIABLE = re.compile(rf"(?<!\\)((?:\\\\)*)(?:\\(\$)|\$(?:(\w+)|\{{(\w+)(?::?([-+])({_OTHER}))?\}}))")
_VERSION = "2"
_SHOWN = 120
_STAGES_MOST = 100
_LONGEST = 128 << 10
_TOGETHER = 1 << 20
_VARIABLES_MOST = 4096


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Expand ``$A``, ``${A}``, ``${A:-other}`` and ``${A:+other}`` in a text.

    A backslash protects a dollar, and two before a dollar stand for one.

    Raises:
        InvalidSpecError: The text would be longer than a variable may be. Without this bound, a few steps
            could fill the memory.
    """
    length = len(text)

    def value(found: re.Match[str]) -> str:
        nonlocal length
        said = found[1][::2] + meant(found)
        length += len(said)
        if length > _LONGEST:
            raise InvalidSpecError(f"{text[:80]!r} would be longer than {_LONGEST} characters")
        return said

    def meant(found: re.Match[str]) -> str:
        _, dollar, plain, name, how, other = found.groups()
        if dollar:
            return dollar
        known = env.get(plain or name, "")
        if how == "-":
            return known or _VARIABLE.sub(value, other)
        if how == "+":
            return _VARIABLE.sub(value, other) if known else ""
        return known

    return _VARIABLE.sub(value, text)


def deferred(text: str) -> str:
    """Return what is left of a text without the variables that ``expanded`` knows how to expand."""
    return _VARIABLE.sub("", text)


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


def checked(spec: TemplateSpec) -> TemplateSpec:
    """Return a template whose values all have their kinds: lists of text, not one text, and so on.

    Raises:
        InvalidSpecError: One has not; the message says where.
    """
    check_kind("spec", spec, TemplateSpec)
    try:
        return converted(msgspec.to_builtins(spec), TemplateSpec)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidSpecError(f"the template's definition is wrong: {error}") from None


def stages_needed(spec: TemplateSpec) -> list[str]:
    """Return the stages that the template needs, each after those that it needs itself.

    Raises:
        InvalidSpecError: A stage is missing, or stages copy from each other.
    """
    needed: list[str] = []
    going: list[str] = []

    def need(steps: Sequence[Step]) -> None:
        for step in steps:
            if not isinstance(step, CopyStep) or step.stage is None or step.stage in needed:
                continue
            if step.stage not in spec.stages:
                raise InvalidSpecError(f"there is no stage {step.stage!r} to copy from")
            if step.stage in going or len(going) == _STAGES_MOST:
                raise InvalidSpecError(f"the stages {' and '.join(going)} copy from each other")
            going.append(step.stage)
            need(spec.stages[step.stage].steps)
            needed.append(going.pop())

    need([*spec.prepare, *spec.steps])
    return needed


def stage_keys(
    steps: Sequence[Step], base: str, team: str | None, limits: Limits, digests: Mapping[int, str]
) -> list[str]:
    """Return a key for the state that a line of steps starts from, and one for the state after each step.

    Args:
        steps: The steps.
        base: What identifies the state that they start from.
        team: The team that owns the template. A team never starts from states that another team's steps made.
        limits: The limits of the sandbox that they run in.
        digests: For each copy step, a digest of its files.
    """
    found = [_hashed("", [_VERSION, base, team or "", msgspec.json.encode(limits).decode()])]
    for index, step in enumerate(steps):
        told = msgspec.json.encode(msgspec.structs.replace(step, force=False)).decode()
        found.append(_hashed(found[-1], [told, digests.get(index, "")]))
    return found


def keys(spec: TemplateSpec, base: str, team: str | None, digests: Mapping[int, str]) -> list[str]:
    """Return a key for the state after each step, and one more for the finished template.

    The arguments are those of ``stage_keys``.
    """
    found = stage_keys(spec.steps, base, team, spec.limits, digests)
    return [*found[1:], _hashed(found[-1], ["end", spec.start_command or "", spec.ready_command or ""])]


def known_sources(steps: Sequence[Step], index: int) -> list[str]:
    """Return the sources of a copy step, with the variables that earlier steps set.

    What the image sets is not known before the build starts, so it counts as empty.
    """
    env: dict[str, str] = {}
    for step in steps[:index]:
        if isinstance(step, EnvStep):
            env.update({name: expanded(value, env) for name, value in step.env.items()})
    step = steps[index]
    return [expanded(source, env) for source in step.sources] if isinstance(step, CopyStep) else []


def usable(spec: TemplateSpec) -> int:
    """Return how many first steps may come from earlier builds, plus one if the finished template may."""
    if spec.force:
        return 0
    again: set[str] = set()
    for name in stages_needed(spec):
        steps = spec.stages[name].steps
        if unforced(steps, again) < len(steps):
            again.add(name)
    first = unforced(spec.steps, again)
    return first if first < len(spec.steps) else first + 1


def unforced(steps: Sequence[Step], again: Collection[str] = ()) -> int:
    """Return how many first steps do not ask to be run again, nor copy from stages that do."""
    for index, step in enumerate(steps):
        if step.force or (isinstance(step, CopyStep) and step.stage in again):
            return index
    return len(steps)


def described(step: Step) -> str:
    """Describe a step in one line, for people."""
    match step:
        case RunStep():
            text = f"RUN {step.command if isinstance(step.command, str) else ' '.join(step.command)}"
        case CopyStep():
            stage = f"--from={step.stage} " if step.stage is not None else ""
            text = f"COPY {stage}{' '.join(step.sources)} {step.target}"
        case EnvStep():
            text = f"ENV {' '.join(step.env)}"
        case WorkdirStep():
            text = f"WORKDIR {step.path}"
        case UserStep():
            text = f"USER {step.user}"
    return one_line(text)


def one_line(text: str) -> str:
    """Return a text on one line, shortened if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def failed(what: str, result: ExecResult) -> TemplateBuildError:
    """Return the error for a build's program that failed, with the last of its output, if any."""
    tail = (result.stderr or result.stdout).strip()[-2000:]
    said = f"{f': {result.memory_kill}' if result.memory_kill else ''}{f': {tail}' if tail else ''}"
    return TemplateBuildError(f"{what} ended with exit code {result.exit_code}{said}")


def _hashed(key: str, parts: Sequence[str]) -> str:
    return hashlib.sha256(msgspec.json.encode([key, *parts])).hexdigest()
