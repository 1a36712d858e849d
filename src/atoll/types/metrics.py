"""What is counted and measured of a whole home."""

from __future__ import annotations

from typing import Literal

import msgspec

MetricKind = Literal["counter", "gauge", "summary"]


class MetricSample(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, omit_defaults=True):
    """A value of a metric.

    Args:
        value: The value.
        labels: What it is of, by names.
        part: ``sum`` or ``count`` of a summary; empty for all else.
    """

    value: float
    labels: dict[str, str] = {}
    part: Literal["", "sum", "count"] = ""


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """A metric with all its values.

    Args:
        name: Its name, with its unit, as Prometheus spells it.
        kind: ``counter`` grows until the supervisor ends. ``gauge`` is as it is now. ``summary`` has a sum and a
            count, which grow.
        help: What it is, in a sentence.
        samples: Its values.
    """

    name: str
    kind: MetricKind
    help: str
    samples: list[MetricSample]
