"""Reports with text, tables, figures and maps, written as one self-contained HTML page."""

from limiirl.report.comparison import ModelTable, compare
from limiirl.report.document import Callout, Code, Facts, Figure, Fold, Grid, Report, Section, Text
from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.page import check_folder, write
from limiirl.report.tables import Cell, Column, Table

__all__ = [
    "Callout",
    "Cell",
    "Code",
    "Column",
    "Facts",
    "Figure",
    "Fold",
    "Grid",
    "Layer",
    "Map",
    "ModelTable",
    "Report",
    "Section",
    "Stroke",
    "Table",
    "Text",
    "check_folder",
    "compare",
    "literal",
    "write",
]
