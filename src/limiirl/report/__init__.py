"""Reports: a document of text, tables, figures and maps, written as one page that needs nothing but itself."""

from limiirl.report.cells import Cell, Column, Table
from limiirl.report.document import (
    Callout,
    Code,
    Facts,
    Figure,
    Fold,
    Grid,
    Report,
    Section,
    Text,
)
from limiirl.report.inline import literal
from limiirl.report.map_item import Layer, Map, Stroke
from limiirl.report.write import write

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
    "Report",
    "Section",
    "Stroke",
    "Table",
    "Text",
    "literal",
    "write",
]
