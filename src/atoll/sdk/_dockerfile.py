"""Translates a Dockerfile into the steps of a template."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from atoll.errors import InvalidSpecError
from atoll.types import CopyStep, EnvStep, Limits, RunStep, Step, TemplateSpec, UserStep, WorkdirStep

_SKIPPED = {
    "EXPOSE": "every port of a sandbox is reachable",
    "LABEL": "templates have none",
    "MAINTAINER": "templates have none",
    "HEALTHCHECK": "give a ready command instead",
    "STOPSIGNAL": "a sandbox is suspended or killed instead",
    "VOLUME": "mount volumes when you create a sandbox",
}
_COPY_FLAGS = {"chown", "chmod", "link"}
_MODE = re.compile(r"[0-7]{3,4}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ARCHIVE = re.compile(r"\.(tar|tgz|tar\.\w+)$")
_NO_USER = "root"


class Dockerfile:
    """Reads a Dockerfile of one stage.

    Args:
        text: The file's content.
        args: Values for what the file declares with ``ARG``.

    Attributes:
        notes: Which parts of the file have no effect, in words for people.

    Raises:
        InvalidSpecError: The text is not a Dockerfile, or asks for something that templates do not support.
    """

    def __init__(self, text: str, args: Mapping[str, str] | None = None) -> None:
        from e2b_dockerfile_utils import DockerfileSyntaxError, ShellLex, parse_dockerfile_ast

        self.notes: list[str] = []
        self._args = dict(args or {})
        # the arguments so far; variables are not expanded here, because only the build knows the image's
        # variables
        self._values: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        # the arguments that RUN's programs see
        self._declared: dict[str, str] = {}
        self._image: str | None = None
        self._steps: list[Step] = []
        self._shell: list[str] | None = None
        self._cmd: str | None = None
        self._entrypoint: str | None = None
        self._is_exec = False
        try:
            parsed = parse_dockerfile_ast(text)
            self._lex = ShellLex(parsed.escape_token, env=self._values, skip_unset_env=True)
            for instruction in parsed.instructions:
                self._line = instruction.start_line
                self._take(instruction)
        except (DockerfileSyntaxError, ValueError) as error:
            if isinstance(error, InvalidSpecError):
                raise
            raise InvalidSpecError(f"the Dockerfile is wrong: {error}") from None
        if self._image is None:
            raise InvalidSpecError("the Dockerfile has no FROM")

    def spec(
        self, *, ready_command: str | None = None, limits: Limits | None = None, force: bool = False
    ) -> TemplateSpec:
        """Return the template that the file describes.

        Its entry point with its arguments is the start command.
        """
        words = [part for part in (self._entrypoint, self._cmd) if part]
        if self._entrypoint and not self._is_exec:
            words = words[:1]  # a shell line takes no arguments
        return TemplateSpec(
            image=self._image,
            steps=self._steps,
            start_command=" ".join(words) or None,
            ready_command=ready_command,
            limits=limits or Limits(),
            force=force,
        )

    def _take(self, found: Any) -> None:
        if found.name == "ARG":
            self._arg(found.args)
        elif found.name == "FROM":
            self._from(found)
        elif self._image is None:
            raise self._wrong(f"{found.name} comes before FROM")
        elif found.name in _SKIPPED:
            self._note(f"{found.name} has no effect: {_SKIPPED[found.name]}")
        elif found.name in ("COPY", "ADD"):
            self._copy(found)
        elif found.name == "RUN":
            self._run(found)
        elif found.name == "SHELL":
            self._shell = list(found.args)
        elif found.name in ("CMD", "ENTRYPOINT"):
            self._program(found)
        elif found.name in ("ENV", "WORKDIR", "USER"):
            self._setting(found)
        else:
            raise self._wrong(f"{found.name} is not supported")

    def _setting(self, found: Any) -> None:
        if found.name == "ENV":
            pairs = zip(found.args[::3], found.args[1::3], strict=True)
            env = {self._word(name): self._word(value) for name, value in pairs}
            self._steps.append(EnvStep(env=env))
            for name in env:  # from here on the name is a variable, no longer an argument
                self._values.pop(name, None)
                self._declared.pop(name, None)
            return
        if len(found.args) != 1:
            raise self._wrong(f"{found.name} takes one argument")
        text = self._word(found.args[0])
        self._steps.append(UserStep(user=text) if found.name == "USER" else WorkdirStep(path=text))

    def _arg(self, words: list[str]) -> None:
        for word in words:
            name, equals, value = word.partition("=")
            known = self._args.get(name, self._word(value) if equals else self._globals.get(name))
            if known is not None:
                self._values[name] = known
            if known is not None and self._image is not None:
                self._declared[name] = known

    def _from(self, found: Any) -> None:
        if self._image is not None:
            raise self._wrong(
                "it has more than one stage", "build the other stages as templates or images of their own"
            )
        for flag in found.flags:
            self._note(f"{flag} has no effect")
        self._image = self._word(found.args[0])
        if self._image == "scratch":
            raise self._wrong("FROM scratch has nothing to run steps with", "start from an image")
        self._globals = dict(self._values)
        self._values.clear()

    def _run(self, found: Any) -> None:
        for flag in found.flags:
            raise self._wrong(f"RUN {flag} is not supported")
        prefix = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self._declared.items())
        if found.json:
            command: str | list[str] = list(found.args)
        else:
            command = self._script(found)
            if self._shell:
                command = [*self._shell, prefix + command]
            elif prefix:
                command = prefix + command
        self._steps.append(RunStep(command=command))

    def _script(self, found: Any) -> str:
        """Return a shell line with the here-documents that belong to it."""
        from e2b_dockerfile_utils import chomp_heredoc_content

        line = " ".join(found.args)
        if not found.heredocs:
            return line
        contents = [
            chomp_heredoc_content(each.content) if each.chomp else each.content for each in found.heredocs
        ]
        if len(contents) == 1 and re.fullmatch(r"<<-?\s*['\"]?\w+['\"]?", line.strip()):
            return self._whole_script(contents[0])
        parts = [f"{content}{each.name}\n" for each, content in zip(found.heredocs, contents, strict=True)]
        return f"{line}\n{''.join(parts)}"

    def _whole_script(self, content: str) -> str:
        if not content.startswith("#!"):
            return content
        interpreter = content[2:].partition("\n")[0].strip()
        mark = "END_OF_SCRIPT"
        while mark in content:
            mark += "_"
        return f"{interpreter} /dev/stdin <<'{mark}'\n{content}{mark}\n"

    def _copy(self, found: Any) -> None:
        flags = self._flags(found)
        if found.heredocs:
            raise self._wrong(f"{found.name} of a here-document is not supported", "write it with RUN")
        if len(found.args) < 2:
            raise self._wrong(f"{found.name} takes sources and a target")
        *sources, target = [self._word(word) for word in found.args]
        for source in sources:
            if found.name == "ADD" and (_URL.match(source) or source.startswith("git@")):
                raise self._wrong(f"ADD {source} is not supported", "download it with RUN, or COPY a file")
            if found.name == "ADD" and _ARCHIVE.search(source):
                raise self._wrong(f"ADD does not unpack {source}", "COPY it, and unpack it with RUN")
        mode = flags.get("chmod")
        if mode is not None and not _MODE.fullmatch(mode):
            raise self._wrong(f"--chmod={mode} is not an octal mode")
        self._steps.append(
            CopyStep(
                sources=sources,
                target=target,
                user=flags.get("chown") or _NO_USER,
                mode=int(mode, 8) if mode else None,
            )
        )

    def _flags(self, found: Any) -> dict[str, str]:
        flags = {}
        for flag in found.flags:
            name, _, value = flag.removeprefix("--").partition("=")
            if name not in _COPY_FLAGS:
                raise self._wrong(f"{found.name} --{name} is not supported")
            flags[name] = self._word(value)
        return flags

    def _program(self, found: Any) -> None:
        text = shlex.join(found.args) if found.json else " ".join(found.args)
        if found.name == "CMD":
            self._cmd = text
        else:
            self._entrypoint, self._cmd, self._is_exec = text, None, found.json

    def _word(self, word: str) -> str:
        return str(self._lex.process_word(word))

    def _note(self, text: str) -> None:
        self.notes.append(f"line {self._line}: {text}")

    def _wrong(self, text: str, hint: str | None = None) -> InvalidSpecError:
        return InvalidSpecError(f"line {self._line} of the Dockerfile: {text}", hint=hint)
