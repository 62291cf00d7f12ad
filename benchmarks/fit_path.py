"""Call path of one fit from a warm start: files, deepest stack, number of function calls, milliseconds.

Run as `python -m benchmarks.fit_path [WORLDS]`.
"""

import sys
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import limiirl
from benchmarks.measure import describe_machine, seconds
from limiirl import IntentMixture, MaxEnt
from limiirl.errors import LimiirlWarning
from limiirl.worlds import ElementWorld

PACKAGE = str(Path(limiirl.__file__).parent) + "/"


class Trace:
    """Profile function that records the frames of the package."""

    def __init__(self) -> None:
        self.depth = 0
        self.deepest: list[str] = []
        self.calls: Counter[str] = Counter()
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call, and record the deepest stack."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            self.depth += 1
            name = f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}"
            self.files.add(code.co_filename.removeprefix(PACKAGE))
            self.calls[name] += 1
            if self.depth > len(self.deepest):
                self.deepest = stack(frame)
        elif event == "return":
            self.depth -= 1


def stack(frame: FrameType | None) -> list[str]:
    """Return the frames of the package on a stack, outermost first."""
    names = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            names.append(f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return names[::-1]


def main() -> None:
    """Print the call path of a fit, and the median time over several worlds."""
    n_worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    warnings.simplefilter("ignore", LimiirlWarning)
    data = []
    for seed in range(n_worlds):
        world = ElementWorld(seed=seed)
        data.append((world.mdp, world.sample(100, seed=seed)[0]))
    IntentMixture(3, MaxEnt(), random_state=0).fit(*data[0])  # compiles
    trace = Trace()
    sys.setprofile(trace)
    mixture = IntentMixture(3, MaxEnt(), random_state=0).fit(*data[0])
    sys.setprofile(None)
    print(describe_machine())
    print(f"files {len(trace.files)}, frames {len(trace.deepest)}, calls {sum(trace.calls.values())}")
    print(f"iterations {mixture.n_iter_}, log-likelihood {mixture.log_likelihood_!r}")
    print("files: " + ", ".join(sorted(trace.files)))
    print("deepest stack:\n  " + "\n  ".join(trace.deepest))
    print("most calls:")
    for name, count in trace.calls.most_common(25):
        print(f"  {count:6d} {name}")
    spent = [
        seconds(
            lambda mdp=mdp, demos=demos, seed=seed: IntentMixture(3, MaxEnt(), random_state=seed).fit(mdp, demos), 3
        )
        for seed, (mdp, demos) in enumerate(data)
    ]
    print(f"median {1e3 * np.median(spent):.1f} ms over {n_worlds} worlds, worst {1e3 * np.max(spent):.1f} ms")


if __name__ == "__main__":
    main()
