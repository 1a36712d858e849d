"""The cases run under the libraries' own interpreters, not here."""

collect_ignore = ["cases"]
