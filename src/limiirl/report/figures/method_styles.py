"""One style a method, the same in every figure, told apart by marker and dashes as well as by colour."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from limiirl.report.figures.look import Keywords, fitted
from limiirl.report.ink import INK, MUTED, SERIES


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
    # Engines, which share no figure with methods.
    "local": _style(SERIES[0], "o", _SOLID, filled=True),
    "dask": _style(SERIES[1], "D", _DASH, filled=True),
    "ray": _style(SERIES[2], "^", _DASHDOT, filled=False),
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
