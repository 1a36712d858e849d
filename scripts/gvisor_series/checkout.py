"""Makes the repository: gVisor, then a commit for each patch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gvisor_series.fault import Fault
from gvisor_series.git import EMAIL, NAME, REGULAR, Repository
from gvisor_series.series import Feature, first_paragraph, parse, read_features, readme_of, subject_of
from gvisor_series.upstream import MODULE, Upstream


def checkout(directory: Path, native: Path, upstream: Upstream) -> list[str]:
    """Make it in ``directory``, and return what to tell. The same files make the same commits."""
    files = dict(upstream.files())
    features = read_features(native)
    added = [path for feature in features for path in feature.added]
    if taken := [path for path in added if path in files]:
        raise Fault(f"native/overlay/{taken[0]} is gVisor's already: make it a patch")
    stream = [root_commit("refs/heads/atoll", upstream, files), _tag(upstream.version)]
    count = 0
    with tempfile.TemporaryDirectory(prefix="gvisor-checkout-") as work:
        for feature in features:
            for subject, changed in _commits(feature, native, files, Path(work)):
                message = f"{subject}\n\n{first_paragraph(readme_of(native, feature.name))}\n"
                stream.append(_commit("refs/heads/atoll", message, upstream.made_s, changed))
                count += 1
    repository = Repository.made(directory)
    repository.git("fast-import", "--quiet", given=b"".join(stream))
    repository.git("reset", "-q", "--hard")
    return [
        f"{directory}: {MODULE} {upstream.version} and {count} commits",
        f"Edit them with `git rebase -i {upstream.version}`, then: scripts/gvisor export {directory}",
    ]


def root_commit(ref: str, upstream: Upstream, files: Mapping[str, bytes]) -> bytes:
    """The commit of all of gVisor's files, for `git fast-import`."""
    return _commit(ref, f"{MODULE} {upstream.version}\n", upstream.made_s, files)


def _commits(
    feature: Feature, native: Path, files: dict[str, bytes], work: Path
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The subject of each commit of a feature, and the files that it writes. Brings ``files`` up to date."""
    changed = {path: (native / "overlay" / path).read_bytes() for path in feature.added}
    for patch, text in feature.patches.items():
        name = f"native/patches/{feature.name}/{patch}.patch"
        for change in parse(text, name):
            target = work / change.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if change.path in files:
                target.write_bytes(files[change.path])
            if misfits := list(change.apply(work)):
                raise Fault(f"{name}: {misfits[0]}")
            files[change.path] = changed[change.path] = target.read_bytes()
        yield subject_of(feature.name, patch), changed
        changed = {}
    if not feature.patches:
        yield feature.name, changed


def _commit(ref: str, message: str, made_s: int, files: Mapping[str, bytes]) -> bytes:
    head = f"commit {ref}\ncommitter {NAME} <{EMAIL}> {made_s} +0000\n".encode()
    parts = [head, _data(message.encode())]
    for path, text in files.items():
        parts += [f"M {REGULAR} inline {path}\n".encode(), _data(text)]
    return b"".join(parts) + b"\n"


def _data(text: bytes) -> bytes:
    return f"data {len(text)}\n".encode() + text + b"\n"


def _tag(version: str) -> bytes:
    return f"reset refs/tags/{version}\nfrom refs/heads/atoll\n\n".encode()
