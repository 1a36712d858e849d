from __future__ import annotations

import pickle
from collections import Counter

import msgspec
import pytest

from atoll import errors
from atoll.errors import AtollError
from atoll.protocol import ErrorBody, error_body, error_of, raise_body
from atoll.types import ExecResult


def tree(kind: type[AtollError]) -> list[type[AtollError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


EVERY = [kind for kind in tree(AtollError) if kind.__module__.startswith(errors.__name__)]


def test_code_and_class_are_one_to_one() -> None:
    codes = Counter(kind.code for kind in EVERY)
    assert [code for code, count in codes.items() if count > 1] == []
    assert all("code" in vars(kind) for kind in EVERY)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_an_error_comes_over_the_wire_as_what_it_was(kind: type[AtollError]) -> None:
    error = error_of(ErrorBody(code=kind.code, message="what, which", hint="do this", sandbox_id="a"))
    assert type(error) is kind
    assert (error.message, error.hint, error.sandbox_id) == ("what, which", "do this", "a")
    assert str(error) == "what, which (do this)"


@pytest.mark.parametrize("kind", [errors.ExecFailedError, errors.ExecTimeoutError, errors.FileMissingError])
def test_an_error_is_the_same_after_pickling(kind: type[AtollError]) -> None:
    error = error_of(ErrorBody(code=kind.code, message="what, which", hint="do this", sandbox_id="a"))
    if isinstance(error, errors.ExecFailedError | errors.ExecTimeoutError):
        error.result = ExecResult(exit_code=137, stdout_bytes=b"half", command="make")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_code_of_a_later_version_is_the_base_error() -> None:
    assert type(error_of(ErrorBody(code="from_the_future", message="x"))) is AtollError


def test_errors_are_the_built_in_ones_that_they_look_like() -> None:
    assert issubclass(errors.FileMissingError, FileNotFoundError)
    assert issubclass(errors.FileDeniedError, PermissionError)
    assert issubclass(errors.ExecTimeoutError, TimeoutError)
    assert issubclass(errors.NotFoundError, LookupError)
    assert issubclass(errors.InvalidSpecError, ValueError)


def test_the_tree_that_is_drawn_is_the_tree_that_is_there() -> None:
    lines = [line.strip("│├└─ ").split() for line in (errors.__doc__ or "").splitlines()]
    drawn = [line[0] for line in lines if line and line[0].endswith("Error")]
    assert sorted(drawn) == sorted(kind.__name__ for kind in EVERY)


def test_control_characters_of_a_message_are_spelled_out() -> None:
    error = AtollError("red \x1b[31m\nnext\tline é", hint="do this")
    assert str(error) == "red \\x1b[31m\nnext\tline é (do this)"


def test_an_error_says_whether_to_try_again() -> None:
    hopeful = {kind.__name__ for kind in EVERY if kind.retryable}
    assert hopeful == {
        "DeadlineError",
        "DrainingError",
        "EdgeError",
        "HostMemoryError",
        "ShortageError",
        "InUseError",
        "QuotaError",
        "SandboxCrashedError",
        "StoreError",
        "SupervisorError",
    }
    assert errors.ImagePullError("x", retryable=True).retryable
    assert not errors.SupervisorError("x", retryable=False).retryable


@pytest.mark.parametrize(
    "error", [errors.ImagePullError("x", retryable=True), errors.QuotaError("x"), errors.StateError("x")]
)
def test_a_peer_is_told_whether_to_try_again(error: AtollError) -> None:
    with pytest.raises(type(error)) as raised:
        raise_body(msgspec.json.decode(msgspec.json.encode(error_body(error)), type=ErrorBody))
    assert raised.value.retryable is error.retryable


def test_a_peer_that_does_not_say_leaves_it_to_the_class() -> None:
    with pytest.raises(errors.DeadlineError) as raised:
        raise_body(ErrorBody(code="deadline", message="x"))
    assert raised.value.retryable
