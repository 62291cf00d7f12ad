"""Intents that switch within a demonstration."""

from limiirl.switching.dynamics import DwellTimes, GroupDynamics, SwitchingGraph
from limiirl.switching.em import SwitchingRestart
from limiirl.switching.estimator import SwitchingMixture
from limiirl.switching.inference import Segments
from limiirl.switching.information import SwitchingErrors
from limiirl.switching.io import check_target, is_saved
from limiirl.switching.selection import (
    SwitchingRow,
    SwitchingSelection,
    SwitchingSetting,
    mean_per_step,
    select_switching,
)
from limiirl.switching.summary import SwitchingSummary, summarise_switching
from limiirl.switching.transitions import Logits

__all__ = [
    "DwellTimes",
    "GroupDynamics",
    "Logits",
    "Segments",
    "SwitchingErrors",
    "SwitchingGraph",
    "SwitchingMixture",
    "SwitchingRestart",
    "SwitchingRow",
    "SwitchingSelection",
    "SwitchingSetting",
    "SwitchingSummary",
    "check_target",
    "is_saved",
    "mean_per_step",
    "select_switching",
    "summarise_switching",
]
