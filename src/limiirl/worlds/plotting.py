"""Pictures of the worlds. Imports matplotlib, so the worlds import this module only when asked to plot."""

from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Rectangle
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.demos import Agents, Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.worlds.continuous_puddleworld import GOAL as CONTINUOUS_GOAL
from limiirl.worlds.continuous_puddleworld import PUDDLE, RADIUS, SIZE, trace_positions
from limiirl.worlds.continuous_puddleworld import START as CONTINUOUS_START
from limiirl.worlds.roadgrid import ROAD_CLASSES

if TYPE_CHECKING:
    from limiirl.worlds.base import IntentWorld
    from limiirl.worlds.gridworld import GridWorld
    from limiirl.worlds.objectworld import ObjectWorld
    from limiirl.worlds.roadgrid import RoadGrid
    from limiirl.worlds.syntheticworld import SyntheticWorld


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


class WorldFigure(NamedTuple):
    """A world that is drawn: where its states are, what its legend shows, and how walks go over it."""

    ax: Axes
    places: FloatArray  # (S, 2)
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
        raise InvalidParameter(
            "labels colour the walks of demos, which are not given. Pass demos as well.",
            parameter="labels",
            value=labels,
        )
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
        picture.ax.legend(handles, names, frameon=False, labelcolor=text_colour(), **place)
    return picture.ax


def text_colour() -> str:
    """Return the colour of what stands outside of the cells: that of a style, where one sets the colour of text."""
    chosen = str(mpl.rcParams["text.color"])
    return NEUTRAL if chosen == mpl.rcParamsDefault["text.color"] else chosen


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes given, or those of a new transparent figure of this size in inches."""
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height), layout="constrained", facecolor="none")
        ax.set_facecolor("none")
    ax.tick_params(length=0, colors=text_colour())
    ax.spines[:].set_visible(False)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_color(text_colour())
    return ax


def colour_bar(ax: Axes, mappable: Any) -> None:
    """Add the scale of rewards."""
    bar = ax.figure.colorbar(mappable, ax=ax, shrink=0.8)
    bar.set_label("reward", color=text_colour())
    bar.ax.tick_params(colors=text_colour())
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


def contrasting_text_colour(colour: Any) -> str:
    """Return the colour of a text on this background."""
    return LIGHT if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.45 else DARK


def _intents(demos: Demonstrations, labels: ArrayLike | None, n_states: int) -> NDArray[Any] | None:
    """Return the label (N,) of each walk, of responsibilities the column of the largest; None where there are none."""
    if not isinstance(demos, Demonstrations):
        raise InvalidParameter(
            f"demos must be Demonstrations; got {type(demos).__name__}. Build them with Demonstrations.from_lists.",
            parameter="demos",
            value=demos,
        )
    if int(demos.states.max(initial=0)) >= n_states:
        raise InvalidParameter(
            f"demos must visit states of this world, 0..{n_states - 1}; they visit {int(demos.states.max())}. Draw "
            "demonstrations of this world.",
            parameter="demos",
            value=int(demos.states.max()),
        )
    given = demos.labels if labels is None else labels
    if given is None:
        return None
    array = np.asarray(given)
    if array.ndim not in (1, 2) or len(array) != len(demos):
        raise InvalidParameter(
            f"labels must have shape ({len(demos)},) or ({len(demos)}, K), one row per demonstration; got shape "
            f"{array.shape}. Give the intent of each demonstration.",
            parameter="labels",
            value=array.shape,
        )
    return array if array.ndim == 1 else np.asarray(array.argmax(axis=1))


def _draw_walks(picture: WorldFigure, demos: Demonstrations, intents: NDArray[Any] | None) -> list[Artist]:
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
        pieces: list[FloatArray] = []
        for i in np.flatnonzero(groups == intent):
            walk = picture.places[demos.states[demos.offsets[i] : demos.offsets[i + 1]]] + shifts[i]
            pieces += _split_at_wrap(walk, picture.period)
        lines = LineCollection(pieces, colors=colour, linewidths=1.3, alpha=alpha, capstyle="round", joinstyle="round")
        lines.set_label(name)
        picture.ax.add_collection(lines, autolim=False)
        handles.append(Line2D([], [], color=colour, linewidth=2.0, label=name))
    return handles


def _split_at_wrap(walk: FloatArray, period: int | None) -> list[FloatArray]:
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


# Kinds of cells that worlds share; all others take the hues in turn.
_KINDS = {
    "start": START,
    "goal": GOAL,
    "dry": "#eee3c8",
    "puddle": "#7fb7dd",
    "field": "#e4ecd6",
}
_EDGE = "#999999"


def draw_grid(world: "GridWorld", rewards: FloatArray | None, ax: Axes | None, *, faded: bool) -> WorldFigure:
    """Draw the cells by kind, or by reward (S,) where it is given."""
    n_rows, n_columns = world.shape
    ax = axes_for(ax, 0.62 * n_columns + 2.2, 0.5 * n_rows + 1.2)
    handles: list[Patch] = []
    if rewards is None:
        spare = iter(range(len(world.kind_names)))
        colours = [_KINDS.get(name) or HUES[next(spare) % len(HUES)] for name in world.kind_names]
        scale = palette(colours, faded=faded)
        mesh = ax.pcolormesh(world.grid, cmap=scale, vmin=-0.5, vmax=len(colours) - 0.5)
        handles = [
            Patch(facecolor=scale(kind), edgecolor=_EDGE, label=name) for kind, name in enumerate(world.kind_names)
        ]
    else:
        mesh = ax.pcolormesh(rewards.reshape(world.shape), cmap=reward_map(faded=faded))
        colour_bar(ax, mesh)
    mesh.set(edgecolor="white", linewidth=1.5)
    colours_of_cells = mesh.to_rgba(np.asarray(mesh.get_array()).reshape(world.shape))
    for (row, column), sign in np.ndenumerate(world.signs):
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "alpha": 0.45 if faded else 1.0}
        colour = contrasting_text_colour(colours_of_cells[row, column, :3])
        ax.text(column + 0.5, row + 0.5, sign, color=colour, **style)
    ax.set(
        aspect="equal",
        xlim=(0, n_columns),
        ylim=(n_rows, 0),  # row 0 on top, as in str(world)
        xticks=np.arange(n_columns) + 0.5,
        xticklabels=range(n_columns),
        yticks=np.arange(n_rows) + 0.5,
        yticklabels=range(n_rows),
        xlabel="column",
        ylabel="row (wraps around)" if world.wraps else "row",
        title=f"{type(world).__name__}, wind {world.wind:g}",
    )
    rows, columns = np.divmod(np.arange(world.n_states), n_columns)
    places = np.column_stack([columns, rows]) + 0.5
    return WorldFigure(ax, places, list(handles), period=n_rows if world.wraps else None)


def draw_objects(world: "ObjectWorld", rewards: FloatArray | None, ax: Axes | None, *, faded: bool) -> WorldFigure:
    """Draw the cells, and every object as a disc of its outer colour with one of its inner colour on it."""
    picture = draw_grid(world, rewards, ax, faded=faded)
    for text in list(picture.ax.texts):
        text.remove()  # the discs say it
    things = world.objects
    hues = [HUES[c % len(HUES)] for c in range(world.n_colours)]
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": DARK}
    for colour, size in ((things.outer, 15.0), (things.inner, 6.5)):
        for c, hue in enumerate(hues):
            x, y = things.column[colour == c] + 0.5, things.row[colour == c] + 0.5
            picture.ax.plot(x, y, color=hue, markersize=size, **style)
    discs = [
        Line2D([], [], color=hue, markersize=9, label=f"colour {name}", **style)
        for name, hue in zip(world.colour_names, hues, strict=True)
    ]
    return picture._replace(handles=[*picture.handles, *discs])


_DISC = 13.0  # points


def draw_layers(world: "SyntheticWorld", rewards: FloatArray | None, ax: Axes | None, *, faded: bool) -> WorldFigure:
    """Draw the states as discs, a column per layer, by feature or reward (S,), and the moves as lines."""
    mdp, tallest = world.mdp, max(layer.size for layer in world.layers)
    ax = axes_for(ax, 0.75 * world.horizon + 2.6, 0.55 * tallest + 1.2)
    places = np.empty((world.n_states, 2))
    for x, layer in enumerate(world.layers):
        places[layer, 0] = x
        places[layer, 1] = np.arange(layer.size) + (tallest - layer.size) / 2.0
    # A pair of states may be joined by several actions: the line is as dark as the mean action makes it likely.
    pairs, inverse = np.unique(np.column_stack([mdp.src, mdp.dst]), axis=0, return_inverse=True)
    likely = np.bincount(inverse.ravel(), weights=mdp.prob) / world.n_actions
    moves = LineCollection(list(places[pairs]), colors=text_colour(), linewidths=0.8, zorder=1)
    moves.set_alpha(np.clip(0.3 * likely if faded else 0.9 * likely, 0.03, 0.9).tolist())
    ax.add_collection(moves)
    handles: list[Line2D] = []
    disc: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": DARK}
    if rewards is None:
        hues = [*(HUES[j % len(HUES)] for j in range(world.n_features)), GOAL]
        names = [*world.feature_names, "end"]
        kinds = np.append(world.kinds, world.n_features)
        scale = palette(hues, faded=False)
        points = ax.scatter(places[:, 0], places[:, 1], c=kinds, cmap=scale, vmin=-0.5, vmax=len(hues) - 0.5)
        handles = [
            Line2D([], [], color=scale(kind), markersize=8, label=name, **disc) for kind, name in enumerate(names)
        ]
    else:
        points = ax.scatter(places[:, 0], places[:, 1], c=rewards, cmap=reward_map(faded=False))
        colour_bar(ax, points)
    # Walks lie between the moves and the discs.
    points.set(sizes=[_DISC**2], edgecolor=DARK, zorder=3)
    for (x, y), sign, colour in zip(places, world.signs, points.to_rgba(np.asarray(points.get_array())), strict=True):
        ax.text(x, y, sign, ha="center", va="center", fontsize=7, color=contrasting_text_colour(colour[:3]), zorder=4)
    ax.set(
        xlim=(-0.5, world.horizon + 0.5),
        ylim=(tallest - 0.5, -0.5),
        xticks=range(world.horizon + 1),
        yticks=[],
        xlabel="step",
        title=f"SyntheticWorld, separation {world.separation:g}",
    )
    return WorldFigure(ax, places, list(handles), jitter=0.1)


_DRY, _WET = "#f2efe6", "#a9d3ee"
# With more walks than this, lines lie so thick that the first ones say it all.
_WALKS = 60


def draw_puddle(ax: Axes | None, agents: Agents | None) -> Axes:
    """Draw the world and walks over it; see `ContinuousPuddleWorld.plot`."""
    if agents is not None:
        _check(agents)
    ax = axes_for(ax, 6.4, 4.4)
    puddle, wide = PUDDLE[0], PUDDLE[1] - PUDDLE[0]
    ground = Rectangle((0.0, 0.0), SIZE, SIZE, facecolor=_DRY, edgecolor="none", zorder=0)
    ax.add_patch(ground)
    wet = ax.add_patch(Rectangle((puddle, puddle), wide, wide, facecolor=_WET, edgecolor="none", label="puddle"))
    goal = ax.add_patch(Circle(CONTINUOUS_GOAL, RADIUS, facecolor=HUES[2], edgecolor="none", alpha=0.55, label="goal"))
    goal.set_clip_path(ground)
    handles: list[Artist] = [wet, goal]
    if agents is not None:
        handles += _draw_continuous_walks(ax, agents)
    (start,) = ax.plot(*CONTINUOUS_START, "o", color=DARK, markersize=5, clip_on=False, zorder=5, label="start")
    handles.insert(0, start)
    ax.set(xlim=(0.0, SIZE), ylim=(0.0, SIZE), aspect="equal")
    ax.set_xticks([0, 2, 7, 9])
    ax.set_yticks([0, 2, 4.5, 7, 9], ["0", "2", "4.5", "7", "9"])
    ax.set(xlabel="x", ylabel="y", title="ContinuousPuddleWorld")
    ax.legend(handles=handles, frameon=False, labelcolor=text_colour(), loc="center left", bbox_to_anchor=(1.02, 0.5))
    return ax


def _check(agents: Agents) -> None:
    if not isinstance(agents, Agents):
        raise InvalidParameter(
            f"agents must be Agents; got {type(agents).__name__}. Draw them with world.agents(...).",
            parameter="agents",
            value=agents,
        )
    if agents.discrete or agents[0].actions.shape[2] != 2:
        raise InvalidParameter(
            "Agents of this world step in x and in y; these have other actions. Draw them with world.agents(...).",
            parameter="agents",
            value=agents,
        )


def _draw_continuous_walks(ax: Axes, agents: Agents) -> list[Artist]:
    """Draw every agent's walks in a colour of its own, and return the legend."""
    handles: list[Artist] = []
    for i, agent in enumerate(agents):
        colour = INTENTS[i % len(INTENTS)]
        paths = trace_positions(agent.actions[:_WALKS], agent.live[:_WALKS])
        # After its arrival a walk stands still, and its line would end in a blot.
        pieces = [path[: steps + 1] for path, steps in zip(paths, agent.live.sum(axis=1), strict=False)]
        alpha = float(np.clip(12.0 / len(pieces), 0.2, 0.9))
        lines = LineCollection(pieces, colors=colour, linewidths=1.2, alpha=alpha, capstyle="round", joinstyle="round")
        ax.add_collection(lines, autolim=False)
        # A step over a corner of the puddle does not touch it: what counts is where steps end.
        ends = np.concatenate(pieces)
        ax.plot(ends[:, 0], ends[:, 1], "o", color=colour, markersize=2, markeredgewidth=0, alpha=min(1.0, 2 * alpha))
        name = str(agents.names[i]) if agents.labels is None else f"{agents.names[i]}, intent {agents.labels[i]}"
        handles.append(Line2D([], [], color=colour, linewidth=2.0, label=name))
    return handles


class WalkerPicture:
    """A picture of the world in which a mark moves, drawn off screen.

    Examples
    --------
    >>> WalkerPicture().frame(np.array(CONTINUOUS_START)).shape
    (480, 600, 3)
    """

    def __init__(self) -> None:
        figure = Figure(figsize=(6.0, 4.8), dpi=100, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(figure)
        ax = draw_puddle(figure.add_subplot(), None)
        # The layout is found once; found anew for each frame, it drifts by fractions of a pixel.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        (self._mark,) = ax.plot(
            [], [], "o", color="white", markeredgecolor="black", markersize=9, clip_on=False, zorder=6
        )

    def frame(self, position: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return the picture (height, width, 3) with the agent at a position (2,)."""
        self._mark.set_data([position[0]], [position[1]])
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3].copy()
