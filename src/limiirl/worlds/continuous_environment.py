"""The continuous PuddleWorld as a Gymnasium environment, which `limiirl.worlds.environments` registers."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.worlds.continuous_dynamics import KINDS, START, arrived, check_kind, moved, reward_features
from limiirl.worlds.gaussian_policy import SIZE

if TYPE_CHECKING:
    from limiirl.worlds.continuous_drawing import WalkerPicture

Float = NDArray[np.float64]


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
    >>> env = gymnasium.make("limiirl.worlds.environments:limiirl/ContinuousPuddleWorld-v0", kind="border")
    >>> position, info = env.reset(seed=0)
    >>> for _ in range(3):
    ...     position, reward, arrived, cut_off, info = env.step(np.array([1.0, 0.5]))
    >>> position.tolist(), reward, info["reward_features"].tolist()
    ([3.0, 6.0], -10.0, [0.0, -1.0, 0.0])
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - the base declares no ClassVar

    def __init__(self, kind: str = "center", *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise InvalidParameter(f"render_mode must be 'rgb_array'; got {render_mode!r}. Choose it, or None.")
        self.kind = check_kind(kind)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0.0, SIZE, shape=(2,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float64)
        self._position: Float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float, dict[str, Any]]:
        """Begin an episode at the start, always the same."""
        super().reset(seed=seed, options=options)
        self._position = np.array(START)
        return self._position.copy(), {"reward_features": np.zeros(3)}

    def step(self, action: ArrayLike) -> tuple[Float, float, bool, bool, dict[str, Any]]:
        """Take a step; in the goal, the agent stays where it is for nothing."""
        here = self._placed("step came first")
        wish = np.asarray(action, dtype=np.float64)
        if wish.shape != (2,) or not np.all(np.isfinite(wish)):
            raise InvalidParameter(f"An action must be two finite numbers, the steps in x and in y; got {action!r}.")
        ended = bool(arrived(here))
        if not ended:
            self._position = here = moved(here, wish)
        features = reward_features(here, self.kind)
        reward = 0.0 if ended else float(features @ np.array(KINDS[self.kind]))
        return here.copy(), reward, bool(arrived(here)), False, {"reward_features": features}

    def render(self) -> Any:
        """Return an array (height, width, 3) of uint8, or None without a mode."""
        if self.render_mode is None:
            return None
        return self._picture.frame(self._placed("there is no agent to draw"))

    @cached_property
    def _picture(self) -> "WalkerPicture":
        from limiirl.worlds.continuous_drawing import WalkerPicture

        return WalkerPicture()

    def _placed(self, instead: str) -> Float:
        if self._position is None:
            raise gymnasium.error.ResetNeeded(f"An episode begins with reset; {instead}. Call env.reset().")
        return self._position
