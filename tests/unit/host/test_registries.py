"""The package registries of this host's clients, which here are programs and files of the test."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import pytest

from atoll.host import registry_defaults, registry_hosts

_SUPER_POM = """\
<!-- a licence at https://licence.example/ -->
<project>
  <repositories>
    <repository><id>central</id><url>https://central.example/maven2</url></repository>
  </repositories>
  <pluginRepositories>
    <pluginRepository><id>central</id><url>https://plugins.example/maven2</url></pluginRepository>
  </pluginRepositories>
</project>
"""
_SETTINGS = """\
<settings xmlns="http://schema.example/SETTINGS/1.0.0">
  <!-- <mirrors><mirror><url>http://commented.example/</url></mirror></mirrors> -->
  <mirrors>
    <mirror><mirrorOf>{of}</mirrorOf><url>https://mirror.example/maven</url></mirror>
    <mirror><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror>
  </mirrors>
  <profiles><profile><repositories>
    <repository><id>ours</id><url>https://ours.example/maven</url></repository>
  </repositories></profile></profiles>
</settings>
"""
# What cargo does to look for a package: it keeps what the registry of its home's configuration says of itself.
_CARGO = """\
#!/bin/sh
grep -q replace-with "$CARGO_HOME/config.toml" && name=replaced || name=index
mkdir -p "$CARGO_HOME/registry/index/$name.example-1949cf8c6b5b557f"
echo '{"dl": "https://'$name'-files.example/crates", "api": "https://'$name'-api.example:443/"}' \\
  > "$CARGO_HOME/registry/index/$name.example-1949cf8c6b5b557f/config.json"
echo "asked in $PWD: $*" >> "$HOME/asked"
echo "error: see https://manual.example/" >&2
exit 101
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A host without package clients but atoll's own."""
    for name in ("bin", "home"):
        (tmp_path / name).mkdir()
    # its programs are found by their whole paths alone, and those that they need in the system's
    return {"HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/bin"}


def _program(environ: dict[str, str], name: str, text: str) -> Path:
    path = Path(environ["PATH"].split(":")[0], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("#!/bin/sh\n", "#!/bin/sh\nPATH=/usr/bin:/bin\n"))
    path.chmod(0o755)
    return path


def _maven(environ: dict[str, str], tmp_path: Path, jar: bytes | None = None) -> Path:
    home = tmp_path / "maven"
    (home / "lib").mkdir(parents=True)
    (home / "conf").mkdir()
    (home / "bin").mkdir()
    program = _program({"PATH": f"{home}/bin"}, "mvn", "#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/mvn").symlink_to(program)
    model = home / "lib/maven-model-builder-3.9.9.jar"
    if jar is not None:
        model.write_bytes(jar)
        return home
    with zipfile.ZipFile(model, "w") as opened:
        opened.writestr("org/apache/maven/model/pom-4.0.0.xml", _SUPER_POM)
    return home


def test_cargo_without_configuration_is_asked_for_its_registry(environ: dict[str, str]) -> None:
    _program(environ, "cargo", _CARGO)
    assert registry_hosts(environ)["cargo"] == ("index-api.example", "index-files.example", "index.example")
    told = Path(environ["HOME"], "asked").read_text()
    assert told.startswith("asked in /: generate-lockfile --manifest-path ")
    assert not Path(environ["HOME"], ".cargo").exists()


def test_cargo_is_asked_with_its_own_configuration(environ: dict[str, str]) -> None:
    _program(environ, "cargo", _CARGO)
    own = Path(environ["HOME"], ".cargo/config.toml")
    own.parent.mkdir()
    own.write_text(
        '# once https://former.example/\n[source.crates-io]\nreplace-with = "r"\n[source.r]\n'
        'registry = "sparse+https://replaced.example/index/"\n'
    )
    hosts = ("replaced-api.example", "replaced-files.example", "replaced.example")
    assert registry_hosts(environ)["cargo"] == hosts


def test_a_cargo_that_has_been_used_is_not_asked(environ: dict[str, str], tmp_path: Path) -> None:
    _program(environ, "cargo", _CARGO)
    index = tmp_path / "elsewhere/registry/index/of-a-mirror.example-0123456789abcdef"
    index.mkdir(parents=True)
    (index / "config.json").write_text('{"dl": "https://crates.example/{crate}/{version}"}')
    # an index in git says nothing about where its crates are
    (tmp_path / "elsewhere/registry/index/forge.example-0123456789abcdef").mkdir()
    found = registry_hosts({**environ, "CARGO_HOME": str(tmp_path / "elsewhere")})
    assert found["cargo"] == ("crates.example", "of-a-mirror.example")
    assert not Path(environ["HOME"], "asked").exists()


def test_a_client_that_says_nothing_names_no_registry(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_defaults, "_PROGRAM_S", 0.2)
    _program(environ, "cargo", "#!/bin/sh\nsleep 60\n")
    _program(environ, "npm", "#!/bin/sh\necho https://late.example/; sleep 60 & wait\n")
    _program(environ, "gradle", "#!/bin/sh\n")
    _maven(environ, tmp_path, jar=b"no archive")
    began = time.monotonic()
    found = registry_hosts(environ)
    assert time.monotonic() - began < 30
    assert {found[name] for name in ("cargo", "npm", "gradle", "maven")} == {()}


def test_maven_tells_the_repositories_of_the_model_that_every_project_inherits(
    environ: dict[str, str], tmp_path: Path
) -> None:
    _maven(environ, tmp_path)
    assert registry_hosts(environ)["maven"] == ("central.example", "plugins.example")


@pytest.mark.parametrize(
    ("of", "hosts"),
    [
        ("*", ("mirror.example", "ours.example")),
        ("ours, central", ("mirror.example", "ours.example")),
        ("*,!central", ("central.example", "mirror.example", "ours.example", "plugins.example")),
        ("ours", ("central.example", "mirror.example", "ours.example", "plugins.example")),
    ],
)
def test_mavens_settings_count_and_a_mirror_of_its_central_repository_stands_for_it(
    environ: dict[str, str], tmp_path: Path, of: str, hosts: tuple[str, ...]
) -> None:
    home = _maven(environ, tmp_path)
    (home / "conf/settings.xml").write_text(_SETTINGS.format(of=of))
    assert registry_hosts(environ)["maven"] == hosts


def test_clients_are_known_by_their_programs_files_and_variables(environ: dict[str, str]) -> None:
    _program(environ, "npm", "#!/bin/sh\necho https://npm.example/\n")
    _program(environ, "go", "#!/bin/sh\necho https://go.example,direct; echo sums.example\n")
    Path(environ["HOME"], ".npmrc").write_text(
        "; https://former.example/\n@x:registry=https://scoped.example/\n"
    )
    found = registry_hosts(
        {
            **environ,
            "UV_INDEX": "https://uv.example/simple",
            "CARGO_REGISTRIES_OURS_INDEX": "https://ours.example",
        },
        "more.example, other.example none",
    )
    assert found["npm"] == ("npm.example", "scoped.example")
    assert found["go"] == ("go.example", "sums.example")
    assert found["uv"] == ("uv.example",)
    assert found["cargo"] == ("ours.example",)
    assert found["ATOLL_PACKAGE_HOSTS"] == ("more.example", "other.example")
    assert "yarn" not in found
    assert "maven" not in found
