"""What programs inside a sandbox find: before and after it slept, was copied or was taken back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.e2e import dns_client, state_keeper
from tests.e2e.counter import BOUND_S
from tests.waiting import until

from atoll import Boot, Sandbox, Snapshots, Terminal
from atoll.errors import FileDeniedError
from atoll.types import TerminalSize

pytestmark = pytest.mark.twice

PROGRAM = Path(state_keeper.__file__).read_text()
HELD = {
    "tcp": "word",
    "unix": "word",
    "new tcp": "word",
    "new unix": "word",
    "deleted": "still here\0and there",
    "flock": 1,
    "lockf": 1,
    "cwd": state_keeper.PLACE,
    "env": "yes",
    "forward": True,
}


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


@pytest.fixture
def kept(module_home: Path) -> Iterator[Sandbox]:
    """A sandbox whose keeper has been asked once."""
    with Sandbox.create(env={"KEPT": "yes"}) as sandbox:
        sandbox.files.write("state_keeper.py", PROGRAM)
        sandbox.processes.start(["python3", "state_keeper.py"])
        wait_for_port(sandbox, state_keeper.PORT)
        ask(sandbox, 1)
        yield sandbox


def wait_for_port(sandbox: Sandbox, port: int) -> None:
    end = time.monotonic() + BOUND_S
    while sandbox.run(f"ss -tln | grep -q LISTEN.*:{port}").exit_code:
        assert time.monotonic() < end


def ask(sandbox: Sandbox, time_asked: int) -> dict[str, Any]:
    """Ask the keeper, whose answer must be that of its ``time_asked``th time."""
    with sandbox.ports.dial(state_keeper.PORT) as connection:
        connection.settimeout(BOUND_S)
        read = b""
        while piece := connection.recv(10_000):
            read += piece
    told: dict[str, Any] = json.loads(read)
    assert "error" not in told
    assert {name: told[name] for name in HELD} == HELD
    assert (told["asked"], told["mapped"]) == (time_asked, time_asked)
    return told


def assert_clock_is_right(sandbox: Sandbox) -> None:
    before = time.time()
    inside = float(sandbox.run("date +%s.%N").check().stdout)
    assert before - 1 <= inside <= time.time() + 1


def test_all_that_programs_hold_lives_on_over_sleep(kept: Sandbox) -> None:
    generation = kept.files.read("/run/atoll/generation")
    identity = kept.run("hostname; cat /etc/machine-id").stdout
    for round_ in (2, 3):
        kept.suspend()
        assert kept.info().state == "suspended"
        ask(kept, round_)
        assert_clock_is_right(kept)
    assert kept.files.read("/run/atoll/generation") != generation
    assert kept.run("hostname; cat /etc/machine-id").stdout == identity
    until(lambda: kept.files.read(f"{state_keeper.PLACE}/piped") == "...")  # another process copies them


def test_all_that_programs_hold_lives_on_in_forks_which_differ_in_what_is_their_own(kept: Sandbox) -> None:
    forks = kept.fork(2)
    with contextlib.ExitStack() as stack:
        for fork in forks:
            stack.enter_context(fork)
            stack.callback(fork.kill)
        told = [ask(each, 2) for each in (kept, *forks)]
        for own in ("uuid", "urandom", "hostname"):
            assert len({each[own] for each in told}) == 3
        # what a program seeded itself is its own memory
        assert len({each["user random"] for each in told}) == 1
        for command in ("cat /etc/machine-id", "cat /etc/hostname", "hostname"):
            assert len({each.run(command).check().stdout for each in (kept, *forks)}) == 3
        for each in forks:
            assert_clock_is_right(each)
            assert each.files.read("/run/atoll/generation") != kept.files.read("/run/atoll/generation")
            assert each.run("getent hosts $(hostname)").exit_code == 0


def test_all_that_programs_hold_lives_on_over_a_snapshot_a_rollback_and_in_copies(kept: Sandbox) -> None:
    snapshot = kept.snapshot()
    try:
        assert_clock_is_right(kept)
        first = ask(kept, 2)
        kept.rollback(snapshot)
        second = ask(kept, 2)
        assert_clock_is_right(kept)
        assert (first["uuid"], first["urandom"]) != (second["uuid"], second["urandom"])
        assert first["hostname"] == second["hostname"]
        with Sandbox.create(snapshot) as copy:
            third = ask(copy, 2)
            assert third["hostname"] != first["hostname"]
            assert_clock_is_right(copy)
            assert copy.run("echo $KEPT").stdout == "yes\n"
    finally:
        kept.close()
        kept.kill()
        Snapshots.delete(snapshot.snapshot_id)


def test_all_that_programs_hold_lives_on_where_a_big_disk_is_frozen_below_them(kept: Sandbox) -> None:
    kept.run("mkfifo queue; exec 7<>queue; echo queued >&7; sleep infinity &", cwd=state_keeper.PLACE).check()
    generation = kept.files.read("/run/atoll/generation")
    with kept.ports.dial(state_keeper.OUTSIDE_PORT) as connection:
        connection.settimeout(BOUND_S)
        assert connection.recv(100) == b"welcome"
        for round_ in (2, 3):
            # Forks copy less; more is frozen, where layers can be.
            kept.run(f"head -c 80000000 /dev/urandom >large-{round_}").check()
            sums = kept.run("sha256sum large-*").check().stdout
            (fork,) = kept.fork()
            try:
                ask(fork, round_)
                assert fork.run("sha256sum large-*").check().stdout == sums
            finally:
                fork.kill()
            told = ask(kept, round_)
            assert told["outside"] == "connected"
            assert kept.run("sha256sum large-*").check().stdout == sums
        assert kept.run("timeout 10 head -1 queue", cwd=state_keeper.PLACE).stdout == "queued\n"
    # It is the same machine: nothing in it was told that it woke.
    assert kept.files.read("/run/atoll/generation") == generation


def test_a_connection_with_the_outside_ends_in_a_copy_and_lives_on_in_the_original(kept: Sandbox) -> None:
    with kept.ports.dial(state_keeper.OUTSIDE_PORT) as connection:
        connection.settimeout(BOUND_S)
        assert connection.recv(100) == b"welcome"
        (fork,) = kept.fork()
        try:
            end = time.monotonic() + BOUND_S
            asked = 2
            while (told := ask(fork, asked)["outside"]) == "connected":
                assert time.monotonic() < end, "the copy waits for a peer that is not there"
                asked += 1
            assert told == "ConnectionResetError"
        finally:
            fork.kill()
        assert ask(kept, 2)["outside"] == "connected"
        connection.sendall(b"goodbye")
        while (told := ask_again(kept)["outside"]) == "connected":
            assert time.monotonic() < end
        assert told == "told b'goodbye'"


def test_a_connection_to_the_outside_lives_on_over_every_sleep_and_is_reset_in_a_copy(
    module_home: Path,
) -> None:
    with Sandbox.create(network="none") as sandbox:
        sandbox.files.write("dns_client.py", Path(dns_client.__file__).read_bytes())
        sandbox.run("setsid python3 dns_client.py </dev/null >/dev/null 2>&1 &").check()
        answers = wait_for_answers(sandbox, 0)
        for _ in range(3):
            sandbox.suspend()
            answers = wait_for_answers(sandbox, answers)
        sandbox.run("head -c 80000000 /dev/urandom >large").check()
        (fork,) = sandbox.fork()
        try:
            until_s = time.monotonic() + BOUND_S
            while (told := fork.files.read(dns_client.STATE)).isdecimal():
                assert time.monotonic() < until_s, "the copy talks to a peer that is not its own"
                time.sleep(0.05)
            assert told == "ConnectionResetError"
        finally:
            fork.kill()
        wait_for_answers(sandbox, answers)


ASKER = """
import socket, sys
for port in (53, 54):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(60 if port == 53 else 2)
        asking.connect(("192.0.2.1", port))
        asking.send(b"\\x12\\x34\\x01\\x00" + bytes(8))
        try:
            print(port, asking.recv(4096)[:2].hex())
        except OSError:
            print(port, "silence")
"""


@pytest.mark.parametrize("network", ["internet", "none"])
def test_port_53_of_any_address_is_the_sandboxs_own_resolver(
    module_home: Path, network: Literal["internet", "none"]
) -> None:
    """A test of UDP by a question for a name says nothing of UDP: nobody has 192.0.2.1."""
    with Sandbox.create(network=network) as sandbox:
        told = sandbox.exec(["python3", "-c", ASKER]).check().stdout
    assert told == "53 1234\n54 silence\n"


def wait_for_answers(sandbox: Sandbox, more_than: int) -> int:
    """The number of answers that the guest has had, once there are more."""
    until_s = time.monotonic() + BOUND_S
    while (
        not sandbox.files.exists(dns_client.STATE) or int(sandbox.files.read(dns_client.STATE)) <= more_than
    ):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return int(sandbox.files.read(dns_client.STATE))


def ask_again(sandbox: Sandbox) -> dict[str, Any]:
    with sandbox.ports.dial(state_keeper.PORT) as connection:
        connection.settimeout(BOUND_S)
        told: dict[str, Any] = json.load(connection.makefile("rb"))
        return told


def test_a_terminal_session_and_a_background_program_are_found_again_after_sleep(kept: Sandbox) -> None:
    terminal = kept.processes.pty(size=TerminalSize(91, 21))
    terminal.send(b"word=remembered; cd /workspace; echo R$((1+1))Y\r")
    seen = b""
    while b"R2Y" not in seen:
        seen += terminal.receive()
    reader = kept.processes.start("read line; echo got $line; exit 6", stdin=True)
    terminal.close()
    kept.suspend()
    with Sandbox.connect(kept.id) as other:
        twin = other.processes.attach(terminal.pid)
        twin.write_stdin(b"echo $word $PWD $(stty size); exit 5\r")
        result = twin.wait(timeout_s=BOUND_S)
        assert "remembered /workspace 21 91" in result.stdout
        assert result.exit_code == 5
        program = other.processes.attach(reader.pid)
        program.write_stdin("it\n")
        ended = program.wait(timeout_s=BOUND_S)
        assert (ended.stdout, ended.exit_code) == ("got it\n", 6)


def make_certificates(sandbox: Sandbox) -> tuple[str, str, str]:
    """A CA's certificate, and a certificate and key that it signed for ``island.test``, made inside."""
    sandbox.run(
        """set -e; mkdir -p ca; cd ca
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=island CA" -keyout ca.key -out ca.pem \
          -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
        openssl req -newkey rsa:2048 -nodes -subj /CN=island.test -keyout key.pem -out request
        printf 'subjectAltName=DNS:island.test\nextendedKeyUsage=serverAuth\n' >extensions
        openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions \
          -out cert.pem"""
    ).check()
    ca, certificate, key = (sandbox.files.read(f"ca/{name}.pem") for name in ("ca", "cert", "key"))
    return ca, certificate, key


SERVER = """
import http.server, ssl
server = http.server.ThreadingHTTPServer(("", 8443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
CLIENTS = (
    "curl -sS https://island.test:8443/",
    """python3 -c 'import urllib.request as r; r.urlopen("https://island.test:8443/").read()'""",
    "git ls-remote https://island.test:8443/repo",
    "sudo curl -sS https://island.test:8443/",
    "env -i /usr/bin/curl -sS https://island.test:8443/",
)


def test_a_certificate_that_only_the_host_trusts_is_trusted_inside_unless_turned_off(
    sandbox: Sandbox, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, certificate, key = make_certificates(sandbox)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ca)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    for trusted in (True, False):
        with Sandbox.create(boot=Boot(trust_host_ca=trusted)) as other:
            other.files.write("cert.pem", certificate)
            other.files.write("key.pem", key)
            other.run("echo 127.0.0.1 island.test | sudo tee -a /etc/hosts; git init -q --bare repo").check()
            other.run("git -C repo update-server-info").check()
            other.processes.start(["python3", "-c", SERVER])
            wait_for_port(other, 8443)
            codes = [other.run(client).exit_code for client in CLIENTS]
            assert [code == 0 for code in codes] == [trusted] * len(CLIENTS)
            # The home's own authority is trusted in any case: a policy may need it later.
            assert other.run("echo $SSL_CERT_FILE").stdout.strip() == BUNDLE
            assert (ca.splitlines()[1] in other.files.read(BUNDLE)) == trusted


def test_root_and_other_users_are_at_home_in_their_own_homes(sandbox: Sandbox) -> None:
    assert sandbox.run("sudo -n id -u && sudo -u user id -un").stdout == "0\nuser\n"
    assert sandbox.run("echo $(id -un) $HOME $PWD", user="root").stdout == "root /root /root\n"
    sandbox.run("sudo useradd --create-home guest").check()
    assert sandbox.run("echo $(id -un) $HOME $PWD", user="guest").stdout == "guest /home/guest /home/guest\n"
    assert sandbox.exec(["pwd"], user="nobody").stdout == "/\n"
    sandbox.files.write("/root/secret", "x", user="root")
    with pytest.raises(FileDeniedError):
        sandbox.files.read("/root/secret")


def test_a_listing_shows_what_the_user_may_not_read_without_an_error(sandbox: Sandbox) -> None:
    listed = sandbox.exec(["ls", "-l", "/", "/etc"])
    assert listed.stderr == ""
    assert " root\n" in listed.stdout
    assert "shadow" in listed.stdout


def test_a_search_path_that_a_profile_extends_is_used(sandbox: Sandbox) -> None:
    sandbox.run(
        "mkdir -p tools/bin; printf '#!/bin/sh\necho tool\n' >tools/bin/atool; chmod +x tools/bin/atool"
    ).check()
    assert sandbox.run("atool").exit_code == 127
    sandbox.run("echo 'PATH=$HOME/tools/bin:$PATH; export MOOD=good' >>~/.profile").check()
    assert sandbox.run("atool; echo $MOOD").stdout == "tool\ngood\n"
    assert sandbox.run("atool", env={"PATH": "/usr/bin:/bin"}).exit_code == 127
    with Sandbox.create(env={"PATH": "/opt/bin:/usr/bin:/bin"}) as other:
        assert other.run("echo $PATH").stdout == "/opt/bin:/usr/bin:/bin\n"
        for argv in (["bash", "-lc", "echo $PATH"], ["sh", "-lc", "echo $PATH"]):
            assert "/opt/bin:/usr/bin:/bin" in other.exec(argv).stdout


def test_text_is_utf_8_and_full_screen_programs_draw(sandbox: Sandbox) -> None:
    assert sandbox.run("locale charmap; printf ä | wc -m").stdout == "UTF-8\n1\n"
    with sandbox.processes.pty(size=TerminalSize(70, 20)) as terminal:
        # Each program ends the line with a word of its own, since a prompt may be seen before its program reads.
        terminal.send(b"tput cols; seq 100 >numbers; less numbers; echo less-$((1 + 1))\r")
        read_until(terminal, b"19")
        terminal.send(b"G")
        read_until(terminal, b"100")
        terminal.send(b"q")
        read_until(terminal, b"less-2")
        terminal.send(b"nano numbers; echo nano-$((1 + 1)); exit 3\r")
        read_until(terminal, b"GNU nano")
        terminal.send(b"\x18")
        read_until(terminal, b"nano-2")
        assert terminal.wait().exit_code == 3


def read_until(terminal: Terminal, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        piece = terminal.receive()
        assert piece, f"the terminal ended at {seen!r}"
        seen += piece


def test_daemons_live_on_and_zombies_are_reaped(sandbox: Sandbox) -> None:
    daemon = (
        "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(4343)"
    )
    sandbox.exec(["python3", "-c", daemon]).check()
    line = "ps -eo pid,ppid,args | grep '[t]ime.sleep(4343)'"
    end = time.monotonic() + BOUND_S
    while [row.split()[1] for row in sandbox.run(line).stdout.splitlines()] != ["1"]:
        assert time.monotonic() < end
    sandbox.run("for i in $(seq 50); do (sh -c 'exit 3' &); done; pkill -f 'sleep.4343'").check()
    while sandbox.run("ps -eo stat | grep -q ^Z").exit_code == 0:
        assert time.monotonic() < end


def test_arguments_variables_and_lines_can_be_huge_and_bytes_are_kept(sandbox: Sandbox) -> None:
    many = ["x" * 100_000] * 12
    assert sandbox.exec(["sh", "-c", 'printf %s "$@" | wc -c', "sh", *many]).stdout.strip() == "1200000"
    assert sandbox.run('printf %s "$HUGE" | wc -c', env={"HUGE": "y" * 120_000}).stdout.strip() == "120000"
    with pytest.raises(ValueError):
        sandbox.exec(["echo", "x" * 200_000])
    with pytest.raises(ValueError):
        sandbox.exec(["echo", "a\0b"])
    data = random.Random(7).randbytes(1 << 20)
    assert sandbox.run("cat", stdin=data).stdout_bytes == data
    line = sandbox.run("head -c 5000000 /dev/zero | tr '\\0' a; echo; echo last").stdout
    assert (len(line), line[-6:]) == (5_000_006, "\nlast\n")


def test_much_output_in_small_pieces_arrives_in_order(sandbox: Sandbox) -> None:
    seen = hashlib.sha256()
    with sandbox.processes.start("seq 3000000", stream=True) as process:
        for output in process:
            seen.update(output.data)
    wanted = hashlib.sha256(b"".join(b"%d\n" % number for number in range(1, 3_000_001)))
    assert seen.hexdigest() == wanted.hexdigest()


def test_shared_memory_and_temporary_files_are_large_and_open_to_all(sandbox: Sandbox) -> None:
    for place in ("/dev/shm", "/tmp"):
        sandbox.run(f"head -c 100000000 /dev/zero >{place}/large && rm {place}/large").check()
        assert sandbox.run(f"stat -c %a {place}").stdout == "1777\n"
    script = "import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]), m.Lock())"
    assert sandbox.exec(["python3", "-c", script]).stdout.startswith("[1, 2]")


def test_the_load_of_the_last_minute_is_told(sandbox: Sandbox) -> None:
    sandbox.run("for one in 1 2 3; do timeout 5 sh -c 'while :; do :; done' & done; wait")
    average, running = sandbox.run("cut -d' ' -f1,4 /proc/loadavg").stdout.split()
    # Three programs for 5 s of 60: 0.24, and less by what has passed since.
    assert 0.05 < float(average) < 2
    assert int(running.split("/")[1]) > 1
    assert float(sandbox.run("uptime").stdout.split("load average: ")[1].split(",")[0]) > 0.05


def test_vi_and_crontab_work_and_cron_runs_what_it_is_told_once_somebody_starts_it(sandbox: Sandbox) -> None:
    sandbox.run("vi -es -c 'normal ihello' -c wq written").check()
    assert sandbox.run("cat written").stdout == "hello\n"
    # What it does each minute would take a test that long: at its start it runs what is to be run then.
    sandbox.run("echo '@reboot touch /tmp/ran' | crontab - && sudo cron").check()
    assert "@reboot" in sandbox.run("crontab -l").stdout
    sandbox.run("until test -e /tmp/ran; do sleep 0.1; done; sudo pkill cron", timeout_s=BOUND_S).check()


def test_what_is_not_tcp_goes_nowhere(sandbox: Sandbox) -> None:
    script = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
s.sendto(b"x", (sys.argv[1], 9))
try:
    print(s.recv(10))
except OSError as error:
    print(type(error).__name__)
"""
    assert sandbox.exec(["python3", "-c", script, "10.254.0.1"]).stdout == "TimeoutError\n"
    refused = sandbox.run("curl -sS --max-time 60 http://169.254.169.254/")
    assert refused.exit_code not in (0, 28)


def test_git_clones_from_a_daemon_inside(sandbox: Sandbox) -> None:
    sandbox.run(
        """set -e; mkdir repo; cd repo; git init -q; git config user.email a@island.test; git config user.name a
        echo text >file; git add file; git commit -qm one
        git daemon --detach --export-all --base-path="$HOME" --reuseaddr"""
    ).check()
    wait_for_port(sandbox, 9418)
    assert sandbox.run("git clone -q git://127.0.0.1/repo clone && cat clone/file").stdout == "text\n"
