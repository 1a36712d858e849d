"""The lines of ``atoll powers``: bounded, in a fixed order, and safe for a terminal."""

from __future__ import annotations

from atoll.cli.powers_shown import power_lines
from atoll.types import Powers, Reach, SecretPower, VolumePower


def sections(lines: list[str]) -> list[str]:
    return [line[:11].strip() for line in lines if line[:11].strip()]


def test_the_order_is_fixed() -> None:
    lines = power_lines(
        Powers(sandbox_id="x" * 20, name=None, team=None, network="none", runs=("a",), wakes=("b",))
    )
    names = ["sandbox", "look at", "network", "secrets", "volumes", "ports", "limits", "runs", "wakes"]
    assert sections(lines) == names
    assert "look at    nothing that stands out" in lines


def test_a_large_policy_fits_on_a_screen() -> None:
    many = tuple(Reach(kind="names", text=f"It sends {number}.") for number in range(900))
    lines = power_lines(
        Powers(
            sandbox_id="x",
            name="work",
            team="reef",
            network="policy",
            observes=True,
            unplugged=True,
            reaches=many,
            ceiling=many,
            proxy="p:1",
            passthrough=("a", "b", "c", "d", "e", "f"),
            secrets=tuple(SecretPower(name="s", text="A secret.") for _ in range(90)),
            canaries=2,
            volumes=tuple(
                VolumePower(path="/a", volume_id="v", name="v", text="A volume.") for _ in range(90)
            ),
            listens=tuple(range(1, 90)),
            runs=("a", "b", "c"),
            wakes=("a", "b", "c"),
            held_by=("a", "b", "c"),
            hooks=("before-suspend", "after-wake"),
            warnings=tuple(f"Look {number}." for number in range(90)),
        )
    )
    assert len(lines) <= 44
    assert "           … and 894 more; --json has all" in lines
    assert any("TLS to these names is never opened: a, b, c and 3 more." in line for line in lines)


def test_no_text_of_others_reaches_the_terminal_as_it_is() -> None:
    reach = Reach(kind="names", text="It sends \x1b[2J to a.example.")
    lines = power_lines(Powers(sandbox_id="x", name="a\nb", team=None, network="policy", reaches=(reach,)))
    assert all(line.isprintable() for line in lines)
