"""Disks with much on them: what the guest does goes on, whichever way its layer is kept."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.counter import count, start_counter

from atoll import Sandbox, Snapshots

# More than a fork copies while the guest runs, where it can freeze instead.
MUCH = "head -c 80M /dev/zero | tr '\\0' x >/workspace/much; echo before >/workspace/file"
# Has a line of a file in its hands that has no name any more, and one more that it still writes to.
READER = """
exec 3</workspace/gone 4>>/workspace/log; rm /workspace/gone; echo ready
read line; cat <&3; echo $line >&4; cat /workspace/log
"""


def test_everything_goes_on_while_a_copy_of_a_full_disk_is_made(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run(MUCH).check()
        sandbox.run("echo deleted >/workspace/gone").check()
        start_counter(sandbox)
        with sandbox.start(READER, stdin=True, stream=True) as reader:
            outputs = iter(reader)
            assert next(outputs).text == "ready\n"
            (copy,) = sandbox.fork(1)
            with copy:
                sandbox.run("echo after >/workspace/file").check()
                assert copy.files.read("/workspace/file") == "before\n"
                assert copy.run("tail -c 1 /workspace/much").stdout == "x"
                assert (count(copy), count(sandbox)) == (2, 2)
            reader.write_stdin("hello\n")
            assert "".join(output.text for output in outputs) == "deleted\nhello\n"
        # What the first fork left is little, so this one copies.
        with sandbox.fork(1)[0] as copy:
            assert copy.files.read("/workspace/file") == "after\n"


def test_a_snapshot_of_a_disk_that_was_frozen_in_between_is_whole(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run(MUCH).check()
        with sandbox.fork(1)[0]:
            sandbox.run("mv /workspace/much /workspace/moved; echo later >/workspace/file").check()
            snapshot = sandbox.snapshot()
        sandbox.run("rm /workspace/*").check()
        sandbox.rollback(snapshot.snapshot_id)
        assert sandbox.run("cat /workspace/file; wc -c </workspace/moved").stdout == "later\n83886080\n"
        assert not sandbox.files.exists("/workspace/much")
    Snapshots.delete(snapshot.snapshot_id)
