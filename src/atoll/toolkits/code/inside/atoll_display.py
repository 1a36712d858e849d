"""An extension of IPython, loaded in each Python kernel: shows frames, charts and pictures, sees new packages."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import site
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from typing import Any

from IPython.core.formatters import BaseFormatter
from IPython.display import display
from traitlets import ObjectName, Unicode

_FIGURE = ("matplotlib.figure", "Figure")
_PICTURES = "PIL.Image"


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


class PictureFinder:
    """Changes Pillow when it is loaded, so that ``show``, and ``save`` to a file, show the picture."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find Pillow's module of pictures, once."""
        if name != _PICTURES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_load, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


class NewPackages:
    """Lets a kernel find packages that were installed since it started."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, set[str]]] = {}
        self.look()

    def look(self, *_: Any) -> None:
        """Look whether the directories of packages have changed, and follow the new path files in them."""
        for directory in (site.getusersitepackages(), sysconfig.get_path("purelib")):
            try:
                changed_at = os.stat(directory).st_mtime
                known_at, known = self._seen.get(directory, (None, None))
                if changed_at == known_at:
                    continue
                files = {name for name in os.listdir(directory) if name.endswith(".pth")}
            except OSError:
                continue
            self._seen[directory] = (changed_at, files)
            importlib.invalidate_caches()
            for name in sorted(files - known) if known is not None else ():
                site.addpackage(directory, name, None)


def load_ipython_extension(shell: Any) -> None:
    """Add the two forms to IPython's own, and set up pictures and packages."""
    formatter = shell.display_formatter
    added: dict[str, Any] = {
        "e2b/data": DataFormatter(parent=formatter),
        "e2b/chart": ChartFormatter(parent=formatter),
    }
    formatter.formatters.update(added)
    formatter.active_types = [*formatter.active_types, *added]
    # by name, so that nothing loads the library
    added["e2b/data"].for_type_by_name("pandas.core.frame", "DataFrame", _frame_as_data)
    added["e2b/data"].for_type_by_name("pandas", "DataFrame", _frame_as_data)
    sys.meta_path.insert(0, PictureFinder())
    shell.events.register("pre_run_cell", NewPackages().look)


def _load(load: Any, module: Any) -> None:
    load(module)
    save = module.Image.save

    @functools.wraps(save)
    def save_and_show(picture: Any, fp: Any, *arguments: Any, **options: Any) -> None:
        save(picture, fp, *arguments, **options)
        # matplotlib saves its figures like this, and shows them itself
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if isinstance(fp, (str, os.PathLike)) and not asking.startswith("matplotlib."):
            display(picture)  # type: ignore[no-untyped-call]

    def show(picture: Any, *_: Any, **__: Any) -> None:
        """Show the picture."""
        display(picture)  # type: ignore[no-untyped-call]

    module.Image.save, module.Image.show = save_and_show, show


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
