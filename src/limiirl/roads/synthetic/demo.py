"""`run_demo`: the whole pipeline in a synthetic city, from simulated trips to driving styles, with scores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._progress import Progress
from limiirl.metrics import recover
from limiirl.mixture import align_to_labels
from limiirl.roads.drivers import DriverFit, fit_drivers
from limiirl.roads.matching import Matches, PathRecovery, match, path_recovery
from limiirl.roads.synthetic.city import City, CityTrips
from limiirl.roads.synthetic.gps import Recording, simulate_recording
from limiirl.roads.traces import CleanedTrips, clean

if TYPE_CHECKING:
    from limiirl.demos import Demonstrations
    from limiirl.metrics import Recovery
    from limiirl.mixture import IntentMixture


_FLAWS: dict[str, Any] = {"drift_m": 3.0, "outliers": 0.005, "lost": 0.01}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """Results of all stages of the demo.

    Attributes
    ----------
    city : City
    driven : CityTrips
        True trips.
    recording : Recording
        Simulated GPS recording.
    cleaned : CleanedTrips
    matches : Matches
    fit : DriverFit
        Styles fitted to the matched trips. `fit.demos` has the true styles as labels, and intent k of `fit.mixture` is
        aligned with style k.
    recovery : PathRecovery
        Recovery of the true paths.
    drivers, trips : Recovery
        Recovery of the style of each driver, given all trips of the driver, and of the style of each trip.
    seconds : dict
        Duration of each stage in seconds.
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
        """Return the scores by name.

        Of `trips_driven` trips, `trips_whole` were matched completely, and `trips_used` of these were used in the fit.
        `found` and `added` are the correctly and the wrongly matched length, as fractions of the driven length.
        `fixes_right` is the fraction of the fixes that are matched to their true segment; `drivers_right` and
        `trips_right` are the fractions with the correct style. The ANID is 0 for perfect recovery and 1 for chance.
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
            "recovered": self.recovery.share,
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
            f"  matched   {score['trips_whole']} trips completely; {100 * score['recovered']:.1f} % of the driven "
            f"length recovered, {100 * score['added']:.1f} % added\n"
            f"  styles    ANID {score['drivers_anid']:.3f} of drivers ({100 * score['drivers_right']:.0f} % correct), "
            f"{score['trips_anid']:.3f} of single trips ({100 * score['trips_right']:.0f} % correct)"
        )


def run_demo(  # noqa: PLR0913 (independent settings with defaults)
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
    """Run the whole pipeline in a synthetic city.

    Parameters
    ----------
    seed : int
        Seed of the city, the drivers and the noise.
    radius_km : float
        Mean radius of the ring road of the city.
    n_drivers, trips_each : int
        Number of drivers, and of trips per driver.
    noise_m : float
        Standard deviation of each coordinate of a fix.
    step_s : float
        Seconds between fixes.
    flaws : bool
        Add a slow drift (3 m), outliers (0.5 % of the fixes) and missing fixes (1 %) to the Gaussian noise.
    method : {"hmm", "particles"}
        Matching method.
    progress : callable, optional
        Called as ``progress(done, total, stage)``.

    Examples
    --------
    >>> result = run_demo(radius_km=0.8, n_drivers=6, trips_each=4, noise_m=5.0)
    >>> result.recovery.share > 0.95
    True
    """
    seconds: dict[str, float] = {}
    report = progress or (lambda *_: None)

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        report(0, None, name)
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
        matches = match(city.network, cleaned, method, progress=lambda done, total, _: report(done, total, "matching"))
    with stage("styles"):
        fit = _fit_styles(city, driven, matches, seed, report)
    with stage("scores"):
        recovery = path_recovery(city.network, driven.demos, matches, cleaned.source)
        by_driver, by_trip = _score_styles(driven, fit.mixture, fit.demos)
    return DemoResult(city, driven, recorded, cleaned, matches, fit, recovery, by_driver, by_trip, seconds)


def _fit_styles(city: City, driven: CityTrips, matches: Matches, seed: int, report: Progress) -> DriverFit:
    """Fit the true number of styles, with one style per driver, and align them with the true styles."""
    demos = matches.demonstrations()
    labelled = replace(demos, labels=driven.style[demos.groups])
    fit = fit_drivers(
        city.network,
        labelled,
        len(city.styles),
        features=city.features,
        by_driver=True,
        # The fractions of road types depend more on the style than the length of a trip does.
        embedding="shares",
        seed=seed,
        progress=lambda done, *_: report(done, None, "styles"),
    )
    ordered = align_to_labels(fit.mixture, np.asarray(fit.demos.labels), len(city.styles))
    return replace(fit, mixture=ordered)


def _score_styles(driven: CityTrips, mixture: IntentMixture, demos: Demonstrations) -> tuple[Recovery, Recovery]:
    by_driver = recover(driven.style[np.asarray(mixture.groups_)], np.asarray(mixture.group_responsibilities_))
    return by_driver, recover(np.asarray(demos.labels), mixture.predict_proba(demos))
