"""Words of other tools on the command line: each is answered with atoll's own, and none is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import click
import pytest

from atoll.cli.__main__ import run
from atoll.cli.atoll import COMMANDS, SECTIONS, atoll
from atoll.cli.commands.doctor import next_step
from atoll.cli.commands.run import image_hint
from atoll.cli.foreign import COMMANDS as FOREIGN_COMMANDS
from atoll.cli.foreign import EXTRA, MISSING
from atoll.cli.foreign import OPTIONS as FOREIGN_OPTIONS
from atoll.protocol import DoctorReport, Finding


def command_of(path: str) -> click.Command | None:
    """The command of a path like ``image ls``."""
    found: click.Command | None = atoll
    for name in path.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    return found


def options_of(path: str) -> set[str]:
    command = command_of(path)
    assert command is not None, path
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)}


def every_path() -> Iterator[str]:
    for name in COMMANDS:
        command = command_of(name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.list_commands(click.Context(command)))
        else:
            yield name


@pytest.mark.parametrize("name", FOREIGN_COMMANDS)
def test_a_command_of_another_tool_is_answered_with_ours(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "work"]) == 125
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"atoll: no such command {name!r}: {FOREIGN_COMMANDS[name]} (see: atoll --help)\n"


@pytest.mark.parametrize(
    ("path", "option"), [(path, option) for path in FOREIGN_OPTIONS for option in FOREIGN_OPTIONS[path]]
)
def test_an_option_of_another_tool_is_answered_with_ours(
    path: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path.split(), option, "work", "true"]) == 125
    assert f"No such option {option!r}: {FOREIGN_OPTIONS[path][option]}" in capsys.readouterr().err


def test_what_atoll_has_is_not_foreign() -> None:
    assert set(FOREIGN_COMMANDS) & set(COMMANDS) == set()
    for path, names in FOREIGN_OPTIONS.items():
        assert set(names) & options_of(path) == set(), path


def test_each_command_that_is_named_instead_exists() -> None:
    texts = [
        *FOREIGN_COMMANDS.values(),
        *EXTRA.values(),
        *MISSING.values(),
        *(ours for each in FOREIGN_OPTIONS.values() for ours in each.values()),
    ]
    for text in texts:
        for said in re.findall(r"`atoll ([^`]+)`", text):
            path, command = "", None
            for word in re.findall(r"(?:^|(?<= ))[a-z][a-z-]*", said):
                if command is not None and not isinstance(command, click.Group):
                    break
                path = f"{path} {word}".strip()
                command = command_of(path)
                assert command is not None, said
            options = re.findall(r"(?<= )--?[a-z-]+", said)
            assert set(options) <= {*options_of(path), "--help"}, said
    for path, names in FOREIGN_OPTIONS.items():
        for text in names.values():
            wanted = set(re.findall(r"(?:^|give |, give )(--?[a-z][a-z-]*)", text))
            assert wanted <= options_of(path), (path, text)


def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["craete"]) == 125
    assert "no such command 'craete': did you mean `atoll create`?" in capsys.readouterr().err


def test_stop_with_a_name_says_what_ends_one_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stop", "work", "--json"]) == 125
    message = json.loads(capsys.readouterr().err)["error"]["message"]
    assert "`atoll suspend NAME` puts one sandbox to sleep, `atoll kill NAME` ends it" in message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("create work", "give the name with --name, the image with --image"),
        ("fork work 3", "give the number of copies with -n"),
        ("ls work", "`atoll info NAME` shows one sandbox"),
        ("shell work ls", "`atoll exec NAME PROGRAM` runs a program"),
        ("snapshot create work ready", "give the snapshot's name with --name"),
        ("template build . web", "give the template's name with --name"),
        ("run --image python:3.12", "`atoll create --start` runs the image's own"),
        ("create --volume /home/me:/data", "is a path of this machine, which no sandbox sees"),
        ("run --volume .:/data true", "copy it with `atoll cp`"),
        ("create --memory lots", "give MiB, or a unit as in 512m or 2g"),
    ],
)
def test_habits_of_other_tools_are_answered_in_words_of_atoll(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 125
    assert said in capsys.readouterr().err


def test_an_image_before_the_program_is_answered_with_the_option() -> None:
    said = "install it; an image or template is an option: `atoll run --image base -- ls -l`"
    assert image_hint(["base", "ls", "-l"], "install it") == said


def test_timeout_bounds_a_program_a_build_or_a_drain_and_never_a_lease() -> None:
    having = {path for path in every_path() if "--timeout" in options_of(path)}
    assert having == {"run", "exec", "template build", "drain"}
    leased = {path for path in every_path() if "--lease" in options_of(path)}
    assert leased == {"run", "create", "resume", "team create", "team set"}


def test_atoll_alone_greets_and_says_three_next_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("atoll ")
    commands = re.findall(r"^  atoll (\w+)", said, re.MULTILINE)
    assert commands == ["doctor", "run", "create"]


def test_the_help_lists_every_command_once_under_a_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    said = capsys.readouterr().out
    assert len(COMMANDS) == sum(len(section) for section in SECTIONS.values())
    for title, section in SECTIONS.items():
        below = said.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  ([a-z-]+) ", below, re.MULTILINE) == list(section)


@pytest.mark.parametrize(
    ("level", "fit", "said"),
    [
        ("ok", True, "atoll run -- python3 -c 'print(6 * 7)'"),
        ("note", True, "atoll run -- python3 -c 'print(6 * 7)'"),
        ("warning", True, "a warning says what would work better"),
        ("error", False, "fix what is marked ERROR, then run `atoll doctor` again"),
    ],
)
def test_a_check_of_the_machine_ends_with_what_to_do_next(level: str, fit: bool, said: str) -> None:
    finding = Finding(name="disk", level=level, message="x")  # type: ignore[arg-type]
    assert next_step(DoctorReport(fit=fit, findings=[finding])).endswith(said)
