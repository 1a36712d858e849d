"""Builds the programs that a wheel carries: ``runsc`` (gVisor, pinned in native/), the guest agent (agent/), the
puller of images (puller/), the relay and the edge (relay/ and edge/, with channel/, confine/ and policy/).

All are static Go programs. A built program is kept in ~/.cache/atoll/build (or ``ATOLL_BUILD_CACHE``) under the hash
of its sources, so only the first build takes minutes.

``ATOLL_BUILD_MACHINE=aarch64`` builds a wheel for another processor than this one's. ``ATOLL_BUILD_MACHINE=any``
builds the wheel without programs, which reaches servers from any machine. Elsewhere than on Linux it is the only one.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ANY = "any"
_OWN = platform.machine() if platform.system() == "Linux" else _ANY
_MACHINE = os.environ.get("ATOLL_BUILD_MACHINE") or _OWN
_LDFLAGS = "-s -w"
_BUILDS_KEPT = 4
# The parts of a module that is built whole.
_ALL = ("",)
# The directories of the root module that each of its programs is built from.
_TOGETHER = {
    "relay": ("channel", "confine", "edge", "policy", "relay"),
    "edge": ("channel", "confine", "edge", "policy"),
}
_LICENSES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "COPYRIGHT*", "PATENTS*")


class ProgramsHook(BuildHookInterface[Any]):
    """Puts the programs into src/atoll/_bin before a wheel, editable or not, is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        root = Path(self.root)
        if version != "editable":  # which reads the checkout's pages
            build_data["force_include"][str(root / "docs")] = "atoll/_docs"
        if _MACHINE == _ANY:
            build_data["pure_python"] = True
            build_data["tag"] = "py3-none-any"
            return
        if platform.system() != "Linux" or _MACHINE not in _ARCHITECTURES:
            _stop(
                f"atoll runs on Linux on {' and '.join(_ARCHITECTURES)}, not on {platform.system()} on {_MACHINE}; "
                f"ATOLL_BUILD_MACHINE={_ANY} builds what reaches servers"
            )
        target = root / "src" / "atoll" / "_bin"
        target.mkdir(exist_ok=True)
        files: dict[Path, Path] = {}
        for name, module, parts, build in (
            ("runsc", root / "native", _ALL, _build_runsc),
            ("atoll-agent", root / "agent", _ALL, _build_agent),
            ("atoll-puller", root / "puller", _ALL, _build_vendored),
            *(
                (f"atoll-{part}", root, parts, partial(_build_vendored, package=f"./{part}"))
                for part, parts in _TOGETHER.items()
            ),
        ):
            program = _cached(name, module, parts, build, self.app.display_info)
            files[target / name] = program
            files[target / f"{name}.licenses.txt"] = _licenses_of(program)
        if platform.machine() == _MACHINE:
            for path, built in files.items():
                _install(built, path, mode=0o644 if path.suffix else 0o755)
        else:  # the programs of this processor stay where they are
            build_data["force_include"] |= {
                str(built): str(path.relative_to(root / "src")) for path, built in files.items()
            }
        # named here, not in pyproject.toml: the wheel for any machine has none of them
        build_data["artifacts"].append("src/atoll/_bin/*")
        build_data["pure_python"] = False
        # the programs are static: they need no libc, so the wheel fits the oldest of each
        tags = (f"{kind}_{_MACHINE}" for kind in ("manylinux2014", "manylinux_2_17", "musllinux_1_1"))
        build_data["tag"] = f"py3-none-{'.'.join(tags)}"


def _stop(reason: str) -> NoReturn:
    raise SystemExit(f"atoll cannot be built: {reason}")


def _cached(
    name: str,
    module: Path,
    parts: tuple[str, ...],
    build: Callable[[Path, Path], None],
    tell: Callable[[str], None],
) -> Path:
    """The program built from directories of a module, which must lie in files there, from the cache when unchanged."""
    if not (module / "go.mod").is_file():
        _stop(f"{module / 'go.mod'} is missing; build in a complete source tree")
    import fcntl  # only Unix has it, and only Linux comes here

    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atoll" / "build"
    cache = Path(os.environ.get("ATOLL_BUILD_CACHE") or default)
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"{name}-{_source_hash(module, parts)}"
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            tell(f"building {name} from {module} (minutes at the first time)")
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache) as work:
                copy = Path(work) / "source"
                for part in parts:
                    shutil.copytree(module / part, copy / part)
                for file in _module_files(module):
                    shutil.copy2(file, copy)
                _check_go(copy)
                build(copy, Path(work) / name)
                (Path(work) / "licenses").write_text(_licenses(copy))
                os.replace(Path(work) / "licenses", _licenses_of(program))
                os.replace(Path(work) / name, program)
        os.utime(program)
        _prune(cache, name)
    return program


def _prune(cache: Path, name: str) -> None:
    """Keep the builds that were used last. What else has the name was left by a build that was killed."""
    found = [path for path in cache.glob(f"{name}-*") if not path.name.endswith(".txt")]
    builds = sorted(
        (path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in builds[_BUILDS_KEPT:]:
        path.unlink()
        _licenses_of(path).unlink(missing_ok=True)
    for path in found:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _licenses_of(program: Path) -> Path:
    return program.with_name(f"{program.name}.txt")


def _licenses(source: Path) -> str:
    """The licences of all that is linked into a program: of its modules, which lie in vendor, and of Go itself."""
    vendor = source / "vendor"
    found = {path for pattern in _LICENSES for path in vendor.rglob(pattern) if path.is_file()}
    texts = [(str(path.relative_to(vendor)), path) for path in sorted(found) if path.suffix != ".go"]
    own = Path(_go(["env", "GOROOT"], Path("/")).strip()) / "LICENSE"
    if own.is_file():
        texts.insert(0, ("Go's standard library", own))
    return "".join(
        f"{'=' * 80}\n{name}\n{'=' * 80}\n{path.read_text(errors='replace')}\n" for name, path in texts
    )


def _runsc_version() -> str:
    """The version that the engine wants."""
    source = Path(__file__).with_name("src") / "atoll" / "engines" / "gvisor" / "engine.py"
    match = re.search(r'^RUNSC_VERSION = "(.+)"$', source.read_text(), re.MULTILINE)
    if match is None:
        _stop(f"{source} does not define RUNSC_VERSION")
    return match[1]


def _source_hash(module: Path, parts: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{_runsc_version()} {_LDFLAGS} {_MACHINE}".encode())
    digest.update(Path(__file__).read_bytes())
    for path in sorted({*_source_files(module, parts), *_module_files(module)}):
        digest.update(f"\0{path.relative_to(module)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _source_files(module: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    for path in (path for part in parts for path in (module / part).rglob("*")):
        if path.is_file() and not path.name.endswith(("_test.go", ".md", ".pyc")):
            yield path


def _module_files(module: Path) -> list[Path]:
    return [path for name in ("go.mod", "go.sum") if (path := module / name).is_file()]


def _check_go(module: Path) -> None:
    """Stop unless there is a Go that is new enough for the module."""
    match = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    wanted = match[1] if match else "1.26"
    remedy = f"install Go {wanted} or newer, put its bin directory first in PATH, and try again"
    if shutil.which("go") is None:
        _stop(f"the Go compiler is missing; {remedy}. An atoll wheel needs no Go")
    found = _go(["env", "GOVERSION"], Path("/")).strip().removeprefix("go")
    if _version(found) < _version(wanted):
        _stop(f"the Go compiler is {found}, older than {wanted}; {remedy}")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.split("-")[0].split(" ")[0])[:3])


def _go(arguments: list[str], directory: Path) -> str:
    env = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOOS": "linux",
        "GOARCH": _ARCHITECTURES[_MACHINE],
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    result = subprocess.run(["go", *arguments], cwd=directory, env=env, capture_output=True)
    if result.returncode != 0:
        _stop(f"`go {' '.join(arguments)}` failed:\n{result.stderr.decode(errors='replace')}")
    return result.stdout.decode()


def _build_runsc(source: Path, output: Path) -> None:
    _go(["mod", "vendor"], source)
    gvisor = source / "vendor" / "gvisor.dev" / "gvisor"
    _patch(source / "apply.py", gvisor)
    # It asks the kernel of the machine it is for. Without it, runsc compiles its seccomp programs at each start.
    if platform.machine() == _MACHINE:
        _go(["run", "-trimpath", "-mod=vendor", "./fillseccomp", str(gvisor / "runsc")], source)
    version = f"-X gvisor.dev/gvisor/runsc/version.version={_runsc_version()}"
    _compile(source, output, "gvisor.dev/gvisor/runsc", f"{_LDFLAGS} {version}", "-mod=vendor")


def _patch(program: Path, tree: Path) -> None:
    result = subprocess.run([sys.executable, program, tree], capture_output=True, text=True)
    if result.returncode != 0:
        _stop(f"gVisor's changes in native/ do not fit this version of gVisor:\n{result.stderr}")


def _build_agent(source: Path, output: Path) -> None:
    _compile(source, output, ".", _LDFLAGS)


def _build_vendored(source: Path, output: Path, package: str = ".") -> None:
    _go(["mod", "vendor"], source)
    _compile(source, output, package, _LDFLAGS, "-mod=vendor")


def _compile(source: Path, output: Path, package: str, ldflags: str, *options: str) -> None:
    flags = ["-trimpath", "-buildvcs=false", f"-ldflags={ldflags}", *options]
    _go(["build", *flags, "-o", str(output), package], source)


def _install(program: Path, target: Path, mode: int = 0o755) -> None:
    """Put the file at ``target``, in one step, so that a running one is not disturbed."""
    if target.exists() and filecmp.cmp(program, target, shallow=False):
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(program, aside)
    aside.chmod(mode)
    os.replace(aside, target)
