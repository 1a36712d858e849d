"""What the documentation shows of the SDK exists."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path

import pytest
from tests.snippets import Snippet, snippets

import atoll

# those for other SDKs are not ours
PYTHON = [
    one
    for one in snippets("python")
    if one.page not in ("e2b", "e2b-sdk") and not (one.directory == "coming-from" and one.why is not None)
]
# what the variables of the examples are
_KINDS = {"sandbox": "Sandbox", "other": "Sandbox", "one": "Sandbox", "copy": "Sandbox", "job": "Sandbox"}


def _name(snippet: Snippet) -> str:
    return f"{snippet.page}-{snippet.code.strip().splitlines()[0][:40]}"


@pytest.mark.parametrize("snippet", PYTHON, ids=_name)
def test_python_compiles_and_uses_names_that_exist(snippet: Snippet) -> None:
    compile(snippet.code, snippet.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    for node in ast.walk(ast.parse(snippet.code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "atoll":
            assert {alias.name for alias in node.names} - _names_in(node.module or "") == set()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            kind = _KINDS.get(node.value.id, node.value.id)
            if kind in atoll.__all__:
                assert node.attr in _attributes(getattr(atoll, kind)), f"{node.value.id}.{node.attr}"


def _names_in(module: str) -> set[str]:
    """The names that a module has. That of an adapter is only read: its library is not installed here."""
    if not module.startswith("atoll.adapters."):
        return set(dir(__import__(module, fromlist=["x"])))
    path = Path(atoll.__file__).parent / f"adapters/{module.rpartition('.')[2]}.py"
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


@functools.cache
def _attributes(kind: type) -> set[str]:
    """The names that an object of this class has, those that its constructor sets included."""
    sources = [inspect.getsource(base) for base in kind.__mro__ if base.__module__.startswith("atoll.")]
    return {*dir(kind), *re.findall(r"self\.(\w+)\b.* = ", "".join(sources))}
