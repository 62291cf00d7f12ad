"""Small mixtures and files of demonstrations for the tests of `limiirl.streams`."""

from pathlib import Path
from typing import Any

from limiirl import Demonstrations, IntentMixture, MaxEnt, RewardEnsemble
from tests.oracles.mixture import TASTES

NEAR = RewardEnsemble([0.5, 0.5], TASTES * 0.5)


def quick_mixture(**parameters: Any) -> IntentMixture:
    """Return a mixture of two intents with one iteration."""
    settings = {"init": NEAR, "max_iter": 1, "random_state": 0} | parameters
    return IntentMixture(2, MaxEnt(bounds=(-5, 5)), **settings)


def mixture(irl: Any = None, **parameters: Any) -> IntentMixture:
    """Return a mixture of two intents with four iterations."""
    settings = {"init": NEAR, "max_iter": 4, "resp_tol": 0.0, "random_state": 3} | parameters
    return IntentMixture(2, MaxEnt(bounds=(-5, 5)) if irl is None else irl, **settings)


def files(folder: Path, demos: Demonstrations, *ends: int) -> Path:
    """Write parquet files of consecutive demonstrations, and return their folder."""
    folder.mkdir()
    for i, (lo, hi) in enumerate(zip((0, *ends), (*ends, len(demos)), strict=True)):
        demos[lo:hi].to_parquet(folder / f"walks-{i}.parquet")
    return folder


def flip(path: Path, at: int, bit: int = 1) -> None:
    """Change a bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)
