from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from atoll.server.domain_names import notice, unresolved
from atoll.server.environment import local_variables
from atoll.server.settings import Settings

PLACE = Path("/nowhere")
SELF_SIGNED = Settings(
    port=8443, domain="sbx.test", tls_cert=PLACE, tls_key=PLACE, tls_authority=PLACE, tls_bundle=PLACE
)
LOCAL = "https://localhost:8443"


def nobody(name: str) -> object:
    raise OSError(f"nobody knows {name}")


def only_the_api(name: str) -> object:
    return name if name.startswith("api.") else nobody(name)


def test_names_without_an_address_are_found() -> None:
    assert asyncio.run(unresolved("sbx.test", lambda name: name)) == []
    api, sandbox = asyncio.run(unresolved("sbx.test", nobody))
    assert api == "api.sbx.test" and sandbox.endswith(".sbx.test")
    assert asyncio.run(unresolved("sbx.test", only_the_api)) == [sandbox]


def test_a_resolver_that_never_answers_holds_up_neither_the_loop_nor_its_end() -> None:
    never = threading.Event()
    try:
        assert len(asyncio.run(unresolved("sbx.test", lambda _: never.wait(), within_s=0.05))) == 2
    finally:
        never.set()


def test_the_notice_says_what_fails_and_what_works_instead() -> None:
    both = notice(SELF_SIGNED, ["api.sbx.test", "49983-00000000000000000000.sbx.test"])
    assert "api.sbx.test and *.sbx.test have no address on this machine" in both
    assert "wildcard" in both and "/etc/hosts" in both
    assert f"E2B_API_URL={LOCAL} E2B_SANDBOX_URL={LOCAL} E2B_VOLUME_API_URL={LOCAL}" in both
    one = notice(SELF_SIGNED, ["49983-00000000000000000000.sbx.test"])
    assert one.startswith("*.sbx.test has no address")


@pytest.mark.parametrize(
    "settings",
    [
        Settings(port=443, domain="sbx.test", tls_cert=PLACE, tls_key=PLACE),
        Settings(
            host="192.0.2.1",
            port=443,
            domain="sbx.test",
            tls_cert=PLACE,
            tls_key=PLACE,
            tls_authority=PLACE,
            tls_bundle=PLACE,
        ),
    ],
)
def test_localhost_is_not_offered_where_it_would_not_do(settings: Settings) -> None:
    assert local_variables(settings) == {}
    assert "localhost" not in notice(settings, ["api.sbx.test"])
