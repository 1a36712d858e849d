"""Very many sleeping sandboxes: what a start does for them, and how they are listed."""

from __future__ import annotations

from unittest.mock import patch

import msgspec

from atoll.supervisor.lifecycle.unplug import Unplugs
from atoll.supervisor.recovery.sleepers import undisturbed
from tests.unit.supervisor.harness import Harness, with_harness


@with_harness
async def test_a_start_does_nothing_for_those_that_only_sleep(harness: Harness) -> None:
    made = [await harness.create(name=f"s{number}") for number in range(3)]
    for each in made[:2]:
        await harness.asleep(each)
    counted = [harness.system.paths.limits(each["sandbox_id"]) for each in made]
    for path in counted:
        path.write_text("{}")
    await harness.crash()
    with patch.object(Unplugs, "heed", return_value=False) as heeded:
        await harness.start()
    assert [call.args[0].sandbox_id for call in heeded.call_args_list] == [made[2]["sandbox_id"]] * 2
    rows = [sandbox.row for sandbox in harness.system.inventory.sandboxes()]
    assert undisturbed(rows, harness.system.paths) == {each["sandbox_id"] for each in made[:2]}
    assert all(path.exists() for path in counted)
    for each in made[:2]:
        woken = await harness.ask("POST", f"/v1/sandboxes/{each['sandbox_id']}/wake")
        assert woken.json["state"] == "running"


@with_harness
async def test_what_is_not_as_it_should_be_is_looked_at(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    # Until then it writes to the directory.
    await harness.until(lambda: not harness.system.tasks.busy)
    row = harness.system.inventory.sandbox(made["sandbox_id"]).row
    paths = harness.system.paths
    directory = paths.sandbox(row.sandbox_id)
    assert undisturbed([row], paths) == {row.sandbox_id}
    for other in (
        row.but(state="running"),
        row.but(engine_disk=True),
        row.but(napping=True),
        row.but(link_id="left"),
        row.but(has_memory=False),
        row.but(disk="d9"),
        row.but(sandbox_id="gone"),
    ):
        assert undisturbed([other], paths) == set()
    for left in ("unplug.json", "checkpoint.new", "d7"):
        (directory / left).mkdir()
        assert undisturbed([row], paths) == set()
        (directory / left).rmdir()
    (directory / "checkpoint").rename(directory / "moved")
    assert undisturbed([row], paths) == set()
    assert undisturbed([row.but(has_memory=False)], paths) == set()
    (directory / "moved").rename(directory.parent / "moved")
    assert undisturbed([row.but(has_memory=False)], paths) == {row.sandbox_id}
    (directory.parent / "moved").rename(directory / "checkpoint")


@with_harness
async def test_pages_show_each_sandbox_once_and_as_it_is_now(harness: Harness) -> None:
    made = [await harness.create(name=f"s{number}", metadata={"n": str(number % 2)}) for number in range(5)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await harness.ask("GET", f"/v1/sandboxes?limit=2{cursor}")).json
        seen += [each["name"] for each in page["sandboxes"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert seen == [each["name"] for each in made]
    odd = (await harness.ask("GET", "/v1/sandboxes?metadata=n%3D1&state=running")).json
    assert [each["name"] for each in odd["sandboxes"]] == ["s1", "s3"]
    await harness.asleep(made[0])
    listed = (await harness.ask("GET", "/v1/sandboxes?state=suspended")).json["sandboxes"]
    assert [each["name"] for each in listed] == ["s0"]
    sandbox = harness.system.inventory.sandbox(made[1]["sandbox_id"])
    running = sandbox.require_running()
    with patch.object(running, "gone", wraps=running.gone) as gone:
        gone.is_set.return_value = True
        gone.is_set.side_effect = None
        crashed = (await harness.ask("GET", "/v1/sandboxes?state=crashed")).json["sandboxes"]
    assert [(each["name"], each["state"]) for each in crashed] == [("s1", "crashed")]
    assert msgspec.structs.asdict(sandbox.info()) == msgspec.structs.asdict(sandbox.row.info())
