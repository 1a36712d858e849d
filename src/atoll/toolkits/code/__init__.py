"""The code interpreter: a template with kernels of Jupyter, and the server inside that runs code in them."""

from atoll.toolkits.code.template import NAME, spec

__all__ = ["NAME", "spec"]
