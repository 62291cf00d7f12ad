"""Shared elements of figures: measures, panels, axes, legends, and one style per method or model."""

from __future__ import annotations

import re
import textwrap
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray
from limiirl.metrics import Interval, mean_interval
from limiirl.report.svg import INK, MUTED, RULE, SERIES, STYLE

Row = dict[str, Any]
Keywords = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 5.0
"""Figure width in inches; on a page of 340 pixels, text of 9 points is then 8.5 pixels high."""
# Ratio between the largest and the smallest value above which an axis is logarithmic.
_LOG_RATIO = 8.0
_ROOT_TICKS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Plot:
    """A matplotlib figure with its data, as rows with equal keys, and its text alternative."""

    figure: Figure = field(repr=False)
    rows: list[Row] = field(repr=False)
    alt: str

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Columns of the CSV file."""
        names = list(self.rows[0]) if self.rows else []
        return {name: [row[name] for row in self.rows] for name in names}


class Measure(NamedTuple):
    """Title and axis label of a measure; `log` permits a logarithmic axis, `rising` means that higher is better."""

    title: str
    axis: str
    log: bool
    rising: bool = False


MEASURES: dict[str, Measure] = {
    "n_iter": Measure("Iterations", "EM iterations", log=True),
    "seconds": Measure("Duration", "seconds", log=True),
    "nll": Measure("NLL", "nats per test demonstration", log=False),
    "anid": Measure("ANID", "0 is perfect, 1 is chance", log=False),
    "gevd": Measure("GEVD", "loss of true reward", log=False),
}
"""The five measures of the paper, by field of a record; lower is better for all."""

_ACCURACY = Measure("Accuracy", "fraction correct", log=False, rising=True)


def get_measure(name: str) -> Measure:
    """Return the description of a measure; the title of an unknown measure is its name."""
    return _ACCURACY if name == "accuracy" else MEASURES.get(name, Measure(name, "", log=False))


def intent_colour(k: int) -> str:
    """Return the colour of intent k; colours are reused for large k."""
    return SERIES[k % len(SERIES)]


def to_floats(values: ArrayLike) -> FloatArray:
    """Return values as floats (n,), with NaN for None (a failed trial) and for infinities."""
    array = np.array(values, dtype=np.float64).reshape(-1)
    array[~np.isfinite(array)] = np.nan
    return array


def summarise(values: ArrayLike) -> Interval:
    """Return the mean of the finite values with its 95 % interval, which is NaN for fewer than two values."""
    array = to_floats(values)
    finite = array[np.isfinite(array)]
    nan = float("nan")
    if finite.size >= 2:
        return mean_interval(finite)
    return Interval(float(finite[0]) if finite.size else nan, nan, nan, nan, finite.size)


def use_report_style(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it draws with the matplotlib settings of reports."""

    @wraps(draw)
    def draw_in_style(*args: P.args, **kwargs: P.kwargs) -> R:
        # Dollar signs in names do not delimit formulas.
        with mpl.rc_context(cast("Any", {**STYLE, "text.parse_math": False})):
            return draw(*args, **kwargs)

    return draw_in_style


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure that pyplot does not track."""
    # The padding allows for the font of the page, which differs from the font used for the layout.
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
    return figure


def new_panels(n: int, height: float, columns: int = 2) -> tuple[Figure, list[Axes], Axes | None]:
    """Return a figure, its n panels, and the empty cell after the last panel (None if the grid is full)."""
    columns = max(min(columns, n), 1)
    lines = max(-(-n // columns), 1)
    figure = new_figure(height * lines)
    axes = [figure.add_subplot(lines, columns, j + 1) for j in range(n)]
    spare = figure.add_subplot(lines, columns, n + 1) if n < lines * columns else None
    if spare is not None:
        spare.axis("off")
    return figure, axes, spare


def set_rows(ax: Axes, labels: Sequence[str], *, bottom: float = 0.4, bins: int | None = None) -> None:
    """Label the rows of a horizontal plot from top to bottom, and draw vertical grid lines."""
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_ylim(len(labels) - bottom, bottom - 1.0)
    if bins is not None:
        ax.locator_params(axis="x", nbins=bins)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)


def note_empty(ax: Axes, y: float) -> None:
    """Write "no data" in a row without values."""
    across = ax.get_yaxis_transform()
    ax.text(0.02, y, "no data", transform=across, va="center", fontsize="small", color=MUTED, fontstyle="italic")


def log_axis(ax: Axes, side: str, values: FloatArray) -> None:
    """Set a logarithmic scale with plain tick labels and with more ticks for fewer decades."""
    positive = values[np.isfinite(values) & (values > 0.0)]
    decades = float(np.log10(positive.max() / positive.min())) if positive.size else 0.0
    getattr(ax, f"set_{side}scale")("log")
    axis = getattr(ax, f"{side}axis")
    subs = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0) if decades < 0.7 else (1.0, 2.0, 5.0) if decades < 1.6 else (1.0,)
    axis.set_major_locator(LogLocator(10.0, subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def root_axis(ax: Axes, side: str, values: FloatArray) -> None:
    """Set a signed square-root scale, which separates small values and includes 0."""
    getattr(ax, f"set_{side}scale")("function", functions=(_root, _square))
    finite = values[np.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    reach = max(most, -least)
    # From the largest tick down, keep ticks that are at least a sixth of the axis apart.
    ticks: list[float] = []
    for tick in reversed([tick for tick in _ROOT_TICKS if tick <= 1.05 * reach]):
        if not ticks or np.sqrt(ticks[-1]) - np.sqrt(tick) > np.sqrt(reach) / 6.0:
            ticks.append(tick)
    below = [-tick for tick in ticks if tick > 0.0 and -tick >= 1.05 * least]
    shown = sorted({0.0, *ticks, *below})
    getattr(ax, f"set_{side}ticks")(shown, [f"{tick:g}" for tick in shown])


def _root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def suits_log_axis(values: FloatArray) -> bool:
    """Return True if all finite values are positive and span a ratio of more than 8."""
    finite = values[np.isfinite(values)]
    return bool(finite.size and finite.min() > 0.0 and finite.max() > _LOG_RATIO * finite.min())


def add_legend(figure: Figure, handles: Sequence[Any], spare: Axes | None = None, columns: int = 2) -> None:
    """Draw the legend in the spare cell or, if there is none, below the panels."""
    if spare is not None:
        spare.legend(handles=handles, loc="center left", bbox_to_anchor=(0.0, 0.5), handlelength=2.6)
        return
    lines = -(-sum(str(entry.get_label()).count("\n") + 1 for entry in handles) // columns)
    # Enlarge the figure by the height of the legend.
    figure.set_figheight(float(figure.get_figheight()) + 0.17 * lines + 0.15)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.6)


def wrap_label(name: str, width: int = 20, lines: int = 2) -> str:
    r"""Wrap a long label, and shorten it if it exceeds the number of lines.

    >>> wrap_label("k-means MLE"), wrap_label("a method with a name of more words than fit into two lines")
    ('k-means MLE', 'a method with a name\nof more words than…')
    """
    return "\n".join(textwrap.wrap(name, width, max_lines=lines, placeholder="…")) or name


def format_number(value: float) -> str:
    """Return a number with three significant digits, or "none" for NaN."""
    return f"{value:.3g}" if np.isfinite(value) else "none"


def describe_range(rows: Iterable[Row], label: str, key: str = "mean", *, rising: bool = False) -> str:
    """Return "A (1) to B (2)" for the first and the last row in the order of a key, or "" if there are no rows."""
    ordered = sorted(rows, key=lambda row: float(row[key]), reverse=rising)
    return " to ".join(f"{row[label]} ({format_number(row[key])})" for row in [*ordered[:1], *ordered[-1:]])


class MethodStyle(NamedTuple):
    """Line and marker of one method; `face` is the fill colour of the marker or "none"."""

    label: str
    colour: str
    marker: str
    dashes: Any
    face: str


_SOLID, _DASH, _DOT, _DASHDOT = "solid", (0, (4, 1.5)), (0, (1, 1.3)), (0, (5, 1.5, 1, 1.5))


def _style(colour: str, marker: str, dashes: Any = _SOLID, *, filled: bool = True) -> MethodStyle:
    return MethodStyle("", colour, marker, dashes, colour if filled else "none")


# Keys are the letters and digits of a name. Markers and dashes distinguish methods without colour: methods with
# initial rewards by MLE are solid and filled, methods with mean rewards are dashed and open, and supervised is grey.
_STYLES: dict[str, MethodStyle] = {
    "kmeansmle": _style(SERIES[0], "o"),
    "kmeansmean": _style(SERIES[5], "s", _DASH, filled=False),
    "gmmmle": _style(SERIES[2], "^"),
    "gmmmean": _style(SERIES[3], "v", _DASH, filled=False),
    "randomrewards": _style(SERIES[1], "D"),
    "randomresponsibilities": _style(SERIES[4], "P", _DASH, filled=False),
    "beststart": _style(SERIES[6], "p"),
    "beststartnoem": _style(SERIES[7], "h", _DASHDOT, filled=False),
    "kmeanssplitandmerge": _style(SERIES[3], "*", _DASHDOT),
    "supervised": _style(MUTED, "X", _DOT),
    # Initialisations of Sigma-GIRL; they share figures with random and supervised methods only.
    "kmeansrewardfeatures": _style(SERIES[0], "o"),
    "kmeanspolicyfeatures": _style(SERIES[5], "s", _DASH, filled=False),
    "gmmrewardfeatures": _style(SERIES[2], "^"),
    "gmmpolicyfeatures": _style(SERIES[3], "v", _DASH, filled=False),
}
# Behaviour models: colours that stay distinct under colour-vision deficiencies; the reference model is in text colour.
_MODELS: dict[str, MethodStyle] = {
    "maxent": _style(INK, "o"),
    "maxcausalent": _style(SERIES[7], "s"),
    "mlirl": _style(SERIES[2], "^"),
    "mlirlpapers": _style(SERIES[4], "v"),
    "mlirlaveraged": _style(SERIES[3], "D"),
    "sigmagirl": _style(SERIES[6], "P"),
}
_SPARE_MODELS = (_style(SERIES[0], "X"), _style(SERIES[1], "p"), _style(SERIES[5], "h"))
_SPARE = (
    _style(SERIES[6], "p", _DASHDOT),
    _style(SERIES[7], "h", _DOT, filled=False),
    _style(SERIES[3], "<", _DASHDOT, filled=False),
    _style(SERIES[6], ">", _DASH, filled=False),
    _style(SERIES[7], "d"),
    _style(SERIES[5], "8", _DOT),
)


def method_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """Return the style of each method, which is the same in every figure unless two custom names collide."""
    return _choose_styles(names, _STYLES, _SPARE)


def model_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """Return the style of each behaviour model."""
    return _choose_styles(names, _MODELS, _SPARE_MODELS)


def _choose_styles(
    names: Iterable[str], fixed: Mapping[str, MethodStyle], spare: Sequence[MethodStyle]
) -> dict[str, MethodStyle]:
    styles: dict[str, MethodStyle] = {}
    taken: set[int] = set()
    for name in names:
        letters = re.sub(r"[\W_]+", "", name.lower())
        style = fixed.get(letters)
        if style is None:
            first = zlib.crc32(name.encode()) % len(spare)
            order = [(first + j) % len(spare) for j in range(len(spare))]
            number = next((j for j in order if j not in taken), first)
            taken.add(number)
            style = spare[number]
        styles[name] = style._replace(label=name)
    return styles


def line_style(style: MethodStyle) -> Keywords:
    """Return the keywords of `Axes.plot` for a method."""
    return {
        "color": style.colour,
        "marker": style.marker,
        "linestyle": style.dashes,
        "markerfacecolor": style.face,
        "markersize": 5.0,
        "markeredgewidth": 1.1,
        "linewidth": 1.4,
    }


def legend_line(style: MethodStyle) -> Line2D:
    """Return the legend entry of a method."""
    return Line2D([], [], **line_style(style), label=wrap_label(style.label, 24))
