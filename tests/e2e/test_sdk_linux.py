"""System calls whose answer was another than Linux's until a patch of native/patches mended it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.host import Home, cgroup_root

ERROR_OF = """
import errno, os, posix, resource, socket
def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
"""


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def assert_all_hold(sandbox: Sandbox, lines: str) -> None:
    """Run Python inside, as the user, whose assertions all hold."""
    done = sandbox.exec(["python3", "-c", ERROR_OF + lines])
    assert done.exit_code == 0, done.stderr


def test_the_limits_of_priorities_are_those_of_the_policy(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
for policy in (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE):
    assert (os.sched_get_priority_min(policy), os.sched_get_priority_max(policy)) == (0, 0)
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    assert (os.sched_get_priority_min(policy), os.sched_get_priority_max(policy)) == (1, 99)
for policy in (-23, 4, 1 << 30):
    assert error_of(os.sched_get_priority_min, policy) == "EINVAL"
    assert error_of(os.sched_get_priority_max, policy) == "EINVAL"
""",
    )


def test_a_user_may_set_the_priority_that_its_policy_has(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setparam(0, os.sched_param(0))
assert os.sched_getscheduler(0) == os.SCHED_BATCH
assert error_of(os.sched_setparam, 0, os.sched_param(1)) == "EINVAL"
assert error_of(os.sched_setparam, -1, os.sched_param(0)) == "EINVAL"
assert error_of(os.sched_setparam, 1, os.sched_param(0)) == "EPERM"
assert error_of(os.sched_setparam, 1 << 22, os.sched_param(0)) == "ESRCH"
child = posix.posix_spawn("/bin/true", ["true"], os.environ, scheduler=(None, os.sched_param(0)))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
    )


def test_the_length_of_a_turn_is_told(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
assert 0 <= os.sched_rr_get_interval(0) == os.sched_rr_get_interval(os.getpid()) < 1
assert error_of(os.sched_rr_get_interval, -1) == "EINVAL"
assert error_of(os.sched_rr_get_interval, 1 << 22) == "ESRCH"
""",
    )


def test_who_gives_too_little_room_for_ancillary_data_is_told(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
to = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
to.bind(("::1", 0))
to.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
to.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
SPACE, LEN = socket.CMSG_SPACE(4), socket.CMSG_LEN(4)
def received(room):
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"word", to.getsockname())
    word, data, flags, _ = to.recvmsg(100, room)
    assert word == b"word"
    return len([each for each in data if len(each[2]) == 4]), bool(flags & socket.MSG_CTRUNC)
for room in (0, 1, LEN - 1):
    assert received(room) == (0, True), room
for room in (LEN, SPACE, SPACE + 1, SPACE + LEN - 1):
    assert received(room) == (1, True), room
for room in (SPACE + LEN, 2 * SPACE, 1000):
    assert received(room) == (2, False), room
""",
    )


def test_who_gives_no_room_at_all_for_ancillary_data_is_told(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
import array, ctypes
to = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
to.bind(("::1", 0))
sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
def flags_of():
    sender.sendto(b"word", to.getsockname())
    word = ctypes.create_string_buffer(100)
    vector = array.array("L", [ctypes.addressof(word), 100])
    # name, its length, vectors, their number, control data, its length, flags
    header = array.array("L", [0, 0, vector.buffer_info()[0], 1, 0, 0, 0])
    assert ctypes.CDLL(None).recvmsg(to.fileno(), ctypes.c_void_p(header.buffer_info()[0]), 0) == 4
    return header[6] & socket.MSG_CTRUNC
assert not flags_of()
to.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
assert flags_of()
""",
    )


def test_there_is_no_process_of_a_number_below_zero(sandbox: Sandbox) -> None:
    assert_all_hold(sandbox, 'assert error_of(resource.prlimit, -1, resource.RLIMIT_AS) == "ESRCH"\n')


def test_a_new_network_takes_the_address_of_its_loopback_as_bwrap_gives_it(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
import ctypes, struct
NEW_USER, NEW_NETWORK, IFA_ADDRESS, IFA_LOCAL = 0x10000000, 0x40000000, 1, 2
assert ctypes.CDLL(None).unshare(NEW_USER | NEW_NETWORK) == 0
def added(address):
    host = socket.inet_aton(address)
    wanted = struct.pack("=BBBBI", socket.AF_INET, 8, 0, 0, socket.if_nametoindex("lo"))
    wanted += struct.pack("=HH4sHH4s", 8, IFA_LOCAL, host, 8, IFA_ADDRESS, host)
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    # a new address, to be created exclusively, with an acknowledgement
    route.sendto(struct.pack("=IHHII", 16 + len(wanted), 20, 0x605, 1, 0) + wanted, (0, 0))
    return errno.errorcode.get(-struct.unpack_from("=i", route.recv(1000), 16)[0], "added")
assert added("127.0.0.1") == "added"
assert added("10.9.9.9") == "added"
assert added("10.9.9.9") == "EEXIST"
""",
    )


def test_a_terminal_that_nobody_has_opened_yet_is_not_taken_for_closed(sandbox: Sandbox) -> None:
    assert_all_hold(
        sandbox,
        """
import fcntl, select
master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
polled = select.poll()
polled.register(master, select.POLLIN)
assert polled.poll(0) == []
assert error_of(os.read, master, 1) == "EAGAIN"
UNLOCK, NUMBER = 0x40045431, 0x80045430
fcntl.ioctl(master, UNLOCK, bytes(4))
number = int.from_bytes(fcntl.ioctl(master, NUMBER, bytes(4)), "little")
for _ in range(2):
    other = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)
    assert error_of(os.read, master, 1) == "EAGAIN"
    os.close(other)
    assert polled.poll(0) == [(master, select.POLLHUP)]
    assert error_of(os.read, master, 1) == "EIO"
""",
    )


def test_programs_survive_a_host_that_freezes_them_again_and_again(
    module_home: Path, sandbox: Sandbox
) -> None:
    root = cgroup_root(Home(module_home))
    if root is None:  # this user may make no groups here
        return
    program = (
        "import subprocess\n"
        "print(sum(int(subprocess.run(['sh', '-c', f'echo $(({n} + 1))'], capture_output=True, check=True).stdout)\n"
        "          for n in range(150)))"
    )
    running = sandbox.processes.start(["python3", "-c", program])
    groups = [group for name in root.names() if (group := root.find(name))]
    for _ in range(100):
        for group in groups:
            group.freeze()
            group.thaw()
        time.sleep(0.01)
    result = running.wait()
    assert (result.exit_code, result.stdout) == (0, f"{sum(range(151))}\n")


def test_symlinks_keep_their_attributes_over_a_wake_and_a_rename(sandbox: Sandbox) -> None:
    look = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    os.listxattr(path, follow_symlinks=False)\n"
        "    os.utime(path, (1, 2), follow_symlinks=False)\n"
        "    print(os.lstat(path).st_mtime)"
    )
    sandbox.run("mkdir -p a/b && ln -s /nowhere a/b/link").check()
    links = ["/home/user/a/b/link", "/bin"]
    assert sandbox.exec(["python3", "-c", look, *links], user="root").check().stdout == "2.0\n" * 2
    sandbox.suspend()
    assert sandbox.exec(["python3", "-c", look, *links], user="root").check().stdout == "2.0\n" * 2
    sandbox.run("mv a c && mv c/b c/d").check()
    links[0] = "/home/user/c/d/link"
    assert sandbox.exec(["python3", "-c", look, *links], user="root").check().stdout == "2.0\n" * 2
