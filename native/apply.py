"""Makes the gVisor that runsc is built from: copies ``overlay`` over its source tree, then applies the patches.

``python apply.py TREE`` changes a tree in place and needs nothing but Python. It applies patches strictly: all lines
of a hunk must be where the hunk says, or in exactly one other place. It reports everything that does not fit, a line
each, and then exits with 1.

``patches/series`` names the features, in the order in which they are applied. A feature's patches are applied in the
order of their names.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def _lines(text: bytes) -> list[str]:
    """With their newlines; nothing else ends a line, as it does for ``splitlines``."""
    return re.findall(r"[^\n]*\n|[^\n]+", text.decode())


class MalformedPatchError(Exception):
    """A patch is not an ordinary unified diff of files that exist before and after it."""


@dataclass
class Hunk:
    """Lines of one place in a file, each with its newline: ``old`` become ``new``."""

    line: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def place(self, lines: list[str], shift: int, done: int) -> int | None:
        """Return where ``old`` is in ``lines``, after ``done``; ``shift`` lines were added before."""

        def fits(at: int) -> bool:
            return lines[at : at + len(self.old)] == self.old

        stated = self.line - 1 + shift
        if stated >= done and fits(stated):
            return stated
        found = [at for at in range(done, len(lines) - len(self.old) + 1) if fits(at)]
        return found[0] if len(found) == 1 else None


@dataclass
class FilePatch:
    """What a patch changes in one file."""

    path: str
    hunks: list[Hunk] = field(default_factory=list)

    def apply(self, tree: Path) -> Iterator[str]:
        """Change the file in ``tree``, and yield the hunks that do not fit."""
        target = tree / self.path
        if not target.is_file():
            yield f"{self.path} is not there"
            return
        lines = _lines(target.read_bytes())
        shift = done = 0
        for number, hunk in enumerate(self.hunks, 1):
            at = hunk.place(lines, shift, done)
            if at is None:
                yield f"{self.path}: hunk {number} of {len(self.hunks)} (line {hunk.line}) does not fit"
                continue
            lines[at : at + len(hunk.old)] = hunk.new
            done = at + len(hunk.new)
            shift = at - (hunk.line - 1) + len(hunk.new) - len(hunk.old)
        target.write_bytes("".join(lines).encode())


def parse(text: bytes) -> list[FilePatch]:
    """The changes of a unified diff."""
    lines = _lines(text)
    patches: list[FilePatch] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- "):
            paths = [one[4:].split("\t")[0].strip() for one in lines[at : at + 2]]
            if len(paths) != 2 or not paths[0].startswith("a/") or paths[1] != f"b/{paths[0][2:]}":
                raise MalformedPatchError(f"line {at + 1}: not a file that is changed in place")
            patches.append(FilePatch(paths[0][2:]))
            at += 2
        elif line.startswith("@@ "):
            if not patches:
                raise MalformedPatchError(f"line {at + 1}: a hunk of no file")
            hunk, at = _hunk(lines, at)
            patches[-1].hunks.append(hunk)
        elif line[0] in "+- \\":
            raise MalformedPatchError(f"line {at + 1}: a line of no hunk")
        else:
            at += 1
    if not patches or not all(patch.hunks for patch in patches):
        raise MalformedPatchError("no change, or none of a file that it names")
    return patches


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    match = _HUNK.match(lines[at])
    if match is None:
        raise MalformedPatchError(f"line {at + 1}: not the beginning of a hunk")
    olds, news = (int(size) if size else 1 for size in match.group(2, 3))
    hunk = Hunk(int(match[1]))
    while len(hunk.old) < olds or len(hunk.new) < news:
        at += 1
        if at == len(lines) or lines[at][0] not in "+- ":
            raise MalformedPatchError(f"line {at + 1}: a hunk that ends too early")
        if lines[at][0] != "+":
            hunk.old.append(lines[at][1:])
        if lines[at][0] != "-":
            hunk.new.append(lines[at][1:])
    if (len(hunk.old), len(hunk.new)) != (olds, news) or not hunk.old:
        raise MalformedPatchError(f"line {at + 1}: a hunk of another length than it says")
    return hunk, at + 1


def features(native: Path) -> list[str]:
    """The features in the order in which they are applied."""
    return (native / "patches" / "series").read_text().split()


def apply(native: Path, tree: Path) -> Iterator[str]:
    """Apply our changes to the gVisor in ``tree``, and yield what does not fit."""
    overlay = native / "overlay"
    for source in sorted(path for path in overlay.rglob("*") if path.is_file()):
        path = source.relative_to(overlay)
        if (tree / path).exists():
            yield f"overlay: {path} is gVisor's already"
            continue
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, tree / path)
    for feature in features(native):
        directory = native / "patches" / feature
        if not directory.is_dir():
            yield f"{feature}: there is no such directory, but it is in series"
        for patch in sorted(directory.glob("*.patch")):
            try:
                changes = parse(patch.read_bytes())
            except MalformedPatchError as error:
                yield f"{feature}/{patch.name}: {error}"
                continue
            for change in changes:
                for misfit in change.apply(tree):
                    yield f"{feature}/{patch.name}: {misfit}"


def main() -> int:
    """See above."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: apply.py TREE\n")
        return 2
    misfits = list(apply(Path(__file__).parent, Path(sys.argv[1])))
    sys.stderr.writelines(f"{misfit}\n" for misfit in misfits)
    return 1 if misfits else 0


if __name__ == "__main__":
    sys.exit(main())
