"""The cases run under the SDKs' own interpreters, not here."""

collect_ignore = ["cases"]
