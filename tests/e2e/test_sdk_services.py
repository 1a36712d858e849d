from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.homes import kill_machines
from tests.waiting import until

from atoll import Boot, HealthCheck, Sandbox, ServiceSpec, Supervisor
from atoll.errors import FileMissingError, InvalidSpecError, NameTakenError, ServiceNotFoundError

# Counts its starts on the disk, and tells them.
COUNTING = "echo x >> starts; echo start $(wc -l < starts); exec sleep 1000"


@pytest.fixture
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def starts(sandbox: Sandbox) -> int:
    return sandbox.files.read("starts").count("x")


def printed(sandbox: Sandbox, name: str) -> str:
    return "".join(output.text for output in sandbox.services.logs(name))


def test_a_service_goes_on_through_sleep_and_in_copies_and_starts_after_a_boot(sandbox: Sandbox) -> None:
    pid = sandbox.services.add("work", COUNTING).pid
    until(lambda: printed(sandbox, "work") == "start 1\n")
    sandbox.suspend()
    info = sandbox.services.get("work")
    assert (info.state, info.pid, sandbox.info().state) == ("asleep", None, "suspended")
    assert [each.name for each in sandbox.info().services] == ["work"]
    sandbox.resume()
    (copy,) = sandbox.fork()
    with copy:
        for each in (sandbox, copy):
            assert (each.services.get("work").pid, starts(each)) == (pid, 1)
        copy.services.stop("work")
    assert sandbox.services.get("work").state == "running"
    sandbox.suspend(memory=False)
    until(lambda: printed(sandbox, "work") == "start 2\n")


def test_a_rollback_brings_back_definitions_and_programs_of_one_instant(sandbox: Sandbox) -> None:
    sandbox.services.add("first", COUNTING)
    until(lambda: printed(sandbox, "first"))
    snapshot = sandbox.snapshot()
    sandbox.services.remove("first")
    sandbox.services.add("second", "exec sleep 1000")
    sandbox.rollback(snapshot)
    assert [(each.name, each.state) for each in sandbox.services.list()] == [("first", "running")]
    assert starts(sandbox) == 1
    more = [ServiceSpec(name="second", command=["sleep", "1000"])]
    with Sandbox.create(snapshot, boot=Boot(services=more)) as other:
        until(lambda: [each.state for each in other.services.list()] == ["running", "running"])
        assert starts(other) == 1


def test_a_service_starts_again_after_its_end_and_after_a_crash_of_the_engine(
    sandbox: Sandbox, module_home: Path
) -> None:
    pid = sandbox.services.add("work", COUNTING).pid
    until(lambda: printed(sandbox, "work") == "start 1\n")
    sandbox.run(f"kill -9 {pid}")
    until(lambda: sandbox.services.get("work").restarts == 1)
    assert sandbox.services.get("work").exit_code == 137
    until(lambda: printed(sandbox, "work") == "start 1\nstart 2\n")
    kill_machines(module_home)
    until(lambda: sandbox.info().state == "crashed")
    until(lambda: printed(sandbox, "work") == "start 3\n")


def test_a_service_whose_port_or_command_does_not_answer_is_started_again(sandbox: Sandbox) -> None:
    server = "test -e broken || exec python3 -m http.server 8000; exec sleep 1000"
    check = HealthCheck(every_s=0.2, failures=2)
    sandbox.services.add("web", server, port=8000, health=check)
    until(lambda: sandbox.services.get("web").healthy)
    line = HealthCheck(command="test -e well", every_s=0.2, failures=2, grace_s=0)
    sandbox.services.add("worker", "sleep 1000", health=line, restart="never")
    until(lambda: sandbox.services.get("worker").healthy is False)
    assert sandbox.services.get("worker").state == "running"
    sandbox.services.restart("web")
    until(lambda: sandbox.services.get("web").healthy)
    with pytest.raises(InvalidSpecError):
        sandbox.services.add("other", "true", health=HealthCheck())


def test_services_are_stopped_started_and_removed(sandbox: Sandbox) -> None:
    added = sandbox.services.add("work", ["sleep", "1000"], env={"A": "1"}, cwd="/tmp", user="root")
    assert added.state == "running" and added.spec.command == ["sleep", "1000"]
    with pytest.raises(NameTakenError):
        sandbox.services.add("work", "true")
    assert (
        sandbox.run(f"tr '\\0' '\\n' < /proc/{added.pid}/environ | grep ^A=", user="root").stdout == "A=1\n"
    )
    sandbox.services.stop("work")
    assert sandbox.services.get("work").state == "stopped"
    sandbox.services.start("work")
    assert sandbox.services.get("work").state == "running"
    sandbox.services.remove("work")
    assert sandbox.services.list() == []
    for gone in (sandbox.services.remove, sandbox.services.stop, sandbox.services.get, logs(sandbox)):
        with pytest.raises(ServiceNotFoundError):
            gone("work")


def logs(sandbox: Sandbox):  # type: ignore[no-untyped-def]
    return lambda name: list(sandbox.services.logs(name))


def test_what_cannot_be_a_service_is_refused_and_not_kept(sandbox: Sandbox) -> None:
    for name, keywords, error in (
        ("A", {}, InvalidSpecError),
        ("a", {"user": "nobody-knows"}, InvalidSpecError),
        ("a", {"cwd": "/nowhere"}, FileMissingError),
        ("a", {"restart": "sometimes"}, InvalidSpecError),
        ("a", {"port": 0}, InvalidSpecError),
    ):
        with pytest.raises(error):
            sandbox.services.add(name, "true", **keywords)
    assert sandbox.services.list() == []


def test_a_schedule_wakes_a_suspended_sandbox_and_lets_it_sleep_again(sandbox: Sandbox) -> None:
    added = sandbox.services.add("tick", "echo tick; exit 3", schedule="every 2s")
    assert (added.state, added.last_run) == ("waiting", None)
    sandbox.suspend()

    def ran() -> float:
        run = sandbox.services.get("tick").last_run
        return run.at if run is not None and run.exit_code == 3 else 0

    until(ran)
    first = ran()
    until(lambda: sandbox.info().state == "suspended")
    until(lambda: ran() > first)
    assert printed(sandbox, "tick").startswith("tick\ntick\n")
    assert "service tick ran: it ended with 3" in "".join(sandbox.logs())
    sandbox.unplug("test")
    before = sandbox.services.get("tick").last_run
    assert sandbox.info().unplugged is not None
    sandbox.replug()
    until(lambda: sandbox.services.get("tick").last_run != before)
    with pytest.raises(InvalidSpecError):
        sandbox.services.add("other", "true", schedule="0 25 * * *")
    sandbox.services.remove("tick")


def test_what_was_missed_while_no_supervisor_ran_runs_once(sandbox: Sandbox) -> None:
    added = time.time()
    sandbox.services.add("tick", "echo tick", schedule="every 3s")
    sandbox.suspend()
    Supervisor.stop()
    stopped = time.time()
    time.sleep(7)  # it misses two
    back = time.time()
    until(lambda: (run := sandbox.services.get("tick").last_run) and run.at >= back and run.exit_code == 0)
    until(lambda: sandbox.info().state == "suspended")
    ran = printed(sandbox, "tick").count("tick")
    assert ran <= 1 + (stopped - added) // 3 + (time.time() - back) // 3


def test_the_log_of_a_service_is_bounded_also_while_it_prints_without_end(sandbox: Sandbox) -> None:
    sandbox.services.add("few", "seq 5000; exec sleep 1000")
    until(lambda: printed(sandbox, "few").endswith("\n5000\n"))
    assert len(printed(sandbox, "few").splitlines()) == 1000
    assert len("".join(each.text for each in sandbox.services.logs("few", lines=None)).splitlines()) == 5000
    assert "".join(each.text for each in sandbox.services.logs("few", max_bytes=10)) == "4999\n5000\n"
    follower = sandbox.services.logs("few", follow=True, lines=2)
    assert next(follower).text == "4999\n5000\n"
    sandbox.services.remove("few")
    assert list(follower) == []
    sandbox.services.add("many", "exec yes")
    until(lambda: printed(sandbox, "many"))
    assert printed(sandbox, "many") == "y\n" * 1000
