import json
import subprocess
import sys

import click
import pytest

from atoll.cli.__main__ import run
from atoll.cli.atoll import COMMANDS, atoll
from atoll.cli.commands.cp import Inside, parse
from atoll.cli.failures import Failure, failure_line
from atoll.errors import InvalidSpecError, SandboxNotFoundError

# What the last one prints is JSON in any case.
WITHOUT_JSON = {"serve", "completion", "shell", "mcp", "audit export"}


def every_command() -> list[tuple[str, click.Command]]:
    context = click.Context(atoll)
    found = []
    for name in COMMANDS:
        command = atoll.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", inner) for sub, inner in command.commands.items()]
        else:
            found.append((name, command))
    return found


def test_every_command_has_help_with_an_example() -> None:
    without = [
        name
        for name, command in every_command()
        if "Example:" not in (command.help or "") or f"atoll {name}" not in (command.help or "")
    ]
    assert without == []


def test_every_command_with_a_result_speaks_json() -> None:
    missing = [
        name
        for name, command in every_command()
        if name not in WITHOUT_JSON and not any("--json" in option.opts for option in command.params)
    ]
    assert missing == []


def test_what_can_be_listed_has_the_same_names_for_it_in_every_group() -> None:
    others = {"make", "add", "list", "rm", "remove"}
    # A service is added to a sandbox, as in the SDK, and is nothing by itself.
    named = [name for name, _ in every_command() if not name.startswith("service ")]
    assert [name for name in named if name.rpartition(" ")[2] in others] == []
    names = {name for name, _ in every_command()}
    assert {"snapshot create", "snapshot ls", "snapshot delete"} <= names


def test_listing_the_commands_loads_neither_them_nor_the_sdk() -> None:
    code = (
        "import sys\n"
        "from atoll.cli.__main__ import run\n"
        "run(['--help'])\n"
        "heavy = ('atoll.cli.commands', 'atoll.sdk', 'rich', 'asyncio', 'msgspec')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_loading_the_command_run_loads_no_rich_and_no_asyncio() -> None:
    code = (
        "import sys\n"
        "import atoll.cli.commands.run\n"
        "print([name for name in ('rich', 'asyncio', 'anyio', 'starlette') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["ls", "--nonsense"], ["exec"], ["exec", "work", "--"], ["run", "--env", "x", "true"]],
)
def test_a_wrong_command_line_is_one_line_and_code_125(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 125
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("atoll: ") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["run", "--timeout"], ["exec", "--timeout"], ["create", "--lifetime"], ["create", "--lease"]],
)
def test_every_length_is_seconds_or_a_number_with_its_unit(arguments: list[str]) -> None:
    command = atoll.get_command(click.Context(atoll), arguments[0])
    assert command is not None
    (option,) = (each for each in command.params if arguments[1] in each.opts)
    for text in ("600", "600s", "10m"):
        assert option.type.convert(text, option, None) == 600
    assert option.metavar == "LENGTH"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--timeout", "0", "true"], "'0' is too short: give 0.001s or more, or off"),
        (
            ["run", "--timeout", "soon", "true"],
            "'soon' is not a length of time: give seconds, or 90s, 10m, 2h, 1d or off",
        ),
        (["create", "--lifetime", "off"], "'off' is not a length of time: give seconds, or 90s, 10m, 2h, 1d"),
    ],
)
def test_a_wrong_length_is_refused_in_words_of_the_command_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 125
    assert said in capsys.readouterr().err


def test_a_group_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot"]) == 0
    assert "rollback" not in capsys.readouterr().err


def test_a_failure_says_what_and_the_remedy_without_control_characters() -> None:
    error = SandboxNotFoundError("no sandbox \x1b[31mwork", hint="see `atoll ls`")
    assert failure_line(error) == "atoll: no sandbox \\x1b[31mwork (see `atoll ls`)"


def test_a_failure_of_a_command_with_json_is_json() -> None:
    error = SandboxNotFoundError("no sandbox work", hint="see `atoll ls`")
    told = json.loads(failure_line(Failure(error, as_json=True)))
    assert told["error"]["code"] == "sandbox_not_found"
    assert told["error"]["hint"] == "see `atoll ls`"
    assert told["error"]["retryable"] is False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "--lease", "abc", "--json"], "'abc' is not a length of time"),
        (["create", "--json", "--nonsense"], "--nonsense"),
        (["info", "--json"], "SANDBOX"),
        (["exec", "--json", "work", "--"], "ARGV"),
        (["exec", "--json", "--terminal", "work", "top"], "--terminal"),
        (["run", "--json", "--terminal", "top"], "--terminal"),
    ],
)
def test_a_wrong_use_of_a_command_with_json_is_json(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 125
    shown = capsys.readouterr()
    assert shown.out == ""
    error = json.loads(shown.err)["error"]
    assert error["code"] == "invalid_spec"
    assert told in error["message"]
    assert error["hint"] == f"see: atoll {arguments[0]} --help"


@pytest.mark.parametrize(
    ("arguments", "told", "see"),
    [
        (["creat", "--json"], "no such command 'creat': did you mean `atoll create`?", "atoll"),
        (["secret", "lis", "--json"], "lis", "atoll secret"),
        (["--nonsense", "create", "--json"], "--nonsense", "atoll"),
        (["secret", "--nonsense", "ls", "--json"], "--nonsense", "atoll secret"),
    ],
)
def test_a_command_that_is_not_there_is_told_as_json(
    arguments: list[str], told: str, see: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 125
    error = json.loads(capsys.readouterr().err)["error"]
    assert told in error["message"]
    assert (error["code"], error["hint"]) == ("invalid_spec", f"see: {see} --help")


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "--timeout", "abc", "work", "prog", "--json"],
        ["run", "--nonsense", "--", "prog", "--json"],
        ["shell", "work", "--json"],
        ["runn", "--", "prog", "--json"],
    ],
)
def test_json_that_a_program_was_to_get_is_not_ours(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 125
    assert capsys.readouterr().err.startswith("atoll: ")


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("resume", "ttl_s is 2e+09", "--lease is 2e+09"),
        ("create", "wake_ttl_s and ttl_s", "--wake-lease and --lease"),
        ("create", "Lifecycle(ttl_s=60)", "Lifecycle(ttl_s=60)"),
        ("create", "the limit vcpus is 0", "the limit --cpus is 0"),
        ("limits", "accept that with best_effort", "accept that with --best-effort"),
        ("key create", "expires_in_s is 0", "--expires is 0"),
        ("create", "give 0, or None for no lease", "give 0, or off for no lease"),
        ("create", "an image named None, with env", "an image named None, with env"),
    ],
)
def test_an_error_speaks_of_options_where_the_sdk_speaks_of_its_parameters(
    name: str, text: str, shown: str
) -> None:
    command = dict(every_command())[name]
    with click.Context(command):
        failure = Failure(InvalidSpecError("it failed", hint=text), as_json=False)
        assert failure_line(failure) == f"atoll: it failed ({shown})"
        assert (
            json.loads(failure_line(Failure(InvalidSpecError(text), as_json=True)))["error"]["message"]
            == shown
        )


def test_an_unknown_fault_is_still_one_line() -> None:
    assert failure_line(KeyError("x\ny")).count("\n") == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_fault(closed: str) -> None:
    line = f'"{sys.executable}" -m atoll.cli --help {closed}'
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("work:/a/b", Inside("work", "/a/b")),
        ("work:", Inside("work", ".")),
        ("work:a:b", Inside("work", "a:b")),
        ("./a:b", None),
        ("/a:b", None),
        ("plain", None),
        (":x", None),
    ],
)
def test_a_side_with_a_colon_before_any_slash_is_in_a_sandbox(text: str, meant: Inside | None) -> None:
    assert parse(text) == meant
