"""The worlds as Gymnasium environments, registered under ``limiirl/`` when this module is imported.

Gymnasium 1.0 loads no plugins: import this module first, or name it in the id, as in
``gymnasium.make("limiirl.worlds.gym:limiirl/ElementWorld-v0")``.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from limiirl._typing import FloatArray
from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.worlds import WORLDS
from limiirl.worlds.base import IntentWorld
from limiirl.worlds.continuous_puddleworld import (
    HORIZON,
    KINDS,
    SIZE,
    START,
    check_kind,
    move,
    reached_goal,
    reward_features,
)

try:
    import gymnasium
except ImportError:
    raise BackendUnavailable(
        "Environments need gymnasium, which is not installed. Run pip install gymnasium."
    ) from None

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

    from limiirl.worlds.plotting import WalkerPicture


class ContinuousPuddleEnv(gymnasium.Env[Any, Any]):
    """The world of `ContinuousPuddleWorld`, for one kind of agent.

    Observations are positions in ``Box(0, 9, (2,))``, and actions steps in ``Box(-1, 1, (2,))``, both of float64, so
    that a policy walks here exactly as in `ContinuousPuddleWorld.walks`. A component beyond -1 or 1 counts as that. An
    episode ends in the goal; one that is registered also after 30 steps.

    A step pays what the kind gets for the features of the position that it reaches, which are told in
    ``info["reward_features"]``. The goal pays once, on arrival.

    Parameters
    ----------
    kind : {"center", "up", "down", "border"}
        Who walks: it decides what is puddle, and what the puddle costs.
    render_mode : "rgb_array", optional
        `render` returns a picture.

    Examples
    --------
    >>> env = gymnasium.make("limiirl.worlds.gym:limiirl/ContinuousPuddleWorld-v0", kind="border")
    >>> position, info = env.reset(seed=0)
    >>> for _ in range(3):
    ...     position, reward, arrived, cut_off, info = env.step(np.array([1.0, 0.5]))
    >>> position.tolist(), reward, info["reward_features"].tolist()
    ([3.0, 6.0], -10.0, [0.0, -1.0, 0.0])
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - the base declares no ClassVar

    def __init__(self, kind: str = "center", *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise InvalidParameter(
                f"render_mode must be 'rgb_array'; got {render_mode!r}. Choose it, or None.",
                parameter="render_mode",
                value=render_mode,
            )
        self.kind = check_kind(kind)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0.0, SIZE, shape=(2,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float64)
        self._position: FloatArray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode at the start, always the same."""
        super().reset(seed=seed, options=options)
        self._position = np.array(START)
        return self._position.copy(), {"reward_features": np.zeros(3)}

    def step(self, action: ArrayLike) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Take a step; in the goal, the agent stays where it is for nothing."""
        here = self._current_position("step came first")
        wish = np.asarray(action, dtype=np.float64)
        if wish.shape != (2,) or not np.all(np.isfinite(wish)):
            raise InvalidParameter(
                f"An action must be two finite numbers, the steps in x and in y; got {action!r}.",
                parameter="action",
                value=action,
            )
        ended = bool(reached_goal(here))
        if not ended:
            self._position = here = move(here, wish)
        features = reward_features(here, self.kind)
        reward = 0.0 if ended else float(features @ np.array(KINDS[self.kind]))
        return here.copy(), reward, bool(reached_goal(here)), False, {"reward_features": features}

    def render(self) -> Any:
        """Return an array (height, width, 3) of uint8, or None without a mode."""
        if self.render_mode is None:
            return None
        return self._picture.frame(self._current_position("there is no agent to draw"))

    @cached_property
    def _picture(self) -> "WalkerPicture":
        from limiirl.worlds.plotting import WalkerPicture

        return WalkerPicture()

    def _current_position(self, instead: str) -> FloatArray:
        if self._position is None:
            raise gymnasium.error.ResetNeeded(f"An episode begins with reset; {instead}. Call env.reset().")
        return self._position


def text_with_agent(world: Any, state: int) -> str:
    """Return the world's text with brackets around what stands for the agent's state.

    Below the text of a world that is neither a grid nor layers, a line names the state.
    """
    place = locate_state(world, state)
    if place is None:
        return f"{world}\nagent in state {state}"
    row, column = place
    lines = [f" {line} " for line in str(world).splitlines()]
    # Columns have one width, are separated by a blank and aligned to the right, and the first row has them all.
    n_columns = world.shape[1] if hasattr(world, "cell") else len(world.layers)
    end = (column + 1) * ((len(lines[0]) - 1) // n_columns)
    start = lines[row].rindex(" ", 0, end) + 1
    lines[row] = f"{lines[row][: start - 1]}[{lines[row][start:end]}]{lines[row][end + 1 :]}"
    return "\n".join(line.rstrip() for line in lines)


def locate_state(world: Any, state: int) -> tuple[int, int] | None:
    """Return row and column of a state: its cell in a grid, or its rank in its layer and the layer; else None."""
    if hasattr(world, "cell"):
        row, column = world.cell(state)
        return int(row), int(column)
    for column, layer in enumerate(getattr(world, "layers", ())):
        if state in layer:
            return int(np.searchsorted(layer, state)), column
    return None


class AgentPicture:
    """A picture of a world in which a mark moves.

    It is drawn by matplotlib off screen: no window opens, and pyplot knows nothing of the figure.

    Parameters
    ----------
    world : IntentWorld, or an object with ``plot(ax=...)``
        The mark is where a world of ours draws the state. For others, whose plot does not tell, the title names it.

    Examples
    --------
    >>> from limiirl.worlds import ElementWorld
    >>> frame = AgentPicture(ElementWorld()).frame(0)
    >>> frame.shape, frame.dtype
    ((600, 600, 3), dtype('uint8'))
    """

    def __init__(self, world: Any) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 6.0), dpi=100, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(figure)
        self._ax = figure.add_subplot()
        self._places: NDArray[np.float64] | None = None
        if isinstance(world, IntentWorld):
            self._places = world.draw(None, self._ax, faded=False).places
        else:
            world.plot(ax=self._ax)
            self._ax.set_title("agent in state 0")  # so that the layout has room for it
        # The layout is found once; found anew for each frame, it drifts by fractions of a pixel.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        self._mark = self._draw_mark()

    def _draw_mark(self) -> "Line2D | None":
        """Draw a ring that fits between neighbouring states."""
        from matplotlib.patheffects import withStroke

        if self._places is None:
            return None
        pixels = self._ax.transData.transform(self._places)
        nearest = np.asarray(cKDTree(pixels).query(pixels, k=2)[0])[:, 1]
        points = 72.0 / self._canvas.figure.dpi * min(nearest.min(), 60.0)
        # A white rim makes the ring visible on dark cells.
        rim = withStroke(linewidth=0.18 * points, foreground="white")
        style = {"markersize": 0.7 * points, "markeredgewidth": 0.1 * points, "path_effects": [rim], "zorder": 10}
        (mark,) = self._ax.plot([], [], "o", color="none", markeredgecolor="black", scalex=False, scaley=False, **style)
        return mark

    def frame(self, state: int) -> NDArray[np.uint8]:
        """Return the picture (600, 600, 3) with the agent in a state."""
        if self._mark is None or self._places is None:
            self._ax.set_title(f"agent in state {state}")
        else:
            x, y = self._places[state]
            self._mark.set_data([x], [y])
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3].copy()


MAX_EPISODE_STEPS = 49
"""Moves after which a registered environment truncates: with its start, an episode then has 50 states, as many as a
world's own demonstrations may have."""

Outcome: TypeAlias = tuple[float, int, float, bool]


class Playable(Protocol):
    """What an environment needs of a world; for pictures it needs ``plot(ax=...)`` as well."""

    @property
    def mdp(self) -> MDP:
        """Where the agent moves."""

    @property
    def ensemble(self) -> RewardEnsemble:
        """What the intents are paid."""


class WorldEnv(gymnasium.Env[Any, Any]):
    """A world in which one of its intents is paid.

    Observations are states, ``Discrete(S)``, and actions ``Discrete(A)``. Where a state lacks an action,
    ``info["action_mask"]`` has a 0 for it (int8, as ``action_space.sample(mask)`` takes it). Taken all the same, it
    leaves the agent where it is, for the reward of one more visit; this is no move of the MDP, and `Demonstrations` of
    it are refused there. A terminal state has no action.

    The move from s to s' by a pays the reward of s, of (s, a) and of the edge (s, a, s'), and where s' is terminal also
    gamma times the reward of s', which is thus collected once, on arrival. So the discounted return of a finished
    episode is theta . F, with F its `Demonstrations.features`; of an episode cut short at time t it is
    theta . F less gamma^t times the reward of the last state, which was reached but not yet left.

    Parameters
    ----------
    world : str or object
        The name of one of `limiirl.worlds.WORLDS`, which is then built from `parameters`; or any object with an `mdp`
        and an `ensemble`.
    intent : int, optional
        Which of the ensemble's rewards is paid. By default each reset draws one by the ensemble's weights. It is told
        in ``info["intent"]``.
    render_mode : "ansi" or "rgb_array", optional
        `render` returns the world's text or picture, with the agent marked.
    **parameters
        Of the world that is named, such as ``wind=0.2``. Its `seed` determines the world, and `reset(seed=...)` what
        happens in it.

    Examples
    --------
    >>> env = gymnasium.make("limiirl/ElementWorld-v0", wind=0.0, seed=2, intent=0, render_mode="ansi")
    >>> state, info = env.reset(seed=0)
    >>> state, info["intent"], info["action_mask"]
    (30, 0, array([1, 1, 1, 1], dtype=int8))
    >>> env.step(3)[:3]
    (31, -1.0, False)
    >>> print(env.render())
     S 3 3 1 1 G
     S 3 1 1 2 G
     S 1 1 2 2 G
     S 1 1 2 2 G
     S 1 2 2 3 G
     S[2]2 3 3 G
     S 2 2 3 3 G
     S 2 3 3 1 G
     S 3 3 1 1 G
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - the base declares no ClassVar

    def __init__(
        self, world: str | Playable, *, intent: int | None = None, render_mode: str | None = None, **parameters: Any
    ) -> None:
        self.world: Playable = _build(world, parameters)
        mdp, ensemble = self.world.mdp, self.world.ensemble
        _check_intent(intent, ensemble.n_intents)
        _check_start(mdp)
        _check_render_mode(render_mode, self.world)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states)
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)
        self._fixed_intent = intent
        self._intent = intent
        self._state: int | None = None
        self._r_state, r_edge = mdp.rewards(ensemble.thetas)
        self._r_edge = np.zeros((mdp.n_edges, ensemble.n_intents)) if r_edge is None else r_edge

    @property
    def initial_state_distrib(self) -> NDArray[np.float64]:
        """The start distribution (S,), under the name that toy-text environments use."""
        return self.world.mdp.p0

    @property
    def P(self) -> dict[int, dict[int, list[Outcome]]]:
        """The moves as toy-text environments give them: ``P[s][a] = [(probability, next state, reward, done), ...]``.

        Only actions that exist are listed; terminal states keep the agent for nothing. The rewards are those of the
        current intent, and nan before the first reset has drawn it. `MDP.from_gymnasium` reads this table.

        Examples
        --------
        >>> WorldEnv("ElementWorld", wind=0.0, intent=0).P[0][3]
        [(1.0, 1, -1.0, False)]
        """
        mdp = self.world.mdp
        table: dict[int, dict[int, list[Outcome]]] = {s: {} for s in range(mdp.n_states)}
        for edge in range(mdp.n_edges):
            s, a, target = int(mdp.src[edge]), int(mdp.act[edge]), int(mdp.dst[edge])
            reward = float("nan") if self._intent is None else self._reward(edge, self._intent)
            outcome = (float(mdp.prob[edge]), target, reward, bool(mdp.terminal[target]))
            table[s].setdefault(a, []).append(outcome)
        for s in np.flatnonzero(mdp.terminal).tolist():
            table[s] = {a: [(1.0, s, 0.0, True)] for a in range(mdp.n_actions)}
        return table

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin an episode: draw the intent, unless it is fixed, and the start."""
        super().reset(seed=seed, options=options)
        self._intent = self._draw(self.world.ensemble.weights) if self._fixed_intent is None else self._fixed_intent
        self._state = self._draw(self.world.mdp.p0)
        return self._state, self._info(self._state, self._intent)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action; the class says what it pays, and what one that is not available does."""
        if self._state is None or self._intent is None:
            raise gymnasium.error.ResetNeeded("An episode begins with reset; step came first. Call env.reset().")
        if not self.action_space.contains(action):
            raise InvalidParameter(
                f"An action must lie in 0..{self.world.mdp.n_actions - 1}; got {action!r}. "
                "Take one of those that info['action_mask'] shows.",
                parameter="action",
                value=action,
            )
        mdp = self.world.mdp
        edges = self._edges(self._state, int(action))
        if edges.start < edges.stop:
            edge = edges.start + self._draw(mdp.prob[edges])
            reward, self._state = self._reward(edge, self._intent), int(mdp.dst[edge])
        else:
            ended = mdp.terminal[self._state]
            reward = 0.0 if ended else float(self._r_state[self._state, self._intent])
        done = bool(mdp.terminal[self._state])
        return self._state, reward, done, False, self._info(self._state, self._intent)

    def render(self) -> Any:
        """Return text (mode "ansi"), an array (height, width, 3) of uint8 ("rgb_array"), or None without a mode."""
        if self.render_mode is None:
            return None
        if self._state is None:
            raise gymnasium.error.ResetNeeded("There is no agent to draw before reset. Call env.reset().")
        if self.render_mode == "ansi":
            return text_with_agent(self.world, self._state)
        return self._picture.frame(self._state)

    @cached_property
    def _picture(self) -> AgentPicture:
        # Drawing the world takes longer than moving the mark, so the picture is kept.
        return AgentPicture(self.world)

    def _draw(self, weights: NDArray[np.float64]) -> int:
        """Draw an index by its weight, which is never one of weight 0."""
        cumulative = np.cumsum(weights)
        # Weights may sum to a little less than 1, and rounding can bring the product up to the sum.
        point = min(self.np_random.random() * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
        return int(np.searchsorted(cumulative, point, side="right"))

    def _edges(self, s: int, a: int) -> slice:
        """Return where the edges of (s, a) stand; nowhere if the state lacks the action."""
        mdp = self.world.mdp
        first, last = int(mdp.out_ptr[s]), int(mdp.out_ptr[s + 1])
        low, high = np.searchsorted(mdp.act[first:last], [a, a + 1])
        return slice(first + int(low), first + int(high))

    def _reward(self, edge: int, intent: int) -> float:
        mdp = self.world.mdp
        target = mdp.dst[edge]
        on_arrival = mdp.gamma * self._r_state[target, intent] if mdp.terminal[target] else 0.0
        return float(self._r_state[mdp.src[edge], intent] + self._r_edge[edge, intent] + on_arrival)

    def _info(self, s: int, intent: int) -> dict[str, Any]:
        mdp = self.world.mdp
        mask = np.zeros(mdp.n_actions, dtype=np.int8)
        mask[mdp.act[mdp.out_ptr[s] : mdp.out_ptr[s + 1]]] = 1
        return {"intent": intent, "action_mask": mask}


def _build(world: str | Playable, parameters: dict[str, Any]) -> Playable:
    if isinstance(world, str):
        if world not in WORLDS:
            raise InvalidParameter(
                f"There is no world named {world!r}. Choose from {', '.join(WORLDS)}.", parameter="world", value=world
            )
        built: Playable = WORLDS[world](**parameters)
        return built
    if parameters:
        raise InvalidParameter(
            f"Parameters build a world that is named; {next(iter(parameters))!r} came with a finished "
            f"{type(world).__name__}. Build the world with it.",
            parameter=next(iter(parameters)),
            value=next(iter(parameters.values())),
        )
    return world


def _check_intent(intent: object, n_intents: int) -> None:
    if intent is None:
        return
    if isinstance(intent, bool) or not isinstance(intent, int | np.integer) or not 0 <= intent < n_intents:
        raise InvalidParameter(
            f"intent must be one of 0..{n_intents - 1}, as the world has {n_intents} of them; got {intent!r}. "
            "Pass None to draw one at each reset.",
            parameter="intent",
            value=intent,
        )


def _check_render_mode(mode: str | None, world: Playable) -> None:
    if mode is not None and mode not in WorldEnv.metadata["render_modes"]:
        raise InvalidParameter(
            f"render_mode must be 'ansi' or 'rgb_array'; got {mode!r}. Choose one of them, or None.",
            parameter="render_mode",
            value=mode,
        )
    if mode == "rgb_array" and not hasattr(world, "plot"):
        raise InvalidParameter(
            f"render_mode 'rgb_array' needs a world with plot(ax=...); {type(world).__name__} has none. Choose 'ansi'.",
            parameter="render_mode",
            value=mode,
        )


def _check_start(mdp: MDP) -> None:
    ended = np.flatnonzero((mdp.p0 > 0) & mdp.terminal)
    if ended.size:
        s = int(ended[0])
        raise InvalidParameter(
            f"An episode cannot start where it ends; state {s} is terminal and p0[{s}] is {mdp.p0[s]}. "
            "Give the MDP another start with mdp.replace(p0=...).",
            parameter="world",
            value=float(mdp.p0[s]),
            index=s,
        )


def _register() -> None:
    for name in ("ElementWorld", "PuddleWorld", "ObjectWorld", "SyntheticWorld"):
        if (key := f"limiirl/{name}-v0") not in gymnasium.registry:  # a reload would be warned of
            gymnasium.register(
                key,
                entry_point="limiirl.worlds.gym:WorldEnv",
                max_episode_steps=MAX_EPISODE_STEPS,
                kwargs={"world": name},
            )
    if (key := "limiirl/ContinuousPuddleWorld-v0") not in gymnasium.registry:
        gymnasium.register(
            key,
            entry_point="limiirl.worlds.gym:ContinuousPuddleEnv",
            max_episode_steps=HORIZON,
        )


_register()
