"""Values that are listed are short when they are printed, and tables in a notebook."""

from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import (
    BuildInfo,
    FileInfo,
    HostMemory,
    ImageInfo,
    Lifecycle,
    ProcessInfo,
    SandboxSpec,
    SnapshotInfo,
    TagInfo,
    TemplateInfo,
    VolumeInfo,
)
from atoll.types.internal import converted, key_hash, key_id_of

DIGEST = "sha256:" + "0" * 64
FIELDS: dict[type, dict[str, Any]] = {
    SnapshotInfo: {
        "snapshot_id": "s" * 20, "name": "safe", "comment": "", "sandbox_id": "b" * 20, "parent_id": None,
        "image": "base", "created_at": 1.0, "memory_bytes": 1, "disk_bytes": 1, "stopped_ms": 1.0,
    },
    VolumeInfo: {"volume_id": "v", "name": "data", "team": None, "created_at": 1.0},
    FileInfo: {
        "name": "a", "path": "/a", "kind": "file", "size_bytes": 1, "mode": 420, "owner": "u", "group": "u",
        "modified_at": 1.0,
    },
    ImageInfo: {
        "name": "base", "digest": DIGEST, "size_bytes": 1, "created_at": 1.0, "user": "u", "cwd": "/", "env": {},
    },
    ProcessInfo: {"pid": 7, "argv": ["sleep", "9"], "cwd": "/", "user": "u", "started_at": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_a_value_is_a_table_in_a_notebook(kind: type) -> None:
    value: Any = converted(FIELDS[kind], kind)
    assert "<table" in value._repr_html_()
    assert len(repr(value)) < 500


def test_a_template_tells_the_build_of_a_tag() -> None:
    build = BuildInfo(build_id="b1", template_id="t", state="ready", created_at=1.0, changed_at=1.0)
    template = TemplateInfo(
        template_id="t",
        name="web",
        team=None,
        public=False,
        created_at=1.0,
        changed_at=1.0,
        tags={"default": TagInfo(build_id="b1", created_at=1.0)},
        builds=[build],
    )
    assert template.build() is build
    assert template.build("other") is None
    assert "web" in repr(template)


def test_a_key_is_told_apart_by_a_part_of_its_hash_alone() -> None:
    assert key_id_of("one") != key_id_of("two")
    assert key_id_of("one").removeprefix("key-") in key_hash("one")


def test_a_spec_refuses_what_no_key_of_repetition_is() -> None:
    assert SandboxSpec(idempotency_key="again").idempotency_key == "again"
    for key in ("", "a\n", "x" * 256):
        with pytest.raises(InvalidSpecError, match="idempotency_key"):
            SandboxSpec(idempotency_key=key)
    with pytest.raises(InvalidSpecError):
        SandboxSpec(lifecycle=Lifecycle(ttl_s=-1.0)).checked()


def test_the_hosts_memory_is_a_table_and_says_how_much_more_may_be_used() -> None:
    memory = HostMemory(total_bytes=8 << 30, available_bytes=1 << 30, kept_free_bytes=2 << 30)
    assert memory.spare_bytes == -(1 << 30)
    assert "kept_free_bytes" in memory._repr_html_()
