"""The locks of Python packages fit the project file, and name no registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {"tests": "tests.txt", "dev": "development.txt", "docs": "docs.txt", "dist": "dist.txt"}


def lock(group: str) -> str:
    return (ROOT / "scripts/locks" / LOCKS[group]).read_text()


def versions(group: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", lock(group), re.MULTILINE))


def asked(group: str) -> list[Requirement]:
    groups: dict[str, list[Any]] = PROJECT["dependency-groups"]
    members = [
        text
        for each in groups[group]
        for text in ([each] if isinstance(each, str) else groups[each["include-group"]])
    ]
    if group == "dist":
        return [Requirement(text) for text in members]
    own = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["server"]]
    build = [] if group == "docs" else PROJECT["build-system"]["requires"]
    return [Requirement(text) for text in (*own, *build, *members)]


@pytest.mark.parametrize("group", LOCKS)
def test_a_lock_has_all_that_the_project_file_asks_for(group: str) -> None:
    locked = versions(group)
    unfit = [
        f"{each}: locked is {locked.get(canonicalize_name(each.name))}; run `make lock`"
        for each in asked(group)
        if not each.specifier.contains(locked.get(canonicalize_name(each.name), "0"), prereleases=True)
    ]
    assert unfit == []


def test_developers_have_what_the_tests_have() -> None:
    assert versions("tests").items() <= versions("dev").items()


@pytest.mark.parametrize("group", LOCKS)
def test_a_lock_has_a_hash_for_each_package_and_names_no_registry(group: str) -> None:
    text = lock(group)
    packages = re.split(r"^(?=[a-z0-9.-]+==)", text, flags=re.MULTILINE)[1:]
    assert {package.partition("==")[0] for package in packages} == versions(group).keys()
    assert [package for package in packages if "--hash=sha256:" not in package] == []
    assert "://" not in text


def test_the_scripts_install_a_lock_as_it_stands() -> None:
    """pip asks the registry about an extra in a lock, and refuses the lock on the day of a newer version."""
    installs = [
        line
        for script in (ROOT / "scripts").iterdir()
        if script.is_file() and not script.suffix
        for line in script.read_text().splitlines()
        if "--require-hashes" in line
    ]
    assert len(installs) == 5
    assert [line for line in installs if "--no-deps --require-hashes" not in line] == []
