from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

import atoll
import atoll.errors
import atoll.sdk
import atoll.types
from atoll.errors import AtollError

ARGUMENTS = 12
SOURCE = Path(atoll.__file__).parent
HEAVY = {
    "starlette",
    "uvicorn",
    "click",
    "rich",
    "asyncio",
    "ssl",
    "http",
    "email",
    "subprocess",
    "sqlite3",
    "tarfile",
}


def imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=120
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_front_door_is_sorted_and_has_few_names() -> None:
    """A reader of ``help(atoll)`` or a completion sees what most programs write.

    The rest has homes of its own: ``atoll.errors``, ``atoll.types`` and ``atoll.sdk``.
    """
    assert sorted(atoll.__all__) == atoll.__all__
    assert len(atoll.__all__) <= 50


def test_the_errors_offer_every_error_and_nothing_else() -> None:
    def below(kind: type[AtollError]) -> set[str]:
        return {kind.__name__}.union(*(below(child) for child in kind.__subclasses__()))

    assert sorted(atoll.errors.__all__) == atoll.errors.__all__
    ours = {name for name in below(AtollError) if hasattr(atoll.errors, name)}
    assert ours == set(atoll.errors.__all__)


def test_the_types_offer_values_and_no_function() -> None:
    """What only atoll's own rooms use is in ``atoll.types.internal``."""
    assert [name for name in atoll.types.__all__ if inspect.isfunction(getattr(atoll.types, name))] == []


def test_every_public_name_is_there_and_at_home_where_type_checkers_look() -> None:
    seen = set()
    for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("atoll."):
            for alias in node.names:
                seen.add(alias.name)
                expected = getattr(__import__(node.module, fromlist=[alias.name]), alias.name)
                assert getattr(atoll, alias.name) is expected
    assert seen == set(atoll.__all__)
    with pytest.raises(AttributeError):
        _ = atoll.no_such_name


def test_the_sdk_offers_each_thing_in_both_colours() -> None:
    names = set(atoll.sdk.__all__)
    assert {name.removeprefix("Async") for name in names if name.startswith("Async")} == {
        name for name in names if not name.startswith("Async")
    }
    for name in names:
        assert getattr(atoll.sdk, name).__name__ == name


def test_both_colours_have_the_same_methods() -> None:
    def surface(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    for name in atoll.sdk.__all__:
        if not name.startswith("Async"):
            assert surface(getattr(atoll.sdk, name)) == surface(getattr(atoll.sdk, f"Async{name}")), name


def test_importing_atoll_loads_next_to_nothing() -> None:
    assert not imported_by("import atoll") & (HEAVY | {"msgspec", "h11", "anyio", "socket"})


def test_importing_the_sync_sandbox_loads_no_event_loop_and_no_face() -> None:
    assert not imported_by("from atoll import Sandbox") & (HEAVY | {"anyio"})


def test_importing_the_async_sandbox_loads_no_server_and_no_face() -> None:
    assert not imported_by("from atoll import AsyncSandbox") & {
        "starlette",
        "uvicorn",
        "click",
        "rich",
        "sqlite3",
    }


def test_public_methods_say_what_they_do() -> None:
    for name in atoll.sdk.__all__:
        kind = getattr(atoll.sdk, name)
        assert kind.__doc__, name
        for method, value in vars(kind).items():
            if not method.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{method}"


def test_public_methods_take_at_most_12_arguments() -> None:
    """What belongs together is one value, such as ``Limits`` or ``Boot``."""
    broken = []
    for name in atoll.sdk.__all__:
        kind = getattr(atoll.sdk, name)
        for method in dir(kind):
            if method.startswith("_") or not callable(getattr(kind, method)):
                continue
            taken = [each for each in signature(getattr(kind, method)).parameters if each != "self"]
            if len(taken) > ARGUMENTS:
                broken.append(f"{name}.{method} takes {taken}")
    assert broken == []
