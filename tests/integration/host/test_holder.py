from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from atoll.host import Home, end_holder, ensure_holder, find_holder, is_host_root, kill_process, process_alive
from tests.integration.host.conftest import Inside, run_inside

pytestmark = pytest.mark.twice


def test_a_home_has_one_holder_however_many_ask_at_once(host_home: Home) -> None:
    code = "import sys; from atoll.host import *; print(ensure_holder(Home(sys.argv[1])).pid)"

    def ask(_: int) -> bytes:
        return subprocess.check_output([sys.executable, "-c", code, str(host_home.path)], timeout=240)

    with ThreadPoolExecutor(4) as asking:
        pids = {int(answer) for answer in asking.map(ask, range(4))}
    found = find_holder(host_home)
    assert found is not None
    assert pids == {found.pid}


def test_whoever_joins_is_root_inside_and_still_in_the_network_of_the_host(inside: Inside) -> None:
    user, network = inside("answer([os.getuid(), os.readlink('/proc/self/ns/net')])")
    assert user == 0
    assert network == os.readlink("/proc/self/ns/net")


def test_the_namespaces_are_of_the_kind_that_this_user_can_have(host_home: Home) -> None:
    holder = ensure_holder(host_home)
    assert holder.user_namespace == (not is_host_root())
    for kind, differs in (("mnt", True), ("user", not is_host_root())):
        own = os.stat(f"/proc/self/ns/{kind}").st_ino
        # Reading another namespace's link takes rights that an ordinary user lacks once it is mapped.
        held = int(run_inside(host_home, f"answer(os.stat('/proc/self/ns/{kind}').st_ino)"))
        assert (held != own) == differs


def test_the_holder_keeps_nothing_of_whoever_started_it(host_home: Home, inside: Inside) -> None:
    ensure_holder(host_home)
    seen = inside(
        """
        place = Path(f"/proc/{holder.pid}")
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        answer({
            "files": sorted({os.readlink(link) for link in (place / "fd").iterdir()}),
            "directory": os.readlink(place / "cwd"),
            "environment": [name for name in (place / "environ").read_text().split("\\0") if name],
            "session": int(fields[3]), "terminal": int(fields[4]),
            "title": (place / "cmdline").read_bytes().rstrip(b"\\0").decode(),
            "name": (place / "comm").read_text().strip(),
        })
        """
    )
    assert seen["files"] == ["/dev/null", str(host_home.run)]
    assert seen["directory"] == "/"
    assert all(name.startswith(("LD_LIBRARY_PATH=", "LC_CTYPE=")) for name in seen["environment"])
    assert seen["session"] != os.getsid(0)
    assert seen["terminal"] == 0
    assert seen["title"] == f"atoll-holder {host_home.run}"
    assert seen["name"] == "atoll-holder"


def test_a_holder_outlives_a_hangup_and_an_interrupt(host_home: Home) -> None:
    holder = ensure_holder(host_home)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(holder.pid, number)
    assert run_inside(host_home, "answer(holder.pid)") == holder.pid


def test_a_killed_holder_is_replaced(host_home: Home) -> None:
    first = ensure_holder(host_home)
    assert kill_process(first.pid, first.start_ticks, timeout_s=240)
    assert find_holder(host_home) is None
    assert ensure_holder(host_home).pid != first.pid


def test_a_process_that_got_the_number_of_a_dead_holder_is_left_alone(host_home: Home) -> None:
    holder = ensure_holder(host_home)
    record = host_home.run / "holder.json"
    good = record.read_bytes()
    record.write_bytes(msgspec.json.encode(msgspec.structs.replace(holder, pid=os.getpid())))
    assert find_holder(host_home) is None
    end_holder(host_home)  # this test would not survive a mistake here
    record.write_bytes(good)
    assert find_holder(host_home) == holder


def test_an_ended_holder_is_gone_and_ending_it_again_is_no_error(host_home: Home) -> None:
    holder = ensure_holder(host_home)
    end_holder(host_home)
    assert not process_alive(holder.pid, holder.start_ticks)
    assert find_holder(host_home) is None
    end_holder(host_home)


def test_mounts_of_a_holder_are_not_seen_outside(host_home: Home) -> None:
    assert run_inside(host_home, "answer(sorted(str(path) for path in mounts_below(home.run)))") == [
        str(host_home.run / "forks"),
        str(host_home.run / "m"),
        str(host_home.run / "pages"),
        str(host_home.pins),
    ]
    assert str(host_home.run) not in Path("/proc/self/mountinfo").read_text()
