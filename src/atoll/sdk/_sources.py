"""What a new sandbox starts from, in the words of its spec."""

from __future__ import annotations

from atoll.errors import InvalidSpecError
from atoll.types import Snapshot, SnapshotInfo, Source, Template, TemplateInfo
from atoll.types.internal import check_text


def source_fields(source: Source | None) -> dict[str, str]:
    """Return the fields of the spec that say what it starts from; none for the default.

    Raises:
        InvalidSpecError: It is nothing that a sandbox can start from.
    """
    match source:
        case None:
            return {}
        case str():
            return {"image": source}
        case Snapshot():
            check_text("the Snapshot's id_or_name", source.id_or_name)
            return {"from_snapshot": source.id_or_name}
        case SnapshotInfo():
            return {"from_snapshot": source.snapshot_id}
        case Template():
            check_text("the Template's name", source.name)
            return {"template": source.name}
        case TemplateInfo():
            return {"template": source.template_id}
    raise InvalidSpecError(
        f"source is {source!r}"[:300],
        hint='give an image like "python:3.12", a Snapshot or Template, or the info of one',
    )
