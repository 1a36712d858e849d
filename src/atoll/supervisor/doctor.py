"""What can stop a sandbox from running here, in plain words."""

from __future__ import annotations

from atoll.host import Home
from atoll.protocol import DoctorReport


def examine(home: Home) -> DoctorReport:
    """Look at this host."""
    return DoctorReport(fit=True, findings=[])
