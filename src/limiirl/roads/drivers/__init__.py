"""Driving styles: fits to matched trips, normalised rewards, and descriptions in words."""

from limiirl.roads.drivers.fit import DriverFit, fit_drivers
from limiirl.roads.drivers.styles import (
    NOT_LENGTHS,
    NormalisedRewards,
    StyleDescription,
    check_groups,
    count_style_drivers,
    count_style_trips,
    describe_fit,
    describe_styles,
    match_rewards,
    normalise_rewards,
)  # fmt: skip

__all__ = [
    "NOT_LENGTHS", "DriverFit", "NormalisedRewards", "StyleDescription", "check_groups",
    "count_style_drivers", "count_style_trips", "describe_fit",
    "describe_styles", "fit_drivers", "match_rewards", "normalise_rewards",
]  # fmt: skip
