"""What clients are told of errors of this machine, and of its moments."""

from __future__ import annotations

from atoll.errors import SandboxCrashedError
from atoll.server.answers import refusal_of


def test_a_crash_is_told_as_one_and_not_as_a_sleep_or_a_fault_of_the_server() -> None:
    refusal = refusal_of(SandboxCrashedError("sandbox one crashed meanwhile", hint="use it again"))
    assert (refusal.status, refusal.message) == (410, "sandbox one crashed meanwhile (use it again)")
