import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.command_line import LONG_S, atoll, said, started, until


@pytest.fixture(scope="module")
def play(module_home: Path) -> Iterator[str]:
    """A sandbox with a name, made and killed on the command line."""
    said("create", "--name", "play", "--metadata", "team=a")
    yield "play"
    said("kill", "play")


def state(name: str) -> str:
    return str(json.loads(said("info", "--json", name))["state"])


def test_looking_wakes_nothing_and_use_wakes_where_it_was(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "sleep 1000000 & echo $! > pid")
    for put_down, asleep in (("pause", "paused"), ("suspend", "suspended")):
        said(put_down, play)
        for look in (
            ["ls"],
            ["stats", play],
            ["logs", play],
            ["ls", "--state", asleep, "--metadata", "team=a"],
        ):
            said(*look)
        assert state(play) == asleep
        assert said("exec", play, "--", "sh", "-c", "ps -o args= -p $(cat pid)") == "sleep 1000000"
        assert state(play) == "running"


def test_the_log_tells_of_the_sandboxs_life_and_of_its_programs(play: str) -> None:
    assert atoll("exec", play, "--", "sh", "-c", "exit 3").returncode == 3
    said("suspend", play)
    said("exec", play, "--", "true")
    told = said("logs", play)
    for line in (' started: sh -c "exit 3"', " ended with 3", " sandbox suspended", " sandbox woken"):
        assert line in told
    assert told.index("sandbox suspended") < told.index("sandbox woken") < told.rindex("started: true")


def test_a_snapshot_can_be_gone_back_to(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "echo before > note")
    made = said("snapshot", "create", play, "--name", "first", "--comment", "a\x1b[31mb")
    assert made in said("snapshot", "ls", "--sandbox", play)
    assert "first" in said("snapshot", "tree")
    assert "\x1b" not in said("snapshot", "ls")
    said("exec", play, "--", "sh", "-c", "echo after > note")
    said("rollback", play, "first")
    assert said("exec", play, "cat", "note") == "before"
    done = atoll("snapshot", "create", play)
    second = done.stdout.decode().strip()
    assert (
        f"`atoll snapshot delete {second}`".encode() in done.stderr and b"`atoll snapshot ls`" in done.stderr
    )
    assert json.loads(said("snapshot", "ls", "--json"))[-1]["snapshot_id"] == second
    assert atoll("snapshot", "delete", "first").returncode == 125
    assert made in said("snapshot", "ls")
    assert second in said("snapshot", "ls")


def test_forks_start_from_the_same_disk_and_part(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "echo same > shared")
    first, second = said("fork", play, "--count", "2").split()
    said("exec", first, "--", "sh", "-c", "echo other > shared")
    assert said("exec", second, "cat", "shared") == "same"
    assert said("exec", play, "cat", "shared") == "same"
    said("kill", first, second)
    assert atoll("kill", first).returncode == 125


def test_forks_are_found_by_the_names_that_they_were_given(play: str) -> None:
    left, right = said("fork", play, "--name", "left", "--name", "right").split()
    assert json.loads(said("info", "--json", "left"))["sandbox_id"] == left
    assert said("exec", "right", "hostname") == said("exec", right, "hostname")
    done = atoll("fork", play, "--name", "third", "--name", "left")
    assert done.returncode == 125 and b"another sandbox has the name 'left'" in done.stderr
    assert atoll("fork", play, "-n", "3", "--name", "third").returncode == 125
    assert atoll("info", "third").returncode == 125
    said("kill", "left", "right")


def test_logs_as_json_are_one_value_however_much_there_is(play: str) -> None:
    said("exec", play, "--", "sudo", "sh", "-c", "seq 60000 > /proc/1/fd/2")
    assert "\n60000\n" in json.loads(said("logs", "--json", play))["text"]


def test_a_port_is_reached_on_this_machine_until_ctrl_c(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "python3 -m http.server 8000 >/dev/null 2>&1 &")
    wait = "until curl -s -o /dev/null localhost:8000; do sleep 0.1; done"
    said("exec", play, "--", "sh", "-c", wait)
    with started("port", play, "8000", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(f"http://{address}/", timeout=LONG_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130


def test_a_web_server_is_opened_once_it_listens(play: str) -> None:
    later = "(sleep 1; exec python3 -m http.server 8001) >/dev/null 2>&1 &"
    said("exec", play, "--", "sh", "-c", later)
    with started("open", "--no-browser", play, "8001", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(url, timeout=LONG_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130
    done = atoll("open", "--no-browser", "--wait", "0.1s", play, "7999")
    assert done.returncode == 125 and b"port 7999 within 0.1 s" in done.stderr


@pytest.mark.parametrize("command", [["stats", "--watch"], ["top"]])
def test_what_sandboxes_use_is_shown_again_and_again_until_ctrl_c(play: str, command: list[str]) -> None:
    with started(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = until(process.stdout.fileno(), b"SANDBOX")
        seen += until(process.stdout.fileno(), f"{play} ".encode())
        seen += until(process.stdout.fileno(), b"SANDBOX")
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130
    assert b"\x1b" not in seen  # a pipe is no terminal


def test_stop_puts_everything_to_sleep_and_the_next_use_wakes_it(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "sleep 2000000 & echo $! > pid")
    said("stop")
    assert state(play) == "suspended"
    assert said("exec", play, "--", "sh", "-c", "ps -o args= -p $(cat pid)") == "sleep 2000000"


def test_doctor_finds_this_machine_fit_and_gc_finds_nothing(play: str) -> None:
    done = atoll("doctor", "--json")
    assert done.returncode == 0, done.stdout.decode()
    assert json.loads(done.stdout)["fit"] is True
    assert said("doctor").splitlines()[-1].startswith("next: atoll run -- ")
    assert json.loads(said("gc", "--json")) == []


def test_fsck_finds_the_home_whole_and_reads_every_kind_of_part(play: str) -> None:
    said("suspend", play)
    report = json.loads(said("fsck", "--json"))
    assert report["whole"] is True
    mine = {part["kind"] for part in report["parts"] if play in (part["name"], *part["needed_by"])}
    assert mine >= {"memory", "record"}
    assert said("fsck", "--repair").splitlines()[-1].endswith(" 0 damaged")


def test_drain_puts_everything_to_sleep_and_undrain_wakes_what_ran(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "sleep 3000000 & echo $! > drained")
    ran = json.loads(said("info", play, "--json"))["sandbox_id"]
    drained = json.loads(said("drain", "--timeout", "5m", "--json"))
    assert (drained["failed"], ran in drained["sandboxes"]) == ({}, True)
    refused = atoll("resume", play, "--json")
    assert refused.returncode == 125
    assert json.loads(refused.stderr)["error"]["code"] == "draining"
    said("stop")
    assert "drained since" in said("drain", "--status")
    assert ran in json.loads(said("undrain", "--json"))["woken"]
    assert said("exec", play, "--", "sh", "-c", "ps -o args= -p $(cat drained)") == "sleep 3000000"


def test_du_tells_what_a_sandbox_has_written_and_what_is_left(play: str) -> None:
    said("exec", play, "--", "sh", "-c", "head -c 3000000 /dev/urandom > written; sync")
    report = json.loads(said("du", "--json"))
    own = next(use["own_bytes"] for use in report["uses"] if use["name"] == play)
    assert 3_000_000 <= own <= report["total_bytes"] < report["disk_bytes"]
    assert report["leftover_bytes"] == 0 < report["free_bytes"]
    assert "gc --remove" in said("du").splitlines()[-1]
    assert "base" in said("image", "ls")
