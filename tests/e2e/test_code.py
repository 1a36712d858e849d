"""Code in contexts: by atoll's SDK, and by E2B's unmodified code interpreter over `atoll serve`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from e2b_code_interpreter import Sandbox as CodeInterpreter
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent
from tests.adapters.libraries import run_cases
from tests.e2e.server import Server
from tests.sdks.installed import javascript_sdk

from atoll import Sandbox, Template, Templates
from atoll.errors import (
    CodeFailedError,
    ExecTimeoutError,
    InvalidSpecError,
    NotFoundError,
    UnsupportedError,
)
from atoll.toolkits.code import CONTEXT, NAME, spec
from atoll.types import CodeOutput

# The template takes a minute on a quiet machine.
pytestmark = pytest.mark.timeout(1500)
LONG_S = 90.0


@pytest.fixture(scope="module")
def template(module_home: Path) -> str:
    """The template without the libraries that no test here needs."""
    del module_home
    Templates.build(spec(libraries=()), NAME, public=True, context=CONTEXT)
    return NAME


@pytest.fixture(scope="module")
def sandbox(template: str) -> Iterator[Sandbox]:
    with Sandbox.create(Template(template), env={"GREETING": "hello"}) as sandbox:
        yield sandbox


def test_variables_stay_between_runs_over_sleep_and_in_forks(sandbox: Sandbox) -> None:
    assert sandbox.code.run("kept = [1, 2, 3]\nsum(kept)", timeout_s=LONG_S).check().text == "6"
    sandbox.suspend()
    assert sandbox.code.run("kept.append(4); kept", timeout_s=LONG_S).text == "[1, 2, 3, 4]"
    [copy] = sandbox.fork()
    with copy:
        assert copy.code.run("kept.append(5); len(kept)", timeout_s=LONG_S).text == "5"
        assert sandbox.code.run("len(kept)", timeout_s=LONG_S).text == "4"


def test_a_new_sandbox_and_a_fork_draw_random_numbers_of_their_own(sandbox: Sandbox, template: str) -> None:
    [copy] = sandbox.fork()
    with copy, Sandbox.create(Template(template)) as other:
        draw = "import random; random.random()"
        drawn = {each.code.run(draw, timeout_s=LONG_S).check().text for each in (sandbox, copy, other)}
    assert len(drawn) == 3


def test_what_is_installed_for_the_user_can_be_imported_at_once(sandbox: Sandbox) -> None:
    here = "site=$(python3 -m site --user-site) && "
    sandbox.run(f"{here} mkdir -p $site && echo DEPTH=7 >$site/lagoon.py").check()
    assert sandbox.code.run("import lagoon; lagoon.DEPTH", timeout_s=LONG_S).check().text == "7"
    sandbox.run(
        f"{here} mkdir -p reef && echo DEPTH=8 >reef/atolls.py && echo $PWD/reef >$site/reef.pth"
    ).check()
    assert sandbox.code.run("import atolls; atolls.DEPTH", timeout_s=LONG_S).check().text == "8"


def test_a_rollback_takes_the_variables_back(sandbox: Sandbox) -> None:
    sandbox.code.run("state = 'before'", timeout_s=LONG_S).check()
    snapshot = sandbox.snapshot()
    sandbox.code.run("state = 'after'", timeout_s=LONG_S).check()
    sandbox.rollback(snapshot)
    assert sandbox.code.run("state", timeout_s=LONG_S).text == "before"


def test_what_is_written_comes_piece_by_piece_and_an_exception_is_part_of_the_result(
    sandbox: Sandbox,
) -> None:
    pieces: list[str] = []
    shown: list[CodeOutput] = []
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay({'a': 1})\n1 / 0"
    result = sandbox.code.run(code, on_stdout=pieces.append, on_output=shown.append, timeout_s=LONG_S)
    assert (result.stdout, result.stderr, "".join(pieces)) == ("out\n", "err\n", "out\n")
    assert [output.text for output in shown] == ["{'a': 1}"]
    assert result.error is not None
    assert result.error.name == "ZeroDivisionError"
    assert "1 / 0" in result.error.traceback
    with pytest.raises(CodeFailedError, match="division by zero"):
        result.check()


def test_the_sandboxs_variables_and_those_of_one_run_are_there(sandbox: Sandbox) -> None:
    asked = "import os; print(os.environ.get('GREETING'), os.environ.get('ONLY'))"
    assert sandbox.code.run(asked, env={"ONLY": "once"}, timeout_s=LONG_S).stdout == "hello once\n"
    assert sandbox.code.run(asked, timeout_s=LONG_S).stdout == "hello None\n"


def test_other_languages_have_contexts_of_their_own(sandbox: Sandbox) -> None:
    sandbox.code.run("const x: number = 41;", language="typescript", timeout_s=LONG_S).check()
    assert sandbox.code.run("x + 1", language="javascript", timeout_s=LONG_S).text == "42"
    sandbox.code.run("cd /tmp", language="bash", timeout_s=LONG_S).check()
    assert sandbox.code.run("pwd", language="bash", timeout_s=LONG_S).stdout == "/tmp\n"
    with pytest.raises(InvalidSpecError, match="not known"):
        sandbox.code.run("1", language="cobol")
    for language, shown in (
        ("bash", "echo $GREETING $ONLY"),
        ("js", "console.log(process.env.GREETING, process.env.ONLY)"),
    ):
        given = sandbox.code.run(shown, language=language, env={"ONLY": "it's"}, timeout_s=LONG_S)
        assert given.stdout == "hello it's\n"
        after = sandbox.code.run(shown, language=language, timeout_s=LONG_S)
        assert after.stdout.split() in (["hello"], ["hello", "undefined"])
    with pytest.raises(ExecTimeoutError, match="its variables are gone"):
        sandbox.code.run("while (true) {}", language="js", timeout_s=1)
    assert sandbox.code.run("1 + 1", language="js", timeout_s=LONG_S).text == "2"


def test_a_run_that_takes_too_long_is_interrupted_and_the_variables_stay(sandbox: Sandbox) -> None:
    sandbox.code.run("stays = 'here'", timeout_s=LONG_S).check()
    with pytest.raises(ExecTimeoutError, match="the context keeps its variables") as late:
        sandbox.code.run("print('begun', flush=True)\nwhile True: pass", timeout_s=3)
    assert (late.value.result.stdout, late.value.retryable) == ("begun\n", False)
    assert sandbox.code.run("stays", timeout_s=LONG_S).text == "here"


def test_a_context_is_made_listed_restarted_and_deleted(sandbox: Sandbox) -> None:
    made = sandbox.code.create_context(cwd="work")
    assert made.cwd == "/home/user/work"
    assert made in sandbox.code.contexts()
    sandbox.code.run("own = 1", context=made, timeout_s=LONG_S).check()
    assert [(each.name, each.type, each.value) for each in sandbox.code.variables(made)] == [
        ("own", "int", "1")
    ]
    sandbox.code.restart(made)
    assert sandbox.code.run("own", context=made, timeout_s=LONG_S).error is not None
    sandbox.code.interrupt(made)
    sandbox.code.delete_context(made)
    with pytest.raises(NotFoundError):
        sandbox.code.run("1", context=made)


def test_a_sandbox_without_the_template_says_what_to_do(module_home: Path) -> None:
    del module_home
    with Sandbox.create() as plain, pytest.raises(UnsupportedError, match="toolkits.install"):
        plain.code.run("1")


def test_charts_pictures_and_data_frames_are_shown_as_such(sandbox: Sandbox) -> None:
    drawn = "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title('steep')\nplt.show()"
    [figure] = sandbox.code.run(drawn, timeout_s=LONG_S).check().outputs
    assert figure.png_bytes.startswith(b"\x89PNG")
    assert figure.chart is not None
    assert (figure.chart["type"], figure.chart["title"]) == ("line", "steep")
    framed = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]})"
    [frame] = sandbox.code.run(framed, timeout_s=LONG_S).check().outputs
    assert frame.data == {"a": [1, 2], "b": ["x", None]}
    assert frame.html is not None
    drawn = "from PIL import Image\nred = Image.new('RGB', (2, 2), 'red')\nred.show()\nred.save('red.png')"
    pictures = sandbox.code.run(drawn, timeout_s=LONG_S).check().outputs
    assert [picture.png_bytes[:4] for picture in pictures] == [b"\x89PNG", b"\x89PNG"]


def test_e2bs_code_interpreter_works_unchanged(
    template: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CodeInterpreter.default_template == template
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    theirs = CodeInterpreter.create(timeout=600, envs={"GREETING": "hello"})
    try:
        assert theirs.run_code("x = 20\nx * 2", timeout=LONG_S).text == "40"
        told = theirs.run_code("import os\nprint(os.environ['GREETING'])\n1 / 0", timeout=LONG_S)
        assert told.logs.stdout == ["hello\n"]
        assert told.error is not None
        assert told.error.name == "ZeroDivisionError"
        context = theirs.create_code_context(cwd="/root", language="python")
        entered = "import os; open('mine', 'w'); os.getcwd()"
        assert theirs.run_code(entered, context=context, timeout=LONG_S).text == "/root"
        assert context.id in [each.id for each in theirs.list_code_contexts()]
        theirs.remove_code_context(context)
        assert theirs.run_code("const x = 1; x + 1", language="js", timeout=LONG_S).text == "2"
        theirs.pause()
        theirs = theirs.connect()
        assert theirs.run_code("x + 2", timeout=LONG_S).text == "22"
    finally:
        theirs.kill()


def test_a_model_runs_code_by_mcp(template: str, module_home: Path) -> None:
    arguments = ["-P", "-m", "atoll.mcp", "--template", template, "--sandbox", "notebook"]
    environment = {**os.environ, "ATOLL_HOME": str(module_home)}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)

    async def told() -> list[str]:
        async with Client(stdio_client(server), read_timeout_seconds=LONG_S) as client:
            answers = []
            for code in ("x = 20\nprint('said')", "x * 2", "1 / 0"):
                [content] = (await client.call_tool("run_code", {"code": code})).content
                assert isinstance(content, TextContent)
                answers.append(content.text)
            return answers

    try:
        said, value, error = anyio.run(told)
    finally:
        Sandbox.connect("notebook", wake=False).kill()
    assert said == "stdout:\nsaid\n"
    assert value == "result:\n40\n"
    assert "ZeroDivisionError" in error


@pytest.mark.skipif(os.getuid() != 0, reason="the clients of JavaScript run as root only")
def test_e2bs_code_interpreter_for_javascript_works_unchanged(template: str, server: Server) -> None:
    del template
    done = subprocess.run(
        ["node", "code.mjs"],
        cwd=javascript_sdk(),
        env={**os.environ, **server.variables},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["40", ["said\n"], "ZeroDivisionError", "/tmp"]


def test_agents_of_smolagents_run_their_code_in_it(template: str, tmp_path: Path) -> None:
    del template
    run_cases("smolagents", "smolagents==1.26.0", tmp_path=tmp_path)
