"""Gymnasium environments of the worlds, registered under ``limiirl/`` on import.

Import this module first, or name it in the id: ``gymnasium.make("limiirl.worlds.gym:limiirl/ElementWorld-v0")``.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl._validation import check_choice
from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.mdp import MDP
from limiirl.worlds import WORLDS
from limiirl.worlds.continuous_puddleworld import HORIZON, KINDS, SIZE, START, in_goal, move, reward_features

try:
    import gymnasium
except ImportError:
    raise BackendUnavailable("Environments require gymnasium. Install it with pip install gymnasium.") from None

if TYPE_CHECKING:
    from limiirl.worlds.plotting import AgentPicture, PuddlePicture


class ContinuousPuddleEnv(gymnasium.Env[Any, Any]):
    """Environment of `ContinuousPuddleWorld` for one kind of agent.

    Observations are positions in ``Box(0, 9, (2,))``; actions are steps, clipped to ``Box(-1, 1, (2,))``. Both are
    float64, as in `ContinuousPuddleWorld.walks`. An episode terminates in the goal; an environment created by
    `gymnasium.make` truncates it after 30 steps. The reward of a step depends on the position after it, with the
    features ``info["reward_features"]``; the goal is rewarded once, on arrival.

    Parameters
    ----------
    kind : {"center", "up", "down", "border"}
        Kind of agent, which determines the extent and the cost of the puddle.
    render_mode : "rgb_array", optional

    Examples
    --------
    >>> env = gymnasium.make("limiirl.worlds.gym:limiirl/ContinuousPuddleWorld-v0", kind="border")
    >>> position, info = env.reset(seed=0)
    >>> for _ in range(3):
    ...     position, reward, terminated, truncated, info = env.step(np.array([1.0, 0.5]))
    >>> position.tolist(), reward, info["reward_features"].tolist()
    ([3.0, 6.0], -10.0, [0.0, -1.0, 0.0])
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - the base declares no ClassVar

    def __init__(self, kind: str = "center", *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise InvalidParameter.of("render_mode", render_mode, "must be 'rgb_array' or None")
        self.kind = check_choice(kind, "kind", tuple(KINDS))
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0.0, SIZE, shape=(2,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float64)
        self._position: FloatArray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start an episode at the start position."""
        super().reset(seed=seed, options=options)
        self._position = np.array(START)
        return self._position.copy(), {"reward_features": np.zeros(3)}

    def step(self, action: ArrayLike) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Take a step; an agent in the goal stays there and receives no reward."""
        position = self._current_position()
        displacement = np.asarray(action, dtype=np.float64)
        if displacement.shape != (2,) or not np.all(np.isfinite(displacement)):
            raise InvalidParameter.of("action", action, "must be two finite numbers, the steps in x and y")
        ended = bool(in_goal(position))
        if not ended:
            self._position = position = move(position, displacement)
        features = reward_features(position, self.kind)
        reward = 0.0 if ended else float(features @ np.array(KINDS[self.kind]))
        return position.copy(), reward, bool(in_goal(position)), False, {"reward_features": features}

    def render(self) -> Any:
        """Return an image (height, width, 3) of uint8, or None without a render mode."""
        return None if self.render_mode is None else self._picture.frame(self._current_position())

    @cached_property
    def _picture(self) -> "PuddlePicture":
        from limiirl.worlds.plotting import PuddlePicture

        return PuddlePicture()

    def _current_position(self) -> FloatArray:
        if self._position is None:
            raise gymnasium.error.ResetNeeded("Call env.reset() first.")
        return self._position


def mark_agent(world: Any, state: int) -> str:
    """Return `str(world)` with brackets around the agent's state, or with an additional line that names the state."""
    cell = locate_state(world, state)
    if cell is None:
        return f"{world}\nagent in state {state}"
    row, column = cell
    lines = [f" {line} " for line in str(world).splitlines()]
    # Columns have equal width, are right-aligned and separated by a blank; the first row has all columns.
    n_columns = world.shape[1] if hasattr(world, "cell") else len(world.layers)
    end = (column + 1) * ((len(lines[0]) - 1) // n_columns)
    start = lines[row].rindex(" ", 0, end) + 1
    lines[row] = f"{lines[row][: start - 1]}[{lines[row][start:end]}]{lines[row][end + 1 :]}"
    return "\n".join(line.rstrip() for line in lines)


def locate_state(world: Any, state: int) -> tuple[int, int] | None:
    """Return the row and column of a state in `str(world)`, or None if they are unknown."""
    if hasattr(world, "cell"):
        row, column = world.cell(state)
        return int(row), int(column)
    for column, layer in enumerate(getattr(world, "layers", ())):
        if state in layer:
            return int(np.searchsorted(layer, state)), column
    return None


MAX_EPISODE_STEPS = 49
"""Maximum number of steps in a registered environment: 50 states, as in the demonstrations of the worlds."""

Outcome: TypeAlias = tuple[float, int, float, bool]


class WorldEnv(gymnasium.Env[Any, Any]):
    """Environment of a world with the reward of one of its intents.

    Observations are states, ``Discrete(S)``, and actions ``Discrete(A)``. ``info["action_mask"]`` (int8) is 0 for
    unavailable actions. An unavailable action leaves the state unchanged and returns the state's reward, although the
    MDP has no such transition.

    The reward of a transition (s, a, s') is the sum of the rewards of s, of (s, a) and of the edge, plus gamma times
    the reward of s' if s' is terminal. Thus the discounted return of a terminated episode is theta . F, where F are its
    feature counts (`Demonstrations.features`). The return of a truncated episode lacks the reward of its last state.

    Parameters
    ----------
    world : str or object
        Name in `limiirl.worlds.WORLDS`, or any object with an `mdp` and an `ensemble`.
    intent : int, optional
        Index of the intent. Default: each reset draws one from the mixture weights. Reported in ``info["intent"]``.
    render_mode : "ansi" or "rgb_array", optional
        Render the world as text or as an image, with a marker at the state of the agent.
    **parameters
        Parameters of a named world, such as ``wind=0.2``. `seed` determines the world, `reset(seed=...)` the episode.

    Examples
    --------
    >>> env = gymnasium.make("limiirl/ElementWorld-v0", wind=0.0, seed=2, intent=0, render_mode="ansi")
    >>> state, info = env.reset(seed=0)
    >>> state, info["intent"], info["action_mask"]
    (30, 0, array([1, 1, 1, 1], dtype=int8))
    >>> env.step(3)[:3]
    (31, -1.0, False)
    >>> env.render().splitlines()[5]
    ' S[2]2 3 3 G'
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - the base declares no ClassVar

    def __init__(
        self, world: Any, *, intent: int | None = None, render_mode: str | None = None, **parameters: Any
    ) -> None:
        self.world = _build_world(world, parameters)
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
        """Start distribution (S,), named as in Gymnasium's toy-text environments."""
        p0: FloatArray = self.world.mdp.p0
        return p0

    @property
    def P(self) -> dict[int, dict[int, list[Outcome]]]:
        """Transitions as in toy-text environments: ``P[s][a] = [(probability, next state, reward, done), ...]``.

        Only available actions are listed. Rewards are those of the current intent, or NaN if no intent has been drawn.
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
        """Start an episode: draw the intent, unless it is fixed, and the start state."""
        super().reset(seed=seed, options=options)
        self._intent = (
            self._draw_index(self.world.ensemble.weights) if self._fixed_intent is None else self._fixed_intent
        )
        self._state = self._draw_index(self.world.mdp.p0)
        return self._state, self._info(self._state, self._intent)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        if self._state is None or self._intent is None:
            raise gymnasium.error.ResetNeeded("Call env.reset() first.")
        if not self.action_space.contains(action):
            raise InvalidParameter.of("action", action, f"must lie in 0..{self.world.mdp.n_actions - 1}")
        mdp = self.world.mdp
        edges = self._edges(self._state, int(action))
        if edges.start < edges.stop:
            edge = edges.start + self._draw_index(mdp.prob[edges])
            reward, self._state = self._reward(edge, self._intent), int(mdp.dst[edge])
        else:
            ended = mdp.terminal[self._state]
            reward = 0.0 if ended else float(self._r_state[self._state, self._intent])
        done = bool(mdp.terminal[self._state])
        return self._state, reward, done, False, self._info(self._state, self._intent)

    def render(self) -> Any:
        """Return text ("ansi"), an image (height, width, 3) of uint8 ("rgb_array"), or None without a render mode."""
        if self.render_mode is None:
            return None
        if self._state is None:
            raise gymnasium.error.ResetNeeded("Call env.reset() first.")
        return mark_agent(self.world, self._state) if self.render_mode == "ansi" else self._picture.frame(self._state)

    @cached_property
    def _picture(self) -> "AgentPicture":
        from limiirl.worlds.plotting import AgentPicture

        return AgentPicture(self.world)

    def _draw_index(self, weights: NDArray[np.float64]) -> int:
        cumulative = np.cumsum(weights)
        # Without the limit, rounding could select an index beyond the last positive weight.
        point = min(self.np_random.random() * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
        return int(np.searchsorted(cumulative, point, side="right"))

    def _edges(self, s: int, a: int) -> slice:
        """Return the range of the edges of (s, a); empty if the action is not available."""
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


def _build_world(world: Any, parameters: dict[str, Any]) -> Any:
    if isinstance(world, str):
        check_choice(world, "world", tuple(WORLDS))
        return WORLDS[world](**parameters)
    if parameters:
        name, value = next(iter(parameters.items()))
        raise InvalidParameter.of(name, value, "is only allowed if the world is given by name")
    return world


def _check_intent(intent: object, n_intents: int) -> None:
    if intent is None:
        return
    if isinstance(intent, bool) or not isinstance(intent, int | np.integer) or not 0 <= intent < n_intents:
        remedy = "Pass None to draw one at each reset."
        raise InvalidParameter.of("intent", intent, f"must be an integer in 0..{n_intents - 1}", remedy=remedy)


def _check_render_mode(mode: str | None, world: Any) -> None:
    if mode is not None and mode not in WorldEnv.metadata["render_modes"]:
        raise InvalidParameter.of("render_mode", mode, "must be 'ansi', 'rgb_array' or None")
    if mode == "rgb_array" and not hasattr(world, "plot"):
        rule = f"must be 'ansi' or None, since {type(world).__name__} has no plot(ax=...)"
        raise InvalidParameter.of("render_mode", mode, rule)


def _check_start(mdp: MDP) -> None:
    ended = np.flatnonzero((mdp.p0 > 0) & mdp.terminal)
    if ended.size:
        s = int(ended[0])
        message = (
            f"world must not start in a terminal state; p0[{s}] is {mdp.p0[s]}. Change it with mdp.replace(p0=...)."
        )
        raise InvalidParameter(message, parameter="world", value=float(mdp.p0[s]), index=s)


def _register() -> None:
    specs: dict[str, dict[str, Any]] = {
        name: {"entry_point": WorldEnv, "max_episode_steps": MAX_EPISODE_STEPS, "kwargs": {"world": name}}
        for name in WORLDS
    }
    specs["ContinuousPuddleWorld"] = {"entry_point": ContinuousPuddleEnv, "max_episode_steps": HORIZON}
    for name, spec in specs.items():
        if (key := f"limiirl/{name}-v0") not in gymnasium.registry:  # registering again on a reload would warn
            spec["entry_point"] = f"limiirl.worlds.gym:{spec['entry_point'].__name__}"
            gymnasium.register(key, **spec)


_register()
