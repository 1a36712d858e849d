from __future__ import annotations

import signal

from atoll.exit_codes import ExitCode, code_of_answer, code_of_signal


def test_a_signal_has_the_code_that_shells_give_it() -> None:
    assert code_of_signal(signal.SIGINT) == ExitCode.INTERRUPTED
    assert code_of_signal(signal.SIGPIPE) == ExitCode.READER_LEFT


def test_an_answer_is_done_or_no() -> None:
    assert code_of_answer(True) == ExitCode.DONE
    assert code_of_answer(False) == ExitCode.ANSWER_IS_NO
