"""Translates a Dockerfile into the steps of a template."""

from __future__ import annotations

import copy
import dataclasses
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atoll.errors import InvalidSpecError
from atoll.sdk._context import IGNORE_FILE, Context, ignore_lines
from atoll.sdk._dockerfile_words import Word
from atoll.sdk._steps import known_sources, one_line
from atoll.types import (
    CopyStep,
    EnvStep,
    Limits,
    RunStep,
    StageSpec,
    Step,
    TemplateSpec,
    UserStep,
    WorkdirStep,
)

_SKIPPED = {
    "EXPOSE": "every port of a sandbox is reachable",
    "LABEL": "templates have none",
    "MAINTAINER": "templates have none",
    "HEALTHCHECK": "give a ready command instead",
    "STOPSIGNAL": "a sandbox is suspended or killed instead",
    "VOLUME": "mount volumes when you create a sandbox",
}
_COPY_FLAGS = {"chown", "chmod", "link", "from"}
_MODE = re.compile(r"[0-7]{3,4}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ARCHIVE = re.compile(r"\.(tar|tgz|tar\.\w+)$")
_NO_USER = "root"
_MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}
_CHANGING = ("steps", "values", "declared", "variables", "notes")
_MOST_BYTES = 1 << 20
_MOST_NEAR = 5
_CACHE_MOUNT = re.compile(r"--mount=(.*,)?type=cache(,.*)?")


@dataclasses.dataclass(kw_only=True, slots=True)
class _Stage:
    """One stage as far as it was read. A stage from another one begins with what that one has."""

    name: str
    image: str
    steps: list[Step]
    # the arguments so far; variables that only the build knows are not expanded here
    values: dict[str, Word]
    # the arguments that RUN's programs see
    declared: dict[str, Word]
    # the names that are variables, and no longer arguments
    variables: set[str]
    shell: list[str] | None = None
    cmd: str | None = None
    entrypoint: str | None = None
    is_exec: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)
    error: InvalidSpecError | None = None

    def next(self, name: str) -> _Stage:
        """Return a stage that begins with what this one has."""
        copies = {each: copy.copy(getattr(self, each)) for each in _CHANGING}
        return dataclasses.replace(self, name=name, **copies)


class _Written(NamedTuple):
    """A copy step, and how the file has it."""

    step: CopyStep
    line: int
    text: str


class Dockerfile:
    """Reads a Dockerfile.

    Args:
        text: The file's content.
        args: Values for what the file declares with ``ARG``.
        target: The stage to build, by its name or number; None is the last one.
        ignore: Patterns of what is left out of the context; None reads the context's ``.dockerignore``.

    Attributes:
        notes: Which parts of the file have no effect, in words for people.

    Raises:
        InvalidSpecError: The text is not a Dockerfile, or asks for something that templates do not support.
            Stages that the target does not need may ask for anything.
    """

    def __init__(
        self,
        text: str,
        args: Mapping[str, str] | None = None,
        target: str | None = None,
        ignore: Sequence[str] | None = None,
    ) -> None:
        from e2b_dockerfile_utils import DockerfileSyntaxError, parse_dockerfile_ast

        self.notes: list[str] = []
        self._ignore = None if ignore is None else [*ignore]
        self._args = {name: Word.of(value) for name, value in (args or {}).items()}
        self._globals = _platform_values()
        self._stages: list[_Stage] = []
        self._copies: list[_Written] = []
        # what copies take from images, without a stage of their own
        self._images: dict[str, StageSpec] = {}
        try:
            parsed = parse_dockerfile_ast(text)
            self._escape = parsed.escape_token
            self._lines = text.splitlines()
            for instruction in parsed.instructions:
                self._line = instruction.start_line
                self._take(instruction)
        except DockerfileSyntaxError as error:
            raise InvalidSpecError(f"the Dockerfile is wrong: {error}") from None
        if not self._stages:
            raise InvalidSpecError("the Dockerfile has no FROM")
        self._target = self._stages[-1] if target is None else self._chosen(target)
        for stage in self._needed(self._target):
            if stage.error is not None:
                raise stage.error
            self.notes += [note for note in stage.notes if note not in self.notes]

    def spec(
        self, *, ready_command: str | None = None, limits: Limits | None = None, force: bool = False
    ) -> TemplateSpec:
        """Return the template that the file describes.

        Its entry point with its arguments is the start command.
        """
        target = self._target
        words = [part for part in (target.entrypoint, target.cmd) if part]
        if target.entrypoint and not target.is_exec:
            words = words[:1]  # a shell line takes no arguments
        needed = self._needed(target)
        stages = {
            stage.name: StageSpec(image=stage.image, steps=stage.steps)
            for stage in needed
            if stage is not target
        }
        copied = {step.stage for stage in needed for step in stage.steps if isinstance(step, CopyStep)}
        images = {name: image for name, image in self._images.items() if name in copied}
        return TemplateSpec(
            image=target.image,
            steps=target.steps,
            stages={**images, **stages},
            ignore=self._ignore,
            start_command=" ".join(words) or None,
            ready_command=ready_command,
            limits=limits or Limits(),
            force=force,
        )

    def check_sources(self, context: Path) -> None:
        """Check that a directory has what the needed stages copy from it.

        A build does that too, but it knows no lines. Sources with variables of an image are left to the build.

        Raises:
            InvalidSpecError: A source matches no file; the message says in which line it is.
        """
        files = Context(context, ignore=self._ignore)
        for stage in self._needed(self._target):
            for index, step in enumerate(stage.steps):
                found = next((each for each in self._copies if each.step is step), None)
                if found is None or found.step.stage is not None:
                    continue
                try:
                    for source in known_sources(stage.steps, index):
                        files.check(source)
                except InvalidSpecError as error:
                    raise InvalidSpecError(
                        f"line {found.line} of the Dockerfile, `{found.text}`: {error.message}",
                        hint=error.remedy,
                    ) from None

    def _needed(self, target: _Stage) -> list[_Stage]:
        """Return a stage and those that it copies from, directly or not."""
        needed = [target]
        for stage in needed:
            names = {step.stage for step in stage.steps if isinstance(step, CopyStep)}
            needed += [each for each in self._stages if each.name in names and each not in needed]
        return needed

    def _chosen(self, target: str) -> _Stage:
        found = self._named(target, self._stages)
        if found is None:
            names = ", ".join(stage.name for stage in self._stages)
            raise InvalidSpecError(f"the Dockerfile has no stage {target!r}", hint=f"it has {names}")
        return found

    def _named(self, name: str, stages: list[_Stage]) -> _Stage | None:
        """Return the last of the stages with that name, or the one with that number."""
        for stage in reversed(stages):
            if stage.name == name.lower():
                return stage
        if name.isascii() and name.isdigit() and int(name[:4]) < len(stages):
            return stages[int(name[:4])]
        return None

    def _take(self, found: Any) -> None:
        try:
            if found.name == "FROM":
                self._from(found)
            elif found.name == "ARG":
                self._arg(found.args)
            elif not self._stages:
                raise self._wrong(f"{found.name} comes before FROM")
            else:
                self._instruction(found)
        except (InvalidSpecError, ValueError) as error:
            told = error if isinstance(error, InvalidSpecError) else self._wrong(str(error))
            if not self._stages:
                raise told from None
            # a stage that nobody needs may be wrong
            self._stage.error = self._stage.error or told

    @property
    def _stage(self) -> _Stage:
        return self._stages[-1]

    def _instruction(self, found: Any) -> None:
        if found.name in _SKIPPED:
            self._note(f"{found.name} has no effect: {_SKIPPED[found.name]}")
        elif found.name in ("COPY", "ADD"):
            self._copy(found)
        elif found.name == "RUN":
            self._run(found)
        elif found.name == "SHELL":
            self._stage.shell = list(found.args)
        elif found.name in ("CMD", "ENTRYPOINT"):
            self._program(found)
        elif found.name in ("ENV", "WORKDIR", "USER"):
            self._setting(found)
        else:
            raise self._wrong(f"{found.name} is not supported")

    def _setting(self, found: Any) -> None:
        stage = self._stage
        if found.name == "ENV":
            pairs = zip(found.args[::3], found.args[1::3], strict=True)
            env = {self._word(name).plain: self._word(value).step for name, value in pairs}
            stage.steps.append(EnvStep(env=env))
            stage.variables |= env.keys()
            for name in env:  # from here on the name is a variable, no longer an argument
                stage.values.pop(name, None)
                stage.declared.pop(name, None)
            return
        if len(found.args) != 1:
            raise self._wrong(f"{found.name} takes one argument")
        text = self._word(found.args[0]).step
        stage.steps.append(UserStep(user=text) if found.name == "USER" else WorkdirStep(path=text))

    def _arg(self, words: list[str]) -> None:
        for word in words:
            name, equals, value = word.partition("=")
            if not self._stages:
                known = self._args.get(name, self._word(value) if equals else None)
                if known is not None:
                    self._globals[name] = known
                continue
            stage = self._stage
            known = self._args.get(name, self._word(value) if equals else self._globals.get(name))
            if known is not None and name not in stage.variables:
                stage.values[name] = stage.declared[name] = known

    def _from(self, found: Any) -> None:
        args = found.args
        if len(args) not in (1, 3) or (len(args) == 3 and args[1].upper() != "AS"):
            raise self._wrong("FROM takes an image, and may name the stage: FROM IMAGE AS NAME")
        number = str(len(self._stages))
        name = args[2].lower() if len(args) == 3 else number
        word = Word(args[0], self._escape, self._globals)
        image = word.plain
        above = next((each for each in reversed(self._stages) if each.name == image.lower()), None)
        if above is not None:
            begun = above.next(name)
        else:
            begun = _Stage(name=name, image=image, steps=[], values={}, declared={}, variables=set())
        if name in self._images or any(each.name == name for each in self._stages):
            begun.error = self._wrong(f"{name!r} is the name of something else already")
        if not word.is_known:
            begun.error = self._wrong(f"{args[0]} has no value", "declare it with ARG before the first FROM")
        self._stages.append(begun)
        for flag in found.flags:
            self._note(f"{flag} has no effect")
        if image == "scratch":
            begun.error = self._wrong("FROM scratch has nothing to run steps with", "start from an image")

    def _run(self, found: Any) -> None:
        for flag in found.flags:
            if not _CACHE_MOUNT.fullmatch(flag):
                raise self._wrong(f"RUN {flag} is not supported")
            self._note(f"RUN {flag} has no effect: what the step writes there stays in the template")
        declared = self._stage.declared.items()
        prefix = "".join(f"export {name}={value.shell}\n" for name, value in declared)
        if found.json:
            command: str | list[str] = list(found.args)
        else:
            command = _script(found)
            if self._stage.shell:
                command = [*self._stage.shell, prefix + command]
            elif prefix:
                command = prefix + command
        self._stage.steps.append(RunStep(command=command))

    def _copy(self, found: Any) -> None:
        flags = self._flags(found)
        if found.heredocs:
            raise self._wrong(f"{found.name} of a here-document is not supported", "write it with RUN")
        if len(found.args) < 2:
            raise self._wrong(f"{found.name} takes sources and a target")
        *sources, target = [self._word(word) for word in found.args]
        for source in (word.plain for word in sources):
            if found.name == "ADD" and (_URL.match(source) or source.startswith("git@")):
                raise self._wrong(f"ADD {source} is not supported", "download it with RUN, or COPY a file")
            if found.name == "ADD" and _ARCHIVE.search(source):
                raise self._wrong(f"ADD does not unpack {source}", "COPY it, and unpack it with RUN")
        mode = flags["chmod"].plain if "chmod" in flags else None
        if mode is not None and not _MODE.fullmatch(mode):
            raise self._wrong(f"--chmod={mode} is not an octal mode")
        stage = self._source_stage(flags["from"].plain) if "from" in flags else None
        owner = flags["chown"].step if "chown" in flags else ""
        step = CopyStep(
            sources=[word.step for word in sources],
            target=target.step,
            user=owner or (_NO_USER if stage is None else None),
            mode=int(mode, 8) if mode else None,
            stage=stage,
        )
        self._stage.steps.append(step)
        self._copies.append(_Written(step, self._line, one_line(self._lines[self._line - 1])))

    def _source_stage(self, name: str) -> str:
        """Return the name of what ``--from`` means: an earlier stage, or an image."""
        found = self._named(name, self._stages[:-1])
        if found is not None:
            return found.name
        if not name or name.isdigit() or name.lower() == self._stage.name:
            raise self._wrong(f"--from={name} is not an earlier stage")
        if name == "scratch":
            raise self._wrong("--from=scratch has no files")
        self._images[name] = StageSpec(image=name)
        return name

    def _flags(self, found: Any) -> dict[str, Word]:
        flags = {}
        for flag in found.flags:
            name, _, value = flag.removeprefix("--").partition("=")
            if name not in _COPY_FLAGS or (name == "from" and found.name == "ADD"):
                raise self._wrong(f"{found.name} --{name} is not supported")
            flags[name] = self._word(value)
        return flags

    def _program(self, found: Any) -> None:
        text = shlex.join(found.args) if found.json else " ".join(found.args)
        stage = self._stage
        if found.name == "CMD":
            stage.cmd = text
        else:
            stage.entrypoint, stage.cmd, stage.is_exec = text, None, found.json

    def _word(self, word: str) -> Word:
        return Word(word, self._escape, self._stage.values if self._stages else self._globals)

    def _note(self, text: str) -> None:
        self._stage.notes.append(f"line {self._line}: {text}")

    def _wrong(self, text: str, hint: str | None = None) -> InvalidSpecError:
        return InvalidSpecError(f"line {self._line} of the Dockerfile: {text}", hint=hint)


def _platform_values() -> dict[str, Word]:
    """Return the arguments that Docker sets by itself. The sandbox has this machine's kind of processor."""
    machine = platform.machine()
    architecture = _MACHINES.get(machine, machine)
    return {
        f"{whose}{what}": Word.of(value)
        for whose in ("TARGET", "BUILD")
        for what, value in {
            "PLATFORM": f"linux/{architecture}",
            "OS": "linux",
            "ARCH": architecture,
            "VARIANT": "",
        }.items()
    }


def _script(found: Any) -> str:
    """Return a shell line with the here-documents that belong to it."""
    from e2b_dockerfile_utils import chomp_heredoc_content

    line = " ".join(found.args)
    if not found.heredocs:
        return line
    contents = [
        chomp_heredoc_content(each.content) if each.chomp else each.content for each in found.heredocs
    ]
    if len(contents) == 1 and re.fullmatch(r"<<-?\s*['\"]?\w+['\"]?", line.strip()):
        return _whole_script(contents[0])
    parts = [f"{content}{each.name}\n" for each, content in zip(found.heredocs, contents, strict=True)]
    return f"{line}\n{''.join(parts)}"


def _whole_script(content: str) -> str:
    if not content.startswith("#!"):
        return content
    interpreter = content[2:].partition("\n")[0].strip()
    mark = "END_OF_SCRIPT"
    while mark in content:
        mark += "_"
    return f"{interpreter} /dev/stdin <<'{mark}'\n{content}{mark}\n"


def read_dockerfile(file: str | Path, args: Mapping[str, str] | None, target: str | None) -> Dockerfile:
    """Read a Dockerfile, by its content or its path.

    A ``NAME.dockerignore`` beside the file ``NAME`` stands for that of the context.

    Raises:
        InvalidSpecError: There is no such file, or it is not a Dockerfile.
    """
    if not isinstance(file, Path):
        if len(file.split()) == 1:
            raise InvalidSpecError(
                f"{file.strip()[:200]!r} is not the content of a Dockerfile",
                hint="give the path of a file as a Path, not as a str",
            )
        return Dockerfile(file, args, target)
    text = _text_of(file)
    ignore = ignore_lines(file.with_name(f"{file.name}{IGNORE_FILE}"))
    return Dockerfile(text, args, target, ignore)


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise InvalidSpecError(f"there is no Dockerfile {file}", hint=_near(file)) from None
    except OSError as error:
        raise InvalidSpecError(
            f"the Dockerfile {file} cannot be read: {error.strerror}", hint="check the path"
        ) from None
    if len(text) > _MOST_BYTES:
        raise InvalidSpecError(f"{file} is longer than a Dockerfile may be", hint="check the path")
    return text.decode("utf-8", "replace")


def _near(file: Path) -> str:
    """Return what to do about a Dockerfile that is not there."""
    here = sorted(path.name for path in file.parent.glob("*ockerfile*") if path.is_file())
    found = [name for name in here if not name.endswith(IGNORE_FILE)][:_MOST_NEAR]
    if found:
        return f"{file.absolute().parent} has {' and '.join(found)}"
    return "check the path, or write the file: `atoll docs templates` shows one"
