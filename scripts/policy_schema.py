"""Write docs/reference/policy.schema.json from the policy's types."""

from __future__ import annotations

import json
from pathlib import Path

from atoll.policy import schema

PUBLISHED = Path(__file__).parents[1] / "docs" / "reference" / "policy.schema.json"


def text() -> str:
    """The schema as it is published."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(text())
