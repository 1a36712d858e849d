from __future__ import annotations

import errno
import os

import pytest

from atoll.errors import EngineError, FileError, HostError, ShortageError
from atoll.protocol import check_shortage, error_body


def of_kernel(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (of_kernel(errno.EMFILE), "ulimit -n"),
        (of_kernel(errno.ENFILE), "fs.file-max"),
        (of_kernel(errno.EAGAIN), "ulimit -u"),
        (of_kernel(errno.ENOMEM), "memory"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (MemoryError(), "memory"),
    ],
)
def test_a_shortage_of_the_host_is_told_with_its_limit_and_may_pass(error: Exception, limit: str) -> None:
    body = error_body(error)
    assert (body.code, body.retryable) == ("host_short", True)
    assert limit in body.message
    assert body.hint
    wrapped = EngineError("the program did not start")
    wrapped.__cause__ = error
    assert error_body(wrapped) == body
    with pytest.raises(ShortageError, match=limit):
        check_shortage(wrapped)


@pytest.mark.parametrize(
    "error", [of_kernel(errno.EINVAL), FileError("no"), HostError("no"), RuntimeError("no")]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    check_shortage(error)
    assert error_body(error).code != "host_short"
