"""Checks our changes to gVisor (native/) with Go's tools: `make native-check`.

`make native-check VERSION=name` checks them against another version than the one that native/go.mod pins: it moves them
there as `scripts/gvisor rebase` does, in a copy, and lists the patches that conflict.

It reports at once everything that does not fit. If everything fits, it runs gofmt on the files that we add or change,
`go vet` on their packages, and the tests beside them, once more with the race detector. staticcheck looks at the code
that is ours alone: fillseccomp.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from go_modules import STATICCHECK
from gvisor_series.checkout import checkout
from gvisor_series.export import export
from gvisor_series.fault import Fault
from gvisor_series.rebase import rebase
from gvisor_series.upstream import MODULE, fetch, pinned

ROOT = Path(__file__).resolve().parents[1]
# gVisor's own code is full of what these find.
VET = ("-composites=false", "-unsafeptr=false", "-asmdecl=false")
# Compiled packages are then those of the build, which is done in another directory.
BUILT_ALIKE = ("-trimpath", "-mod=vendor")


def run(
    *command: str | Path, at: Path, check: bool = True, cgo: bool = False
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CGO_ENABLED": str(int(cgo)), "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(
        command, cwd=at, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if check and done.returncode != 0:
        raise SystemExit(f"native-check: `{' '.join(map(str, command))}` failed:\n{done.stdout}")
    return done


def move(native: Path, version: str) -> bool:
    """Change our changes to those for ``version``; where they conflict, say so and return False."""
    directory = native.parent / "gvisor"
    checkout(directory, native, fetch(pinned(native), native))
    left_out = rebase(directory, fetch(version, native), skip=True)
    for patch, conflicts in left_out.items():
        print("\n".join([f"{patch} does not fit:", *(f"  {conflict}" for conflict in conflicts)]))
    if left_out:
        print(
            f"native-check: {len(left_out)} patches of gVisor's changes conflict; see scripts/gvisor --help"
        )
        return False
    print("\n".join(f"native-check: {told}" for told in export(directory, native, drop=True)), flush=True)
    return True


def vendor(native: Path, version: str) -> Path:
    """Fetch gVisor and what runsc needs, and return its source."""
    if version:
        run("go", "get", f"{MODULE}@{version}", at=native)
        print(f"native-check: {run('go', 'list', '-m', MODULE, at=native).stdout.strip()}", flush=True)
        # What asks for a package that this version does not have would get another version.
        filler = (native / "fillseccomp").rename(native.parent / "fillseccomp")
        pinned = (native / "go.mod").read_text()
        run("go", "mod", "tidy", at=native)
        run("go", "mod", "vendor", at=native)
        filler.rename(native / "fillseccomp")
        if _pin(pinned) != _pin((native / "go.mod").read_text()):
            raise SystemExit("native-check: this version of gVisor has no runsc")
    else:
        run("go", "mod", "vendor", at=native)
    return native / "vendor" / MODULE


def _pin(module: str) -> list[str]:
    return re.findall(rf"{re.escape(MODULE)} (\S+)", module)


def touched(native: Path) -> tuple[list[str], list[str]]:
    """The files of gVisor that we add, and those that we change."""
    overlay = native / "overlay"
    added = sorted(str(path.relative_to(overlay)) for path in overlay.rglob("*.go"))
    patches = "".join(path.read_text() for path in (native / "patches").glob("*/*.patch"))
    return added, sorted(set(re.findall(r"^\+\+\+ b/(\S+)$", patches, re.MULTILINE)))


def unformatted(tree: Path, files: list[str]) -> set[str]:
    there = [name for name in files if (tree / name).is_file()]
    return set(run("gofmt", "-l", *there, at=tree, check=False).stdout.split("\n")) - {""}


def packages(files: list[str]) -> list[str]:
    return sorted({f"{MODULE}/{Path(name).parent}" for name in files})


def check(native: Path, version: str) -> bool:
    added, changed = touched(native)
    tree = vendor(native, version)
    theirs = unformatted(tree, changed)
    misfits = run(sys.executable, native / "apply.py", tree, at=native, check=False)
    if misfits.returncode != 0:
        print(misfits.stdout, end="")
        print(f"native-check: {len(misfits.stdout.splitlines())} of gVisor's changes do not fit")
        return False
    wrong = sorted(unformatted(tree, [*added, *changed]) - theirs)
    print("".join(f"gofmt: {name} is not formatted\n" for name in wrong), end="")
    tested = [name for name in added if name.endswith("_test.go")]
    vet = run(
        "go",
        "vet",
        *BUILT_ALIKE,
        *VET,
        *packages([*added, *changed]),
        "./fillseccomp",
        at=native,
        check=False,
    )
    print(vet.stdout, end="")
    test = run("go", "test", *BUILT_ALIKE, "-vet=off", *packages(tested), at=native, check=False)
    print(test.stdout, end="")
    raced = run(
        "go", "test", "-race", *BUILT_ALIKE, "-vet=off", *packages(tested), at=native, check=False, cgo=True
    )
    print(raced.stdout, end="")
    static = run("go", "run", STATICCHECK, "./fillseccomp", at=native, check=False)
    print(static.stdout, end="")
    return not wrong and all(done.returncode == 0 for done in (vet, test, raced, static))


def main() -> int:
    version = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory(prefix="native-check-") as work:
        native = Path(work) / "native"
        shutil.copytree(ROOT / "native", native)
        try:
            return 0 if (not version or move(native, version)) and check(native, version) else 1
        except Fault as fault:
            raise SystemExit(f"native-check: {fault}") from fault


if __name__ == "__main__":
    sys.exit(main())
