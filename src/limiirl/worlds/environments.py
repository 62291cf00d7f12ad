"""The worlds as Gymnasium environments, registered under ``limiirl/`` when this module is imported.

Gymnasium 1.0 looks for no plugins, so an environment is made after an import of this module, or by an id that names it:
``gymnasium.make("limiirl.worlds.environments:limiirl/ElementWorld-v0")``.
"""

from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.worlds import WORLDS
from limiirl.worlds.agent_view import AgentPicture, text_with_agent
from limiirl.worlds.continuous_dynamics import HORIZON

try:
    import gymnasium
except ImportError:
    raise BackendUnavailable(
        "Environments need gymnasium, which is not installed. Run pip install gymnasium."
    ) from None

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
                "Take one of those that info['action_mask'] shows."
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
            raise InvalidParameter(f"There is no world named {world!r}. Choose from {', '.join(WORLDS)}.")
        built: Playable = WORLDS[world](**parameters)
        return built
    if parameters:
        raise InvalidParameter(
            f"Parameters build a world that is named; {next(iter(parameters))!r} came with a finished "
            f"{type(world).__name__}. Build the world with it."
        )
    return world


def _check_intent(intent: object, n_intents: int) -> None:
    if intent is None:
        return
    if isinstance(intent, bool) or not isinstance(intent, int | np.integer) or not 0 <= intent < n_intents:
        raise InvalidParameter(
            f"intent must be one of 0..{n_intents - 1}, as the world has {n_intents} of them; got {intent!r}. "
            "Pass None to draw one at each reset."
        )


def _check_render_mode(mode: str | None, world: Playable) -> None:
    if mode is not None and mode not in WorldEnv.metadata["render_modes"]:
        raise InvalidParameter(f"render_mode must be 'ansi' or 'rgb_array'; got {mode!r}. Choose one of them, or None.")
    if mode == "rgb_array" and not hasattr(world, "plot"):
        raise InvalidParameter(
            f"render_mode 'rgb_array' needs a world with plot(ax=...); {type(world).__name__} has none. Choose 'ansi'."
        )


def _check_start(mdp: MDP) -> None:
    ended = np.flatnonzero((mdp.p0 > 0) & mdp.terminal)
    if ended.size:
        s = int(ended[0])
        raise InvalidParameter(
            f"An episode cannot start where it ends; state {s} is terminal and p0[{s}] is {mdp.p0[s]}. "
            "Give the MDP another start with mdp.replace(p0=...)."
        )


def _register() -> None:
    for name in ("ElementWorld", "PuddleWorld", "ObjectWorld", "SyntheticWorld"):
        if (key := f"limiirl/{name}-v0") not in gymnasium.registry:  # a reload would be warned of
            gymnasium.register(
                key,
                entry_point="limiirl.worlds.environments:WorldEnv",
                max_episode_steps=MAX_EPISODE_STEPS,
                kwargs={"world": name},
            )
    if (key := "limiirl/ContinuousPuddleWorld-v0") not in gymnasium.registry:
        gymnasium.register(
            key,
            entry_point="limiirl.worlds.continuous_environment:ContinuousPuddleEnv",
            max_episode_steps=HORIZON,
        )


_register()
