"""What builds and volumes that were cut short may leave, and what must be gone."""

from __future__ import annotations

import time

from atoll import Sandbox, Snapshots, Template, Templates, Volumes
from atoll.errors import EngineError, SandboxCrashedError, TemplateNotFoundError
from tests.crash.ledger import PATIENCE_S


def check_build(name: str, *, done: bool, doomed: bool) -> None:
    """A finished template makes sandboxes, one that was cut short has left none; when it is deleted nothing is left.

    Args:
        name: The template's.
        done: Whether the build was told to be done.
        doomed: Whether an agent was killed, maybe while it stood still: then it dies as soon as it goes on, in the
            template's sandboxes too.
    """
    deadline = time.monotonic() + PATIENCE_S
    while left := [one.sandbox_id for one in Sandbox.list() if "atoll.build" in one.attributes]:
        assert time.monotonic() < deadline, f"the build has left {left}"
        time.sleep(0.05)
    try:
        states = [build.state for build in Templates.get(name).builds]
    except TemplateNotFoundError:
        assert not done, "the template that was built is not there"
        return
    assert not done or states == ["ready"], states
    assert set(states) <= {"waiting", "ready", "failed"}, states
    if "ready" in states:
        try:
            with Sandbox.create(Template(name)) as made:
                assert made.run("cat /built").stdout == "built\n"
        except (EngineError, SandboxCrashedError):
            assert doomed, "the template's sandbox does not start"
    Templates.delete(name)
    Templates.forget_steps()
    while built := [one.snapshot_id for one in Snapshots.list() if one.comment.endswith("of a template")]:
        assert time.monotonic() < deadline, f"the deleted template has left {built}"
        time.sleep(0.05)


def check_volumes() -> None:
    """Volumes that nobody mounts any more are whole enough to be listed and deleted."""
    for volume in Volumes.list():
        Volumes.files(volume.volume_id).list()
        Volumes.delete(volume.volume_id)
    assert not Volumes.list()
