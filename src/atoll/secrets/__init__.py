"""What must never enter a sandbox: keys, and the values of secrets."""

from atoll.secrets.authority import Authority, home_authority

__all__ = ["Authority", "home_authority"]
