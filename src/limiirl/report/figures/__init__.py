"""The figures of a report: plain numbers in, a matplotlib figure with its data and its text alternative out."""

from limiirl.report.figures.boxes import FiveNumbers, boxes, five_numbers
from limiirl.report.figures.counted import counted
from limiirl.report.figures.flow import flow
from limiirl.report.figures.look import MEASURES, Drawn
from limiirl.report.figures.memberships import responsibilities, shares
from limiirl.report.figures.method_styles import MethodStyle, model_styles, styles
from limiirl.report.figures.model_sweeps import by_model, by_start
from limiirl.report.figures.paired import differences
from limiirl.report.figures.quality import quality
from limiirl.report.figures.rewards import rewards
from limiirl.report.figures.scaling import scaling
from limiirl.report.figures.sweeps import margin, sweep
from limiirl.report.figures.traces import traces

__all__ = [
    "MEASURES",
    "Drawn",
    "FiveNumbers",
    "MethodStyle",
    "boxes",
    "by_model",
    "by_start",
    "counted",
    "differences",
    "five_numbers",
    "flow",
    "margin",
    "model_styles",
    "quality",
    "responsibilities",
    "rewards",
    "scaling",
    "shares",
    "styles",
    "sweep",
    "traces",
]
