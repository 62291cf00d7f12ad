"""The common parts of figures: measures and their names, panels, and one style per method. Imports matplotlib."""

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
from limiirl.report.svg import INK, MUTED, SERIES, STYLE

Row = dict[str, Any]
Keywords = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 5.0
"""Inches: on a phone's page of 340 pixels letters of 9 points are then still 8.5 pixels high."""
# A log axis pays where values span more than this ratio.
_WIDE = 8.0
_ROOT_TICKS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Drawn:
    """A figure with what a page needs beside it.

    Attributes
    ----------
    figure : matplotlib Figure
    rows : list of dict
        The numbers that are drawn, all with the same keys.
    alt : str
        What the picture says, for those who do not see it.

    Examples
    --------
    >>> Drawn(Figure(), [{"x": 1, "y": 2.0}, {"x": 2, "y": 3.0}], "A line.").columns
    {'x': [1, 2], 'y': [2.0, 3.0]}
    """

    figure: Figure = field(repr=False)
    rows: list[Row] = field(repr=False)
    alt: str

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The rows as columns of a CSV file."""
        names = list(self.rows[0]) if self.rows else []
        return {name: [row[name] for row in self.rows] for name in names}


class Measure(NamedTuple):
    """The name of a measure, what its axis says, whether that may be logarithmic, and whether more of it is better.

    >>> Measure("Duration", "seconds", log=True).axis
    'seconds'
    """

    title: str
    axis: str
    log: bool
    rising: bool = False


MEASURES: dict[str, Measure] = {
    "n_iter": Measure("Iterations", "iterations of EM", log=True),
    "seconds": Measure("Duration", "seconds", log=True),
    "nll": Measure("NLL", "nats a test demonstration", log=False),
    "anid": Measure("ANID", "0 perfect, 1 chance", log=False),
    "gevd": Measure("GEVD", "reward lost", log=False),
}
"""The five measures of the paper, by the name of a record's field; lower is better for each."""

_ACCURACY = Measure("Accuracy", "share put right", log=False, rising=True)


def measure(name: str) -> Measure:
    """Return a measure's names, or the name itself for one that is unknown.

    >>> measure("gevd").title, measure("accuracy").rising, measure("regret").title
    ('GEVD', True, 'regret')
    """
    return _ACCURACY if name == "accuracy" else MEASURES.get(name, Measure(name, "", log=False))


def intent_colour(k: int) -> str:
    """Return the colour of intent k; with more intents than colours they repeat.

    >>> intent_colour(0) == SERIES[0] == intent_colour(len(SERIES))
    True
    """
    return SERIES[k % len(SERIES)]


def numbers(values: ArrayLike) -> FloatArray:
    """Return values as floats (n,), in which infinities and None, as a failed trial gives, are NaN.

    >>> numbers([1, None, float("inf")])
    array([ 1., nan, nan])
    """
    array = np.array(values, dtype=np.float64).reshape(-1)
    array[~np.isfinite(array)] = np.nan
    return array


def in_ink(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw under the settings of the report, whoever calls."""

    @wraps(draw)
    def inked(*args: P.args, **kwargs: P.kwargs) -> R:
        # A dollar sign in somebody's name for a method is no formula.
        with mpl.rc_context(cast("Any", {**STYLE, "text.parse_math": False})):
            return draw(*args, **kwargs)

    return inked


def blank(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure, which pyplot does not know, with a little room around its parts.

    >>> blank(2.0).get_size_inches().tolist()
    [5.0, 2.0]
    """
    # The page's letters are laid out with the sizes of another font, so nothing may fit to the last point.
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
    return figure


def panels(n: int, height: float, columns: int = 2) -> tuple[Figure, list[Axes], Axes | None]:
    """Return a figure with n panels, the panels, and the free cell after them, if there is one, for a legend."""
    columns = max(min(columns, n), 1)
    lines = max(-(-n // columns), 1)
    figure = blank(height * lines)
    axes = [figure.add_subplot(lines, columns, j + 1) for j in range(n)]
    spare = figure.add_subplot(lines, columns, n + 1) if n < lines * columns else None
    if spare is not None:
        spare.axis("off")
    return figure, axes, spare


def log_axis(ax: Axes, side: str, values: FloatArray) -> None:
    """Make an axis logarithmic, its ticks written as plain numbers, the more in a decade the fewer decades."""
    told = values[np.isfinite(values) & (values > 0.0)]
    decades = float(np.log10(told.max() / told.min())) if told.size else 0.0
    getattr(ax, f"set_{side}scale")("log")
    axis = getattr(ax, f"{side}axis")
    subs = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0) if decades < 0.7 else (1.0, 2.0, 5.0) if decades < 1.6 else (1.0,)
    axis.set_major_locator(LogLocator(10.0, subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def root_axis(ax: Axes, side: str, values: FloatArray) -> None:
    """Give an axis the scale of a square root, which has room for small values beside large ones, and a place for 0."""
    getattr(ax, f"set_{side}scale")("function", functions=(_root, _square))
    known = values[np.isfinite(values)]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    reach = max(most, -least)
    ticks = [tick for tick in _ROOT_TICKS if tick <= 1.05 * reach]
    # The largest ones that stand clear of each other: a sixth of the axis, on the scale of the root.
    chosen: list[float] = []
    for tick in reversed(ticks):
        if not chosen or np.sqrt(chosen[-1]) - np.sqrt(tick) > np.sqrt(reach) / 6.0:
            chosen.append(tick)
    below = [-tick for tick in chosen if tick > 0.0 and -tick >= 1.05 * least]
    shown = sorted({0.0, *chosen, *below})
    getattr(ax, f"set_{side}ticks")(shown, [f"{tick:g}" for tick in shown])


def _root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def spans(values: FloatArray) -> bool:
    """Whether a log axis suits values: all positive, and far apart.

    >>> spans(np.array([0.1, 2.0])), spans(np.array([0.0, 2.0])), spans(np.array([np.nan]))
    (True, False, False)
    """
    told = values[np.isfinite(values)]
    return bool(told.size and told.min() > 0.0 and told.max() > _WIDE * told.min())


def legend(figure: Figure, handles: Sequence[Any], spare: Axes | None = None, columns: int = 2) -> None:
    """Put a legend into the spare cell, or else below the panels."""
    if spare is not None:
        spare.legend(handles=handles, loc="center left", bbox_to_anchor=(0.0, 0.5), handlelength=2.6)
    else:
        deep = [str(entry.get_label()).count("\n") + 1 for entry in handles]
        lines = -(-sum(deep) // columns)
        # The panels keep their height.
        figure.set_figheight(float(figure.get_figheight()) + 0.17 * lines + 0.15)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.6)


def fitted(name: str, width: int = 20, lines: int = 2) -> str:
    r"""Return a name broken into lines where it is long, and cut where it is longer still.

    >>> fitted("k-means MLE"), fitted("another method with a name of many words that goes on")
    ('k-means MLE', 'another method with\na name of many…')
    """
    return "\n".join(textwrap.wrap(name, width, max_lines=lines, placeholder="…")) or name


def told(value: float) -> str:
    """Return a number as a text says it: three digits, and "none" for NaN.

    >>> told(3.14159), told(float("nan"))
    ('3.14', 'none')
    """
    return f"{value:.3g}" if np.isfinite(value) else "none"


class MethodStyle(NamedTuple):
    """How one method is drawn; `face` is the colour that fills its marker, or "none".

    >>> MethodStyle("mine", "#0b6bb0", "o", "solid", "none").marker
    'o'
    """

    label: str
    colour: str
    marker: str
    dashes: Any
    face: str


_SOLID, _DASH, _DOT, _DASHDOT = "solid", (0, (4, 1.5)), (0, (1, 1.3)), (0, (5, 1.5, 1, 1.5))


def _style(colour: str, marker: str, dashes: Any, *, filled: bool) -> MethodStyle:
    return MethodStyle("", colour, marker, dashes, colour if filled else "none")


# By the letters and digits of a name. Markers and dashes tell methods apart without colour: first rewards by MLE are
# solid and filled, by means dashed and open; the supervised baseline is no competitor and stays grey.
_STYLES: dict[str, MethodStyle] = {
    "kmeansmle": _style(SERIES[0], "o", _SOLID, filled=True),
    "kmeansmean": _style(SERIES[5], "s", _DASH, filled=False),
    "gmmmle": _style(SERIES[2], "^", _SOLID, filled=True),
    "gmmmean": _style(SERIES[3], "v", _DASH, filled=False),
    "randomrewards": _style(SERIES[1], "D", _SOLID, filled=True),
    "randomresponsibilities": _style(SERIES[4], "P", _DASH, filled=False),
    "beststart": _style(SERIES[6], "p", _SOLID, filled=True),
    "beststartnoem": _style(SERIES[7], "h", _DASHDOT, filled=False),
    "kmeanssplitandmerge": _style(SERIES[3], "*", _DASHDOT, filled=True),
    "supervised": _style(MUTED, "X", _DOT, filled=True),
    # Starts of Sigma-GIRL by what describes an agent, which share no figure with those above but for the last three.
    "kmeansrewardfeatures": _style(SERIES[0], "o", _SOLID, filled=True),
    "kmeanspolicyfeatures": _style(SERIES[5], "s", _DASH, filled=False),
    "gmmrewardfeatures": _style(SERIES[2], "^", _SOLID, filled=True),
    "gmmpolicyfeatures": _style(SERIES[3], "v", _DASH, filled=False),
    # Executors, which share no figure with methods.
    "local": _style(SERIES[0], "o", _SOLID, filled=True),
    "dask": _style(SERIES[1], "D", _DASH, filled=True),
}
# Models of behaviour, by colours that stay apart for eyes that see red and green, or blue and yellow, alike; the model
# with which others are compared has the colour of the text.
_MODELS: dict[str, MethodStyle] = {
    "maxent": _style(INK, "o", _SOLID, filled=True),
    "maxcausalent": _style(SERIES[7], "s", _SOLID, filled=True),
    "mlirl": _style(SERIES[2], "^", _SOLID, filled=True),
    "mlirlpapers": _style(SERIES[4], "v", _SOLID, filled=True),
    "mlirlaveraged": _style(SERIES[3], "D", _SOLID, filled=True),
    "sigmagirl": _style(SERIES[6], "P", _SOLID, filled=True),
}
_SPARE_MODELS = (
    _style(SERIES[0], "X", _SOLID, filled=True),
    _style(SERIES[1], "p", _SOLID, filled=True),
    _style(SERIES[5], "h", _SOLID, filled=True),
)
# The paper's names.
_ALIASES = {"limiirlmle": "kmeansmle", "limiirlmean": "kmeansmean", "random": "randomrewards"}
_SPARE = (
    _style(SERIES[6], "p", _DASHDOT, filled=True),
    _style(SERIES[7], "h", _DOT, filled=False),
    _style(SERIES[3], "<", _DASHDOT, filled=False),
    _style(SERIES[6], ">", _DASH, filled=False),
    _style(SERIES[7], "d", _SOLID, filled=True),
    _style(SERIES[5], "8", _DOT, filled=True),
)


def styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """Return a style for each method: a known name's own, and for any other one by its letters.

    The same name looks the same in every figure, unless two unknown names of a figure would look alike.

    Examples
    --------
    >>> found = styles(["k-means, MLE", "LiMIIRL-MLE", "my own"])
    >>> [style.label for style in found.values()]
    ['k-means, MLE', 'LiMIIRL-MLE', 'my own']
    >>> found["LiMIIRL-MLE"].colour == found["k-means, MLE"].colour != found["my own"].colour
    True
    """
    return _chosen(names, _STYLES, _SPARE)


def model_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """Return a style for each model of behaviour, in the same way.

    Examples
    --------
    >>> found = model_styles(["MaxEnt", "Sigma-GIRL", "my own"])
    >>> len({style.colour for style in found.values()})
    3
    """
    return _chosen(names, _MODELS, _SPARE_MODELS)


def open_dashed(style: MethodStyle, label: str) -> MethodStyle:
    """Return the same style with dashes and an open marker: what belongs to a model, and is no competitor.

    >>> open_dashed(model_styles(["MaxEnt"])["MaxEnt"], "MaxEnt, true labels given").face
    'none'
    """
    return style._replace(label=label, dashes=_DASH, face="none")


def _chosen(
    names: Iterable[str], known_styles: Mapping[str, MethodStyle], spare: Sequence[MethodStyle]
) -> dict[str, MethodStyle]:
    found: dict[str, MethodStyle] = {}
    taken: set[int] = set()
    for name in names:
        letters = re.sub(r"[\W_]+", "", name.lower())
        known = known_styles.get(_ALIASES.get(letters, letters))
        if known is None:
            first = zlib.crc32(name.encode()) % len(spare)
            order = [(first + j) % len(spare) for j in range(len(spare))]
            spot = next((j for j in order if j not in taken), first)
            taken.add(spot)
            known = spare[spot]
        found[name] = known._replace(label=name)
    return found


def line(style: MethodStyle) -> Keywords:
    """Return the keywords of `Axes.plot` for a method.

    >>> line(styles(["GMM, MLE"])["GMM, MLE"])["marker"]
    '^'
    """
    return {
        "color": style.colour,
        "marker": style.marker,
        "linestyle": style.dashes,
        "markerfacecolor": style.face,
        "markersize": 5.0,
        "markeredgewidth": 1.1,
        "linewidth": 1.4,
    }


def handle(style: MethodStyle) -> Line2D:
    """Return a method's entry for a legend.

    >>> handle(styles(["GMM, MLE"])["GMM, MLE"]).get_label()
    'GMM, MLE'
    """
    return Line2D([], [], **line(style), label=fitted(style.label, 24))
