"""What the documentation shows of the SDK exists."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.snippets import ROOT, Snippet, snippets

import atoll
import atoll.sdk
import atoll.types

# those for other SDKs are not ours
PYTHON = [
    one
    for one in snippets("python")
    if one.page not in ("e2b", "e2b-sdk") and not (one.directory == "coming-from" and one.why is not None)
]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
# the module of a package, where its name is another
MODULE_OF = {
    "agent-framework-core": "agent_framework",
    "openai-agents": "agents",
    "pydantic-ai-slim": "pydantic_ai",
    "swe-rex": "swerex",
}
# the providers of models that a package itself depends on
BRINGS = {"deepagents": {"anthropic"}}
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
            for room in (atoll.sdk, atoll.types):
                if kind in room.__all__:
                    assert node.attr in _attributes(getattr(room, kind)), f"{node.value.id}.{node.attr}"


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


def _extra_of(module: str) -> str:
    adapter = module.split(".")[2]
    return (
        "openai-agents"
        if adapter == "openai_sandboxes"
        else adapter.replace("_", "-").replace("swerex", "swe-rex")
    )


def _third_party(code: str) -> set[str]:
    """The packages that a block of code imports, besides atoll and Python's own."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.partition(".")[0] for name in names} - {"atoll"} - sys.stdlib_module_names


@pytest.mark.parametrize("snippet", [one for one in PYTHON if "atoll.adapters." in one.code], ids=_name)
def test_an_example_of_an_adapter_needs_no_more_than_its_own_extra(snippet: Snippet) -> None:
    extras = {_extra_of(module) for module in re.findall(r"atoll\.adapters\.\w+", snippet.code)}
    assert len(extras) == 1, "one example, one extra"
    (extra,) = extras
    needs = [Requirement(text) for text in EXTRAS[extra]]
    names = {MODULE_OF.get(need.name, need.name.replace("-", "_")) for need in needs}
    assert _third_party(snippet.code) - names == set()
    providers = set(re.findall(r'"(anthropic|openai):', snippet.code))
    assert providers - {each for need in needs for each in need.extras} - BRINGS.get(extra, set()) == set()
    if ".openai import" in snippet.code and extra == "agent-framework":
        assert "agent_framework_openai" in names
