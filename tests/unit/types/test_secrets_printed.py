from __future__ import annotations

import io

from rich.console import Console

from atoll.types import ImageAccess, KeyInfo, NewKey, RegistryLogin

SECRET = "0123456789abcdef0123456789abcdef"


def shown(value: object) -> str:
    """What is seen of it in a log, in an interpreter, and where rich prints it."""
    printed = io.StringIO()
    Console(file=printed, width=500).print(value)
    return f"{value!r} {value!s} {printed.getvalue()}"


def test_a_new_key_does_not_show_itself() -> None:
    info = KeyInfo(key_id="key-1", team="ours", name="ci", prefix="e2b_0123", created_at=1.0)
    text = shown(NewKey(key=f"e2b_{SECRET}", info=info))
    assert SECRET not in text
    assert text.count("e2b_0123…") == 3


def test_a_login_does_not_show_its_password() -> None:
    login = RegistryLogin(username="ann", password=SECRET)
    assert SECRET not in shown(login)
    assert SECRET not in shown(ImageAccess(login=login))
