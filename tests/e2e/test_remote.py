"""One suite over this machine and over a server: the same SDK, with the same behaviour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.server import serving
from tests.waiting import until

from atoll import (
    Asks,
    AsyncSandbox,
    Audit,
    Keys,
    Lifecycle,
    Policy,
    Rule,
    Sandbox,
    Secrets,
    Snapshots,
    Supervisor,
    Teams,
    Template,
    Templates,
    Volumes,
    Wait,
)
from atoll.errors import (
    DeadlineError,
    DeniedError,
    ExecFailedError,
    FileMissingError,
    InvalidSpecError,
    NotFoundError,
    SandboxNotFoundError,
    SupervisorError,
    TemplateBuildError,
    TemplateNotFoundError,
    UnsupportedError,
)
from atoll.sdk import Alerts, Login
from atoll.types import (
    Alert,
    BuildLine,
    CopyStep,
    EnvStep,
    RunStep,
    TemplateSpec,
    TerminalSize,
    UpstreamProxy,
    WorkdirStep,
)


@pytest.fixture(scope="module", params=["here", "far"])
def place(
    request: pytest.FixtureRequest, module_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """This machine, or a server over TLS with a certificate of its own."""
    del module_home
    if request.param == "here":
        yield "here"
        return
    Teams.create("far")
    key = Keys.create("far", "for a test").key
    with (
        serving("--tls", "self-signed", "--domain", "far.test") as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ATOLL_URL", f"https://localhost:{server.port}")
        patch.setenv("ATOLL_API_KEY", key)
        patch.setenv("ATOLL_CA", server.variables["NODE_EXTRA_CA_CERTS"])
        yield "far"


@pytest.fixture(scope="module")
def sandbox(place: str) -> Iterator[Sandbox]:
    with Sandbox.create(env={"GREETING": "hello"}, metadata={"kind": place}) as sandbox:
        yield sandbox


def test_programs_run_with_streams_errors_and_variables(sandbox: Sandbox) -> None:
    seen: list[str] = []
    result = sandbox.run("echo $GREETING; echo err >&2; exit 3", on_stdout=seen.append)
    assert (result.stdout, result.stderr, result.exit_code, "".join(seen)) == (
        "hello\n",
        "err\n",
        3,
        "hello\n",
    )
    assert sandbox.run("cat", stdin="in").stdout == "in"
    with pytest.raises(ExecFailedError):
        sandbox.run("exit 1", check=True)


def test_programs_run_beside_and_on_a_terminal(sandbox: Sandbox) -> None:
    process = sandbox.processes.start("read line; echo got $line", stdin=True)
    process.write_stdin("it\n")
    assert sandbox.processes.attach(process.pid).wait().stdout == "got it\n"
    with sandbox.processes.pty("tty; exit 4", size=TerminalSize(rows=10, cols=40)) as terminal:
        output = b"".join(terminal)
    assert b"/dev/pts/" in output


def test_files_go_both_ways_however_large(sandbox: Sandbox, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    sandbox.files.write("/tmp/data", data)
    assert sandbox.files.read_bytes("/tmp/data") == data
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("a")
    sandbox.files.upload(tmp_path / "in", "/tmp/in")
    sandbox.files.download("/tmp/in", tmp_path / "out")
    assert (tmp_path / "out/a").read_text() == "a"
    with pytest.raises(FileMissingError):
        sandbox.files.read("/tmp/nothing")


def test_the_audit_log_tells_what_was_done_and_a_team_sees_its_own(place: str, sandbox: Sandbox) -> None:
    sandbox.run("echo for the log")

    def told() -> list[str]:
        entries = Audit.entries(sandbox=sandbox.id, act="command.started")
        return [str(entry.details.get("line")) for entry in entries]

    until(lambda: "echo for the log" in told())
    assert len(list(Audit.entries(newest=3))) == 3
    if place == "far":
        assert {entry.team for entry in Audit.entries()} == {"far"}
        with pytest.raises(NotFoundError):
            Audit.verify()


def test_a_port_inside_is_dialled(place: str, sandbox: Sandbox) -> None:
    sandbox.processes.start(
        'python3 -c \'import socket; s = socket.create_server(("", 7777)); \n'
        'while True:\n c = s.accept()[0]; d = b""\n while p := c.recv(99): d += p\n c.sendall(d[::-1]); c.close()\''
    )
    sandbox.ports.wait(7777, timeout_s=60)
    with sandbox.ports.dial(7777) as sock:
        sock.settimeout(60)
        sock.sendall(b"abc")
        sock.shutdown(1)  # the server inside sees the end, and its answer still comes
        assert sock.recv(9) == b"cba"
        assert sock.recv(9) == b""
    with pytest.raises(NotFoundError):
        sandbox.ports.dial(7778)
    if place == "far":
        assert sandbox.ports.url(7777).startswith(f"https://7777-{sandbox.id}.far.test:")
        assert "?atoll-link=" in sandbox.ports.url(7777, expires_in_s=60)


def test_it_sleeps_wakes_forks_and_goes_back(sandbox: Sandbox) -> None:
    sandbox.run("echo one >/dev/shm/state")
    sandbox.suspend()
    assert sandbox.info().state == "suspended"
    assert sandbox.run("cat /dev/shm/state").stdout == "one\n"
    snapshot = sandbox.snapshot(comment="before")
    sandbox.run("echo two >/dev/shm/state")
    [copy] = sandbox.fork()
    with copy:
        assert copy.run("cat /dev/shm/state").stdout == "two\n"
    sandbox.rollback(snapshot)
    assert sandbox.run("cat /dev/shm/state").stdout == "one\n"
    assert snapshot.snapshot_id in {each.snapshot_id for each in Snapshots.list(sandbox=sandbox.id)}
    sandbox.pause()
    assert sandbox.run("echo awake").stdout == "awake\n"


def test_it_is_listed_found_by_name_and_leased(place: str, sandbox: Sandbox) -> None:
    assert [info.sandbox_id for info in Sandbox.list(metadata={"kind": place})] == [sandbox.id]
    with Sandbox.create(name=f"named-{place}", lifecycle=Lifecycle(ttl_s=600)) as named:
        assert Sandbox.get(f"named-{place}").sandbox_id == named.id
        named.set_lease(1200)
        with Sandbox.connect(f"named-{place}") as again:
            assert again.id == named.id
    with pytest.raises(SandboxNotFoundError):
        Sandbox.get(f"named-{place}")
    assert named.id not in {info.sandbox_id for info in Sandbox.list()}


def test_volumes_secrets_and_policies_work(place: str) -> None:
    volume = Volumes.create(f"shared-{place}")
    secret = Secrets.create(f"KEY_{place}".upper(), "value", hosts=["example.com"])
    try:
        with Sandbox.create(volumes={"/data": volume.name}, network="none") as sandbox:
            sandbox.run("echo kept >/data/file", check=True)
            assert Volumes.files(volume.name).read("/file") == "kept\n"
            sandbox.set_network(Policy(rules=(Rule(hosts=("example.com",)),)))
            assert sandbox.info().network != "none"
        assert secret.name in {each.name for each in Secrets.list()}
    finally:
        Secrets.delete(secret.name)
        Volumes.delete(volume.name)


def test_an_interrupted_create_leaves_nothing(place: str) -> None:
    def is_late() -> bool:
        """Whether a create ends too late. It does not if this process gets no processor until the answer is there."""
        try:
            Sandbox.create(name=f"late-{place}", wait=Wait(within_s=0.001)).kill()
        except DeadlineError:
            return True
        return False

    until(is_late)
    with pytest.raises(SandboxNotFoundError):
        Sandbox.get(f"late-{place}")


def test_a_with_whose_process_is_killed_leaves_its_sandbox_to_be_erased(place: str) -> None:
    program = (
        "import sys, time\nfrom atoll import Sandbox\n"
        "with Sandbox.create(name=sys.argv[1]) as sandbox:\n"
        "    print('in', flush=True)\n    time.sleep(600)"
    )
    name = f"held-{place}"
    with subprocess.Popen([sys.executable, "-c", program, name], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        made_by = str(Sandbox.get(name).made_by)
        assert made_by.startswith("key " if place == "far" else f"python, pid {process.pid}, user ")
        assert Sandbox.get(name).erased_at is None
        process.kill()
    until(lambda: Sandbox.get(name).erased_at)
    assert Sandbox.get(name).state == "running"
    Sandbox.connect(name).kill()


def spec_of(place: str) -> TemplateSpec:
    return TemplateSpec(
        steps=[
            RunStep(command=f"echo {place} >/made-of; echo odd >&2", user="root"),
            EnvStep(env={"COLOR": "blue"}),
            WorkdirStep(path="/srv/site"),
            CopyStep(sources=["pages"], target="."),
            CopyStep(sources=["*.txt", "pages/page"], target="/etc/site", user="root", mode=0o600),
        ],
        start_command="exec python3 -m http.server 8000",
        ready_command="curl -sf http://127.0.0.1:8000/page",
    )


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "pages/deep").mkdir(parents=True)
    (tmp_path / "pages/page").write_text("first")
    (tmp_path / "pages/deep/data").write_bytes(os.urandom(2 << 20))
    (tmp_path / "pages/left-out.log").write_text("x")
    (tmp_path / "secret.txt").write_text("hush")
    (tmp_path / ".dockerignore").write_text("**/*.log\n")
    return tmp_path


def test_a_template_is_built_tagged_used_and_deleted(place: str, context: Path) -> None:
    name, lines = f"site-{place}", list[BuildLine]()
    build = Templates.build(spec_of(place), f"{name}:v1", context=context, on_line=lines.append)
    assert (build.state, build.tags) == ("ready", ["v1"])
    assert any("[1/5] RUN" in line.message and line.step == "1" for line in lines)
    assert ("odd", "warn") in {(line.message, line.level) for line in lines}
    assert Templates.build_info(build.build_id).snapshot_id == build.snapshot_id
    Templates.tag(f"{name}:v1", ["stable"])
    info = Templates.get(name)
    assert (set(info.tags), info.team) == ({"v1", "stable"}, None if place == "here" else "far")
    assert name in {each.name for each in Templates.list()}
    with Sandbox.create(Template(f"{name}:stable")) as sandbox:
        assert sandbox.run("curl -s http://127.0.0.1:8000/page; cat /made-of").stdout == f"first{place}\n"
        assert sandbox.run("pwd; echo $COLOR; ls /etc/site; find . | sort").stdout.split() == [
            *("/srv/site", "blue", "page", "secret.txt"),
            *(".", "./deep", "./deep/data", "./page"),
        ]
        data = (context / "pages/deep/data").read_bytes()
        assert sandbox.files.read_bytes("/srv/site/deep/data") == data
    lines.clear()
    again = Templates.build(spec_of(place), name, context=context, on_line=lines.append)
    assert again.snapshot_id == build.snapshot_id
    Templates.untag(name, ["stable"])
    assert Templates.publish(name, True).public
    Templates.delete(name)
    with pytest.raises(TemplateNotFoundError):
        Sandbox.create(Template(name))


def test_a_build_that_fails_says_where_and_why(place: str, context: Path) -> None:
    name = f"broken-{place}"
    spec = TemplateSpec(steps=[RunStep(command="echo about to >&2; exit 3")])
    with pytest.raises(TemplateBuildError, match="exit 3"):
        Templates.build(spec, name)
    [failed] = Templates.get(name).builds
    assert (failed.state, failed.step) == ("failed", "1")
    missing = TemplateSpec(steps=[CopyStep(sources=["no-such"], target="/")])
    with pytest.raises(InvalidSpecError, match="no-such"):
        Templates.build(missing, name, context=context)
    assert {build.state for build in Templates.get(name).builds} == {"failed"}
    Templates.delete(name)


def test_a_build_that_is_interrupted_is_cancelled(place: str) -> None:
    name = f"cut-{place}"

    def interrupted(line: BuildLine) -> None:
        if line.message == "running":
            raise KeyboardInterrupt

    spec = TemplateSpec(steps=[RunStep(command=f"echo {place}; echo running; sleep 1000")])
    with pytest.raises(KeyboardInterrupt):
        Templates.build(spec, name, on_line=interrupted)
    [cut] = Templates.get(name).builds
    assert cut.state == "cancelled"
    Templates.delete(name)


def test_a_sandbox_becomes_a_template(place: str, sandbox: Sandbox) -> None:
    made = Templates.record(f"taken-{place}", sandbox)
    assert made.template_id == Templates.get(f"taken-{place}").template_id
    with Sandbox.create(Template(f"taken-{place}")) as copy:
        assert copy.run("echo $GREETING").stdout == "hello\n"
    Templates.delete(f"taken-{place}")


@pytest.mark.anyio
async def test_the_async_sdk_does_the_same(place: str) -> None:
    async with await AsyncSandbox.create() as sandbox:
        assert (await sandbox.run("echo async")).stdout == "async\n"


def test_the_command_line_does_the_same(sandbox: Sandbox) -> None:
    argv = [sys.executable, "-m", "atoll.cli"]
    done = subprocess.run([*argv, "exec", sandbox.id, "--", "echo", "hi"], capture_output=True, timeout=120)
    assert (done.stdout, done.returncode) == (b"hi\n", 0), done.stderr
    told = subprocess.run([*argv, "info", sandbox.id, "--json"], capture_output=True, timeout=120, check=True)
    assert json.loads(told.stdout)["sandbox_id"] == sandbox.id


def test_the_command_line_builds_a_dockerfile(place: str, context: Path) -> None:
    (context / "Dockerfile").write_text("FROM base\nCOPY secret.txt /secret\nRUN echo built\n")
    argv = [sys.executable, "-m", "atoll.cli", "template"]
    name = f"docker-{place}"
    done = subprocess.run(
        [*argv, "build", "--name", name, str(context)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "built" in done.stderr
    listed = subprocess.run([*argv, "ls"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() in listed.stdout
    subprocess.run([*argv, "delete", name], capture_output=True, timeout=600, check=True)


def test_what_only_the_machine_can_do_says_so(place: str, sandbox: Sandbox) -> None:
    if place == "here":
        assert Login.where() is None
        return
    with pytest.raises(UnsupportedError, match="only the machine with the sandboxes"):
        Supervisor.stop()
    with pytest.raises(UnsupportedError):
        Supervisor.doctor()
    with pytest.raises(NotFoundError, match="no such operation"):
        Teams.list()
    for network in (Rule(hosts=("host.atoll.internal",)), Rule(addresses=("10.1.2.0/24",))):
        with pytest.raises(InvalidSpecError):
            Sandbox.create(network=Policy(rules=(network,)))
    own = UpstreamProxy(url="http://127.0.0.1:9", addresses=("127.0.0.1",))
    with pytest.raises(InvalidSpecError, match="the proxy is at 127.0.0.1"):
        Sandbox.create(network=Policy(rules=(Rule(hosts=("*",)),), proxy=own))
    with pytest.raises(InvalidSpecError, match="the proxy is at 127.0.0.1"):
        sandbox.set_network(Policy(rules=(Rule(hosts=("*",)),), proxy=own))
    with pytest.raises(InvalidSpecError, match="not the name of an image"):
        Sandbox.create("/etc")


def test_a_wrong_key_and_an_unknown_certificate_are_told(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if place == "here":
        return
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    url, key, ca = (os.environ[name] for name in ("ATOLL_URL", "ATOLL_API_KEY", "ATOLL_CA"))
    with pytest.raises(DeniedError):
        Login.store(url, "atoll_" + "0" * 40, ca=ca)
    monkeypatch.delenv("ATOLL_CA")
    with pytest.raises(SupervisorError, match="not trusted"):
        Login.store(url, key)
    for name in ("ATOLL_URL", "ATOLL_API_KEY"):
        monkeypatch.delenv(name)
    assert Login.store(url, key, ca=ca).team == "far"
    assert Login.where() == url
    assert (tmp_path / "atoll/login.json").stat().st_mode & 0o777 == 0o600
    assert isinstance(list(Sandbox.list()), list)
    assert Login.forget()
    assert Login.where() is None
    with pytest.raises(InvalidSpecError, match="unencrypted"):
        Login.store("http://far.test", key)


def test_a_question_reaches_whoever_listens_and_a_function_answers_it(sandbox: Sandbox) -> None:
    with sandbox.on_ask(lambda ask: ask.body == b"delete a"):
        assert sandbox.ask("Delete it?", "delete a", deadline_s=60).outcome == "allowed"
        assert sandbox.ask("Delete it?", "delete b", deadline_s=60).outcome == "denied"
    assert Asks.list() == []


def test_whoever_uses_a_sandbox_is_told_its_powers(sandbox: Sandbox) -> None:
    found = sandbox.powers()
    assert (found.sandbox_id, found.network) == (sandbox.id, "internet")
    assert [each.kind for each in found.reaches] == ["public"]
    who = "The user of this machine" if found.team is None else f"Every key of the team {found.team}"
    assert found.held_by[0].startswith(who)


def test_whoever_uses_a_sandbox_hears_of_its_alerts(sandbox: Sandbox) -> None:
    heard: list[Alert] = []
    with Alerts.on_alert(heard.append, sandbox=sandbox.id):
        sandbox.unplug("it behaves oddly")
        until(lambda: heard)
        sandbox.replug()
    assert [alert.title for alert in heard] == ["unplugged: it behaves oddly"]
    assert heard == Alerts.list(sandbox=sandbox.id)
