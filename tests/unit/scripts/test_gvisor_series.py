"""`scripts/gvisor`: a made-up gVisor and changes to it become commits, move to another version, and come back."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from gvisor_series.__main__ import main
from gvisor_series.checkout import checkout
from gvisor_series.export import export
from gvisor_series.fault import Fault
from gvisor_series.rebase import rebase
from gvisor_series.upstream import Upstream

OLD, NEW = "v0.0.1", "v0.0.2"
LINES = "".join(f"line {number}\n" for number in range(1, 31))
THEIRS = {
    "go.mod": "module gvisor.dev/gvisor\n",
    "pkg/one.go": LINES,
    "pkg/two.go": LINES,
    "pkg/hidden.log": "hidden\nfrom\nanybody\n",
    "pkg/dos.txt": "one\r\ntwo\r\nthree\r\n",
    "pkg/unended": "no newline",
    ".gitignore": "*.log\nfresh/\n",
    ".gitattributes": "* text=auto eol=lf\n*.go diff=golang ident\n",
}
EARLY = """\
--- a/pkg/dos.txt
+++ b/pkg/dos.txt
@@ -1,3 +1,3 @@
 one\r
-two\r
+2\r
 three\r
--- a/pkg/hidden.log
+++ b/pkg/hidden.log
@@ -1,3 +1,3 @@
 hidden
-from
+by
 anybody
"""
FIRST = "--- a/pkg/one.go\n+++ b/pkg/one.go\n@@ -3,3 +3,3 @@\n line 3\n-line 4\n+four\n line 5\n"
# Written by hand: the hunk is two lines further down.
SECOND = "--- a/pkg/two.go\n+++ b/pkg/two.go\n@@ -18,2 +18,2 @@ far\n line 20\n-line 21\n+twenty-one\n"
LAST = "--- a/pkg/one.go\n+++ b/pkg/one.go\n@@ -22,2 +22,2 @@\n line 22\n-line 23\n+twenty-three\n"
README = "# {}\n\nWhy it is there,\nat length.\n\nMore of it.\n\n{}- Tests: one_test.go.\n- Upstream: No.\n"
OURS = {
    "go.mod": f"module atoll/native\n\nrequire gvisor.dev/gvisor {OLD}\n",
    "overlay/pkg/fresh/new.log": "new\n",
    "overlay/pkg/alone.go": "package pkg\n",
    "patches/series": "early\nparts\nalone\nlast\n",
    "patches/early/early.patch": EARLY,
    "patches/early/README.md": README.format("early", "- Overlay: pkg/fresh/new.log.\n"),
    "patches/parts/first.patch": FIRST,
    "patches/parts/second.patch": SECOND,
    "patches/parts/README.md": README.format("parts", ""),
    "patches/alone/README.md": README.format("alone", "- Overlay: pkg/alone.go.\n"),
    "patches/last/last.patch": LAST,
    "patches/last/README.md": README.format("last", ""),
}


class Site:
    """A native/ with four features, versions of the gVisor that they change, and where commits are made of them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.native = top / "native"
        self.tree = top / "tree"
        for path, text in OURS.items():
            self.write(self.native / path, text)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())

    def upstream(self, version: str = OLD, **changed: str) -> Upstream:
        archive = self.top / f"{version}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            for path, text in (THEIRS | changed).items():
                file.writestr(f"gvisor.dev/gvisor@{version}/{path}", text)
        return Upstream(version, 1_700_000_000, archive)

    def checked_out(self) -> Path:
        checkout(self.tree, self.native, self.upstream())
        return self.tree

    def ours(self) -> dict[str, str]:
        paths = (path for path in self.native.rglob("*") if path.is_file())
        return {str(path.relative_to(self.native)): path.read_bytes().decode() for path in paths}

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgSign=false")
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_EDITOR": "true"}
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.tree, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, subject: str) -> None:
        self.git("add", "--force", "--all")
        self.git("commit", "--quiet", "--message", subject)

    def amend(self, subject: str) -> None:
        """Put what is in the tree into the commit of this subject."""
        commit = self.git("log", "--format=%h", f"--grep=^{subject}$").strip()
        self.git("add", "--force", "--all")
        self.git("commit", "--quiet", f"--fixup={commit}")
        self.git("rebase", "--quiet", "--interactive", "--autosquash", OLD)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_each_patch_is_a_commit_with_its_files_of_the_overlay(site: Site) -> None:
    site.checked_out()
    subjects = ["early", "parts/first", "parts/second", "alone", "last"]
    assert site.git("log", "--reverse", "--format=%s").splitlines() == [f"gvisor.dev/gvisor {OLD}", *subjects]
    assert site.git("log", "-1", "--format=%b").strip() == "Why it is there,\nat length."
    assert site.git("rev-list", "--max-parents=0", "HEAD") == site.git("rev-parse", OLD)
    early = ["pkg/dos.txt", "pkg/fresh/new.log", "pkg/hidden.log"]
    assert site.git("show", "--format=", "--name-only", "HEAD~4").split() == early
    assert site.git("status", "--porcelain") == ""


def test_the_first_commit_is_gvisor_byte_for_byte(site: Site) -> None:
    site.checked_out()
    assert site.git("ls-tree", "-r", "--name-only", OLD).split() == sorted(THEIRS)
    assert {line.split()[0] for line in site.git("ls-tree", "-r", OLD).splitlines()} == {"100644"}
    for path in THEIRS:
        blob = subprocess.run(
            ["git", "show", f"{OLD}:{path}"], cwd=site.tree, capture_output=True, check=True
        )
        assert blob.stdout == THEIRS[path].encode()
    assert (site.tree / "pkg/dos.txt").read_bytes() == b"one\r\n2\r\nthree\r\n"


def test_what_is_exported_unchanged_is_the_same_byte_for_byte(site: Site) -> None:
    told = export(site.checked_out(), site.native)
    assert told == ["native/ has all of it already"]
    assert site.ours() == OURS


def test_an_edit_in_a_commit_comes_back_as_its_patch_and_nothing_else_changes(site: Site) -> None:
    one = site.checked_out() / "pkg/one.go"
    site.write(one, one.read_text().replace("four\n", "four\nand a half\n"))
    site.amend("parts/first")
    assert export(site.tree, site.native) == ["wrote native/patches/parts/first.patch"]
    ours = site.ours()
    patch = ours.pop("patches/parts/first.patch")
    assert patch.startswith("--- a/pkg/one.go\n+++ b/pkg/one.go\n@@ -1,7 +1,8 @@\n line 1\n")
    assert "-line 4\n+four\n+and a half\n" in patch
    assert ours == {path: text for path, text in OURS.items() if path in ours}
    again = Site(site.top / "again")
    checkout(again.tree, site.native, site.upstream())
    assert (again.tree / "pkg/one.go").read_text() == one.read_text()


def test_a_file_that_a_commit_adds_comes_back_in_the_overlay_and_in_the_readme(site: Site) -> None:
    site.write(site.checked_out() / "pkg/fresh/more.go", "package fresh\r\n")
    site.write(site.tree / "pkg/fresh/new.log", "newer\n")
    site.amend("early")
    assert sorted(export(site.tree, site.native)) == [
        "wrote native/overlay/pkg/fresh/more.go",
        "wrote native/overlay/pkg/fresh/new.log",
        "wrote native/patches/early/README.md",
    ]
    assert site.ours()["overlay/pkg/fresh/more.go"] == "package fresh\r\n"
    named = "- Overlay: pkg/fresh/new.log, pkg/fresh/more.go.\n"
    assert site.ours()["patches/early/README.md"] == README.format("early", named)


def test_a_new_commit_is_a_new_feature(site: Site) -> None:
    site.write(site.checked_out() / "pkg/two.go", LINES)
    site.write(site.tree / "pkg/later.go", "package pkg\n")
    site.commit("later\n\nIt was earlier.")
    export(site.tree, site.native)
    assert site.ours()["patches/series"] == "early\nparts\nalone\nlast\nlater\n"
    assert "+line 21\n" in site.ours()["patches/later/later.patch"]
    readme = site.ours()["patches/later/README.md"]
    assert readme == "# later\n\nIt was earlier.\n\n- Overlay: pkg/later.go.\n"


def test_a_file_of_the_overlay_that_no_commit_adds_any_more_is_removed(site: Site) -> None:
    (site.checked_out() / "pkg/fresh/new.log").unlink()
    site.amend("early")
    told = export(site.tree, site.native)
    assert told == ["wrote native/patches/early/README.md", "removed native/overlay/pkg/fresh/new.log"]
    assert site.ours()["patches/early/README.md"] == README.format("early", "")


def test_a_patch_moves_with_the_lines_of_another_version(site: Site) -> None:
    site.checked_out()
    assert rebase(site.tree, site.upstream(NEW, **{"pkg/one.go": "first\n" + LINES})) == {}
    assert site.git("rev-list", "--max-parents=0", "HEAD") == site.git("rev-parse", NEW)
    told = export(site.tree, site.native)
    assert told[-1] == f"native/go.mod pins {OLD}; docs/design/engines.md says how to pin {NEW}"
    assert (site.tree / "pkg/one.go").read_text() == "first\n" + LINES.replace("line 4\n", "four\n").replace(
        "line 23\n", "twenty-three\n"
    )


def test_a_conflict_stops_and_names_the_patch_and_the_way_on(site: Site) -> None:
    site.checked_out()
    other = site.upstream(NEW, **{"pkg/two.go": LINES.replace("line 21\n", "21\n")})
    with pytest.raises(Fault, match="the patch parts/second does not fit v0.0.2") as fault:
        rebase(site.tree, other)
    assert "CONFLICT (content): Merge conflict in pkg/two.go" in str(fault.value)
    assert "git rebase --continue" in str(fault.value) and "scripts/gvisor export" in str(fault.value)
    with pytest.raises(Fault, match="in the middle of a rebase"):
        export(site.tree, site.native)
    site.write(site.tree / "pkg/two.go", LINES.replace("line 21\n", "XXI\n"))
    site.git("add", "pkg/two.go")
    site.git("rebase", "--continue")
    assert export(site.tree, site.native)[0] == "wrote native/patches/parts/second.patch"
    assert "-21\n+XXI\n" in site.ours()["patches/parts/second.patch"]


def test_patches_that_do_not_fit_can_be_left_out_and_are_listed(site: Site) -> None:
    site.checked_out()
    other = site.upstream(NEW, **{"pkg/two.go": "", "pkg/one.go": LINES.replace("line 23\n", "23\n")})
    assert rebase(site.tree, other, skip=True) == {
        "parts/second": ["CONFLICT (content): Merge conflict in pkg/two.go"],
        "last": ["CONFLICT (content): Merge conflict in pkg/one.go"],
    }
    with pytest.raises(Fault, match="last, parts/second\nNothing is written"):
        export(site.tree, site.native)


def test_a_patch_that_the_version_has_goes_only_when_it_is_asked_for(site: Site) -> None:
    site.checked_out()
    rebase(site.tree, site.upstream(NEW, **{"pkg/one.go": LINES.replace("line 23\n", "twenty-three\n")}))
    with pytest.raises(Fault, match="change nothing any more.*: last\nNothing is written"):
        export(site.tree, site.native)
    assert site.ours() == OURS
    told = export(site.tree, site.native, drop=True)
    assert {"dropped last", "removed native/patches/last", "wrote native/patches/series"} <= set(told)
    assert site.ours()["patches/series"] == "early\nparts\nalone\n"


def test_a_file_that_the_version_no_longer_has_is_a_conflict(site: Site) -> None:
    site.checked_out()
    other = site.upstream(NEW)
    with zipfile.ZipFile(other.archive, "w") as file:
        for path, text in THEIRS.items():
            if path != "pkg/two.go":
                file.writestr(f"gvisor.dev/gvisor@{NEW}/{path}", text)
    with pytest.raises(Fault, match=r"parts/second does not fit[^$]*pkg/two.go deleted in"):
        rebase(site.tree, other)


@pytest.mark.parametrize(
    ("change", "subject", "told"),
    [
        ("rm pkg/two.go", "later", "later: it deletes pkg/two.go of gVisor"),
        ("chmod +x pkg/two.go", "later", "later: pkg/two.go has mode 100755"),
        ("ln -s one.go pkg/link", "later", "later: pkg/link has mode 120000"),
        ("printf ended >>pkg/unended", "later", "later: native/apply.py takes no such patch"),
        ("echo >>pkg/two.go", "Say more!", "the subject of a commit is FEATURE"),
        ("echo >>pkg/two.go", "last", "last: two commits have this subject"),
        ("echo >>pkg/two.go", "parts/third", "parts/third: move it next to the other commits of parts"),
        ("echo >>pkg/two.go", "last/a", "last/a: patches of a feature are in the order of their names"),
        ("echo >>pkg/two.go", "last/last-more", "last/last-more: patches of a feature are in the order"),
    ],
)
def test_what_native_cannot_hold_is_refused_and_nothing_is_written(
    site: Site, change: str, subject: str, told: str
) -> None:
    subprocess.run(["sh", "-c", change], cwd=site.checked_out(), check=True)
    site.commit(subject)
    with pytest.raises(Fault, match=told):
        export(site.tree, site.native)
    assert site.ours() == OURS


def test_what_no_commit_has_is_not_left_behind(site: Site) -> None:
    site.write(site.checked_out() / "pkg/new.go", "package pkg\n")
    with pytest.raises(Fault, match="has changes that no commit has, as pkg/new.go"):
        export(site.tree, site.native)


def test_a_checkout_overwrites_nothing(site: Site) -> None:
    site.write(site.tree / "mine", "mine\n")
    with pytest.raises(Fault, match="is not empty"):
        site.checked_out()


def test_versions_come_from_go_and_its_cache(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = site.top / "proxy/gvisor.dev/gvisor/@v"
    served.mkdir(parents=True)
    for version in (OLD, NEW):
        archive = site.upstream(version).archive
        archive.rename(served / f"{version}.zip")
        (served / f"{version}.mod").write_text(THEIRS["go.mod"])
        about = {"Version": version, "Time": "2026-01-02T03:04:05Z"}
        (served / f"{version}.info").write_text(json.dumps(about))
    monkeypatch.setenv("GOPROXY", f"file://{site.top}/proxy")
    monkeypatch.setenv("GOMODCACHE", str(site.top / "cache"))
    monkeypatch.setenv("GONOSUMDB", "*")
    assert main(["checkout", str(site.tree)], site.native) == 0
    monkeypatch.setenv("GOPROXY", "off")
    assert main(["rebase", str(site.tree), OLD], site.native) == 0
    assert main(["export", str(site.tree)], site.native) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"{site.tree} is at {OLD}; next: scripts/gvisor export {site.tree}",
        "native/ has all of it already",
    ]
    assert main(["rebase", str(site.tree), NEW], site.native) == 1
    assert (
        "Go cannot get that version: gvisor.dev/gvisor@v0.0.2: module lookup disabled"
        in capsys.readouterr().err
    )
    assert site.ours() == OURS
