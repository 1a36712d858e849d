"""The definition of the template ``code-interpreter-v1``. Its packages come from registries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from atoll.errors import InvalidSpecError
from atoll.types import CopyStep, RunStep, Step, TemplateSpec

NAME = "code-interpreter-v1"
"""The name by which clients of E2B's code interpreter ask for it."""
CONTEXT = Path(__file__).parent
"""The directory from which the copy step takes the server."""

_HOME = "/opt/atoll"
_SERVER = ("jupyter_client>=8.6,<9", "starlette>=0.40,<2", "uvicorn>=0.30,<1")
_KERNELS = ("ipykernel>=7,<8", "bash_kernel>=0.10,<0.11", "deno>=2.5,<3")
_CORE = ("numpy>=2.2.6,<3", "pandas>=2.2,<4", "matplotlib>=3.10.3,<4", "e2b-charts==1.0.0")
LIBRARIES = (
    "aiohttp",
    "beautifulsoup4",
    "bokeh",
    "imageio",
    "joblib",
    "lxml",
    "nltk",
    "numba",
    "opencv-python-headless",
    "openpyxl",
    "pillow",
    "plotly",
    "pyarrow",
    "pypdf",
    "pytest",
    "python-docx",
    "python-pptx",
    "pytz",
    "pyyaml",
    "requests",
    "scikit-image",
    "scikit-learn",
    "scipy",
    "seaborn",
    "statsmodels",
    "sympy",
    "tabulate",
    "textblob",
    "tqdm",
    "xarray",
    "xlrd",
    "xlsxwriter",
)
"""The libraries of Python that it has beside numpy, pandas and matplotlib."""
_DENO = {
    "argv": ["deno", "jupyter", "--kernel", "--conn", "{connection_file}"],
    "display_name": "Deno",
    "language": "typescript",
    "env": {"NO_COLOR": "1"},
}
_IPYTHON = 'c.InteractiveShellApp.extensions = ["atoll_display"]\n'
_INSTALL = "export DEBIAN_FRONTEND=noninteractive\napt-get update -qq\napt-get install -y -qq --no-install-recommends"
_CLEAN = "rm -rf /var/lib/apt/lists/*"
_ADDED = {
    "r": f"set -e\n{_INSTALL} r-base-core r-cran-irkernel\n{_CLEAN}\n"
    "Rscript -e \"IRkernel::installspec(user = FALSE, prefix = '/usr/local')\"\n",
    "java": f"set -e\n{_INSTALL} openjdk-17-jdk-headless\n{_CLEAN}\n"
    "python3 -m pip install --no-cache-dir jjava==1.0a8\n",
}
LANGUAGES = tuple(_ADDED)
"""The languages that it has only on request, because each takes some 300 MB."""


def spec(*, libraries: Sequence[str] = LIBRARIES, languages: Sequence[str] = ()) -> TemplateSpec:
    """Return the specification to build.

    Args:
        libraries: The libraries beside numpy, pandas and matplotlib. With fewer, the build is faster and
            smaller.
        languages: The additional languages, out of ``LANGUAGES``.

    Raises:
        InvalidSpecError: A language is not in ``LANGUAGES``.
    """
    for language in languages:
        if language not in _ADDED:
            raise InvalidSpecError(
                f"the template has no language {language!r} to add", hint=f"give {' or '.join(LANGUAGES)}"
            )
    added: list[Step] = [RunStep(command=_ADDED[each], user="root") for each in sorted(set(languages))]
    packages = [*_SERVER, *_KERNELS, *_CORE, *libraries]
    kernels = "/usr/local/share/jupyter/kernels"
    return TemplateSpec(
        steps=[
            RunStep(command=["python3", "-m", "pip", "install", "--no-cache-dir", *packages], user="root"),
            # before the server, so that a new version of it does not install them again
            *added,
            CopyStep(sources=["inside"], target=f"{_HOME}/code_server", user="root"),
            RunStep(
                command="set -e\n"
                "python3 -m bash_kernel.install --prefix /usr/local\n"
                f"mkdir -p {kernels}/deno\n"
                f"printf %s '{json.dumps(_DENO)}' >{kernels}/deno/kernel.json\n"
                "mkdir -p /etc/ipython\n"
                f"printf %s '{_IPYTHON}' >/etc/ipython/ipython_config.py\n"
                # clients whose kernels run as root start contexts there
                "chgrp user /root && chmod 770 /root\n"
                f"cp {_HOME}/code_server/atoll_display.py"
                ' "$(python3 -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')"\n',
                user="root",
            ),
        ],
        # -s: packages that the user installs do not change the server
        start_command=f'home=$PWD; cd {_HOME} && exec python3 -s -m code_server "$home" python javascript',
        ready_command="curl -sf http://127.0.0.1:49999/health",
    )
