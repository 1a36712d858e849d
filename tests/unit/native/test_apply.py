"""gVisor's changes: how they are applied, and that each feature is whole."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[3] / "native"
FEATURES = (NATIVE / "patches/series").read_text().split()

LINES = [f"line {number}\n" for number in range(1, 31)]
CHANGED = """\
--- a/pkg/one.go
+++ b/pkg/one.go
@@ -4,5 +4,6 @@ func one
 line 4
 line 5
-line 6
+six
+and a half
 line 7
 line 8
@@ -20,3 +21,2 @@
 line 20
-line 21
 line 22
"""


class Site:
    """A tree of gVisor's, and changes to it."""

    def __init__(self, top: Path) -> None:
        self.native = top / "native"
        self.tree = top / "tree"
        (self.native / "overlay").mkdir(parents=True)
        (self.native / "patches").mkdir()
        shutil.copyfile(NATIVE / "apply.py", self.native / "apply.py")
        self.write(self.tree / "pkg/one.go", "".join(LINES))

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())

    def feature(self, name: str, text: str) -> None:
        self.write(self.native / "patches" / name / f"{name}.patch", text)
        with (self.native / "patches/series").open("a") as series:
            series.write(f"{name}\n")

    def apply(self) -> tuple[int, str]:
        (self.native / "patches/series").touch()
        done = subprocess.run(
            [sys.executable, self.native / "apply.py", self.tree],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    def one(self) -> str:
        return (self.tree / "pkg/one.go").read_bytes().decode()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def changed(lines: list[str]) -> str:
    text = "".join(lines)
    return text.replace("line 6\n", "six\nand a half\n").replace("line 21\n", "")


def test_a_patch_that_fits_changes_its_file_and_nothing_is_said(site: Site) -> None:
    site.feature("one", CHANGED)
    assert site.apply() == (0, "")
    assert site.one() == changed(LINES)


def test_a_hunk_is_found_where_lines_were_added_before_it(site: Site) -> None:
    moved = ["first\n", "second\n", *LINES[:12], "between\n", *LINES[12:]]
    site.write(site.tree / "pkg/one.go", "".join(moved))
    site.feature("one", CHANGED)
    assert site.apply() == (0, "")
    assert site.one() == changed(moved)


def test_every_misfit_is_told_with_its_feature_file_and_hunk(site: Site) -> None:
    other = [line.replace("line 5", "line five").replace("line 20\n", "twenty\n") for line in LINES]
    site.write(site.tree / "pkg/one.go", "".join(other))
    site.write(site.native / "overlay/pkg/one.go", "package pkg\n")
    site.feature("gone", CHANGED.replace("one.go", "two.go"))
    site.feature("one", CHANGED)
    status, told = site.apply()
    assert status == 1
    assert told.splitlines() == [
        "overlay: pkg/one.go is gVisor's already",
        "gone/gone.patch: pkg/two.go is not there",
        "one/one.patch: pkg/one.go: hunk 1 of 2 (line 4) does not fit",
        "one/one.patch: pkg/one.go: hunk 2 of 2 (line 20) does not fit",
    ]
    assert site.one() == "".join(other)


def test_a_hunk_that_fits_in_two_other_places_fits_in_none(site: Site) -> None:
    site.write(site.tree / "pkg/one.go", "".join(["first\n", *LINES, *LINES]))
    site.feature("one", CHANGED)
    status, told = site.apply()
    assert status == 1
    assert "hunk 1 of 2 (line 4) does not fit" in told


def test_white_space_and_the_end_of_a_line_count(site: Site) -> None:
    for text in (CHANGED.replace(" line 8\n", " line 8 \n"), CHANGED.replace(" line 8\n", " line 8\r\n")):
        site = Site(site.native.parent / str(len(text)) / str("\r" in text))
        site.feature("one", text)
        status, told = site.apply()
        assert (status, told) == (1, "one/one.patch: pkg/one.go: hunk 1 of 2 (line 4) does not fit\n")


def test_features_are_applied_in_the_order_of_the_series(site: Site) -> None:
    site.feature("zebra", CHANGED)
    site.feature(
        "ant", CHANGED.replace("-line 6\n", "-six\n-and a half\n").replace("+six\n+and a half\n", "+6\n")
    )
    text = (site.native / "patches/ant/ant.patch").read_text()
    text = text.replace("@@ -4,5 +4,6 @@", "@@ -4,6 +4,5 @@").partition("@@ -20")[0]
    (site.native / "patches/ant/ant.patch").write_text(text)
    assert site.apply() == (0, "")
    assert "line 5\n6\nline 7\n" in site.one()


def test_files_of_the_overlay_are_added(site: Site) -> None:
    site.write(site.native / "overlay/pkg/fresh/two.go", "package fresh\n")
    assert site.apply() == (0, "")
    assert (site.tree / "pkg/fresh/two.go").read_text() == "package fresh\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no change"),
        ("--- a/pkg/one.go\n+++ b/pkg/one.go\n", "no change"),
        ("--- /dev/null\n+++ b/pkg/one.go\n@@ -0,0 +1 @@\n+one\n", "not a file that is changed in place"),
        (CHANGED.partition("--- a/pkg/one.go\n+++ b/pkg/one.go\n")[2], "a hunk of no file"),
        (CHANGED.replace("-4,5", "-4,6"), "a hunk that ends too early"),
        (CHANGED.replace("+4,6", "+4,5"), "a hunk of another length than it says"),
        (CHANGED.replace(" line 22\n", " line 22\n line 23\n"), "a line of no hunk"),
        (CHANGED.replace("@@ -4,5 +4,6 @@", "@@ -4,5 @@"), "not the beginning of a hunk"),
        (CHANGED + "\\ No newline at end of file\n", "a line of no hunk"),
    ],
)
def test_what_is_no_ordinary_diff_is_refused(site: Site, text: str, reason: str) -> None:
    site.feature("one", text)
    status, told = site.apply()
    assert status == 1
    assert told.startswith("one/one.patch: ")
    assert reason in told


def test_a_feature_of_the_series_that_is_not_there_is_told(site: Site) -> None:
    (site.native / "patches/series").write_text("ghost\n")
    assert site.apply() == (1, "ghost: there is no such directory, but it is in series\n")


def test_the_series_has_each_feature_once() -> None:
    directories = sorted(path.name for path in (NATIVE / "patches").iterdir() if path.is_dir())
    assert sorted(FEATURES) == directories


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_says_what_why_how_it_is_tested_and_whether_it_could_go_upstream(feature: str) -> None:
    lines = (NATIVE / "patches" / feature / "README.md").read_text().splitlines()
    assert lines[0] == f"# {feature}"
    assert 5 <= len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("- Tests: ") for line in lines) == 1
    assert sum(line.startswith("- Upstream: ") for line in lines) == 1


def test_each_file_of_the_overlay_belongs_to_one_feature() -> None:
    named: list[str] = []
    for feature in FEATURES:
        text = (NATIVE / "patches" / feature / "README.md").read_text()
        overlay = re.search(r"^- Overlay: (.+?)\.$", text, re.MULTILINE | re.DOTALL)
        named += re.split(r",\s+", overlay[1]) if overlay else []
    overlay_files = [path for path in (NATIVE / "overlay").rglob("*") if path.is_file()]
    assert sorted(named) == sorted(str(path.relative_to(NATIVE / "overlay")) for path in overlay_files)


def test_patches_touch_no_file_of_the_overlay() -> None:
    text = "".join(path.read_text() for path in (NATIVE / "patches").glob("*/*.patch"))
    patched = set(re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE))
    assert not any((NATIVE / "overlay" / path).exists() for path in patched)
