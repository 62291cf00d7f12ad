"""The figures of a report: plain numbers in, a matplotlib figure with its data and its text alternative out."""

from limiirl.report.figures.comparisons import FiveNumbers, boxes, counted, differences, five_numbers
from limiirl.report.figures.intents import flow, responsibilities, rewards, shares, traces
from limiirl.report.figures.quality import quality
from limiirl.report.figures.style import MEASURES, Drawn, MethodStyle, model_styles, styles
from limiirl.report.figures.sweeps import by_model, by_start, margin, scaling, sweep

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
