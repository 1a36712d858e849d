"""The code interpreter: a template with kernels of Jupyter, and the server inside that runs code in them."""

from atoll.toolkits.code.template import LANGUAGES, NAME, spec

__all__ = ["LANGUAGES", "NAME", "spec"]
