"""Moves the commits to another version of gVisor."""

from __future__ import annotations

import re
from pathlib import Path

from gvisor_series.checkout import root_commit
from gvisor_series.fault import Fault
from gvisor_series.git import Repository
from gvisor_series.upstream import Upstream


def rebase(directory: Path, upstream: Upstream, *, skip: bool = False) -> dict[str, list[str]]:
    """Rebase on ``upstream``. A patch that does not fit is a fault.

    With ``skip`` it is left out instead: returns the conflicts of each such patch.
    """
    repository = Repository.found(directory)
    root, version = repository.root()
    if version == upstream.version:
        return {}
    tag = f"refs/tags/{upstream.version}"
    if repository.run("rev-parse", "--quiet", "--verify", tag).returncode != 0:
        repository.git("fast-import", "--quiet", given=root_commit(tag, upstream, dict(upstream.files())))
    left_out = {}
    # A patch that the version has becomes an empty commit, which export tells of.
    done = repository.run("rebase", "--empty=keep", "--onto", tag, root)
    while repository.rebasing():
        subject = repository.text("log", "-1", "--format=%s", "REBASE_HEAD").strip()
        conflicts = _conflicts(done.stdout.decode(errors="replace"))
        if not skip:
            raise Fault(_stopped(directory, subject, upstream.version, conflicts))
        left_out[subject] = conflicts
        done = repository.run("rebase", "--skip")
    if done.returncode != 0:
        raise Fault(f"`git rebase` failed:\n{done.stderr.decode(errors='replace').rstrip()}")
    return left_out


def _conflicts(output: str) -> list[str]:
    return re.findall(r"^CONFLICT .+$", output, re.MULTILINE)


def _stopped(directory: Path, subject: str, version: str, conflicts: list[str]) -> str:
    lines = [
        f"the patch {subject} does not fit {version}:",
        *(f"  {conflict}" for conflict in conflicts),
        f"Settle it in {directory}, then `git add` the files and `git rebase --continue`, which stops at the next",
        "such patch. (`git rebase --skip` leaves the patch out, `git rebase --abort` goes back to the start.)",
        f"Once git is through: scripts/gvisor export {directory}",
    ]
    return "\n".join(lines)
