"""Names from elsewhere: each is refused with atoll's own word, and none that atoll has is called foreign."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.sdk.fakes import FakeSupervisor

import atoll.sdk
import atoll.types
from atoll import AsyncSandbox, Boot, Hosting, Sandbox, Wait
from atoll.errors import ForeignNameError, InvalidSpecError
from atoll.sdk import AsyncProcesses, Processes
from atoll.sdk._foreign import ARGUMENTS, ATTRIBUTES, CLASS_ATTRIBUTES, PARTS

CALLS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "create": lambda _, given: Sandbox.create(**given),
    "connect": lambda _, given: Sandbox.connect("work", **given),
    "list": lambda _, given: list(Sandbox.list(**given)),
    "fork": lambda sandbox, given: sandbox.fork(**given),
    "run": lambda sandbox, given: sandbox.run("true", **given),
    "exec": lambda sandbox, given: sandbox.exec(["true"], **given),
    "start": lambda sandbox, given: sandbox.processes.start("true", **given),
    "pty": lambda sandbox, given: sandbox.processes.pty(**given),
}


def method_of(kind: Any, call: str) -> Any:
    """The method that a call of a sandbox, or of its processes, is."""
    processes = AsyncProcesses if kind is AsyncSandbox else Processes
    return getattr(kind, call, None) or getattr(processes, call)


@pytest.mark.parametrize(("call", "name"), [(call, name) for call in ARGUMENTS for name in ARGUMENTS[call]])
def test_a_foreign_argument_is_answered_with_ours_and_nothing_is_sent(
    supervisor: FakeSupervisor, call: str, name: str
) -> None:
    sandbox = Sandbox.of(Sandbox.get("abcdefghij0123456789"))
    before = list(supervisor.api.requests)
    with pytest.raises(ForeignNameError) as raised:
        CALLS[call](sandbox, {name: 1})
    assert f"{call} has no argument {name!r}" in str(raised.value)
    assert ARGUMENTS[call][name] in str(raised.value)
    assert supervisor.api.requests == before
    sandbox.close()


@pytest.mark.parametrize("kind", [Boot, Hosting, Wait])
def test_what_a_value_of_create_has_is_answered_with_that_value(kind: Any) -> None:
    for name in kind.__struct_fields__:
        assert ARGUMENTS["create"][name].startswith(f"{kind.__name__.lower()}={kind.__name__}({name}=…)")


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_that_nobody_has_is_a_type_error_with_what_there_is(sandbox: Sandbox, call: str) -> None:
    with pytest.raises(TypeError, match="has no argument 'nonsense'"):
        CALLS[call](sandbox, {"nonsense": 1})
    with pytest.raises(ForeignNameError, match=r"did you mean env\?"):
        Sandbox.create(envx={})  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [Sandbox, AsyncSandbox])
def test_signatures_have_no_more_than_the_arguments_that_there_are(kind: Any) -> None:
    for call in CALLS:
        method = method_of(kind, call)
        catch_all = [
            each for each in inspect.signature(method).parameters.values() if each.kind is each.VAR_KEYWORD
        ]
        assert catch_all == []
        assert inspect.iscoroutinefunction(method) == (kind is AsyncSandbox and call != "list")


def test_a_foreign_name_for_what_must_be_given_is_answered_too(sandbox: Sandbox) -> None:
    with pytest.raises(ForeignNameError, match="the command first, without a name"):
        sandbox.run(cmd="true")  # type: ignore[call-arg]


def test_arguments_of_a_sandbox_that_is_there_are_looked_at_too(supervisor: FakeSupervisor) -> None:
    with pytest.raises(ForeignNameError, match="give env="):
        Sandbox.connect_or_create(name="alice", envs={})  # type: ignore[call-arg]
    assert supervisor.api.requests == []


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_foreign_attribute_is_answered_with_ours(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(ForeignNameError) as raised:
        getattr(sandbox, name)
    assert f"a Sandbox has no {name!r} (use {ATTRIBUTES[name]})" == str(raised.value)
    assert not hasattr(sandbox, name)


@pytest.mark.parametrize(("part", "name"), [(part, name) for part in PARTS for name in PARTS[part]])
def test_a_foreign_attribute_of_a_part_is_answered_with_ours(sandbox: Sandbox, part: str, name: str) -> None:
    with pytest.raises(ForeignNameError) as raised:
        getattr(getattr(sandbox, part), name)
    assert f"{part} has no {name!r} (use {PARTS[part][name]})" == str(raised.value)
    for ours in re.findall(r"(\w+)\(", PARTS[part][name]):
        assert hasattr(getattr(sandbox, part), ours), ours


def test_an_attribute_that_nobody_has_is_pythons_own_error(sandbox: Sandbox) -> None:
    with pytest.raises(AttributeError, match="'Sandbox' object has no attribute 'nonsense'") as raised:
        _ = sandbox.nonsense  # type: ignore[attr-defined]
    assert type(raised.value) is AttributeError
    assert (raised.value.name, raised.value.obj) == ("nonsense", sandbox)


@pytest.mark.parametrize("kind", [Sandbox, AsyncSandbox])
def test_calling_the_class_says_what_makes_a_sandbox(kind: Any) -> None:
    for arguments in ((), ("base",)):
        with pytest.raises(TypeError, match=rf"{kind.__name__}.create\(\) makes one"):
            kind(*arguments)
    with pytest.raises(TypeError, match="makes no sandbox"):
        kind(template="base")


@pytest.mark.parametrize("name", CLASS_ATTRIBUTES)
def test_a_foreign_class_method_is_answered_with_ours(name: str) -> None:
    ours = CLASS_ATTRIBUTES[name]
    for kind in (Sandbox, AsyncSandbox):
        with pytest.raises(ForeignNameError) as raised:
            getattr(kind, name)
        assert str(raised.value) == f"{kind.__name__} has no {name!r} (use {kind.__name__}.{ours})"
        assert all(
            hasattr(kind, each) or each in atoll.types.__all__ for each in re.findall(r"(\w+)\(", ours)
        )
    with pytest.raises(AttributeError, match="type object 'Sandbox' has no attribute 'nonsense'"):
        _ = Sandbox.nonsense  # type: ignore[attr-defined]


def test_a_foreign_name_is_an_invalid_spec_too(sandbox: Sandbox) -> None:
    assert issubclass(ForeignNameError, (InvalidSpecError, AttributeError, TypeError))
    assert copy.copy(ForeignNameError("x", hint="y")).hint == "y"


def test_what_atoll_has_is_not_foreign(sandbox: Sandbox) -> None:
    assert [name for name in ATTRIBUTES if hasattr(sandbox, name)] == []
    for call, names in ARGUMENTS.items():
        assert set(names) & set(inspect.signature(method_of(Sandbox, call)).parameters) == set(), call


def test_each_word_that_is_given_instead_exists(sandbox: Sandbox) -> None:
    classes = {*atoll.sdk.__all__, *atoll.types.__all__}
    for ours in [*ATTRIBUTES.values(), *(ours for names in ARGUMENTS.values() for ours in names.values())]:
        for place, name in re.findall(r"(?:(\w+)\.)?(\w+)\(", ours):
            owner = getattr(sandbox, place) if place in PARTS else getattr(atoll.sdk, place, sandbox)
            assert name in classes or hasattr(owner, name), ours
    for call, names in ARGUMENTS.items():
        known = set(inspect.signature(method_of(Sandbox, call)).parameters)
        for ours in names.values():
            found = re.match(r"(\w+)=", ours)
            elsewhere = " of " in ours
            assert found is None or elsewhere or found[1] in known, ours
