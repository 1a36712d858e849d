"""The code interpreter: a template with kernels of Jupyter, and the server inside that runs code in them."""

from atoll.toolkits.code.template import CONTEXT, LANGUAGES, LIBRARIES, NAME, spec

__all__ = ["CONTEXT", "LANGUAGES", "LIBRARIES", "NAME", "spec"]
