"""gVisor as Go's module proxy serves it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gvisor_series.fault import Fault

MODULE = "gvisor.dev/gvisor"


@dataclass(frozen=True)
class Upstream:
    """A version of gVisor: when it was made, in seconds since 1970, and its files."""

    version: str
    made_s: int
    archive: Path

    def files(self) -> Iterator[tuple[str, bytes]]:
        prefix = f"{MODULE}@{self.version}/"
        with zipfile.ZipFile(self.archive) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith("/"):
                    yield name.removeprefix(prefix), archive.read(name)


def pinned(native: Path) -> str:
    """The version that native/go.mod pins."""
    found = re.search(rf"\b{re.escape(MODULE)} (v\S+)", (native / "go.mod").read_text())
    if found is None:
        raise Fault(f"{native / 'go.mod'} pins no version of {MODULE}")
    return found[1]


def fetch(version: str, native: Path) -> Upstream:
    """Get a version with Go, from its cache if it is there. native/go.sum says what the pinned one must be."""
    env = {**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    with tempfile.TemporaryDirectory(prefix="gvisor-fetch-") as work:
        # Go may add to these.
        for name in ("go.mod", "go.sum"):
            if (native / name).is_file():
                shutil.copyfile(native / name, Path(work) / name)
        done = subprocess.run(
            ["go", "mod", "download", "-json", f"{MODULE}@{version}"],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    told = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if done.returncode != 0 or "Zip" not in told:
        raise Fault(f"Go cannot get that version: {told.get('Error') or done.stderr.strip()}")
    made = datetime.fromisoformat(json.loads(Path(told["Info"]).read_text())["Time"])
    return Upstream(told["Version"], int(made.timestamp()), Path(told["Zip"]))
