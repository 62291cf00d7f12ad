"""The whole pipeline in the synthetic city, from driving to learned styles, with a score of every step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._progress import Progress
from limiirl.metrics import recover
from limiirl.mixture import in_order_of_labels
from limiirl.roads.drivers.fit import DriverFit, fit_drivers
from limiirl.roads.matching.evaluation import PathRecovery, path_recovery
from limiirl.roads.matching.match_trips import match
from limiirl.roads.matching.matches import Matches
from limiirl.roads.synthetic.city import City, CityTrips
from limiirl.roads.synthetic.gps import Recording, simulate_recording
from limiirl.roads.traces.cleaning import CleanedTrips, clean

if TYPE_CHECKING:
    from limiirl.demos import Demonstrations
    from limiirl.metrics import Recovery
    from limiirl.mixture import IntentMixture


STAGES = ("city", "drives", "recordings", "cleaning", "matching", "styles", "scores")
"""What is done, in order."""
_FLAWS: dict[str, Any] = {"drift_m": 3.0, "outliers": 0.005, "lost": 0.01}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """Everything that the chain made, and what it is worth.

    Attributes
    ----------
    city : City
    driven : CityTrips
        The true trips.
    recording : Recording
        What receivers wrote of them.
    cleaned : CleanedTrips
    matches : Matches
    fit : DriverFit
        Styles learned from the matched trips. `fit.demos` has the true styles as labels; intent k of `fit.mixture` is
        the one most like style k.
    recovery : PathRecovery
        How much of the driven length was found.
    drivers, trips : Recovery
        How well drivers are told apart, who are known by all their trips; and how well single trips are.
    seconds : dict
        By stage.
    """

    city: City
    driven: CityTrips
    recording: Recording
    cleaned: CleanedTrips
    matches: Matches
    fit: DriverFit
    recovery: PathRecovery
    drivers: Recovery
    trips: Recovery
    seconds: Mapping[str, float]

    def scores(self) -> dict[str, Any]:
        """Return the figures by name.

        Of `trips_driven` trips, `trips_whole` were matched end to end, and `trips_used` of these were learned from.
        `found` and `added` are lengths as shares of what was driven. `fixes_right` is the share of fixes on their true
        segment. `drivers_right` and `trips_right` are given the style that is theirs; ANID is 0 for the truth and 1 for
        chance.
        """
        on = self.matches.fix_segment == self.recording.segment[self.cleaned.fix]
        return {
            "trips_driven": len(self.driven.demos),
            "trips_whole": self.matches.n_whole,
            "trips_used": len(self.fit.demos),
            "fixes": self.recording.trips.n_fixes,
            "fixes_kept": self.cleaned.fix.size,
            "fixes_right": float(on.mean()),
            "sigma_m": self.matches.settings["sigma_m"],
            "found": self.recovery.share,
            "added": self.recovery.added,
            "drivers_right": self.drivers.accuracy,
            "drivers_anid": self.drivers.anid,
            "trips_right": self.trips.accuracy,
            "trips_anid": self.trips.anid,
        }

    def __repr__(self) -> str:
        score = self.scores()
        return (
            f"Demo: {score['trips_driven']} trips of {self.driven.style.size} drivers\n"
            f"  matched   {score['trips_whole']} trips end to end; {100 * score['found']:.1f} % of the driven length "
            f"found, {100 * score['added']:.1f} % added\n"
            f"  styles    ANID {score['drivers_anid']:.3f} of drivers ({100 * score['drivers_right']:.0f} % right), "
            f"{score['trips_anid']:.3f} of single trips ({100 * score['trips_right']:.0f} % right)"
        )


def run_demo(  # noqa: PLR0913 (independent settings of one run, each with a default)
    seed: int = 0,
    *,
    radius_km: float = 2.1,
    n_drivers: int = 36,
    trips_each: int = 10,
    noise_m: float = 10.0,
    step_s: float = 15.0,
    flaws: bool = True,
    method: str = "hmm",
    progress: Progress | None = None,
) -> DemoResult:
    """Run the whole chain, from a map to driving styles, with nothing but a seed.

    Parameters
    ----------
    seed : int
        Determines the city, its drivers and the noise.
    radius_km : float
        Of the city's ring road; a smaller city takes less time.
    n_drivers, trips_each : int
        How many people drive, and how often each.
    noise_m : float
        Standard deviation of each coordinate of a fix.
    step_s : float
        Seconds between fixes.
    flaws : bool
        Besides, an error that drifts slowly (3 m), one fix in 200 thrown far off and one in 100 lost. Without them
        there is Gaussian noise alone.
    method : {"hmm", "particles"}
        Of matching.
    progress : callable, optional
        Called as ``progress(done, total, stage)``.

    Examples
    --------
    >>> found = run_demo(radius_km=0.8, n_drivers=6, trips_each=4, noise_m=5.0)
    >>> found.recovery.share > 0.95
    True
    """
    seconds: dict[str, float] = {}
    tell = progress or _silent

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        tell(0, None, name)
        yield
        seconds[name] = time.perf_counter() - begun

    with stage("city"):
        city = City(seed, radius_km)
    with stage("drives"):
        driven = city.drive(n_drivers, trips_each, seed)
    with stage("recordings"):
        more = _FLAWS if flaws else {}
        recorded = simulate_recording(city.network, driven.demos, noise_m=noise_m, step_s=step_s, seed=seed, **more)
    with stage("cleaning"):
        cleaned = clean(recorded.trips, city.network)
    with stage("matching"):
        matches = match(city.network, cleaned, method, progress=lambda done, total, _: tell(done, total, "matching"))
    with stage("styles"):
        fit = _learn(city, driven, matches, seed, tell)
    with stage("scores"):
        found = path_recovery(city.network, driven.demos, matches, cleaned.source)
        by_driver, by_trip = _score_styles(driven, fit.mixture, fit.demos)
    return DemoResult(city, driven, recorded, cleaned, matches, fit, found, by_driver, by_trip, seconds)


def _silent(*_: object) -> None:
    """Tell nobody."""


def _learn(city: City, driven: CityTrips, matches: Matches, seed: int, tell: Progress) -> DriverFit:
    """Learn as many styles as there are, all trips of a driver sharing one; put them into the order of the truth."""
    demos = matches.demonstrations()
    labelled = replace(demos, labels=driven.style[demos.groups])
    fit = fit_drivers(
        city.network,
        labelled,
        len(city.styles),
        model="DestinationMaxEnt",
        features=city.features,
        by_driver=True,
        # Of trips of any length, what they are made of says more than how much there is of it.
        embedding="shares",
        random_state=seed,
        callback=lambda report: tell(report.done, None, "styles"),
    )
    ordered = in_order_of_labels(fit.mixture, np.asarray(fit.demos.labels), len(city.styles))
    return replace(fit, mixture=ordered)


def _score_styles(driven: CityTrips, mixture: IntentMixture, demos: Demonstrations) -> tuple[Recovery, Recovery]:
    """Return how well drivers, and single trips without a word of who drove, are told apart."""
    by_driver = recover(driven.style[np.asarray(mixture.groups_)], np.asarray(mixture.group_responsibilities_))
    return by_driver, recover(np.asarray(demos.labels), mixture.predict_proba(demos))
