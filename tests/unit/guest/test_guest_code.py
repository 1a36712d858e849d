import json
from typing import Any

import pytest

from atoll.errors import AgentError, InvalidSpecError, NotFoundError, QuotaError
from atoll.guest import (
    GuestRequest,
    RunReader,
    change_context,
    code_error_from,
    context_from,
    contexts_from,
    create_context,
    delete_context,
    list_contexts,
    list_variables,
    run_code,
    variables_from,
)
from atoll.types import CodeContext, CodeVariable

CONTEXT = {"id": "a", "language": "python", "cwd": "/home/user"}


def line(**content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


END = line(type="end_of_execution")


def fed(*pieces: bytes) -> RunReader:
    reader = RunReader()
    for piece in pieces:
        for _ in reader.feed(piece):
            continue
    return reader


def test_requests_name_their_context_in_the_path_without_letting_it_lead_elsewhere() -> None:
    assert run_code("1", context_id="a", language=None, env={"A": "1"}, timeout_s=2.5) == GuestRequest(
        "POST",
        "/execute",
        (("Content-Type", "application/json"),),
        b'{"code": "1", "context_id": "a", "language": null, "env_vars": {"A": "1"}, "timeout_s": 2.5}',
    )
    assert create_context("bash", "/tmp").target == "/contexts"
    assert list_contexts().method == "GET"
    assert delete_context("../x").target == "/contexts/..%2Fx"
    assert change_context("a", "restart").target == "/contexts/a/restart"
    assert list_variables("a b").target == "/contexts/a%20b/variables"


def test_answers_are_read_as_what_they_are() -> None:
    context = CodeContext(id="a", language="python", cwd="/home/user")
    assert context_from(json.dumps(CONTEXT).encode()) == context
    assert contexts_from(json.dumps([CONTEXT]).encode()) == [context]
    variable = {"name": "x", "type": "int", "value": "1"}
    assert variables_from(json.dumps([variable]).encode()) == [CodeVariable(name="x", type="int", value="1")]
    with pytest.raises(AgentError, match="against its protocol"):
        contexts_from(b"{")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFoundError),
        (429, QuotaError),
        (400, InvalidSpecError),
        (413, InvalidSpecError),
        (500, AgentError),
    ],
)
def test_each_status_has_its_error_with_what_the_server_said(status: int, kind: type[Exception]) -> None:
    error = code_error_from(status, b"why\n")
    assert type(error) is kind
    assert error.message == "why"
    assert str(status) in code_error_from(status, b"").message


def test_lines_that_arrive_in_pieces_are_put_together() -> None:
    whole = (
        line(type="stdout", text="out", timestamp=1)
        + line(type="result", text="1", is_main_result=True)
        + END
    )
    result = fed(*(whole[at : at + 7] for at in range(0, len(whole), 7))).result()
    assert (result.stdout, result.text) == ("out", "1")


def test_a_run_has_its_streams_outputs_error_and_count() -> None:
    error = line(type="error", name="E", value="v", traceback="\x1b[31mred\x1b[0m")
    told = (
        line(type="stderr", text="err") + line(type="number_of_executions", execution_count=3) + error + END
    )
    result = fed(told, b"\n").result()
    assert result.stderr == "err"
    assert result.execution_count == 3
    assert result.error is not None
    assert result.error.traceback == "red"


def test_a_run_that_was_interrupted_says_whether_the_variables_are_lost_and_what_it_wrote() -> None:
    reader = fed(line(type="stdout", text="out"), line(type="timed_out", loss="its kernel was killed"), END)
    assert (reader.is_late, reader.loss, reader.written("stdout")) == (True, "its kernel was killed", "out")
    assert not fed(END).is_late


def test_lines_of_kinds_to_come_are_left_out() -> None:
    assert fed(line(type="keep_alive"), line(new=1), END).result().outputs == []


def test_a_run_that_ends_before_its_last_line_is_an_error() -> None:
    with pytest.raises(AgentError, match="in the middle"):
        fed(line(type="stdout", text="x")).result()


@pytest.mark.parametrize(
    "rubbish",
    [b"rubbish\n", b"[]\n", line(type="stdout", text=1), line(type="error"), line(type="result", text=[1])],
)
def test_rubbish_is_refused(rubbish: bytes) -> None:
    with pytest.raises(AgentError):
        fed(rubbish)


def test_more_than_the_most_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.guest.code.LARGEST_RUN", 100)
    with pytest.raises(AgentError, match="write to a file"):
        fed(line(type="stdout", text="x" * 60), line(type="stdout", text="x" * 60))
