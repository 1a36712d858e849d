"""How a fault of the audit log reads."""

from __future__ import annotations

import pytest

from atoll.types import AuditFault, AuditReport


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (AuditFault(kind="missing", file="2.jsonl"), "2.jsonl: missing"),
        (AuditFault(kind="unreadable", file="2.jsonl", line=7), "2.jsonl:7: unreadable"),
        (AuditFault(kind="changed", file="2.jsonl", line=7, first=30), "2.jsonl:7: entry 30 changed"),
        (
            AuditFault(kind="changed", file="2.jsonl", line=7, first=30, last=30),
            "2.jsonl:7: entry 30 changed",
        ),
        (AuditFault(kind="cut", file="2.jsonl", first=30, last=34), "2.jsonl: entries 30 to 34 cut"),
    ],
)
def test_a_fault_names_its_place_and_the_entries_as_far_as_they_are_known(
    fault: AuditFault, text: str
) -> None:
    assert str(fault) == text
    assert not AuditReport(entries=1, first=1, last=1, faults=[fault]).whole


def test_a_log_without_a_fault_is_whole() -> None:
    assert AuditReport(entries=1, first=1, last=1, faults=[]).whole
