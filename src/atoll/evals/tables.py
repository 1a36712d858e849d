"""Results as text, tables, CSV, JSON and HTML. All of them escape text from guests."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.evals.outcome import harmless
from atoll.evals.rows import Row, Summary
from atoll.types.internal import html_output, html_table

if TYPE_CHECKING:
    from rich.table import Table

_NAME_CHARACTERS = 60
_VALUE_CHARACTERS = 200
_SHOWN_ROWS = 1000
_FORMULA = re.compile(r"[\s'\"]*[=+\-@|%]|[\t\r\n]")
# JSON need not escape these, and some terminals obey them
_CONTROLS = re.compile("[\x7f-\x9f]")
_SUMMARY_HEAD = (
    "strategy",
    "runs",
    "passed",
    "pass rate",
    "mean",
    "median",
    "least",
    "most",
    "wall s",
    "cost",
)
_ROW_HEAD = ("strategy", "repeat", "status", "score", "value", "wall s", "cpu s", "cost", "sandbox", "start")
_HASH_CHARACTERS = 12
_STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd}"
    "details{margin:.5em 0}pre{background:#f6f6f6;padding:.6em}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_text(summaries: Sequence[Summary]) -> str:
    """Return the strategies as aligned columns."""
    lines = [_SUMMARY_HEAD, *(_summary_cells(summary) for summary in summaries)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_SUMMARY_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def rich_table(summaries: Sequence[Summary]) -> Table:
    """Return the strategies as a table of rich. Its cells are plain text, not markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in _SUMMARY_HEAD:
        table.add_column(name, justify="left" if name == "strategy" else "right")
    for summary in summaries:
        table.add_row(*(Text(cell) for cell in _summary_cells(summary)))
    return table


def csv_text(rows: Sequence[Row]) -> str:
    """Return the rows as CSV. No cell is a formula."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(Row.__struct_fields__)
    for row in rows:
        writer.writerow([_csv_cell(name, getattr(row, name)) for name in Row.__struct_fields__])
    return file.getvalue()


def json_text(evaluation: str, summaries: Sequence[Summary], rows: Sequence[Row]) -> str:
    """Return everything as indented JSON that is safe for a terminal."""
    value = {"evaluation": evaluation, "strategies": summaries, "rows": rows}
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def html_page(evaluation: str, summaries: Sequence[Summary], rows: Sequence[Row]) -> str:
    """Return a whole page, with the error of each run."""
    title = f"Evaluation {evaluation}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"{html_parts(summaries, rows)}{''.join(map(_details, rows))}</body></html>\n"
    )


def html_parts(summaries: Sequence[Summary], rows: Sequence[Row]) -> str:
    """Return a table of the strategies and one of the rows."""
    shown = rows[:_SHOWN_ROWS]
    more = f"<p>{len(rows) - len(shown):,} more</p>" if len(rows) > len(shown) else ""
    return (
        html_table(_SUMMARY_HEAD, map(_summary_cells, summaries))
        + html_table(_ROW_HEAD, map(_row_cells, shown))
        + more
    )


def _details(row: Row) -> str:
    streams = [("error", row.error or ""), ("output", row.output)]
    if not any(text for _, text in streams):
        return ""
    name = harmless(row.strategy, _NAME_CHARACTERS)
    body = html_output(f"sandbox {row.sandbox_id or '-'}", streams)
    return f"<details><summary>{escape(name)} {row.repeat}: {escape(row.status)}</summary>{body}</details>"


def _summary_cells(summary: Summary) -> tuple[str, ...]:
    rate = "-"
    if summary.pass_rate is not None and summary.pass_low is not None and summary.pass_high is not None:
        rate = f"{summary.pass_rate:.0%} ({summary.pass_low:.0%}-{summary.pass_high:.0%})"
    numbers = (summary.mean, summary.median, summary.least, summary.most, summary.mean_wall_s, summary.cost)
    return (
        _one_line(summary.strategy, _NAME_CHARACTERS),
        str(summary.runs),
        str(summary.passed),
        rate,
        *map(_number, numbers),
    )


def _row_cells(row: Row) -> tuple[str, ...]:
    value = "" if row.value is None else msgspec.json.encode(row.value).decode()
    return (
        _one_line(row.strategy, _NAME_CHARACTERS),
        str(row.repeat),
        f"{row.status}, kept" if row.kept else row.status,
        _number(row.score),
        harmless(value, _VALUE_CHARACTERS),
        _number(row.wall_s),
        _number(row.cpu_s),
        _number(row.cost),
        row.sandbox_id or "-",
        row.start_hash[:_HASH_CHARACTERS],
    )


def _one_line(text: str, most: int) -> str:
    return harmless(text, most).replace("\n", "\\n").replace("\t", "\\t")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _csv_cell(name: str, value: Any) -> object:
    if name == "value" and not isinstance(value, (str, int, float)):
        value = "" if value is None else msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return "" if value is None else value
    text = harmless(value, len(value)).replace("\r", "\\r")
    return f"'{text}" if _FORMULA.match(text) else text
