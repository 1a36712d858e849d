import pytest

from atoll.cli.host_size import beyond_host, note_beyond_host
from atoll.types import Limits

GIB = 1 << 30


def test_limits_that_the_host_has_are_not_noted() -> None:
    for limits in (Limits(), Limits(memory_mib=24 << 10, vcpus=2), Limits(memory_mib=512, vcpus=0.5)):
        assert list(beyond_host(limits, 24 * GIB, 2)) == []


def test_more_than_the_host_has_is_noted_with_what_it_has() -> None:
    assert list(beyond_host(Limits(memory_mib=100 << 10, vcpus=99), 24 * GIB, 2)) == [
        "--memory 100.0 GiB: this host has 24.0 GiB, and the sandbox gets at most the free part",
        "--cpus 99: this host has 2 processors, and the sandbox gets at most that",
    ]
    assert "1 processor," in next(beyond_host(Limits(vcpus=1.5), 24 * GIB, 1))


def test_a_note_is_for_this_machine_and_not_for_a_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beyond = Limits(memory_mib=1 << 40)
    monkeypatch.setenv("ATOLL_URL", "local")
    note_beyond_host(beyond)
    said = capsys.readouterr()
    assert said.out == "" and "this host has" in said.err
    monkeypatch.setenv("ATOLL_URL", "https://ghost.example")
    monkeypatch.setenv("ATOLL_API_KEY", "atk_x")
    note_beyond_host(beyond)
    assert capsys.readouterr().err == ""
