"""What can stop a sandbox from running here, in plain words. Needs no supervisor and starts none."""

from __future__ import annotations

import asyncio

from atoll.errors import AtollError
from atoll.host import Home, agent_path, check_host, runsc_path
from atoll.protocol import DoctorReport, Finding


def examine(home: Home) -> DoctorReport:
    """Look at this host, trying for real where that is possible."""
    checks = asyncio.run(check_host(home))
    findings = [
        Finding(name=check.name, level=check.level, message=check.message, remedy=check.remedy)
        for check in checks
    ]
    return report([*findings, programs_finding()])


def report(findings: list[Finding]) -> DoctorReport:
    """What follows from the findings: with an error among them no sandbox can run."""
    return DoctorReport(fit=all(finding.level != "error" for finding in findings), findings=findings)


def programs_finding() -> Finding:
    """Whether the programs that come with this package are there."""
    try:
        paths = [runsc_path(), agent_path()]
    except AtollError as error:
        return Finding(name="package", level="error", message=error.message, remedy=error.hint)
    return Finding(
        name="package", level="ok", message=" and ".join(path.name for path in paths) + " are there"
    )
