from __future__ import annotations

from pathlib import Path

from atoll.images.sources import one_line_entries, recipe_of_host, stanzas

LIST = """\
# a comment
deb http://mirror.test/debian bookworm main contrib # trailing
deb [signed-by=/usr/share/keyrings/x.gpg arch=amd64] http://mirror.test/security bookworm-security main
deb-src http://mirror.test/debian bookworm main
deb http://other.test/apt bookworm stable
deb http://other.test/apt bookworm-pgdg main
deb http://mirror.test/debian trixie main
"""

SOURCES = """\
Types: deb
# Where it comes from.
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://other.test/node
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://mirror.test/debian
Suites: bookworm-security
Components: main
"""

DUMP = """\
APT::Architecture "amd64";
Acquire::http::Proxy "http://proxy.test:3142";
Acquire::https::CAInfo "/etc/ssl/company.pem";
Acquire::Check-Date "false";
Acquire::IndexTargets::deb::Packages::MetaKey "x";
DPkg::Post-Invoke:: "rm -f";
"""


def host(etc: Path, os_release: str = "ID=debian\nVERSION_CODENAME=bookworm\n") -> Path:
    (etc / "apt/sources.list.d").mkdir(parents=True)
    (etc / "os-release").write_text(os_release)
    (etc / "apt/sources.list").write_text(LIST)
    (etc / "apt/sources.list.d/a.sources").write_text(SOURCES)
    (etc / "apt/sources.list.d/b.sources.disabled").write_text(SOURCES)
    return etc


def test_only_the_distributions_own_one_line_entries_are_kept() -> None:
    assert one_line_entries(LIST, "bookworm").splitlines() == [
        "deb http://mirror.test/debian bookworm main contrib",
        "deb [signed-by=/usr/share/keyrings/x.gpg arch=amd64] http://mirror.test/security bookworm-security main",
    ]


def test_only_the_distributions_own_stanzas_are_kept() -> None:
    assert stanzas(SOURCES, "bookworm").splitlines() == [
        "Types: deb",
        "URIs: http://mirror.test/debian",
        "Suites: bookworm bookworm-updates",
        "Components: main",
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg",
    ]


def test_a_debian_host_gives_its_release_and_sources(tmp_path: Path) -> None:
    recipe = recipe_of_host(host(tmp_path), DUMP)
    assert recipe.suite == "bookworm"
    assert sorted(recipe.sources) == ["host.list", "host.sources"]
    assert "other.test" not in "".join(recipe.sources.values())


def test_proxies_serve_the_build_and_do_not_stay_in_the_image(tmp_path: Path) -> None:
    recipe = recipe_of_host(host(tmp_path), DUMP)
    assert recipe.apt_options == (
        'Acquire::http::Proxy "http://proxy.test:3142"',
        'Acquire::https::CAInfo "/etc/ssl/company.pem"',
        'Acquire::Check-Date "false"',
    )
    assert recipe.guest_apt_options == ('Acquire::Check-Date "false"',)


def test_credentials_are_read_where_they_lie(tmp_path: Path) -> None:
    etc = host(tmp_path)
    (etc / "apt/auth.conf").write_text("machine mirror.test login me password secret\n")
    recipe = recipe_of_host(etc, "")
    assert recipe.apt_options == (f'Dir::Etc::netrc "{etc}/apt/auth.conf"',)
    assert "secret" not in repr(recipe)


def test_another_distribution_gets_debians_default(tmp_path: Path) -> None:
    recipe = recipe_of_host(host(tmp_path, 'ID=fedora\nVERSION_CODENAME=""\n'), "")
    assert (recipe.suite, recipe.sources) == ("bookworm", {})


def test_a_host_without_apt_gets_debians_default(tmp_path: Path) -> None:
    assert recipe_of_host(tmp_path, "") == recipe_of_host(tmp_path / "nothing", "")
