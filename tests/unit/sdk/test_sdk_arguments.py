"""Wrong arguments: each is an InvalidSpecError before it is sent, never an error of Python's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sdk.fakes import FakeSupervisor, Handler

from atoll import (
    Boot,
    Hosting,
    Images,
    Keys,
    Sandbox,
    Secrets,
    Snapshot,
    Snapshots,
    Teams,
    Template,
    Templates,
    VolumeMount,
    Volumes,
)
from atoll.errors import InvalidSpecError
from atoll.sdk._sync.builds import carry_out, request_build
from atoll.types import CopyStep, EnvStep, RunStep, TemplateSpec


class Columns:
    """What a table looks like: it iterates over the names of its columns."""

    def keys(self) -> list[str]:
        return ["a", "b"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


def built(step: Any) -> object:
    return carry_out("a", TemplateSpec(steps=[step]))


WRONG: dict[str, Callable[[Any], Any]] = {
    "run": lambda sandbox: sandbox.run("true", timeout_s="60"),
    "run, NaN": lambda sandbox: sandbox.run("true", timeout_s=float("nan")),
    "run, infinite": lambda sandbox: sandbox.run("true", timeout_s=float("inf")),
    "output": lambda sandbox: sandbox.run("true", max_output_bytes="1"),
    "user": lambda sandbox: sandbox.run("true", user=5),
    "stdin": lambda sandbox: sandbox.run("cat", stdin=5),
    "env": lambda sandbox: sandbox.run("true", env="A=1"),
    "argv": lambda sandbox: sandbox.exec(["echo", 5]),
    "argv, bytes": lambda sandbox: sandbox.exec(b"true"),
    "start": lambda sandbox: sandbox.processes.start(5),
    "size": lambda sandbox: sandbox.processes.pty(size=(80, 24)),
    "attach": lambda sandbox: sandbox.processes.attach("1"),
    "set_lease": lambda sandbox: sandbox.set_lease("60"),
    "resume": lambda sandbox: sandbox.resume("60"),
    "fork": lambda sandbox: sandbox.fork("2"),
    "fork's names": lambda sandbox: sandbox.fork(names="ab"),
    "a fork's name": lambda sandbox: sandbox.fork(names=[None]),
    "names for other forks": lambda sandbox: sandbox.fork(3, names=["left", "right"]),
    "names for no fork": lambda sandbox: sandbox.fork(names=[]),
    "dial": lambda sandbox: sandbox.ports.dial("80"),
    "forward": lambda sandbox: sandbox.ports.forward(80, 70000),
    "limits": lambda sandbox: sandbox.set_limits({"vcpus": 1}),
    "snapshot": lambda sandbox: sandbox.snapshot(5),
    "rollback": lambda sandbox: sandbox.rollback(None),
    "history": lambda sandbox: sandbox.stats_history("yesterday"),
    "mode": lambda sandbox: sandbox.files.write("a", "b", mode="644"),
    "mode, more": lambda sandbox: sandbox.files.write("a", "b", mode=0o10000),
    "content": lambda sandbox: sandbox.files.write("a", 5),
    "content, a mapping": lambda sandbox: sandbox.files.write("a", {"k": 1, "j": 2}),
    "content, a set": lambda sandbox: sandbox.files.write("a", {"k", "j"}),
    "content, none": lambda sandbox: sandbox.files.write("a", None),
    "content, a class": lambda sandbox: sandbox.files.write("a", dict),
    "content, numbers": lambda sandbox: sandbox.files.write("a", ["fine", 1]),
    "content, what has columns": lambda sandbox: sandbox.files.write("a", Columns()),
    "content of many": lambda sandbox: sandbox.files.write_many({"a": {"k": 1}}),
    "content of a volume": lambda _: Volumes.files("a").write("a", {"k": 1}),
    "stdin, a mapping": lambda sandbox: sandbox.run("cat", stdin={"a": "b"}),
    "argv, a set": lambda sandbox: sandbox.exec({"true"}),
    "argv, a mapping": lambda sandbox: sandbox.exec({"true": ""}),
    "glob, a mapping": lambda sandbox: sandbox.files.search("x", glob={"*.py": 1}),
    "paths, a mapping": lambda sandbox: sandbox.diff("a", paths={"/etc": 1}),
    "hosts, a mapping": lambda _: Secrets.create("a", "b", hosts={"a.example": 1}),
    "tags": lambda _: request_build("a", tags="v1"),
    "tags, bytes": lambda _: Templates.tag("a", [b"v1"]),  # type: ignore[list-item]
    "tags to remove": lambda _: Templates.untag("a", "v1"),
    "tags of a record": lambda _: Templates.record("a", "b", tags="v1"),
    "sources": lambda _: built(CopyStep(sources="app", target="/")),  # type: ignore[arg-type]
    "a step's variables": lambda _: built(EnvStep(env=["A=1"])),  # type: ignore[arg-type]
    "a step's command": lambda _: built(RunStep(command={"true": ""})),  # type: ignore[arg-type]
    "a step": lambda _: built("RUN true"),
    "depth": lambda sandbox: sandbox.files.list("a", depth="1"),
    "depth, none": lambda sandbox: sandbox.files.list("a", depth=0),
    "delete": lambda sandbox: sandbox.files.delete("a", timeout_s=0),
    "move": lambda sandbox: sandbox.files.move("a", "b", timeout_s="60"),
    "whose": lambda sandbox: sandbox.files.read("a", user=["root"]),
    "upload": lambda sandbox: sandbox.files.upload(None, "a"),
    "download": lambda sandbox: sandbox.files.download("a", "b", max_bytes="5"),
    "create": lambda _: Sandbox.create(lifecycle=60),  # type: ignore[arg-type]
    "source": lambda _: Sandbox.create(5),  # type: ignore[arg-type]
    "source, a sandbox": lambda sandbox: Sandbox.create(sandbox),
    "a snapshot to start from": lambda _: Sandbox.create(Snapshot(5)),  # type: ignore[arg-type]
    "a template to start from": lambda _: Sandbox.create(Template(None)),  # type: ignore[arg-type]
    "boot": lambda _: Sandbox.create(boot={"start": True}),  # type: ignore[arg-type]
    "services": lambda _: Sandbox.create(boot=Boot(services=["web"])),  # type: ignore[list-item]
    "services, none": lambda _: Sandbox.create(boot=Boot(services=None)),  # type: ignore[arg-type]
    "on_crash": lambda _: Sandbox.create(boot=Boot(on_crash="reboots")),  # type: ignore[arg-type]
    "hosting": lambda _: Sandbox.create(hosting="reef"),  # type: ignore[arg-type]
    "team": lambda _: Sandbox.create(hosting=Hosting(team=5)),  # type: ignore[arg-type]
    "ports": lambda _: Sandbox.create(hosting=Hosting(ports="shut")),  # type: ignore[arg-type]
    "wait": lambda _: Sandbox.create(wait=60),  # type: ignore[arg-type]
    "wait, to be connected": lambda _: Sandbox.connect_or_create(name="work", wait=60),  # type: ignore[arg-type]
    "create, an attribute of atoll's own": lambda _: Sandbox.create(
        hosting=Hosting(attributes={"atoll.build": "42"})
    ),
    "create, text": lambda _: Sandbox.create(metadata={"a": "\udcff"}),
    "get": lambda _: Sandbox.get(None),  # type: ignore[arg-type]
    "get, text": lambda _: Sandbox.get("\udcff"),
    "list": lambda _: list(Sandbox.list(limit="5")),  # type: ignore[arg-type]
    "list, less than none": lambda _: list(Sandbox.list(limit=-1)),
    "state": lambda _: list(Sandbox.list(state="runing")),  # type: ignore[arg-type]
    "state, one of them": lambda _: list(Sandbox.list(state=["running", "asleep"])),  # type: ignore[list-item]
    "states": lambda _: list(Sandbox.list(state=5)),  # type: ignore[arg-type]
    "image": lambda _: Images.get(5),  # type: ignore[arg-type]
    "snapshots": lambda _: Snapshots.delete(5),  # type: ignore[arg-type]
    "volumes": lambda _: Sandbox.create(volumes={"/data": 5}),  # type: ignore[dict-item]
    "a volume's mode": lambda _: Sandbox.create(volumes={"/d": VolumeMount("d", read_only="ro")}),  # type: ignore[arg-type]
    "a volume's quota": lambda _: Volumes.set_quota("data", 1.5),  # type: ignore[arg-type]
    "volume": lambda _: Volumes.create(object()),  # type: ignore[arg-type]
    "secret": lambda _: Secrets.create("mail", 5),  # type: ignore[arg-type]
    "secret's hosts": lambda _: Secrets.create("mail", "x", hosts="api.example.com"),
    "secret's host": lambda _: Secrets.create("mail", "x", hosts=[5]),  # type: ignore[list-item]
    "secret's labels": lambda _: Secrets.update("mail", metadata={"a": 5}),  # type: ignore[dict-item]
    "quotas": lambda _: Teams.create("reef", 5),  # type: ignore[arg-type]
    "template": lambda _: Templates.build("web", "web"),  # type: ignore[arg-type]
    # JSON has no infinity: it would say that the key never ends
    "key": lambda _: Keys.create("reef", "x", expires_in_s=float("inf")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_refused_before_it_is_sent(
    supervisor: FakeSupervisor, sandbox: Sandbox, what: str
) -> None:
    with pytest.raises(InvalidSpecError):
        WRONG[what](sandbox)
    asked = {path.split("?")[0] for method, path in supervisor.api.requests if method != "DELETE"}
    assert asked <= {"/hello", "/v1/sandboxes", f"/v1/sandboxes/{sandbox.id}/hold"}  # those of the fixture
    assert not supervisor.agent.requests


def test_a_wrong_wait_is_refused(sandbox: Sandbox) -> None:
    process = sandbox.processes.attach(7)
    for wrong in ("1", float("nan")):
        with pytest.raises(InvalidSpecError, match="timeout_s"):
            process.wait(timeout_s=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecError, match="number"):
        process.send_signal("KILL")  # type: ignore[arg-type]


def test_a_piece_that_is_a_number_is_no_number_of_zeroes(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    supervisor.agent.routes[("PUT", "/atoll/file")] = {}
    with pytest.raises(InvalidSpecError, match="int cannot be sent"):
        sandbox.files.write("a", [1, 2, 3])  # type: ignore[list-item]


def test_a_pipe_and_a_device_are_no_upload(
    supervisor: FakeSupervisor, sandbox: Sandbox, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for local in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(InvalidSpecError, match="neither a file nor a directory"):
            sandbox.files.upload(local, "a")
    assert not supervisor.agent.requests


def test_a_file_that_tells_no_size_is_read_to_its_end(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    got: list[bytes] = []

    def put(handler: Handler) -> None:
        got.append(handler.body)
        handler.send_json({})

    supervisor.agent.routes[("PUT", "/atoll/file")] = put
    sandbox.files.upload("/proc/self/cmdline", "a")
    assert got == [Path("/proc/self/cmdline").read_bytes()]
    assert got[0]


def test_a_piece_of_input_that_is_no_bytes_kills_the_program_and_is_named(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    killed = threading.Event()

    def start(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))
        assert killed.wait(20)
        handler.frames(("x", {"exit_code": 137}))
        handler.chunk(b"")

    def kill(handler: Handler) -> None:
        killed.set()
        handler.send_nothing()

    supervisor.agent.routes[("POST", "/atoll/processes")] = start
    supervisor.agent.routes[("POST", "/atoll/processes/7/signal")] = kill
    with pytest.raises(InvalidSpecError, match="int cannot be sent"):
        sandbox.run("cat", stdin=iter([b"a", 2]))  # type: ignore[arg-type]
    assert killed.is_set()


def test_a_list_of_those_in_none_of_the_states_is_empty(supervisor: FakeSupervisor) -> None:
    assert list(Sandbox.list(state=[])) == []
    assert supervisor.api.requests == []


def test_no_error_shows_the_value_of_a_secret() -> None:
    for value in ("hunter2\n", "hunter2\udcff", b"hunter2", "hunter2" * 10_000, ""):
        for call in (Secrets.create, Secrets.update):
            with pytest.raises(InvalidSpecError) as raised:
                call("mail", value)  # type: ignore[arg-type]
            assert "hunter2" not in repr(raised.value) + str(raised.value)
