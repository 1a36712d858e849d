"""The version of this package, and nothing else, so that reading it costs nothing."""

__version__ = "0.1.0"
