"""Names the wheel after the processor that its archive is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ArchiveHook(BuildHookInterface[Any]):
    """Wants the archive that `scripts/base_archive.py` makes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        about = Path(self.root) / "src" / "atoll_base" / "base.json"
        if not about.is_file():
            raise SystemExit("atoll-base cannot be built: its archive is missing; run `make dist`")
        machine = json.loads(about.read_text())["machine"]
        build_data["pure_python"] = False
        tags = (f"{kind}_{machine}" for kind in ("manylinux2014", "manylinux_2_17", "musllinux_1_1"))
        build_data["tag"] = f"py3-none-{'.'.join(tags)}"
