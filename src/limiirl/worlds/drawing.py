"""Pictures of the worlds. Importing this module imports matplotlib, so the worlds do it only when asked to plot."""

from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, to_rgb
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.worlds.streets import ROAD_CLASSES

if TYPE_CHECKING:
    from limiirl.worlds.base import IntentWorld
    from limiirl.worlds.roadgrid import RoadGrid

# Okabe and Ito's palette, distinguishable with colour blindness; with more kinds than hues they repeat.
HUES = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#f0e442")
START, GOAL = "#f2efe6", "#3b3b3b"
DARK, LIGHT = "#333333", "#ffffff"
# What stands outside of the cells is legible on white and on black alike, unless a style decides.
NEUTRAL = "#808080"
# Walks must stand out from cells of the same hue, and from white and black: the hues above, at medium lightness.
INTENTS = ("#2484c6", "#b97400", "#00855f", "#b8548f", "#c44f00", "#3f62d6", "#8d8000")

_ROAD_COLOURS = ("#c8102e", "#e8862e", "#5b7fa6", "#a9b1ba")
_ROAD_WIDTHS = (2.4, 1.5, 1.0, 0.6)
_FADED = 0.5  # what remains of the cells' colour below walks

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Picture(NamedTuple):
    """A world that is drawn: where its states are, what its legend shows, and how walks go over it."""

    ax: Axes
    places: Float  # (S, 2)
    handles: list[Artist]
    jitter: float = 0.27  # by how much a walk is moved at most: it stays within a cell
    period: int | None = None  # rows after which the world begins again, if it wraps around


def draw_world(
    world: "IntentWorld",
    theta: ArrayLike | None,
    ax: Axes | None,
    demos: Demonstrations | None,
    labels: ArrayLike | None,
) -> Axes:
    """Draw a world and walks over it; see `IntentWorld.plot`."""
    if demos is None and labels is not None:
        raise InvalidParameter("labels colour the walks of demos, which are not given. Pass demos as well.")
    intents = None if demos is None else _intents(demos, labels, world.mdp.n_states)
    rewards = None if theta is None else world.mdp.rewards(np.asarray(theta, dtype=np.float64))[0][:, 0]
    picture = world.draw(rewards, ax, faded=demos is not None)
    handles = list(picture.handles)
    if demos is not None:
        handles += _draw_walks(picture, demos, intents)
    if handles:
        beside = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
        place: dict[str, Any] = beside if theta is None else below  # a colour bar stands beside
        names = [str(handle.get_label()) for handle in handles]
        picture.ax.legend(handles, names, frameon=False, labelcolor=ink(), **place)
    return picture.ax


def ink() -> str:
    """Return the colour of what stands outside of the cells: that of a style, where one sets the colour of text."""
    chosen = str(mpl.rcParams["text.color"])
    return NEUTRAL if chosen == mpl.rcParamsDefault["text.color"] else chosen


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes given, or those of a new transparent figure of this size in inches."""
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height), layout="constrained", facecolor="none")
        ax.set_facecolor("none")
    ax.tick_params(length=0, colors=ink())
    ax.spines[:].set_visible(False)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_color(ink())
    return ax


def colour_bar(ax: Axes, mappable: Any) -> None:
    """Add the scale of rewards."""
    bar = ax.figure.colorbar(mappable, ax=ax, shrink=0.8)
    bar.set_label("reward", color=ink())
    bar.ax.tick_params(colors=ink())
    bar.outline.set_visible(False)


def palette(colours: list[str], *, faded: bool) -> ListedColormap:
    """Return a map of these colours; faded ones are blended with white, for what is transparent turns dark at night."""
    share = _FADED if faded else 1.0
    return ListedColormap([tuple(1.0 - share * (1.0 - np.array(to_rgb(colour)))) for colour in colours])


def reward_map(*, faded: bool) -> Colormap:
    """Return the map that shows rewards."""
    scale = plt.get_cmap("viridis")
    share = _FADED if faded else 1.0
    return ListedColormap(1.0 - share * (1.0 - scale(np.linspace(0.0, 1.0, 256))[:, :3]))


def legible_on(colour: Any) -> str:
    """Return the colour of a text on this background."""
    return LIGHT if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.45 else DARK


def _intents(demos: Demonstrations, labels: ArrayLike | None, n_states: int) -> NDArray[Any] | None:
    """Return the label (N,) of each walk, of responsibilities the column of the largest; None where there are none."""
    if not isinstance(demos, Demonstrations):
        raise InvalidParameter(
            f"demos must be Demonstrations; got {type(demos).__name__}. Build them with Demonstrations.from_lists."
        )
    if int(demos.states.max(initial=0)) >= n_states:
        raise InvalidParameter(
            f"demos must visit states of this world, 0..{n_states - 1}; they visit {int(demos.states.max())}. Draw "
            "demonstrations of this world."
        )
    given = demos.labels if labels is None else labels
    if given is None:
        return None
    array = np.asarray(given)
    if array.ndim not in (1, 2) or len(array) != len(demos):
        raise InvalidParameter(
            f"labels must have shape ({len(demos)},) or ({len(demos)}, K), one row a demonstration; got shape "
            f"{array.shape}. Give the intent of each demonstration."
        )
    return array if array.ndim == 1 else np.asarray(array.argmax(axis=1))


def _draw_walks(picture: Picture, demos: Demonstrations, intents: NDArray[Any] | None) -> list[Artist]:
    """Draw every demonstration as a line in the colour of its intent, and return the legend of the intents."""
    shifts = np.random.default_rng(0).uniform(-picture.jitter, picture.jitter, size=(len(demos), 2))
    alpha = float(np.clip(25.0 / max(len(demos), 1), 0.3, 0.9))
    groups = np.zeros(len(demos), dtype=np.int64) if intents is None else intents
    handles: list[Artist] = []
    for k, intent in enumerate(np.unique(groups)):
        # An intent has its colour even where the walks of others are not shown.
        number = int(intent) if isinstance(intent, np.integer) and intent >= 0 else k
        colour = INTENTS[number % len(INTENTS)]
        name = "demonstrations" if intents is None else f"intent {intent}"
        pieces: list[Float] = []
        for i in np.flatnonzero(groups == intent):
            walk = picture.places[demos.states[demos.offsets[i] : demos.offsets[i + 1]]] + shifts[i]
            pieces += _unwrapped(walk, picture.period)
        lines = LineCollection(pieces, colors=colour, linewidths=1.3, alpha=alpha, capstyle="round", joinstyle="round")
        lines.set_label(name)
        picture.ax.add_collection(lines, autolim=False)
        handles.append(Line2D([], [], color=colour, linewidth=2.0, label=name))
    return handles


def _unwrapped(walk: Float, period: int | None) -> list[Float]:
    """Cut a walk where it wraps around: it leaves the picture on one side and comes in again on the other."""
    if period is None:
        return [walk]
    turns = -np.rint(np.diff(walk[:, 1]) / period)  # 1 where it leaves below, -1 above
    cuts = np.flatnonzero(turns) + 1
    pieces = np.split(walk, cuts)
    for j, cut in enumerate(cuts):
        shift = np.array([0.0, period * turns[cut - 1]])
        pieces[j], pieces[j + 1] = (
            np.vstack([pieces[j], walk[cut] + shift]),
            np.vstack([walk[cut - 1] - shift, pieces[j + 1]]),
        )
    return pieces


def draw_roadgrid(town: "RoadGrid", ax: Axes | None) -> Axes:
    """Draw the streets by road class; see `RoadGrid.plot`."""
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 8), layout="constrained")
    once = town.one_way | (town.tail < town.head)  # both directions of a street lie on each other
    lines = np.stack([town.start_xy, town.end_xy], axis=1)
    extent = float(np.ptp(town.node_xy, axis=0).max())
    # Line widths are in points: thin them as the town outgrows the page.
    scale = min(1.0, max(0.4, 3.0 / extent))
    for k in reversed(range(len(ROAD_CLASSES))):
        chosen = once & (town.road_class == k)
        style = {"colors": _ROAD_COLOURS[k], "linewidths": scale * _ROAD_WIDTHS[k], "capstyle": "round"}
        ax.add_collection(LineCollection(list(lines[chosen]), rasterized=True, zorder=5 - k, **style))
    handles = [Line2D([], [], color=c, linewidth=w + 0.6) for c, w in zip(_ROAD_COLOURS, _ROAD_WIDTHS, strict=True)]
    ax.legend(handles, ROAD_CLASSES, loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=len(handles), frameon=False)
    ax.set(aspect="equal", xlabel="km east of the centre", ylabel="km north of the centre")
    ax.set_title(f"RoadGrid: {town.n_states:,} directed segments, {town.n_edges:,} turns")
    ax.autoscale_view()
    ax.spines[["top", "right"]].set_visible(False)
    return ax
