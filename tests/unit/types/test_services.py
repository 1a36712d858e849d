from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import HealthCheck, ServiceInfo, ServiceSpec
from atoll.types.internal import check_services


def test_a_service_is_a_shell_line_or_a_program_with_arguments() -> None:
    line = ServiceSpec(name="web", command="exec serve", port=8000, cwd="/srv", user="root", env={"A": "1"})
    listed = ServiceSpec(name="web-2", command=["serve", ""], health=HealthCheck(command="true"))
    timed = ServiceSpec(name="tidy", command="tidy", schedule="every 1h")
    check_services([line.check(), listed.check(), timed.check()])
    assert repr(line) == "ServiceSpec(name='web', command='exec serve', port=8000, …)"


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Web"},
        {"name": "-web"},
        {"name": "a" * 64},
        {"name": 7},
        {"command": ""},
        {"command": []},
        {"command": ["", "a"]},
        {"command": "a\0b"},
        {"command": "a\ud800"},
        {"command": [1]},
        {"restart": "sometimes"},
        {"port": 0},
        {"port": 65_536},
        {"port": True},
        {"cwd": "\ud800"},
        {"user": 1},
        {"env": {"A": 1}},
        {"health": HealthCheck()},
        {"port": 1, "health": HealthCheck(command="")},
        {"port": 1, "health": HealthCheck(every_s=0)},
        {"port": 1, "health": HealthCheck(timeout_s=float("nan"))},
        {"port": 1, "health": HealthCheck(grace_s=-1)},
        {"port": 1, "health": HealthCheck(failures=0)},
        {"schedule": ""},
        {"schedule": "0 24 * * *"},
        {"schedule": "every 1h", "port": 1},
        {"schedule": "every 1h", "health": HealthCheck(command="true")},
    ],
)
def test_what_cannot_be_a_service_is_refused(wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {"name": "web", "command": "serve", **wrong}
    with pytest.raises(InvalidSpecError):
        ServiceSpec(**values).check()


def test_services_of_one_sandbox_are_bounded_and_have_names_of_their_own() -> None:
    one = ServiceSpec(name="web", command="serve")
    many = [ServiceSpec(name=f"a{number}", command="serve") for number in range(65)]
    large = ServiceSpec(name="web", command="x" * (256 * 1024))
    check_services(many[:64])
    refused: list[Any] = [[one, one], many, [large], ["web"]]
    for wrong in refused:
        with pytest.raises(InvalidSpecError):
            check_services(wrong)


def test_an_info_has_the_name_of_its_service() -> None:
    info = ServiceInfo(spec=ServiceSpec(name="web", command="serve"), state="running")
    assert (info.name, repr(info)) == ("web", "ServiceInfo(name='web', state='running', restarts=0, …)")
