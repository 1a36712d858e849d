"""``atoll powers`` and ``sandbox.powers()``: what a sandbox could do at worst."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.command_line import said

from atoll import Hosting, Inject, Policy, Rule, Sandbox, Secrets, Teams, VolumeMount, Volumes

POLICY = Policy(
    rules=(
        Rule(
            action="ask",
            name="pay",
            hosts=("api.bank.example",),
            methods=("POST",),
            inject=(Inject(secret="bank"),),
        ),
        Rule(hosts=("*.example.org",)),
        Policy.expose_host(8080),
    )
)


@pytest.fixture(scope="module")
def payer(module_home: Path) -> Iterator[Sandbox]:
    Secrets.create("bank", "s3cret-of-the-bank", hosts=["api.bank.example"])
    Secrets.create("bait", "bait-bait-bait", canary=True)
    Volumes.create("data")
    with Sandbox.create(
        network=POLICY, name="payer", volumes={"/data": VolumeMount("data", read_only=True)}
    ) as made:
        yield made


def test_a_person_reads_what_a_sandbox_could_do(payer: Sandbox) -> None:
    shown = said("powers", "payer")
    for line in (
        "Ports of the host's loopback interface are exposed to it: 8080.",
        "carry the secret bank, each approved by a person; it is bound to api.bank.example.",
        "It sends anything over TCP to *.example.org.",
        "It reads the volume data at /data.",
    ):
        assert line in shown
    assert "s3cret" not in shown
    assert len(shown.splitlines()) <= 40


def test_the_value_is_the_same_on_the_command_line(payer: Sandbox) -> None:
    payer.suspend()
    found = payer.powers()
    told = json.loads(said("powers", "payer", "--json"))
    assert told["sandbox_id"] == found.sandbox_id == payer.id
    assert [each["text"] for each in told["reaches"]] == [each.text for each in found.reaches]
    assert (found.canaries, found.anywhere) == (1, False)
    assert payer.info().state == "suspended"


def test_a_ceiling_of_the_team_bounds_them(module_home: Path) -> None:
    Teams.create("reef")
    Teams.set_ceiling("reef", Policy(rules=(Rule(hosts=("*.example.org",)),)))
    with Sandbox.create(network="internet", hosting=Hosting(team="reef", ports="closed")) as sandbox:
        found = sandbox.powers()
        assert [reach.hosts for reach in found.reaches] == [("*.example.org",)]
        assert not found.anywhere
        Teams.set_ceiling("reef", None)
        assert sandbox.powers().anywhere
