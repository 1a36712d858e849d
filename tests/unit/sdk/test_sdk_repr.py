from __future__ import annotations

from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, process

import atoll
from atoll import Sandbox, Volumes


def test_each_handle_says_what_it_is_and_of_which_sandbox(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    def watched(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {}), ("k", b""))

    supervisor.agent.routes["GET", "/atoll/watch"] = watched
    supervisor.agent.routes["POST", "/atoll/processes"] = process()
    of_it = f"sandbox {SANDBOX_ID}>"
    assert repr(sandbox) == f"<Sandbox {SANDBOX_ID} 'alice'>"
    assert repr(sandbox.files) == f"<Files of {of_it}"
    assert repr(sandbox.processes.attach(12)) == f"<Process 12 in {of_it}"
    with sandbox.processes.pty() as terminal:
        assert repr(terminal) == f"<Terminal 7 in {of_it}"
    with sandbox.files.watch("/workspace") as watch:
        assert repr(watch) == f"<Watch '/workspace' in {of_it}"
    forward = sandbox.ports.forward(8000)
    assert repr(forward) == f"<Forward not open to port 8000 of {of_it}"
    with forward:
        assert repr(forward) == f"<Forward 127.0.0.1:{forward.port} to port 8000 of {of_it}"
    assert repr(Volumes.files("data")) == "<VolumeFiles of volume 'data'>"
    assert atoll.AsyncSandbox.of(sandbox.info()).files.__repr__() == f"<AsyncFiles of {of_it}"
