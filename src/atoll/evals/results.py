"""The results of an evaluation: its rows, their summaries and the files for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from atoll.evals import tables
from atoll.evals.journal import latest, read_journal
from atoll.evals.rows import Row, Summary, best_of, summary_of

if TYPE_CHECKING:
    from rich.table import Table


class Results(Sequence[Row]):
    """The rows of an evaluation, by strategy and repeat.

    Its printed form is a table of the strategies, and a notebook shows it as a table too.

    Args:
        rows: The rows.
        evaluation: The evaluation's id, which its forks have as the label ``evals``.
    """

    def __init__(self, rows: Iterable[Row], *, evaluation: str) -> None:
        self._rows = tuple(rows)
        self.evaluation = evaluation

    @classmethod
    def read(cls, journal: str | os.PathLike[str]) -> Results:
        """Return the rows that a journal has so far. Only the evaluation itself knows which forks are kept.

        Raises:
            DamagedError: It is no journal of an evaluation.
            OSError: It cannot be read.
        """
        header, rows = read_journal(journal)
        order = {name: number for number, name in enumerate(header.strategies)}
        found = sorted(
            latest(rows).values(), key=lambda row: (order.get(row.strategy, len(order)), row.repeat)
        )
        return cls(found, evaluation=header.evaluation)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<Results of {self.evaluation}: {len(self)} rows>"

    def __str__(self) -> str:
        return tables.as_text(self.by_strategy())

    def _repr_html_(self) -> str:
        return tables.html_parts(self.by_strategy(), self._rows)

    def best(self, *, lowest: bool = False) -> Row | None:
        """Return the row that passed with the highest score, of equal ones the first; None if none passed.

        Args:
            lowest: Take the lowest score instead.
        """
        return best_of(self._rows, lowest=lowest)

    def by_strategy(self) -> list[Summary]:
        """Return the summary of each strategy, in the order of the strategies."""
        rows: dict[str, list[Row]] = {}
        for row in self._rows:
            rows.setdefault(row.strategy, []).append(row)
        return [summary_of(strategy, own) for strategy, own in rows.items()]

    def table(self) -> Table:
        """Return the strategies as a table of rich, to be printed on a console."""
        return tables.rich_table(self.by_strategy())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as CSV, with a first line of names.

        A text that a spreadsheet would take for a formula gets a ``'`` in front.
        """
        Path(path).write_text(tables.csv_text(self._rows), encoding="utf-8", newline="")

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the id, a summary of each strategy, and the rows, as JSON."""
        Path(path).write_text(
            tables.json_text(self.evaluation, self.by_strategy(), self._rows), encoding="utf-8"
        )

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that needs nothing else: no script, no link, everything escaped."""
        page = tables.html_page(self.evaluation, self.by_strategy(), self._rows)
        Path(path).write_text(page, encoding="utf-8")
