"""A body with a secret's value in it shows no value when it is printed."""

from __future__ import annotations

import io

from rich.console import Console

from atoll.protocol import SecretRequest, SecretUpdate


def test_a_body_with_a_value_hides_it_from_print_and_from_rich() -> None:
    for body in (SecretRequest(name="mail", value="hunter2"), SecretUpdate(value="hunter2")):
        shown = io.StringIO()
        Console(file=shown).print(body, [body], {"a": body})
        assert "hunter2" not in f"{body!r} {body} {shown.getvalue()}"
        assert "Secret" in shown.getvalue()
