"""Sandboxes of images from a registry on loopback, as people make them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import homes
from tests.e2e.command_line import atoll, said
from tests.e2e.failing_disk import flip
from tests.registry import File, ImageSource, Registry, serving
from tests.registry.images import directory, hard_link, symlink
from tests.registry.programs import busybox, musl

from atoll import Boot, Images, Limits, Sandbox, Snapshots, Volumes, Wait
from atoll.errors import FileMissingError, ImageNotFoundError, InUseError, InvalidSpecError

BOUND_S = 60.0
PASSWD = b"root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"
GROUP = b"root:x:0:\napp:x:1000:\nstaff:x:50:\n"


def shell_layers(*more: list[File]) -> list[list[File]]:
    """A small distribution: a shell, users, nothing else."""
    commands = ("sh", "cat", "id", "ls", "sleep", "mv", "env", "echo", "wc", "pwd", "hostname")
    return [
        [
            directory("bin"),
            File("bin/busybox", busybox(), mode=0o755),
            *(symlink(f"bin/{name}", "busybox") for name in commands),
            directory("etc"),
            File("etc/passwd", PASSWD),
            File("etc/group", GROUP),
            directory("home/app", uid=1000, gid=1000),
        ],
        *more,
    ]


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


@pytest.fixture(scope="module")
def bare_home() -> Iterator[Path]:
    with homes.make_home(own_images=True) as path:
        yield path


@pytest.fixture
def serve(registry: Registry, bare_home: Path) -> Any:
    def put(name: str, source: ImageSource) -> str:
        return registry.put(name, "1", source)

    return put


def test_a_sandbox_pulls_its_image_and_takes_over_what_it_says(serve: Any) -> None:
    config = {"Env": ["GREETING=hello", "PATH=/bin"], "User": "app:staff", "WorkingDir": "/home/app"}
    reference = serve("shell", ImageSource(shell_layers(), config))
    steps: list[str] = []
    with Sandbox.create(
        reference, wait=Wait(on_progress=lambda progress: steps.append(progress.step))
    ) as sandbox:
        assert any("downloading" in step for step in steps)
        assert sandbox.info().image == reference
        result = sandbox.run(
            "id -un; id -gn; pwd; echo $GREETING; cat /etc/hostname; ls -d /tmp /proc /dev/shm"
        )
        assert result.stdout.split() == [
            "app",
            "staff",
            "/home/app",
            "hello",
            sandbox.id,
            "/dev/shm",
            "/proc",
            "/tmp",
        ]
        assert sandbox.exec(["cat", "/etc/resolv.conf"]).stdout.startswith("nameserver ")
        with pytest.raises(InUseError):
            Images.delete(reference)


def test_a_working_directory_that_an_image_does_not_have_is_made(serve: Any) -> None:
    for name, cwd, wanted in (("made", "/srv/app", "/srv/app"), ("unmade", "/etc/passwd", "/")):
        source = ImageSource(shell_layers(), {"WorkingDir": cwd, "User": "app"})
        with Sandbox.create(serve(name, source)) as sandbox:
            assert sandbox.run("pwd").stdout == sandbox.exec(["pwd"]).stdout == f"{wanted}\n"


@pytest.mark.parametrize("user, ids", [("1234", "1234 0"), ("1234:4321", "1234 4321"), ("", "0 0")])
def test_a_user_needs_no_account(serve: Any, user: str, ids: str) -> None:
    layers = [[*shell_layers()[0][:12], directory("etc")]]
    reference = serve(f"user{user.replace(':', '-')}", ImageSource(layers, {"User": user}))
    with Sandbox.create(reference) as sandbox:
        assert sandbox.run("echo $(id -u) $(id -g)").stdout.strip() == ids


def test_an_image_without_a_shell_runs_programs_and_says_what_to_do(serve: Any) -> None:
    source = ImageSource([[File("busybox", busybox(), mode=0o755)]], {"Entrypoint": ["/busybox"]})
    with Sandbox.create(serve("bare", source)) as sandbox:
        assert sandbox.exec(["/busybox", "echo", "works"]).stdout == "works\n"
        with pytest.raises(FileMissingError, match="no shell.*exec"):
            sandbox.run("echo never")
        sandbox.files.write("/data/a", "kept")
        sandbox.suspend()
        assert sandbox.files.read("/data/a") == "kept"


def test_a_musl_image_works(serve: Any) -> None:
    layers = shell_layers([directory("lib"), File("lib/ld-musl-x86_64.so.1", musl(), mode=0o755)])
    with Sandbox.create(serve("musl", ImageSource(layers))) as sandbox:
        assert "musl libc" in sandbox.exec(["/lib/ld-musl-x86_64.so.1"]).stderr


def test_the_images_own_program_runs_beside_the_agent_and_its_output_is_kept(serve: Any) -> None:
    config = {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo up; exec sleep 1000"]}
    reference = serve("service", ImageSource(shell_layers(), config))
    with Sandbox.create(reference, boot=Boot(start=True)) as sandbox:
        (process,) = [process for process in sandbox.processes.list() if process.tag == "image"]
        until = time.monotonic() + BOUND_S
        while process.argv[0] != "/bin/sh" and time.monotonic() < until:
            time.sleep(0.05)
        attached = sandbox.processes.attach(process.pid)
        assert next(iter(attached)).data == b"up\n"
        attached.close()
        assert "started: /bin/sh -c" in "".join(sandbox.logs())
        with Sandbox.connect(sandbox.fork(1)[0].id) as twin:
            assert [process.tag for process in twin.processes.list()] == ["image"]
            twin.kill()
    with pytest.raises(InvalidSpecError, match="no program to start"):
        Sandbox.create(serve("shell", ImageSource(shell_layers())), boot=Boot(start=True))


def test_an_image_of_a_hundred_layers_is_one_file_system(serve: Any) -> None:
    rows = [
        [File(f"d/{index}", str(index).encode()), File("d/last", str(index).encode())] for index in range(100)
    ]
    rows[50].append(File("d/.wh.7"))
    with Sandbox.create(serve("tall", ImageSource(shell_layers(*rows)))) as sandbox:
        assert sandbox.run("cat /d/last; echo; ls /d | wc -l").stdout.split() == ["99", "100"]
        sandbox.run("mv /d/99 /d/moved").check()
        with sandbox.fork(1)[0] as twin:
            assert twin.run("cat /d/moved").stdout == "99"


def test_a_layer_that_comes_again_is_laid_on_what_came_between(serve: Any) -> None:
    empty: list[File] = []
    layers = shell_layers(empty, [File("d/a"), File("d/b")], [File("d/.wh.a"), File("c")], empty)
    layers += [layers[2], [File(".wh.c")], empty]
    with Sandbox.create(serve("again", ImageSource(layers))) as sandbox:
        assert sandbox.run("ls -d /c /d/* 2>/dev/null").stdout.split() == ["/d/a", "/d/b"]
        with sandbox.fork(1)[0] as twin:
            assert twin.run("ls /d").stdout == "a\nb\n"


def test_what_an_image_has_in_run_and_tmp_is_there(serve: Any) -> None:
    had = [
        directory("run/service", mode=0o2775, uid=1000, gid=50),
        File("run/service/conf", b"run", mode=0o640, uid=1000),
        directory("tmp", mode=0o1777),
        File("tmp/left", b"tmp"),
        File("tmp/mine/hidden", b"image"),
        hard_link("tmp/again", "tmp/left"),
    ]
    reference = serve("leaves", ImageSource(shell_layers(had)))
    volume = Volumes.create("leaves")
    with Sandbox.create(reference, volumes={"/tmp/mine": volume.name}) as sandbox:
        for _ in range(2):
            listed = sandbox.run("ls -ld /run/service /run/service/conf; cat /tmp/left; ls /tmp/mine").stdout
            assert [line.split()[:4] for line in listed.splitlines()[:2]] == [
                ["drwxrwsr-x", "2", "app", "staff"],
                ["-rw-r-----", "1", "app", "root"],
            ]
            assert listed.splitlines()[2:] == ["tmp"]
            linked = sandbox.run("ls -i /tmp/left /tmp/again").stdout.split()
            assert linked[0] == linked[2]
            sandbox.suspend()


def test_what_an_image_has_there_that_is_too_big_for_memory_is_there_too(serve: Any) -> None:
    had = [directory("tmp", mode=0o1777), File("tmp/a", b"a"), File("tmp/big", bytes(40 << 20))]
    reference = serve("big", ImageSource(shell_layers(had)))
    with Sandbox.create(reference) as sandbox:
        ready = sandbox.snapshot()
        sandbox.run("ls -d /tmp; cat /tmp/a; echo more >/tmp/a").check()
        sandbox.rollback(ready)
        sandbox.suspend()
        assert sandbox.run("cat /tmp/a; wc -c </tmp/big").stdout == f"a{40 << 20}\n"
        with sandbox.fork(1)[0] as twin:
            assert twin.run("cat /tmp/a; wc -c </tmp/big").stdout == f"a{40 << 20}\n"
    Snapshots.delete(ready.snapshot_id)


def test_what_an_image_has_there_that_is_too_many_for_memory_is_there_too(serve: Any) -> None:
    had = [directory("tmp", mode=0o1777), *(File(f"tmp/{index}") for index in range(20_000))]
    reference = serve("many", ImageSource(shell_layers([*had, File("run/conf", b"run")])))
    with Sandbox.create(reference, limits=Limits(memory_mib=256)) as sandbox:
        sandbox.run("cat /run/conf >/tmp/new").check()
        sandbox.suspend()
        assert sandbox.run("ls /tmp | wc -l; cat /tmp/new").stdout == "20001\nrun"
        mounted = [line.split()[1] for line in sandbox.run("cat /proc/mounts").stdout.splitlines()]
        assert "/run" in mounted and "/tmp" not in mounted


def test_the_command_line_pulls_lists_shows_runs_and_removes(serve: Any) -> None:
    reference = serve("tool", ImageSource(shell_layers([File("etc/tool")]), {"Cmd": ["/bin/sleep", "1000"]}))
    pinned = said("image", "pull", reference)
    assert pinned.startswith(reference.rpartition(":")[0] + "@sha256:")
    assert reference in said("image", "ls")
    shown = json.loads(said("image", "inspect", "--json", reference))
    assert (shown["pinned"], shown["cmd"], len(shown["layers"])) == (pinned, ["/bin/sleep", "1000"], 2)
    assert "/bin/sleep 1000" in said("image", "inspect", reference)
    assert said("run", "--image", reference, "--", "cat", "/etc/group") == GROUP.decode().rstrip()
    sandbox = said("create", "--image", reference, "--start")
    refused = atoll("image", "delete", reference)
    assert refused.returncode != 0
    assert b"used by sandboxes" in refused.stderr
    said("kill", sandbox)
    said("image", "delete", reference)
    assert reference not in said("image", "ls")
    with pytest.raises(ImageNotFoundError):
        Images.get(reference)


def test_one_flipped_bit_in_an_image_is_found_and_a_layer_that_two_have_is_read_once(
    serve: Any, bare_home: Path
) -> None:
    one = serve("whole", ImageSource(shell_layers([File("data", b"x" * 100_000)])))
    two = serve("other", ImageSource(shell_layers([File("data", b"y" * 100_000)])))
    for reference in (one, two):
        Images.pull(reference)
    with Sandbox.create(one) as sandbox:
        sandbox.run("echo more >>/etc/group; rm /etc/passwd; mv /data /bin/data", user="root").check()
        for _ in range(2):
            report = Images.verify(one, two)
        assert [part.state for part in report.parts] == ["whole"] * 3, report
        shared = next(part for part in report.parts if len(part.needed_by) == 2)
        flip(bare_home, Path(shared.path) / "etc/group", 3)
        shown = atoll("image", "verify", two)
        assert shown.returncode == 1
        found = f"damaged: {shared.path}: etc/group: its content has changed"
        assert shown.stdout.decode().splitlines()[-1] == found
    for reference in (one, two):
        Images.delete(reference)
    own = {part.name for part in report.parts if part.needed_by == [two]}
    assert own
    assert not any((bare_home / "images" / "layers" / f".checksums-{name}").exists() for name in own)
