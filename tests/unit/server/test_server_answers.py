"""What clients are told of errors of this machine, and of its moments."""

from __future__ import annotations

from atoll.errors import SandboxCrashedError
from atoll.server.e2b.answers import refusal_of
from atoll.server.e2b.views import moment


def test_a_crash_is_told_as_one_and_not_as_a_sleep_or_a_fault_of_the_server() -> None:
    refusal = refusal_of(SandboxCrashedError("sandbox one crashed meanwhile", hint="use it again"))
    assert (refusal.status, refusal.message) == (410, "sandbox one crashed meanwhile (use it again)")


def test_times_that_no_calendar_has_are_told_as_the_first_and_the_last_one() -> None:
    assert [moment(at_s).year for at_s in (-(2.0**63), -1e11, 0.0, 253402300800.0, 2.0**63)] == [
        1,
        1,
        1970,
        9999,
        9999,
    ]
