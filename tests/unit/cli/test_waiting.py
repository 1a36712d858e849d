"""Waiting for the end of a sandbox whose port is forwarded."""

from __future__ import annotations

import pytest

from atoll.cli.waiting import wait_while_it_lives
from atoll.errors import AtollError, DeniedError, SandboxNotFoundError, SupervisorError


class Answers:
    """A sandbox that answers with these errors, one after the other; None is no error."""

    def __init__(self, *errors: AtollError | None) -> None:
        self._errors = list(errors)

    def info(self) -> None:
        error = self._errors.pop(0)
        if error is not None:
            raise error


def test_a_forward_ends_with_its_sandbox_and_says_why() -> None:
    sandbox = Answers(None, SupervisorError("it starts"), None, SandboxNotFoundError("there is no sandbox x"))
    with pytest.raises(SandboxNotFoundError) as raised:
        wait_while_it_lives(sandbox, "web", 80, every_s=0)
    assert raised.value.message == "sandbox web was killed, so its port 80 is no longer forwarded"


def test_an_error_that_does_not_pass_ends_it_too() -> None:
    with pytest.raises(DeniedError):
        wait_while_it_lives(Answers(DeniedError("the key is revoked")), "web", 80, every_s=0)
