"""A client in a process of its own, so that it can be killed in the middle of a call: JSON lines in and out."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from typing import Any

PATIENCE_S = 180.0


class Client:
    """A client process. ``begin`` sends it a call, ``result`` waits for what became of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, operation: str, sandbox: str, argument: str = "") -> None:
        """Have it call something; the answer is fetched by ``result``."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([operation, sandbox, argument]) + "\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any] | None:
        """What became of the call, and how long it took; None when the client was killed."""
        assert self._process.stdout
        overdue = threading.Event()

        def give_up() -> None:
            overdue.set()
            self._process.kill()

        late = threading.Timer(PATIENCE_S, give_up)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        assert not overdue.is_set(), f"the call hangs: no answer in {PATIENCE_S:.0f} s"
        return json.loads(line) if line else None

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()

    def close(self) -> None:
        """Have it end."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        self._process.wait()


def _call(operation: str, ref: str, argument: str) -> Any:
    from atoll import Sandbox, Snapshot, Snapshots

    if operation == "volume":
        return _use_volume(argument)
    if operation == "build":
        return _build(argument)
    if operation == "create":
        with Sandbox.create(name=argument, keep=True) as made:
            return made.id
    if operation == "from_snapshot":
        with Sandbox.create(Snapshot(argument), keep=True) as made:
            return made.id
    if operation == "forget":
        return Snapshots.delete(argument)
    with Sandbox.connect(ref, wake=False) as sandbox:
        if operation == "exec":
            return sandbox.run("echo said").stdout
        if operation == "files":
            sandbox.files.write("/home/user/file", argument * 100_000)
            return sandbox.files.read("/home/user/file") == argument * 100_000
        if operation == "snapshot":
            return sandbox.snapshot().snapshot_id
        if operation in ("fork", "freeze"):
            copies = sandbox.fork(int(argument))
            for copy in copies:
                copy.close()
            return [copy.id for copy in copies]
        if operation == "rollback":
            return sandbox.rollback(argument)
        if operation == "promote":
            return sandbox.promote(argument).snapshot_id
        if operation == "stop":
            return sandbox.suspend(memory=False)
        if operation == "timeout":
            sandbox.resume()
            return sandbox.set_lease(0).state
        if operation == "wake":
            sandbox.run("true")
            return None
        return getattr(sandbox, operation)()


def _use_volume(name: str) -> bool:
    from atoll import Sandbox, Volumes

    Volumes.create(name)
    with Sandbox.create(volumes={"/data": name}, keep=True) as made:
        made.run("echo kept > /data/file")
        made.suspend()
        kept = made.run("cat /data/file").stdout == "kept\n"
        made.kill()
    Volumes.delete(name)
    return kept


def _build(name: str) -> str | None:
    from atoll import Templates
    from atoll.types import RunStep, TemplateSpec

    spec = TemplateSpec(steps=[RunStep(command="echo built > /built", user="root")])
    return Templates.build(spec, name).snapshot_id


def main() -> None:
    """Answer calls until stdin ends."""
    from atoll import AtollError

    told: dict[str, Any]
    for line in sys.stdin:
        began_s = time.monotonic()
        try:
            value = _call(*json.loads(line))
            told = {"value": value if isinstance(value, (str, bool, list)) else None}
        except AtollError as error:
            told = {"code": error.code, "message": str(error)}
        except Exception as error:  # the harness says that this must not be
            told = {"code": "not ours", "message": repr(error)}
        told["took_s"] = time.monotonic() - began_s
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
