"""The house rules that a program can check: sizes, words, places. There is no list of exceptions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES = 60
CLASS_LINES = 300
PUBLIC_METHODS = 15
PARAMETERS = 8
# what a noun is made of is given to it by name
PARTS = 12
# what users hold in their hands, and the two calls that they make most; a home is a list of paths
EXEMPT_CLASSES = {"Sandbox", "AsyncSandbox", "AsyncOpening", "AsyncFiles", "Home"}
EXEMPT_FUNCTIONS = {"exec", "run"}
FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|misc|managers?|legacy|new|v\d+)(_|$)")
FORBIDDEN_MARKS = re.compile(r"\b(TODO|FIXME|XXX)\b")
ROOT_FILES = {
    ".gitattributes",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "DEVELOPERS.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "SPECIFICATION.md",
    "go.mod",
    "go.sum",
    "hatch_build.py",
    "pyproject.toml",
}
ROOT_DIRECTORIES = {
    ".ci",
    ".github",
    "agent",
    "bench",
    "changelog.d",
    "channel",
    "confine",
    "docs",
    "edge",
    "examples",
    "native",
    "packaging",
    "policy",
    "puller",
    "relay",
    "scripts",
    "src",
    "tests",
}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    return [path for path in map(Path, listed.stdout.splitlines()) if (ROOT / path).is_file()]


FILES = tracked()
GENERATED = {Path("src/atoll/sdk/_sync"), Path("src/atoll/tools/_sync")}
PYTHON = [path for path in FILES if path.suffix == ".py" and not GENERATED & set(path.parents)]
SOURCES = [path for path in PYTHON if not path.is_relative_to("tests")]
GO = [path for path in FILES if path.suffix == ".go" and path.parts[0] != "native"]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def text(path: Path) -> str:
    return (ROOT / path).read_text()


def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text(path))))


def too_long(paths: list[Path], most: int) -> list[str]:
    sizes = {path: len(text(path).splitlines()) for path in paths}
    return [f"{path}: {size} lines" for path, size in sizes.items() if size > most]


def body_lines(node: Function) -> int:
    """Lines of a definition; a docstring does not count, for it does not make a body harder to read."""
    documented = ast.get_docstring(node, clean=False)
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    return lines - (documented.count("\n") + 1 if documented else 0)


def parameters(node: Function) -> list[str]:
    taken = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return [name for name in taken if name not in ("self", "cls")]


def is_command(node: Function) -> bool:
    """Whether click calls it: its parameters are a command's options."""
    return any("command" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_at_most_260_tests_run_as_root_and_as_an_ordinary_user() -> None:
    twice = 0
    for path in PYTHON:
        if path.parts[0] != "tests" or "pytest.mark.twice" not in text(path):
            continue
        tests = [each for each in nodes(path) if isinstance(each, Function) and each.name.startswith("test_")]
        whole = re.search(r"^pytestmark = .*mark\.twice", text(path), re.MULTILINE)
        twice += len(tests if whole else [each for each in tests if is_marked(each, "twice")])
    assert 0 < twice <= 260


def is_marked(node: Function, mark: str) -> bool:
    return any(ast.unparse(each) == f"pytest.mark.{mark}" for each in node.decorator_list)


def test_source_files_have_at_most_500_lines() -> None:
    assert too_long(SOURCES, 500) == []


def test_test_files_have_at_most_700_lines() -> None:
    assert too_long([path for path in PYTHON if path.is_relative_to("tests")], 700) == []


def test_go_files_have_at_most_400_lines() -> None:
    written = [path for path in GO if not re.match(r"// Code generated .* DO NOT EDIT", text(path))]
    assert too_long([path for path in written if not path.name.endswith("_test.go")], 400) == []
    assert too_long([path for path in written if path.name.endswith("_test.go")], 700) == []


def test_functions_have_at_most_60_lines() -> None:
    sizes = [
        (path, node, body_lines(node))
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, Function)
    ]
    assert [f"{path}: {node.name} has {size}" for path, node, size in sizes if size > FUNCTION_LINES] == []


def test_classes_have_at_most_300_lines_and_15_public_methods() -> None:
    broken = []
    for path in SOURCES:
        for node in nodes(path):
            if not isinstance(node, ast.ClassDef) or node.name in EXEMPT_CLASSES:
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            public = {each.name for each in node.body if isinstance(each, Function) and each.name[0] != "_"}
            if lines > CLASS_LINES or len(public) > PUBLIC_METHODS:
                broken.append(f"{path}: {node.name} has {lines} lines and {len(public)} public methods")
    assert broken == []


def test_functions_take_at_most_8_parameters() -> None:
    broken = []
    for path in SOURCES:
        there = nodes(path)
        exempt = [
            node.body for node in there if isinstance(node, ast.ClassDef) and node.name in EXEMPT_CLASSES
        ]
        for node in there:
            if not isinstance(node, Function) or node.name in EXEMPT_FUNCTIONS or is_command(node):
                continue
            most = PARTS if node.name == "__init__" and node.args.kwonlyargs else PARAMETERS
            if len(parameters(node)) > most and not any(node in body for body in exempt):
                broken.append(f"{path}: {node.name} takes {parameters(node)}")
    assert broken == []


def test_no_file_is_named_after_nothing() -> None:
    named = [path for path in FILES if FORBIDDEN_NAMES.search(path.stem.lower())]
    assert named == []


def test_nothing_is_left_for_later() -> None:
    others = [path for path in (*PYTHON, *GO) if path.name != Path(__file__).name]
    assert [path for path in others if FORBIDDEN_MARKS.search(text(path))] == []


def test_every_source_file_begins_with_what_it_is_for() -> None:
    silent = [path for path in SOURCES if ast.get_docstring(ast.parse(text(path))) is None]
    assert silent == []


def test_the_root_holds_what_belongs_there() -> None:
    assert {path.name for path in FILES if len(path.parts) == 1} <= ROOT_FILES
    assert {path.parts[0] for path in FILES if len(path.parts) > 1} <= ROOT_DIRECTORIES


def test_the_sync_sdk_is_generated_from_the_async_one_as_it_is() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/unasync.py", "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_rooms_are_entered_through_their_doors() -> None:
    """A room is imported through its ``__init__`` only. ``types`` has a second door, which is not public."""
    rooms = {path.name for path in (ROOT / "src/atoll").iterdir() if (path / "__init__.py").exists()}
    broken = []
    for path in SOURCES:
        if not path.is_relative_to("src/atoll") or len(path.parts) < 4:
            continue
        for node in nodes(path):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                parts = name.split(".")
                if name == "atoll.types.internal":
                    continue
                if parts[0] == "atoll" and len(parts) > 2 and parts[1] in rooms and parts[1] != path.parts[2]:
                    broken.append(f"{path}: {name}")
    assert broken == []
