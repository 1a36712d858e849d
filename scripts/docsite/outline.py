"""Which pages the site has, under which heading, and in what order."""

from __future__ import annotations

from collections.abc import Collection

START = "index.md"
# The pages that come first under a heading. Others of its directory follow, by name.
SECTIONS = {
    "Guide": (
        "guide/",
        (
            "first-steps",
            "files-and-processes",
            "states-and-snapshots",
            "lifecycle",
            "limits",
            "inside",
            "services",
            "images",
            "templates",
            "volumes",
            "network",
            "secrets",
            "accounts",
            "models",
            "security",
            "unplug",
            "restores",
            "crashes",
            "survival",
            "housekeeping",
            "code",
            "evals",
            "mcp",
            "tools",
            "frameworks",
            "harnesses",
            "remote",
            "server",
            "teams",
            "delegations",
            "e2b",
        ),
    ),
    "Cookbook": ("cookbook/", ("index",)),
    "Coming from": ("coming-from/", ()),
    "Reference": (
        "reference/",
        ("sdk", "types", "commands", "errors", "policy", "settings", "e2b", "glossary"),
    ),
    "Design": ("design/", ("index",)),
}
PROJECT = ("SPECIFICATION.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md")


def outline(pages: Collection[str]) -> list[str | dict[str, list[str]]]:
    """The navigation of these pages, as mkdocs wants it: each page is in it once."""
    found: list[str | dict[str, list[str]]] = [START]
    for heading, (directory, first) in SECTIONS.items():
        there = [page for page in pages if page.startswith(directory)]
        order = {f"{directory}{name}.md": number for number, name in enumerate(first)}
        if there:
            found.append({heading: sorted(there, key=lambda page: (order.get(page, len(order)), page))})
    found.append({"Project": [page for page in PROJECT if page in pages]})
    return found
