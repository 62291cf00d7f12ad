"""Reports: a document of text, tables and figures, written as one page that needs nothing but itself."""

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
    "Report",
    "Section",
    "Table",
    "Text",
    "literal",
    "write",
]
