"""Keeps the values that must never enter a sandbox: the key of the home's authority, and secrets."""

from atoll.secrets.authority import Authority, home_authority
from atoll.secrets.key_file import KeyFile
from atoll.secrets.keyring import Keyring
from atoll.secrets.masking import Mask
from atoll.secrets.sealing import Belonging, KeySource, Vault, open_vault

__all__ = [
    "Authority",
    "Belonging",
    "KeyFile",
    "KeySource",
    "Keyring",
    "Mask",
    "Vault",
    "home_authority",
    "open_vault",
]
