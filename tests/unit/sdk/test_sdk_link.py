from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info, sent

from atoll import Images, Limits, Sandbox, Snapshots, Supervisor, Teams
from atoll.errors import (
    AtollError,
    ImageBuildError,
    InvalidSpecError,
    NameTakenError,
    SupervisorError,
    VersionMismatchError,
)
from atoll.protocol import ErrorBody
from atoll.sdk._spawn import supervisor_environment

LIST = ("GET", "/v1/sandboxes")


def test_a_sandbox_that_was_created_is_killed_at_the_end_unless_kept(supervisor: FakeSupervisor) -> None:
    kill = ("DELETE", f"/v1/sandboxes/{SANDBOX_ID}")
    with Sandbox.create(keep=True), Sandbox.connect("alice"):
        pass
    assert kill not in supervisor.api.requests
    with pytest.raises(ZeroDivisionError), Sandbox.create():
        raise ZeroDivisionError
    assert supervisor.api.requests.count(kill) == 1


def test_a_sandbox_that_was_killed_inside_its_context_is_no_error(supervisor: FakeSupervisor) -> None:
    with Sandbox.create() as sandbox:
        sandbox.kill()
        gone = {"code": "sandbox_not_found", "message": "no sandbox"}
        supervisor.api.routes["DELETE", f"/v1/sandboxes/{SANDBOX_ID}"] = lambda handler: handler.send_json(
            gone, 404
        )


def test_a_spec_is_sent_as_it_was_asked_for(supervisor: FakeSupervisor) -> None:
    got = []
    supervisor.api.routes["POST", "/v1/sandboxes"] = lambda handler: (
        got.append(sent(handler)),
        handler.send_json(info()),
    )
    Sandbox.create(name="a", env={"A": "b"}, network="none", limits=Limits(memory_mib=512), keep=True).close()
    assert got[0]["name"] == "a"
    assert got[0]["env"] == {"A": "b"}
    assert (got[0]["network"], got[0]["limits"], got[0]["image"]) == ("none", {"memory_mib": 512}, None)


def test_a_limit_that_json_cannot_tell_is_refused_before_it_is_sent(supervisor: FakeSupervisor) -> None:
    for wrong in (Limits(vcpus=float("nan")), Limits(lifetime_s=float("inf"))):
        with pytest.raises(InvalidSpecError, match="the limit"):
            Sandbox.create(limits=wrong)


def test_an_error_of_the_supervisor_has_its_class_and_remedy(supervisor: FakeSupervisor) -> None:
    body = {"code": "name_taken", "message": "alice is taken", "hint": "take another"}
    supervisor.api.routes["POST", "/v1/sandboxes"] = lambda handler: handler.send_json(body, 409)
    with pytest.raises(NameTakenError, match="take another"):
        Sandbox.create(name="alice")


def test_progress_is_told_until_the_result_comes(supervisor: FakeSupervisor) -> None:
    def build(handler: Handler) -> None:
        assert handler.headers["accept"] == "application/x-ndjson"
        handler.begin_stream()
        handler.chunk(b'{"progress": {"step": "unpack", "done": 1, "total": 2}}\n{"progr')
        handler.chunk(b'ess": {"step": "install"}}\n')
        handler.chunk(b'{"error": {"code": "image_build_failed", "message": "no disk"}}\n')
        handler.chunk(b"")

    supervisor.api.routes["POST", "/v1/images/base"] = build
    steps = []
    with pytest.raises(ImageBuildError, match="no disk"):
        Images.ensure(on_progress=lambda progress: steps.append((progress.step, progress.total)))
    assert steps == [("unpack", 2), ("install", None)]


def test_a_list_goes_over_all_pages_and_stops_at_its_limit(supervisor: FakeSupervisor) -> None:
    def page(handler: Handler) -> None:
        start = int(handler.path.partition("cursor=")[2] or 0)
        rows = [info(sandbox_id=f"{number:020}") for number in range(start, min(start + 2, 5))]
        handler.send_json({"sandboxes": rows, "cursor": str(start + 2) if start < 4 else None})

    supervisor.api.routes[LIST] = page
    assert len(list(Sandbox.list(state=["running", "paused"], metadata={"a": "b c&d"}))) == 5
    asked = [path for method, path in supervisor.api.requests if path.startswith("/v1/sandboxes?")]
    assert asked[0] == "/v1/sandboxes?limit=1000&state=running%2Cpaused&metadata=a%3Db%20c%26d"
    assert len(asked) == 3
    assert len(list(Sandbox.list(limit=3))) in (3, 4)


def test_an_id_or_name_cannot_change_the_request_around_it(supervisor: FakeSupervisor) -> None:
    with pytest.raises(LookupError):
        Snapshots.get("../images?x=/y")
    assert supervisor.api.requests[-1] == ("GET", "/v1/snapshots/..%2Fimages%3Fx%3D%2Fy")


def test_a_supervisor_of_another_protocol_is_refused_with_the_remedy(supervisor: FakeSupervisor) -> None:
    supervisor.api.routes["GET", "/hello"] = supervisor.hello(protocol=99, version="9.9")
    with pytest.raises(VersionMismatchError, match="atoll stop"):
        Sandbox.create()
    assert ("POST", "/v1/sandboxes") not in supervisor.api.requests
    hello = Supervisor.hello()
    assert hello is not None
    assert hello.version == "9.9"


def test_asking_whether_a_supervisor_runs_starts_none(home_path: Path) -> None:
    assert Supervisor.hello() is None
    assert Supervisor.suspend_all() is None
    assert Supervisor.stop() is False
    assert not home_path.exists()


def test_a_failed_dial_is_the_supervisors_own_error(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.dial_error = ErrorBody(code="sandbox_crashed", message="it crashed", sandbox_id=SANDBOX_ID)
    with pytest.raises(Exception, match="it crashed") as raised:
        sandbox.ports.dial(80)
    assert cast(AtollError, raised.value).code == "sandbox_crashed"


def test_logs_are_read_from_offset_to_offset_up_to_where_they_ended(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    pages = {
        "0": {"text": "a\n", "offset": 2, "end": 4},
        "2": {"text": "b\n", "offset": 4, "end": 400},
    }
    route = lambda handler: handler.send_json(pages[handler.path.partition("offset=")[2]])  # noqa: E731
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}/logs"] = route
    assert list(sandbox.logs()) == ["a\n", "b\n"]


def test_a_supervisor_gets_no_secrets_of_its_starter() -> None:
    environ = {"PATH": "/bin", "ATOLL_HOME": "/h", "https_proxy": "p", "SSL_CERT_FILE": "c", "LC_ALL": "C"}
    assert supervisor_environment({**environ, "AWS_SECRET_ACCESS_KEY": "x", "LD_PRELOAD": "y"}) == environ


def failing_python(path: Path) -> Path:
    """A Python that runs one-liners as ever and fails at `-m`."""
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -I ] && exec {sys.executable} "$@"\necho "no engine runs here" >&2\nexit 1\n'
    )
    path.chmod(0o755)
    return path


def test_a_supervisor_that_does_not_start_is_quoted(
    home_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(failing_python(tmp_path / "python")))
    with pytest.raises(SupervisorError, match="no engine runs here.*doctor"):
        Sandbox.create()


SERVER = """
import json, os, socket, sys
home, run = sys.argv[sys.argv.index("--home") + 1], sys.argv[sys.argv.index("--run") + 1]
with open(os.path.join(home, "started"), "a") as file:
    facts = [os.getsid(0) == os.getpid(), os.getppid(), os.listdir("/proc/self/fd"), os.getcwd()]
    file.write(json.dumps(facts) + "\\n")
answer = json.dumps({"product": "atoll", "version": "0", "protocol": 1, "pid": os.getpid(), "home": home}).encode()
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.join(run, "api.sock"))
listener.listen()
while True:
    connection = listener.accept()[0]
    asked = connection.recv(65536)
    if b"/stop" in asked:
        os.unlink(os.path.join(run, "api.sock"))
        answer = b"{}"
    head = b"HTTP/1.1 200 OK\\r\\nconnection: close\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(answer)
    try:
        connection.sendall(head + answer)
    except OSError:
        pass
    connection.close()
    if b"/stop" in asked:
        break
"""


def test_two_clients_at_once_start_one_detached_supervisor(home_path: Path, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -I ] && exec {sys.executable} "$@"\nshift 3\nexec {sys.executable} {server} "$@"\n'
    )
    python.chmod(0o755)
    client = (
        f"import sys; sys.executable = {str(python)!r}\n"
        "from atoll.host import Home\nfrom atoll.sdk import _spawn\n_spawn.ensure_supervisor(Home.default())\n"
    )
    environ = dict(os.environ)
    near, far = socket.socketpair()
    with near, far:
        os.set_inheritable(far.fileno(), True)
        clients = [
            subprocess.Popen([sys.executable, "-c", client], env=environ, pass_fds=[far.fileno()])
            for _ in range(2)
        ]
        try:
            assert [each.wait(120) for each in clients] == [0, 0]
        finally:
            stopped = subprocess.run(
                [sys.executable, "-c", "from atoll import Supervisor; print(Supervisor.stop())"],
                env=environ,
                capture_output=True,
                check=True,
                timeout=120,
            )
    assert stopped.stdout == b"True\n"
    (line,) = (home_path / "started").read_text().splitlines()
    leads_session, parent, descriptors, directory = json.loads(line)
    assert not leads_session
    assert parent not in [each.pid for each in clients]
    # 0, 1, 2, its own file and the listing of the directory
    assert len(descriptors) <= 5
    assert directory == "/"


def test_what_only_reads_is_asked_again_of_the_next_supervisor(supervisor: FakeSupervisor) -> None:
    ends = iter([True, False])
    supervisor.api.routes["GET", "/v1/teams"] = lambda handler: (
        handler.cut() if next(ends) else handler.send_json([])
    )
    assert Teams.list() == []
    assert supervisor.api.requests.count(("GET", "/v1/teams")) == 2


def test_a_supervisor_that_always_ends_is_asked_a_bounded_number_of_times(supervisor: FakeSupervisor) -> None:
    supervisor.api.routes["GET", "/v1/teams"] = lambda handler: handler.cut()
    supervisor.api.routes["POST", "/v1/sandboxes"] = lambda handler: handler.cut()
    with pytest.raises(SupervisorError, match="ended"):
        Teams.list()
    assert supervisor.api.requests.count(("GET", "/v1/teams")) == 2
    with pytest.raises(SupervisorError, match="ended"):
        Sandbox.create()
    assert supervisor.api.requests.count(("POST", "/v1/sandboxes")) == 1
