"""Writes the commits back to native/."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gvisor_series.fault import Fault
from gvisor_series.git import REGULAR, Edit, Repository
from gvisor_series.series import (
    SUBJECT,
    Feature,
    parse,
    read_features,
    readme_of,
    subject_of,
    with_added_files,
)
from gvisor_series.upstream import pinned


def export(directory: Path, native: Path, *, drop: bool = False) -> list[str]:
    """Write what changed, and return what to tell. Nothing is written unless all can be.

    A patch whose commit is empty or gone is removed if ``drop`` says so; otherwise it is a fault.
    """
    repository = Repository.found(directory)
    root, version = repository.root()
    before = {feature.name: feature for feature in read_features(native)}
    with tempfile.TemporaryDirectory(prefix="gvisor-export-") as work:
        exported = _Exported(repository, root, before, Path(work))
    wanted = {subject for feature in before.values() for subject in feature.subjects()}
    gone = sorted((wanted - exported.subjects) | exported.empty)
    if gone and not drop:
        raise Fault(
            f"these patches change nothing any more, or their commits are gone: {', '.join(gone)}\n"
            f"Nothing is written. If that is meant: scripts/gvisor export --drop {directory}"
        )
    told = [f"dropped {subject}" for subject in gone]
    told += _written(native, before, exported) or ["native/ has all of it already"]
    if version != (pin := pinned(native)):
        told.append(f"native/go.mod pins {pin}; docs/design/engines.md says how to pin {version}")
    return told


class _Exported:
    """The features that the commits make, in order."""

    def __init__(self, repository: Repository, root: str, before: dict[str, Feature], work: Path) -> None:
        self.repository = repository
        self.theirs = repository.paths(root)
        self.root = root
        self.work = work
        self.features: dict[str, Feature] = {}
        self.bodies: dict[str, str] = {}
        self.subjects: set[str] = set()
        self.empty: set[str] = set()
        owners: dict[str, str] = {}
        for commit, subject in repository.commits(root):
            feature, patch = self._named(subject)
            edits = list(repository.edits(commit))
            for edit in edits:
                _check(edit, subject, edit.path in self.theirs)
                if edit.status == "A":
                    owners[edit.path] = feature.name
            changed = {edit.path: edit.ids[1] for edit in edits if edit.path in self.theirs}
            if changed:
                old = before.get(feature.name, Feature(feature.name)).patches.get(patch)
                feature.patches[patch] = self._patch(commit, subject, changed, old)
            if not edits:
                self.empty.add(subject)
            self.bodies.setdefault(feature.name, repository.text("log", "-1", "--format=%b", commit).strip())
        added = sorted(repository.paths("HEAD") - self.theirs)
        self.overlay = repository.contents("HEAD", added)
        for path in added:
            self.features[owners[path]].added.append(path)

    def _named(self, subject: str) -> tuple[Feature, str]:
        named = SUBJECT.fullmatch(subject)
        if named is None:
            raise Fault(
                f"“{subject}”: the subject of a commit is FEATURE or FEATURE/PATCH, such as late-pages"
            )
        name, patch = named[1], named[2] or named[1]
        if subject_of(name, patch) in self.subjects:
            raise Fault(
                f"{subject}: two commits have this subject; squash them or name one of them differently"
            )
        if name in self.features and name != next(reversed(self.features)):
            raise Fault(f"{subject}: move it next to the other commits of {name}")
        feature = self.features.setdefault(name, Feature(name))
        # As apply.py sorts them: a-b.patch comes before a.patch.
        if any(f"{patch}.patch" < f"{other}.patch" for other in feature.patches):
            raise Fault(f"{subject}: patches of a feature are in the order of their names; rename or move it")
        self.subjects.add(subject_of(name, patch))
        return feature, patch

    def _patch(self, commit: str, subject: str, wanted: dict[str, str], old: bytes | None) -> bytes:
        """The text of a patch: the old one, if it makes the wanted contents of files."""
        if old is not None and self._makes(old, subject, wanted):
            return old
        new = self.repository.diff(commit, sorted(wanted))
        if not self._makes(new, subject, wanted):
            raise Fault(
                f"{subject}: native/apply.py cannot make this change; file a bug about scripts/gvisor"
            )
        return new

    def _makes(self, text: bytes, subject: str, wanted: dict[str, str]) -> bool:
        """Apply a patch to the tree, and return whether it does as wanted; if not, the tree is as before."""
        changes = parse(text, subject)
        paths = {change.path for change in changes}
        if paths != wanted.keys():
            return False
        fresh = sorted(path for path in paths if not (self.work / path).exists())
        for path, content in self.repository.contents(self.root, fresh).items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_bytes(content)
        kept = {path: (self.work / path).read_bytes() for path in paths}
        misfits = [misfit for change in changes for misfit in change.apply(self.work)]
        if not misfits and all(_id((self.work / path).read_bytes()) == wanted[path] for path in paths):
            return True
        for path, content in kept.items():
            (self.work / path).write_bytes(content)
        return False


def _check(edit: Edit, subject: str, theirs: bool) -> None:
    """Refuse what neither a patch nor the overlay can hold."""
    if theirs and edit.status == "D":
        raise Fault(
            f"{subject}: it deletes {edit.path} of gVisor, which no patch can; empty it or leave it out"
        )
    if edit.modes[1] not in (REGULAR, "000000"):
        raise Fault(
            f"{subject}: {edit.path} has mode {edit.modes[1]}; native/ keeps ordinary files (chmod 644)"
        )


def _id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _written(native: Path, before: dict[str, Feature], exported: _Exported) -> list[str]:
    """Bring native/ up to date, and tell each file that changed."""
    told = []
    features = [feature for feature in exported.features.values() if feature.patches or feature.added]
    files: dict[Path, bytes] = {
        native / "patches/series": "".join(f"{feature.name}\n" for feature in features).encode()
    }
    files |= {native / "overlay" / path: content for path, content in exported.overlay.items()}
    for feature in features:
        directory = native / "patches" / feature.name
        files |= {directory / f"{patch}.patch": text for patch, text in feature.patches.items()}
        readme = readme_of(native, feature.name)
        if not (directory / "README.md").is_file():
            readme += f"\n{exported.bodies[feature.name]}\n"
            told.append(
                f"{feature.name} is new: its README must say what tests it and if it could go upstream,"
                " and native/README.md needs its row"
            )
        files[directory / "README.md"] = with_added_files(readme, feature.added).encode()
    for path, content in files.items():
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            told.append(f"wrote native/{path.relative_to(native)}")
    for path in _stale(native, before, files):
        path.unlink()
        told.append(f"removed native/{path.relative_to(native)}")
    for name in sorted(before.keys() - {feature.name for feature in features}):
        shutil.rmtree(native / "patches" / name)
        told.append(f"removed native/patches/{name}")
    return told


def _stale(native: Path, before: dict[str, Feature], files: dict[Path, bytes]) -> Iterator[Path]:
    """Patches and files of the overlay that no commit makes."""
    was = [native / "patches" / name / f"{patch}.patch" for name in before for patch in before[name].patches]
    was += sorted(path for path in (native / "overlay").rglob("*") if path.is_file())
    return (path for path in was if path not in files)
