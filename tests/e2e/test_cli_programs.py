import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.command_line import LONG_S, atoll, rest, said, started, until

from atoll import Sandbox


@pytest.fixture(scope="module")
def work(module_home: Path) -> Iterator[str]:
    """A sandbox with a name, made and killed on the command line."""
    said("create", "--name", "work")
    yield "work"
    said("kill", "work")


def test_run_passes_bytes_and_the_exit_code_and_leaves_no_sandbox(work: str) -> None:
    before = said("ls", "--quiet")
    done = atoll("run", "--env", "A=x y", "--", "sh", "-c", r'printf "$A\0\377"; printf err >&2; exit 7')
    assert (done.returncode, done.stdout, done.stderr) == (7, b"x y\0\xff", b"err")
    assert said("ls", "--quiet") == before


def test_run_uses_no_shell(work: str) -> None:
    assert atoll("run", "echo", "$HOME", "*", "-n").stdout == b"$HOME * -n\n"


def test_run_with_keep_leaves_the_sandbox(work: str) -> None:
    done = atoll("run", "--keep", "--name", "kept", "--", "sh", "-c", "echo 42 > answer")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"sandbox kept\n")
    assert said("exec", "kept", "--", "cat", "answer") == "42"
    said("kill", "kept")


def test_exec_passes_standard_input_and_output_whole(work: str) -> None:
    data = os.urandom(5 << 20)
    done = atoll("exec", work, "--", "cat", stdin=data)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == data


def test_a_program_that_is_killed_for_its_memory_is_told_of_on_standard_error(module_home: Path) -> None:
    hog = "held = []\nwhile True: held.append(b'x' * (1 << 20))"
    done = atoll("run", "--memory", "300", "--", "python3", "-c", hog)
    assert (done.returncode, done.stdout) == (137, b"")
    assert b"(python3) was killed at the sandbox's memory limit of 300 MiB" in done.stderr
    assert b"`atoll limits --memory`" in done.stderr


def test_exec_with_json_tells_the_result_and_still_ends_with_its_code(work: str) -> None:
    done = atoll("exec", "--json", work, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    told = json.loads(done.stdout)
    assert done.returncode == 3
    assert (told["exit_code"], told["stdout"], told["stderr"]) == (3, "out\n", "err\n")


def test_what_atoll_cannot_do_is_one_line_and_125(work: str) -> None:
    for arguments in (
        ["exec", "nobody", "true"],
        ["exec", work, "/no/such/program"],
        ["create", "--name", work],
    ):
        done = atoll(*arguments)
        assert done.returncode == 125
        assert done.stdout == b""
        assert done.stderr.startswith(b"atoll: ")
        assert done.stderr.count(b"\n") == 1
    assert json.loads(atoll("info", "--json", "nobody").stderr)["error"]["code"] == "sandbox_not_found"


@pytest.mark.parametrize("how", [[], ["--json"], ["--terminal"]])
def test_a_program_that_runs_past_its_timeout_is_told_in_words_of_the_command_line(
    work: str, how: list[str]
) -> None:
    done = atoll("exec", "--timeout", "0.5s", *how, work, "--", "sleep", "1000")
    assert done.returncode == 125
    told = json.loads(done.stderr)["error"] if how == ["--json"] else {"message": done.stderr.decode()}
    assert "'sleep' ran past its --timeout of 0.5 seconds and was killed" in told["message"]
    assert "`processes.start`" not in done.stderr.decode() and "timeout_s" not in done.stderr.decode()


@pytest.mark.parametrize("how", ["--lease", "--lifetime"])
def test_run_says_that_its_sandbox_was_killed_and_by_which_option(module_home: Path, how: str) -> None:
    done = atoll("run", how, "1s", "--", "sleep", "1000")
    assert done.returncode == 125
    assert b"the sandbox was killed while 'sleep' ran in it" in done.stderr
    assert f"its {how} of 1 s".encode() in done.stderr


def test_ctrl_c_kills_the_program_and_not_the_sandbox(work: str) -> None:
    program = ["sh", "-c", "echo up; exec sleep 98765"]
    with started("exec", work, "--", *program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        until(process.stdout.fileno(), b"up")
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130
    with Sandbox.connect(work, wake=False) as sandbox:
        deadline = time.monotonic() + LONG_S
        while sandbox.run("pgrep -f 'sleep 9876[5]'", timeout_s=LONG_S).exit_code == 0:
            assert time.monotonic() < deadline, "the program still runs"
    assert json.loads(said("info", "--json", work))["state"] == "running"


def test_a_reader_that_leaves_ends_the_program(work: str) -> None:
    with started("exec", work, "yes", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(LONG_S) == 128 + signal.SIGPIPE


def test_a_shell_has_the_size_of_this_terminal_and_follows_it(work: str) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    with started("shell", work, preexec_fn=lambda: os.login_tty(theirs)) as process:
        os.close(theirs)
        until(ours, b"$ ")
        os.write(ours, b"PS1='> '; stty size\r")
        until(ours, b"33 101")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 99, 0, 0))
        os.write(ours, b"until stty size | grep '^44 99$'; do sleep 0.1; done; exit 5\r")
        rest(ours)
        assert process.wait(LONG_S) == 5
    os.close(ours)


def test_a_terminal_ends_with_the_input_however_often_its_programs_look_for_that(work: str) -> None:
    done = atoll("exec", "--terminal", work, "--", "sh", "-c", "cat; cat; exit 7", stdin=b"")
    assert done.returncode == 7, done.stderr.decode()


@pytest.mark.parametrize("stdin", [None, b"", b"exit 3\n"])
def test_a_shell_without_a_terminal_here_ends_with_its_input(work: str, stdin: bytes | None) -> None:
    done = atoll("shell", work, stdin=stdin)
    assert done.returncode == (3 if stdin else 0), done.stderr.decode()


def test_cp_takes_a_directory_in_and_out_again(work: str, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "data").write_bytes(os.urandom(100_000))
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    said("cp", str(source), f"{work}:/workspace/")
    assert said("exec", work, "/workspace/tree/run.sh") == "ran"
    (tmp_path / "newest").symlink_to(source / "run.sh")
    said("cp", str(tmp_path / "newest"), f"{work}:/workspace/")
    said("cp", f"{source}/deep/..", f"{work}:/workspace/deep/")
    assert said("exec", work, "--", "sh", "-c", "cd /workspace && ./newest && ls deep") == "ran\ntree"
    said("exec", work, "--", "ln", "-s", "deep", "/workspace/link")
    for what in ("tree/run.sh", "tree/deep"):
        said("cp", str(tmp_path / what), f"{work}:/workspace/link")
    assert said("exec", work, "--", "ls", "/workspace/deep") == "deep\nrun.sh\ntree"
    said("cp", f"{work}:/workspace/tree", str(tmp_path / "back"))
    for name in ("deep/data", "run.sh"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()
    said("exec", work, "--", "ln", "-sf", "tree/run.sh", "/workspace/alias")
    for name in ("tree/run.sh", "alias"):
        said("cp", f"{work}:/workspace/{name}", str(tmp_path / "one.sh"))
        assert (tmp_path / "one.sh").stat().st_mode & 0o777 == 0o755
