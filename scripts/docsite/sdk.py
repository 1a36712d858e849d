"""The reference of the SDK and of its values, out of their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType, ModuleType
from typing import ForwardRef, get_args

import msgspec

import atoll
import atoll.sdk
import atoll.types
from docsite.docstrings import markdown_of

_SDK = """# The SDK

Each class exists twice, with the same methods: `Sandbox` blocks, and `AsyncSandbox` is awaited; so
do all others. [Values](types.md) are what methods take and return, [errors](errors.md) what they
raise.

All these classes are in `atoll.sdk`, the values in `atoll.types` and the errors in `atoll.errors`.
`from atoll import …` gives those that most programs write:

"""
_TYPES = """# Values

What methods of the [SDK](sdk.md) take and return: `from atoll.types import …`. They are frozen;
those with the word `Spec` and those that you make (`Limits`, `Lifecycle`, `Policy`, …) say what is
wanted, those with `Info` what was seen.
"""
_ONE_LINE = 88


def sdk_page() -> str:
    """The page of the classes with methods."""
    return "\n".join([_SDK + _front_door(), *(_class(kind) for kind in _kinds(atoll.sdk))])


def _front_door() -> str:
    """The names that ``atoll`` has, of each pair of classes the one that blocks."""
    names = [name for name in atoll.__all__ if not name.startswith(("Async", "_"))]
    return f"{', '.join(f'`{name}`' for name in names)}.\n"


def types_page() -> str:
    """The page of the values."""
    return "\n".join([_TYPES, *(_value(kind) for kind in _kinds(atoll.types)), _others()])


def _others() -> str:
    """What is no class: the words that a value may be, unions, and constants."""
    lines = []
    for name in sorted(atoll.types.__all__):
        value = getattr(atoll.types, name)
        if not inspect.isclass(value):
            shown = repr(value) if isinstance(value, str) else _plain(_spelled(value))
            lines.append(f"{name} = {shown}\n")
    return f"## Other names\n\n{_code(''.join(lines))}\n"


def _kinds(room: ModuleType) -> Iterator[type]:
    """The public classes of a room, the sandbox first; of each pair, the one that blocks."""
    named = [getattr(room, name) for name in room.__all__ if not name.startswith("Async")]
    kinds = [kind for kind in named if inspect.isclass(kind)]
    return iter(sorted(kinds, key=lambda kind: (kind.__name__ != "Sandbox", kind.__name__)))


def _class(kind: type) -> str:
    parts = [f"## {kind.__name__}\n", markdown_of(kind.__doc__ or ""), ""]
    for name, method in _methods(kind):
        parts += [f"### {kind.__name__}.{name}\n", _code(_signature(name, method)), ""]
        parts += [markdown_of(inspect.getdoc(method) or ""), ""]
    return "\n".join(parts)


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """Its public methods and properties, inherited ones included: first those that make one, then as written."""
    seen: dict[str, tuple[bool, Callable[..., object]]] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("atoll."):
            for name, member in vars(base).items():
                function = (
                    member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                )
                if not name.startswith("_") and inspect.isfunction(function):
                    seen.setdefault(name, (not isinstance(member, classmethod), function))
    return ((name, function) for name, (_, function) in sorted(seen.items(), key=lambda item: item[1][0]))


def _value(kind: type) -> str:
    fields = getattr(kind, "__annotations__", {})
    defaults = _defaults(kind)
    names = vars(sys.modules[kind.__module__])
    lines = [f"{name}: {_plain(kind_of, names)}{defaults.get(name, '')}" for name, kind_of in fields.items()]
    shown = f"class {kind.__name__}:\n" + "".join(f"    {line}\n" for line in lines or ["..."])
    return "\n".join([f"## {kind.__name__}\n", _code(shown), "", markdown_of(kind.__doc__ or ""), ""])


def _defaults(kind: type) -> dict[str, str]:
    if not issubclass(kind, msgspec.Struct):
        return {}
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = f" = {field.default!r}"
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = " = …"
    return found


def _signature(name: str, method: Callable[..., object]) -> str:
    """Like in the source: the receiver left out, over several lines when it is long."""
    parts: list[str] = []
    keywords = False
    signature = inspect.signature(method)
    plain = partial(_plain, names=getattr(inspect.unwrap(method), "__globals__", {}))
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            parts, keywords = [*parts, "*"], True
        stars = "*" * (
            (parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD)
        )
        keywords = keywords or stars == "*"
        kind = "" if parameter.annotation is parameter.empty else f": {plain(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parts.append(f"{stars}{parameter.name}{kind}{default}")
    returns = plain(signature.return_annotation)
    line = f"{name}({', '.join(parts)}) -> {returns}"
    if len(line) <= _ONE_LINE:
        return line + "\n"
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {returns}\n"


def _plain(annotation: object, names: Mapping[str, object] = MappingProxyType({})) -> str:
    """An annotation as it would be written where all names are known; ``names`` are those of its module."""
    if isinstance(annotation, ForwardRef):  # of a TypedDict
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        annotation = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    # inside a class with a method `list`, annotations have such names
    whole = re.sub(r"\b_[A-Z]\w*", lambda match: _spelled(names.get(match[0], match[0])), annotation)
    whole = re.sub(r"Annotated\[(\w+), Meta\([^)]*\)\]", r"\1", whole)
    return re.sub(r"\b(atoll(\.\w+)+|typing|collections\.abc)\.", "", whole)


def _spelled(value: object) -> str:
    bare = get_args(value)[0] if hasattr(value, "__metadata__") else value
    return bare.__name__ if inspect.isclass(bare) else str(bare)


def _default(value: object) -> str:
    return getattr(value, "__name__", None) or repr(value)


def _code(text: str) -> str:
    return f"```python\n{text}```"
