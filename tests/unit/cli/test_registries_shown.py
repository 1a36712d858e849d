"""What `atoll policy show` says of the registries that the policy ``packages`` allows."""

from __future__ import annotations

from atoll.cli.network import registries_shown


def test_the_hosts_of_each_client_are_listed_and_how_to_add_one() -> None:
    found = {
        "cargo": ("crates.example", "index.example"),
        "gem": (),
        "ATOLL_PACKAGE_HOSTS": ("more.example",),
    }
    lines = registries_shown(found).splitlines()
    assert all(line.startswith("# ") for line in lines)
    assert [line.split() for line in lines[1:4]] == [
        ["#", "cargo", "crates.example", "index.example"],
        ["#", "gem", *["names", "none:", "its", "packages", "are", "refused"]],
        ["#", "ATOLL_PACKAGE_HOSTS", "more.example"],
    ]
    assert "atoll stop; export ATOLL_PACKAGE_HOSTS='HOST HOST'" in lines[-1]


def test_a_host_without_clients_still_says_how_to_add_a_registry() -> None:
    assert "ATOLL_PACKAGE_HOSTS" in registries_shown({})
