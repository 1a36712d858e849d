"""native/: the series of features, each with patches, files of the overlay, and a README."""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol

from gvisor_series.fault import Fault

SUBJECT = re.compile(r"([a-z0-9][a-z0-9-]*)(?:/([a-z0-9][a-z0-9-]*))?")
_OVERLAY = re.compile(r"^- Overlay: (.+?)\.\n(?! )", re.MULTILINE | re.DOTALL)


class FilePatch(Protocol):
    """What a patch changes in one file, as native/apply.py does it."""

    path: str

    def apply(self, tree: Path) -> Iterator[str]: ...


def parse(text: bytes, name: str) -> list[FilePatch]:
    """The changes of a patch."""
    try:
        changes: list[FilePatch] = _apply.parse(text)
    except (_apply.MalformedPatchError, UnicodeDecodeError) as error:
        raise Fault(f"{name}: native/apply.py takes no such patch: {error}") from error
    return changes


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "native_apply", Path(__file__).parents[2] / "native/apply.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["native_apply"] = module
    spec.loader.exec_module(module)
    return module


_apply = _load()


def subject_of(feature: str, patch: str) -> str:
    """The subject of the commit of a patch: its name, after that of its feature if they differ."""
    return feature if patch == feature else f"{feature}/{patch}"


@dataclass
class Feature:
    """One feature: the text of each patch by its name, and the files that it adds, in the README's order."""

    name: str
    patches: dict[str, bytes] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)

    def subjects(self) -> list[str]:
        """Those of its commits, in order: one for each patch, or one for its files."""
        return [subject_of(self.name, patch) for patch in self.patches or {self.name: b""}]


def read_features(native: Path) -> list[Feature]:
    """All features in the order of the series."""
    found = []
    for name in (native / "patches/series").read_text().split():
        directory = native / "patches" / name
        patches = {path.stem: path.read_bytes() for path in sorted(directory.glob("*.patch"))}
        found.append(Feature(name, patches, added_files(readme_of(native, name))))
    return found


def readme_of(native: Path, feature: str) -> str:
    path = native / "patches" / feature / "README.md"
    return path.read_text() if path.is_file() else f"# {feature}\n"


def first_paragraph(readme: str) -> str:
    return next((part.strip() for part in readme.split("\n\n")[1:] if not part.startswith("- ")), "")


def added_files(readme: str) -> list[str]:
    """The files of the overlay that a README names."""
    line = _OVERLAY.search(f"{readme}\n")
    return re.split(r",\s+", line[1]) if line else []


def with_added_files(readme: str, paths: list[str]) -> str:
    """The README, naming these files of the overlay; those that it named stay in their order."""
    named = added_files(readme)
    if sorted(named) == sorted(paths):
        return readme
    ordered = [path for path in named if path in paths] + sorted(set(paths) - set(named))
    text = textwrap.fill(
        f"- Overlay: {', '.join(ordered)}.",
        100,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    line = f"{text}\n" if paths else ""
    if named:
        return _OVERLAY.sub(lambda _: line, f"{readme}\n", count=1).rstrip("\n") + "\n"
    head, item, tail = readme.partition("\n- ")
    return f"{head}\n{line}{item[1:]}{tail}" if item else f"{readme}\n{line}"
