"""An extension of IPython, loaded in each Python kernel: shows data frames and charts as data, too."""

from __future__ import annotations

import json
from typing import Any

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

_FIGURE = ("matplotlib.figure", "Figure")


class DataFormatter(BaseFormatter):
    """Shows a data frame as a list of plain values for each column."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    """Shows a figure as the data of its chart."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def lookup(self, obj: Any) -> Any:
        """Find how an object is shown. Matplotlib takes its figures out of the tables of all formatters."""
        if any((kind.__module__, kind.__name__) == _FIGURE for kind in type(obj).__mro__):
            return _figure_as_chart
        return super().lookup(obj)  # type: ignore[no-untyped-call]


def load_ipython_extension(shell: Any) -> None:
    """Add the two forms to those that IPython knows."""
    formatter = shell.display_formatter
    added: dict[str, Any] = {
        "e2b/data": DataFormatter(parent=formatter),
        "e2b/chart": ChartFormatter(parent=formatter),
    }
    formatter.formatters.update(added)
    formatter.active_types = [*formatter.active_types, *added]
    # by name: the library is not loaded for it
    added["e2b/data"].for_type_by_name("pandas.core.frame", "DataFrame", _frame_as_data)
    added["e2b/data"].for_type_by_name("pandas", "DataFrame", _frame_as_data)


def _frame_as_data(frame: Any) -> dict[str, list[Any]]:
    return {
        str(name): json.loads(column.to_json(orient="values", date_format="iso", default_handler=str))
        for name, column in frame.items()
    }


def _figure_as_chart(figure: Any) -> dict[str, Any] | None:
    try:
        from e2b_charts import chart_figure_to_dict

        chart = chart_figure_to_dict(figure)
    except Exception:  # a figure that cannot be read is still shown as a picture
        return None
    found: dict[str, Any] | None = json.loads(json.dumps(chart, default=str)) if chart else None
    return found
