"""The server of the code interpreter, with real kernels of Python on this host."""

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from atoll.sdk._async.agent import IDLE_S
from atoll.toolkits.code.inside.__main__ import KEEP_S
from atoll.toolkits.code.inside.app import App
from atoll.toolkits.code.inside.contexts import Contexts
from atoll.toolkits.code.inside.languages import LANGUAGES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        contexts = Contexts(str(tmp_path_factory.mktemp("home")), grace_s=3)
        transport = httpx.ASGITransport(app=App(contexts).asgi())
        async with httpx.AsyncClient(transport=transport, base_url="http://inside.test", timeout=120) as made:
            yield made
        for context in contexts.all():
            await contexts.delete(context.context_id)


async def test_a_connection_is_kept_for_longer_than_the_sdk_uses_it_again() -> None:
    assert KEEP_S > IDLE_S


async def lines(client: httpx.AsyncClient, code: str, **more: Any) -> list[dict[str, Any]]:
    answer = await client.post("/execute", json={"code": code, **more})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def of_kind(client: httpx.AsyncClient, kind: str, code: str, **more: Any) -> list[dict[str, Any]]:
    return [line for line in await lines(client, code, **more) if line["type"] == kind]


async def test_it_is_well_only_when_it_is_warm(tmp_path: Path) -> None:
    app = App(Contexts(str(tmp_path)))
    transport = httpx.ASGITransport(app=app.asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://inside.test") as client:
        assert (await client.get("/health")).status_code == 503
        app.is_ready = True
        assert (await client.get("/health")).status_code == 200


async def test_what_warms_a_kernel_leaves_nothing(client: httpx.AsyncClient) -> None:
    made = (await client.post("/contexts", json={"language": "python"})).json()
    for code in LANGUAGES["python"].first_runs:
        await lines(client, code, context_id=made["id"])
    [left] = await of_kind(client, "result", "(dict(Out), _, __, ___)", context_id=made["id"])
    assert left["text"] == "({}, '', '', '')"
    await client.delete(f"/contexts/{made['id']}")


async def test_a_run_tells_what_it_wrote_its_value_and_its_end_in_order(client: httpx.AsyncClient) -> None:
    told = await lines(client, "print('hello')\n40 + 2")
    assert [line["type"] for line in told] == [
        "number_of_executions",
        "stdout",
        "result",
        "end_of_execution",
    ]
    assert told[1]["text"] == "hello\n"
    assert told[2]["text"] == "42"
    assert told[2]["is_main_result"]


async def test_variables_stay_and_contexts_have_their_own(client: httpx.AsyncClient) -> None:
    other = (await client.post("/contexts", json={"language": "python", "cwd": "deep/er"})).json()
    assert other["cwd"].endswith("/deep/er")
    await lines(client, "kept = 'here'")
    await lines(client, "kept = 'there'; import os", context_id=other["id"])
    [here] = await of_kind(client, "result", "kept")
    [there] = await of_kind(client, "result", "kept + os.getcwd()", context_id=other["id"])
    assert here["text"] == "here"
    assert there["text"] == f"there{other['cwd']}"
    listed = (await client.get("/contexts")).json()
    assert other in listed
    variables = (await client.get(f"/contexts/{other['id']}/variables")).json()
    assert {"name": "kept", "type": "str", "value": "'there'"} in variables
    assert (await client.delete(f"/contexts/{other['id']}")).status_code == 204
    assert (await client.delete(f"/contexts/{other['id']}")).status_code == 404
    answer = await client.post("/execute", json={"code": "1", "context_id": other["id"]})
    assert answer.status_code == 404


async def test_an_exception_is_told_with_its_traceback(client: httpx.AsyncClient) -> None:
    [error] = await of_kind(client, "error", "def f():\n    return 1 / 0\nf()")
    assert error["name"] == "ZeroDivisionError"
    assert error["value"] == "division by zero"
    assert "ZeroDivisionError" in error["traceback"]


async def test_rich_results_have_each_form_by_its_name(client: httpx.AsyncClient) -> None:
    shown = "from IPython.display import display\ndisplay({'text/html': '<b>x</b>', 'a/b': 'c'}, raw=True)"
    [result] = await of_kind(client, "result", shown)
    assert result["html"] == "<b>x</b>"
    assert result["extra"] == {"a/b": "c"}
    assert not result["is_main_result"]


async def test_variables_of_the_environment_hold_for_one_run(client: httpx.AsyncClient) -> None:
    asked = "import os; print(os.environ.get('ONLY'))"
    [during] = await of_kind(client, "stdout", asked, env_vars={"ONLY": 'it\'s "now"'})
    assert during["text"] == 'it\'s "now"\n'
    [after] = await of_kind(client, "stdout", asked)
    assert after["text"] == "None\n"


async def test_a_context_and_a_language_together_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/execute", json={"code": "1", "context_id": "x", "language": "python"})
    assert answer.status_code == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"code": 1}', b'{"code": "1", "language": "cobol"}'])
async def test_rubbish_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    assert (await client.post("/execute", content=body)).status_code == 400


async def test_a_kernel_that_dies_is_told_and_is_there_again(client: httpx.AsyncClient) -> None:
    context = (await client.post("/contexts", json={})).json()["id"]
    [error] = await of_kind(client, "error", "import os; os._exit(3)", context_id=context)
    assert error["name"] == "KernelDied"
    [result] = await of_kind(client, "result", "'again'", context_id=context)
    assert result["text"] == "again"


async def test_an_interrupted_run_raises_and_keeps_its_variables(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    context = (await client.post("/contexts", json={})).json()["id"]
    begun = tmp_path / "begun"
    code = f"kept = 1\nopen({str(begun)!r}, 'w').close()\nimport time\nwhile True: time.sleep(0.1)"
    found: list[dict[str, Any]] = []

    async def run() -> None:
        found.extend(await of_kind(client, "error", code, context_id=context))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            while not await anyio.Path(begun).exists():  # noqa: ASYNC110  # another process makes it
                await anyio.sleep(0.05)
            await client.post(f"/contexts/{context}/interrupt")
    assert found[0]["name"] == "KeyboardInterrupt"
    [result] = await of_kind(client, "result", "kept", context_id=context)
    assert result["text"] == "1"


async def test_code_that_ignores_the_interrupt_at_its_timeout_is_killed_with_its_kernel_and_is_told_so(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    deaf = (
        "import signal, subprocess\nkept = 1\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"open({str(child)!r}, 'w').write(str(subprocess.Popen(['sleep', '600'], start_new_session=True).pid))\n"
        "while True: print('deaf')"
    )
    context = (await client.post("/contexts", json={})).json()["id"]
    [late] = await of_kind(client, "timed_out", deaf, context_id=context, timeout_s=3)
    assert "killed, and its variables are gone" in late["loss"]
    assert not running(int(child.read_text()))
    [result] = await of_kind(client, "result", "'kept' in dir()", context_id=context, timeout_s=60)
    assert result["text"] == "False"


async def test_code_that_ends_at_its_timeout_leaves_the_variables(client: httpx.AsyncClient) -> None:
    context = (await client.post("/contexts", json={})).json()["id"]
    told = await lines(client, "kept = 1\nwhile True: pass", context_id=context, timeout_s=1)
    assert told[-2:] == [{"type": "timed_out", "loss": ""}, {"type": "end_of_execution"}]
    [result] = await of_kind(client, "result", "kept", context_id=context, timeout_s=60)
    assert result["text"] == "1"


async def test_a_run_that_is_late_while_it_waits_for_another_stops_only_itself(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    context, go = (await client.post("/contexts", json={})).json()["id"], tmp_path / "go"
    waiting = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n'done'"
    found: list[dict[str, Any]] = []

    async def run() -> None:
        found.extend(await of_kind(client, "result", waiting, context_id=context))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.5)
        assert await of_kind(client, "timed_out", "1", context_id=context, timeout_s=0.2)
        go.touch()
    assert [each["text"] for each in found] == ["done"]


async def test_what_was_lost_when_nobody_listened_is_told_with_the_next_run(
    client: httpx.AsyncClient,
) -> None:
    context = (await client.post("/contexts", json={})).json()["id"]
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    with anyio.move_on_after(2):
        await lines(client, deaf, context_id=context)
    [told] = await of_kind(client, "stderr", "1", context_id=context, timeout_s=60)
    assert "its variables are gone" in told["text"]
    assert await of_kind(client, "stderr", "1", context_id=context) == []


async def test_a_variable_of_one_run_gives_way_to_the_one_that_was_there_before(
    client: httpx.AsyncClient,
) -> None:
    asked = "import os; print(os.environ['HOME'])"
    [before] = await of_kind(client, "stdout", asked)
    [during] = await of_kind(client, "stdout", asked, env_vars={"HOME": "/nowhere"})
    [after] = await of_kind(client, "stdout", asked)
    assert (during["text"], after) == ("/nowhere\n", {**before, "timestamp": after["timestamp"]})


@pytest.mark.parametrize("name", ["python", "bash"])
def test_code_that_seeds_gives_other_numbers_each_time(name: str) -> None:
    language = LANGUAGES[name]
    program, shown = {
        "python": ([sys.executable, "-c"], "import random; print(random.random())"),
        "bash": (["bash", "-c"], "echo $RANDOM"),
    }[name]
    first = "import random; random.seed(1)" if name == "python" else "RANDOM=1"
    told = {
        subprocess.run(
            [*program, f"{first}\n{language.seed()}\n{shown}"], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(3)
    }
    assert len(told) == 3


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bash", "export FOO='it'\"'\"'s'\nunset OLD"),
        ("javascript", 'Deno.env.set("FOO", "it\'s");\nDeno.env.delete("OLD");'),
    ],
)
def test_each_language_sets_and_removes_variables_in_its_own_words(name: str, code: str) -> None:
    assert LANGUAGES[name].environment({"FOO": "it's", "OLD": None}) == code


def running(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def test_a_restart_forgets_variables(client: httpx.AsyncClient) -> None:
    context = (await client.post("/contexts", json={})).json()["id"]
    await lines(client, "gone = 1", context_id=context)
    await client.post(f"/contexts/{context}/restart")
    [error] = await of_kind(client, "error", "gone", context_id=context)
    assert error["name"] == "NameError"
