"""Plots of the worlds; imported lazily, because this module imports matplotlib."""

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
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from limiirl._typing import FloatArray
from limiirl.demos import Agents, Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.worlds.base import IntentWorld
from limiirl.worlds.continuous_puddleworld import GOAL as CONTINUOUS_GOAL
from limiirl.worlds.continuous_puddleworld import PUDDLE, RADIUS, SIZE, trace_positions
from limiirl.worlds.continuous_puddleworld import START as CONTINUOUS_START
from limiirl.worlds.roadgrid import ROAD_CLASSES

if TYPE_CHECKING:
    from limiirl.worlds.gridworld import GridWorld
    from limiirl.worlds.objectworld import ObjectWorld
    from limiirl.worlds.roadgrid import RoadGrid
    from limiirl.worlds.syntheticworld import SyntheticWorld


# Colour-blind safe palette of Okabe and Ito.
HUES = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#f0e442")
START, GOAL = "#f2efe6", "#3b3b3b"
DARK, LIGHT = "#333333", "#ffffff"
# Text outside of the cells, legible on white and on black.
NEUTRAL = "#808080"
# Colours of intents, nearly the same as in reports. Reports use lighter colours on dark pages; here the colours remain
# dark, because cells are light.
INTENTS = ("#0b6bb1", "#bf5201", "#0a8561", "#b04f8e", "#8c6a01", "#117f97", "#b3243d", "#6a4fc1")

_ROAD_COLOURS = ("#c8102e", "#e8862e", "#5b7fa6", "#a9b1ba")
_ROAD_WIDTHS = (2.4, 1.5, 1.0, 0.6)
_FADED = 0.5  # opacity of cells behind demonstrations


class WorldFigure(NamedTuple):
    """Plot of a world: axes, positions of the states and legend."""

    ax: Axes
    positions: FloatArray  # (S, 2) position of each state
    handles: list[Artist]
    jitter: float = 0.27  # largest displacement of a demonstration
    period: int | None = None  # number of rows if they wrap around


def draw_world(
    world: IntentWorld,
    theta: ArrayLike | None,
    ax: Axes | None,
    demos: Demonstrations | None,
    labels: ArrayLike | None,
) -> Axes:
    """Draw a world and demonstrations; see `IntentWorld.plot`."""
    if demos is None and labels is not None:
        raise InvalidParameter.of("labels", labels, "must be None without demos")
    intents = None if demos is None else _resolve_intents(demos, labels, world.mdp.n_states)
    rewards = None if theta is None else world.mdp.rewards(np.asarray(theta, dtype=np.float64))[0][:, 0]
    picture = world.draw(rewards, ax, faded=demos is not None)
    handles = list(picture.handles)
    if demos is not None:
        handles += _draw_demos(picture, demos, intents)
    if handles:
        beside = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
        location: dict[str, Any] = beside if theta is None else below  # the colour bar is at the side
        names = [str(handle.get_label()) for handle in handles]
        picture.ax.legend(handles, names, frameon=False, labelcolor=text_colour(), **location)
    return picture.ax


def text_colour() -> str:
    """Return the text colour outside of the cells: the matplotlib style's colour, or a neutral default."""
    colour = str(mpl.rcParams["text.color"])
    return NEUTRAL if colour == mpl.rcParamsDefault["text.color"] else colour


def prepare_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return `ax`, or the axes of a new transparent figure of this size in inches."""
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height), layout="constrained", facecolor="none")
        ax.set_facecolor("none")
    ax.tick_params(length=0, colors=text_colour())
    ax.spines[:].set_visible(False)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_color(text_colour())
    return ax


def add_colour_bar(ax: Axes, mappable: Any) -> None:
    """Add a colour bar of rewards."""
    bar = ax.figure.colorbar(mappable, ax=ax, shrink=0.8)
    bar.set_label("reward", color=text_colour())
    bar.ax.tick_params(colors=text_colour())
    bar.outline.set_visible(False)


def palette(colours: list[str], *, faded: bool) -> ListedColormap:
    """Return a colour map; faded colours are blended with white, since transparent colours are dark in dark mode."""
    opacity = _FADED if faded else 1.0
    return ListedColormap([tuple(1.0 - opacity * (1.0 - np.array(to_rgb(colour)))) for colour in colours])


def reward_map(*, faded: bool) -> Colormap:
    """Return the colour map of rewards."""
    scale = plt.get_cmap("viridis")
    opacity = _FADED if faded else 1.0
    return ListedColormap(1.0 - opacity * (1.0 - scale(np.linspace(0.0, 1.0, 256))[:, :3]))


def contrasting_text_colour(colour: Any) -> str:
    """Return a dark or light text colour that contrasts with the background `colour`."""
    return LIGHT if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.45 else DARK


def _resolve_intents(demos: Demonstrations, labels: ArrayLike | None, n_states: int) -> NDArray[Any] | None:
    """Return the (most probable) intent (N,) of each demonstration, or None if there are no labels."""
    if not isinstance(demos, Demonstrations):
        raise InvalidParameter.of("demos", demos, "must be a Demonstrations object")
    if int(demos.states.max(initial=0)) >= n_states:
        raise InvalidParameter.of("demos", int(demos.states.max()), f"must have states in 0..{n_states - 1}")
    labels = demos.labels if labels is None else labels
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or len(array) != len(demos):
        rule = f"must have shape ({len(demos)},) or ({len(demos)}, K)"
        raise InvalidParameter.of("labels", array.shape, rule)
    return array if array.ndim == 1 else np.asarray(array.argmax(axis=1))


def _draw_demos(picture: WorldFigure, demos: Demonstrations, intents: NDArray[Any] | None) -> list[Artist]:
    """Draw every demonstration as a line in the colour of its intent, and return the legend handles."""
    shifts = np.random.default_rng(0).uniform(-picture.jitter, picture.jitter, size=(len(demos), 2))
    alpha = float(np.clip(25.0 / max(len(demos), 1), 0.3, 0.9))
    groups = np.zeros(len(demos), dtype=np.int64) if intents is None else intents
    handles: list[Artist] = []
    for k, intent in enumerate(np.unique(groups)):
        # The colour of an intent does not depend on the other intents.
        index = int(intent) if isinstance(intent, np.integer) and intent >= 0 else k
        colour = INTENTS[index % len(INTENTS)]
        name = "demonstrations" if intents is None else f"intent {intent}"
        pieces: list[FloatArray] = []
        for i in np.flatnonzero(groups == intent):
            line = picture.positions[demos.states[demos.offsets[i] : demos.offsets[i + 1]]] + shifts[i]
            pieces += _split_at_wrap(line, picture.period)
        lines = LineCollection(pieces, colors=colour, linewidths=1.3, alpha=alpha, capstyle="round", joinstyle="round")
        lines.set_label(name)
        picture.ax.add_collection(lines, autolim=False)
        handles.append(Line2D([], [], color=colour, linewidth=2.0, label=name))
    return handles


def _split_at_wrap(line: FloatArray, period: int | None) -> list[FloatArray]:
    """Split a line where it wraps around; both pieces extend beyond the edge of the picture."""
    if period is None:
        return [line]
    direction = -np.rint(np.diff(line[:, 1]) / period)  # 1 at the bottom, -1 at the top
    cuts = np.flatnonzero(direction) + 1
    pieces = np.split(line, cuts)
    for j, cut in enumerate(cuts):
        shift = np.array([0.0, period * direction[cut - 1]])
        pieces[j] = np.vstack([pieces[j], line[cut] + shift])
        pieces[j + 1] = np.vstack([line[cut - 1] - shift, pieces[j + 1]])
    return pieces


def draw_roadgrid(town: "RoadGrid", ax: Axes | None) -> Axes:
    """Draw the streets by road class; see `RoadGrid.plot`."""
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 8), layout="constrained")
    once = town.one_way | (town.tail < town.head)  # draw two-way streets once
    lines = np.stack([town.start_xy, town.end_xy], axis=1)
    extent = float(np.ptp(town.node_xy, axis=0).max())
    # Line widths are in points: reduce them for large towns.
    scale = min(1.0, max(0.4, 3.0 / extent))
    for k in reversed(range(len(ROAD_CLASSES))):
        selected = once & (town.road_class == k)
        style = {"colors": _ROAD_COLOURS[k], "linewidths": scale * _ROAD_WIDTHS[k], "capstyle": "round"}
        ax.add_collection(LineCollection(list(lines[selected]), rasterized=True, zorder=5 - k, **style))
    handles = [Line2D([], [], color=c, linewidth=w + 0.6) for c, w in zip(_ROAD_COLOURS, _ROAD_WIDTHS, strict=True)]
    ax.legend(handles, ROAD_CLASSES, loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=len(handles), frameon=False)
    ax.set(aspect="equal", xlabel="km east of the centre", ylabel="km north of the centre")
    ax.set_title(f"RoadGrid: {town.n_states:,} directed segments, {town.n_edges:,} turns")
    ax.autoscale_view()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


# Colours of cell types; other types use the palette.
_KINDS = {"start": START, "goal": GOAL, "dry": "#eee3c8", "puddle": "#7fb7dd", "field": "#e4ecd6"}
_EDGE = "#999999"


def draw_grid(world: "GridWorld", rewards: FloatArray | None, ax: Axes | None, *, faded: bool) -> WorldFigure:
    """Draw the cells, coloured by reward (S,) if given and by cell type otherwise."""
    n_rows, n_columns = world.shape
    ax = prepare_axes(ax, 0.62 * n_columns + 2.2, 0.5 * n_rows + 1.2)
    handles: list[Patch] = []
    if rewards is None:
        spare = iter(range(len(world.cell_types)))
        colours = [_KINDS.get(name) or HUES[next(spare) % len(HUES)] for name in world.cell_types]
        scale = palette(colours, faded=faded)
        mesh = ax.pcolormesh(world.grid, cmap=scale, vmin=-0.5, vmax=len(colours) - 0.5)
        handles = [
            Patch(facecolor=scale(kind), edgecolor=_EDGE, label=name) for kind, name in enumerate(world.cell_types)
        ]
    else:
        mesh = ax.pcolormesh(rewards.reshape(world.shape), cmap=reward_map(faded=faded))
        add_colour_bar(ax, mesh)
    mesh.set(edgecolor="white", linewidth=1.5)
    cell_colours = mesh.to_rgba(np.asarray(mesh.get_array()).reshape(world.shape))
    for (row, column), sign in np.ndenumerate(world.signs):
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "alpha": 0.45 if faded else 1.0}
        colour = contrasting_text_colour(cell_colours[row, column, :3])
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
    positions = np.column_stack([columns, rows]) + 0.5
    return WorldFigure(ax, positions, list(handles), period=n_rows if world.wraps else None)


def draw_objects(world: "ObjectWorld", rewards: FloatArray | None, ax: Axes | None, *, faded: bool) -> WorldFigure:
    """Draw the cells, and each object as a disc of its outer colour with a smaller disc of its inner colour."""
    picture = draw_grid(world, rewards, ax, faded=faded)
    for text in list(picture.ax.texts):
        text.remove()
    objects = world.objects
    hues = [HUES[c % len(HUES)] for c in range(world.n_colours)]
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": DARK}
    for colour, size in ((objects.outer, 15.0), (objects.inner, 6.5)):
        for c, hue in enumerate(hues):
            x, y = objects.column[colour == c] + 0.5, objects.row[colour == c] + 0.5
            picture.ax.plot(x, y, color=hue, markersize=size, **style)
    discs = [
        Line2D([], [], color=hue, markersize=9, label=f"colour {name}", **style)
        for name, hue in zip(world.colour_names, hues, strict=True)
    ]
    return picture._replace(handles=[*picture.handles, *discs])


_DISC = 13.0  # points


def draw_layers(world: "SyntheticWorld", rewards: FloatArray | None, ax: Axes | None, *, faded: bool) -> WorldFigure:
    """Draw states as discs in one column per layer, coloured by feature or reward (S,), and transitions as lines."""
    mdp, tallest = world.mdp, max(layer.size for layer in world.layers)
    ax = prepare_axes(ax, 0.75 * world.horizon + 2.6, 0.55 * tallest + 1.2)
    positions = np.empty((world.n_states, 2))
    for x, layer in enumerate(world.layers):
        positions[layer, 0] = x
        positions[layer, 1] = np.arange(layer.size) + (tallest - layer.size) / 2.0
    # The opacity of a line is the transition probability, averaged over the actions.
    pairs, inverse = np.unique(np.column_stack([mdp.src, mdp.dst]), axis=0, return_inverse=True)
    mean_prob = np.bincount(inverse.ravel(), weights=mdp.prob) / world.n_actions
    transitions = LineCollection(list(positions[pairs]), colors=text_colour(), linewidths=0.8, zorder=1)
    transitions.set_alpha(np.clip(0.3 * mean_prob if faded else 0.9 * mean_prob, 0.03, 0.9).tolist())
    ax.add_collection(transitions)
    handles: list[Line2D] = []
    disc: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": DARK}
    if rewards is None:
        hues = [*(HUES[j % len(HUES)] for j in range(world.n_features)), GOAL]
        names = [*world.feature_names, "end"]
        kinds = np.append(world.kinds, world.n_features)
        scale = palette(hues, faded=False)
        points = ax.scatter(positions[:, 0], positions[:, 1], c=kinds, cmap=scale, vmin=-0.5, vmax=len(hues) - 0.5)
        handles = [
            Line2D([], [], color=scale(kind), markersize=8, label=name, **disc) for kind, name in enumerate(names)
        ]
    else:
        points = ax.scatter(positions[:, 0], positions[:, 1], c=rewards, cmap=reward_map(faded=False))
        add_colour_bar(ax, points)
    # Demonstrations are drawn between the transitions and the discs.
    points.set(sizes=[_DISC**2], edgecolor=DARK, zorder=3)
    colours = points.to_rgba(np.asarray(points.get_array()))
    for (x, y), sign, colour in zip(positions, world.signs, colours, strict=True):
        ax.text(x, y, sign, ha="center", va="center", fontsize=7, color=contrasting_text_colour(colour[:3]), zorder=4)
    ax.set(
        xlim=(-0.5, world.horizon + 0.5),
        ylim=(tallest - 0.5, -0.5),
        xticks=range(world.horizon + 1),
        yticks=[],
        xlabel="step",
        title=f"SyntheticWorld, separation {world.separation:g}",
    )
    return WorldFigure(ax, positions, list(handles), jitter=0.1)


_DRY, _WET = "#f2efe6", "#a9d3ee"
# Maximum number of trajectories drawn per agent.
_WALKS = 60


def draw_puddle(ax: Axes | None, agents: Agents | None) -> Axes:
    """Draw the world and trajectories of agents; see `ContinuousPuddleWorld.plot`."""
    if agents is not None:
        _check_agents(agents)
    ax = prepare_axes(ax, 6.4, 4.4)
    puddle, wide = PUDDLE[0], PUDDLE[1] - PUDDLE[0]
    ground = Rectangle((0.0, 0.0), SIZE, SIZE, facecolor=_DRY, edgecolor="none", zorder=0)
    ax.add_patch(ground)
    wet = ax.add_patch(Rectangle((puddle, puddle), wide, wide, facecolor=_WET, edgecolor="none", label="puddle"))
    goal = ax.add_patch(Circle(CONTINUOUS_GOAL, RADIUS, facecolor=HUES[2], edgecolor="none", alpha=0.55, label="goal"))
    goal.set_clip_path(ground)
    handles: list[Artist] = [wet, goal]
    if agents is not None:
        handles += _draw_agents(ax, agents)
    (start,) = ax.plot(*CONTINUOUS_START, "o", color=DARK, markersize=5, clip_on=False, zorder=5, label="start")
    handles.insert(0, start)
    ax.set(xlim=(0.0, SIZE), ylim=(0.0, SIZE), aspect="equal")
    ax.set_xticks([0, 2, 7, 9])
    ax.set_yticks([0, 2, 4.5, 7, 9], ["0", "2", "4.5", "7", "9"])
    ax.set(xlabel="x", ylabel="y", title="ContinuousPuddleWorld")
    ax.legend(handles=handles, frameon=False, labelcolor=text_colour(), loc="center left", bbox_to_anchor=(1.02, 0.5))
    return ax


def _check_agents(agents: Agents) -> None:
    if not isinstance(agents, Agents):
        raise InvalidParameter.of(
            "agents", agents, "must be an Agents object", remedy="Sample them with world.agents(...)."
        )
    if agents.discrete or agents[0].actions.shape[2] != 2:
        raise InvalidParameter.of("agents", agents, "must have two-dimensional actions")


def _draw_agents(ax: Axes, agents: Agents) -> list[Artist]:
    """Draw the trajectories of every agent, and return the legend handles."""
    handles: list[Artist] = []
    for i, agent in enumerate(agents):
        colour = INTENTS[i % len(INTENTS)]
        paths = trace_positions(agent.actions[:_WALKS], agent.live[:_WALKS])
        # Drop the constant positions after arrival at the goal.
        pieces = [path[: steps + 1] for path, steps in zip(paths, agent.live.sum(axis=1), strict=False)]
        alpha = float(np.clip(12.0 / len(pieces), 0.2, 0.9))
        lines = LineCollection(pieces, colors=colour, linewidths=1.2, alpha=alpha, capstyle="round", joinstyle="round")
        ax.add_collection(lines, autolim=False)
        # Dots mark the ends of steps, which determine the rewards.
        ends = np.concatenate(pieces)
        ax.plot(ends[:, 0], ends[:, 1], "o", color=colour, markersize=2, markeredgewidth=0, alpha=min(1.0, 2 * alpha))
        name = str(agents.names[i]) if agents.labels is None else f"{agents.names[i]}, intent {agents.labels[i]}"
        handles.append(Line2D([], [], color=colour, linewidth=2.0, label=name))
    return handles


class _Picture:
    """Off-screen figure with a moving marker."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(self.figure)
        self.ax = self.figure.add_subplot()

    def fix_layout(self) -> None:
        """Compute the layout once, because the layout of single frames would differ by fractions of a pixel."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def image(self) -> NDArray[np.uint8]:
        """Return the image (height, width, 3)."""
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3].copy()


class PuddlePicture(_Picture):
    """Off-screen picture of `ContinuousPuddleWorld` with an agent."""

    def __init__(self) -> None:
        super().__init__(6.0, 4.8)
        draw_puddle(self.ax, None)
        self.fix_layout()
        style: dict[str, Any] = {"markeredgecolor": "black", "markersize": 9, "clip_on": False, "zorder": 6}
        (self._marker,) = self.ax.plot([], [], "o", color="white", **style)

    def frame(self, position: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return the image (480, 600, 3) with the agent at a position (2,)."""
        self._marker.set_data([position[0]], [position[1]])
        return self.image()


class AgentPicture(_Picture):
    """Off-screen picture of a world with an agent; if the world is not an `IntentWorld`, the title shows the state."""

    def __init__(self, world: Any) -> None:
        super().__init__(6.0, 6.0)
        self._positions: FloatArray | None = None
        if isinstance(world, IntentWorld):
            self._positions = world.draw(None, self.ax, faded=False).positions
        else:
            world.plot(ax=self.ax)
            self.ax.set_title("agent in state 0")  # reserves space in the layout
        self.fix_layout()
        self._marker = None if self._positions is None else self._draw_marker(self._positions)

    def _draw_marker(self, positions: FloatArray) -> Line2D:
        """Draw a ring that fits between adjacent states, with a white rim that is visible on dark cells."""
        pixels = self.ax.transData.transform(positions)
        nearest = np.asarray(cKDTree(pixels).query(pixels, k=2)[0])[:, 1]
        points = 72.0 / self.figure.dpi * min(nearest.min(), 60.0)
        rim = withStroke(linewidth=0.18 * points, foreground="white")
        style = {"markersize": 0.7 * points, "markeredgewidth": 0.1 * points, "path_effects": [rim], "zorder": 10}
        (mark,) = self.ax.plot([], [], "o", color="none", markeredgecolor="black", scalex=False, scaley=False, **style)
        return mark

    def frame(self, state: int) -> NDArray[np.uint8]:
        """Return the image (600, 600, 3) with the agent in a state."""
        if self._marker is None or self._positions is None:
            self.ax.set_title(f"agent in state {state}")
        else:
            x, y = self._positions[state]
            self._marker.set_data([x], [y])
        return self.image()
