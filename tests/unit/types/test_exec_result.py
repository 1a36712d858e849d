from __future__ import annotations

import pytest

from atoll.errors import ExecFailedError
from atoll.types import ExecResult, Lifecycle, Limits, MemoryKill, Output, SandboxInfo


def test_bytes_that_are_no_text_are_replaced_and_kept_raw() -> None:
    result = ExecResult(exit_code=0, stdout_bytes=b"a\xffb", stderr_bytes="é".encode())
    assert (result.stdout, result.stderr, result.stdout_bytes) == ("a\ufffdb", "é", b"a\xffb")


def test_check_passes_success_on_and_raises_failure_with_its_words() -> None:
    good = ExecResult(exit_code=0)
    assert good.check() is good
    with pytest.raises(ExecFailedError, match="ended with 3: no such thing"):
        ExecResult(exit_code=3, stderr_bytes=b"no such thing\n").check()


def test_a_failure_names_its_command_in_one_line_and_carries_the_result() -> None:
    result = ExecResult(exit_code=3, stdout_bytes=b"half", stderr_bytes=b"gone\n\n", command="make a\nmake b")
    with pytest.raises(ExecFailedError) as raised:
        result.check()
    assert str(raised.value) == r"'make a\nmake b' ended with 3: gone"
    assert raised.value.result is result
    with pytest.raises(ExecFailedError, match="^the program ended with 1$"):
        ExecResult(exit_code=1).check()


def test_a_result_that_is_printed_is_short() -> None:
    data = bytes(5_000_000)
    result = ExecResult(exit_code=3, stdout_bytes=data, stderr_bytes=b"gone\n", command="make")
    assert len(repr(result)) < 1500
    assert repr(result).endswith(r"... (5,000,000 bytes), stderr_bytes=b'gone\n', command='make')")
    assert repr(result).startswith("ExecResult(exit_code=3, stdout_bytes=b'")
    output = Output(stream="stdout", data=data, text=data.decode())
    assert len(repr(output)) < 1500


def test_a_program_that_was_killed_for_memory_says_how_much_it_held() -> None:
    kill = MemoryKill(pid=7, name="hog", held_bytes=300 << 20, used_bytes=500 << 20, limit_bytes=512 << 20)
    assert str(kill) == (
        "program 7 (hog) was killed at the sandbox's memory limit of 512 MiB, of which it held 300 MiB"
    )
    assert "memory_kill=MemoryKill(pid=7" in repr(ExecResult(exit_code=137, memory_kill=kill))
    assert "memory_kill" not in repr(ExecResult(exit_code=137))
    with pytest.raises(ExecFailedError, match="more memory") as failed:
        ExecResult(exit_code=137, memory_kill=kill).check()
    assert failed.value.remedy == "give the sandbox more memory: `atoll limits --memory`"


def test_a_program_that_was_killed_for_the_host_says_so_and_a_higher_limit_is_no_remedy() -> None:
    kill = MemoryKill(pid=7, name="hog", held_bytes=300 << 20, used_bytes=500 << 20, limit_bytes=0)
    assert str(kill) == ("program 7 (hog) was killed because the host ran short of memory; it held 300 MiB")
    with pytest.raises(ExecFailedError) as failed:
        ExecResult(exit_code=137, memory_kill=kill).check()
    assert failed.value.hint is not None and "memory_mib" not in failed.value.hint


def test_what_is_empty_or_as_usual_is_not_in_a_representation() -> None:
    assert (
        repr(ExecResult(exit_code=0, stdout_bytes=b"42\n"))
        == r"ExecResult(exit_code=0, stdout_bytes=b'42\n')"
    )
    assert repr(Limits(memory_mib=512)) == "Limits(memory_mib=512)"
    assert repr(Lifecycle()) == "Lifecycle()"


def test_what_is_known_of_a_sandbox_is_one_line_without_its_variables() -> None:
    info = SandboxInfo(
        sandbox_id="a" * 20,
        name=None,
        image="base",
        state="running",
        created_at=1.0,
        changed_at=1.0,
        env={"TOKEN": "hidden"},
        metadata={},
        network="internet",
        limits=Limits(),
        user="user",
        cwd="/home/user",
    )
    assert repr(info) == f"SandboxInfo(sandbox_id='{'a' * 20}', state='running', image='base', …)"
