"""What a report consists of: sections of text, facts, tables, figures and maps, as plain values.

Titles, cells, keys and alternatives are plain text. Leads, captions, notes and paragraphs are prose, with the little
markup of `limiirl.report.markup`; wrap a user's text in `literal` there. All of it is escaped when it is written.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from limiirl.errors import InvalidParameter
from limiirl.report.maps import Map
from limiirl.report.tables import Table, check_choice, check_filled, check_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


Verdict: TypeAlias = Literal["holds", "fails", "open", "note"]


@dataclass(frozen=True)
class Figure:
    """A figure: how to draw it, what it shows in words, and the numbers in it.

    Parameters
    ----------
    name : str
        File name without ending, unique in a report.
    title : str
        A few words.
    alt : str
        One or two sentences for those who do not see it.
    caption : str
        Prose that says how to read it.
    draw : callable
        Returns a matplotlib Figure; called once, under `limiirl.report.svg.STYLE`.
    data : mapping of str to sequence
        Named columns of equal length, for the CSV file.

    Examples
    --------
    >>> from matplotlib.figure import Figure as Drawing
    >>> Figure("empty", "Nothing", "An empty frame.", "", Drawing, {"x": [1, 2]}).n_rows
    2
    """

    name: str
    title: str
    alt: str
    caption: str
    draw: Callable[[], "Drawing"]
    data: Mapping[str, Sequence[object]]

    def __post_init__(self) -> None:
        check_name("figure", self.name)
        check_filled("a figure's title", self.title)
        check_filled("a figure's alt", self.alt)
        lengths = [(column, len(values)) for column, values in self.data.items()]
        for (first, length), (column, other) in pairwise(lengths):
            if length != other:
                raise InvalidParameter(
                    f"the columns of a figure's data must have equal length; in figure {self.name!r}, {first!r} has "
                    f"{length} and {column!r} {other}. Repeat or fill the shorter one."
                )

    @property
    def n_rows(self) -> int:
        """The number of rows of data."""
        return max((len(values) for values in self.data.values()), default=0)


@dataclass(frozen=True)
class Text:
    r"""Paragraphs of prose, separated by blank lines; lines that begin with "- " are a list.

    Examples
    --------
    >>> Text("One.\n\n- two\n- three").blocks
    ('One.', ('two', 'three'))
    """

    prose: str

    @property
    def blocks(self) -> tuple[str | tuple[str, ...], ...]:
        """Each paragraph as a string, each list as a tuple of its entries."""
        blocks: list[str | tuple[str, ...]] = []
        for block in re.split(r"\n[ \t]*\n", self.prose.strip()):
            lines = [line.strip() for line in block.splitlines()]
            if lines and all(line.startswith("- ") for line in lines):
                blocks.append(tuple(line.removeprefix("- ") for line in lines))
            elif block:
                blocks.append(" ".join(lines))
        return tuple(blocks)


@dataclass(frozen=True)
class Facts:
    """Keys and values in plain text.

    Examples
    --------
    >>> Facts({"worlds": 100}).entries
    (('worlds', '100'),)
    """

    items: Mapping[str, object] | Iterable[tuple[str, object]]
    entries: tuple[tuple[str, str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pairs = self.items.items() if isinstance(self.items, Mapping) else self.items
        object.__setattr__(self, "entries", tuple((str(key), str(value)) for key, value in pairs))


@dataclass(frozen=True)
class Code:
    """Text in fixed width, as it is: a command, a program's output.

    Examples
    --------
    >>> Code("limiirl demo", title="Command").text
    'limiirl demo'
    """

    text: str
    title: str = ""


@dataclass(frozen=True)
class Callout:
    """A finding set apart, with its verdict.

    Examples
    --------
    >>> Callout("holds", "Iterations stay flat in N", "From 20 to 400 they grow by 3%.").verdict
    'holds'
    """

    verdict: Verdict
    title: str
    prose: str = ""

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, Verdict)


@dataclass(frozen=True)
class Grid:
    """Items side by side where there is room, such as one narrow figure for each intent.

    Examples
    --------
    >>> len(Grid([Text("left"), Text("right")]).items)
    2
    """

    items: "Sequence[Item]"


@dataclass(frozen=True)
class Fold:
    """Items that are closed behind a line of text until asked for; they print open.

    Examples
    --------
    >>> Fold("Every trial that failed", [Text("None did.")]).title
    'Every trial that failed'
    """

    title: str
    items: "Sequence[Item]"


@dataclass(frozen=True)
class Section:
    """A heading, a lead of prose, and items; an item may be a section, once.

    Examples
    --------
    >>> Section("Sweeps", [Text("Five of them.")]).lead
    ''
    """

    title: str
    items: "Sequence[Item | Section]"
    lead: str = ""

    def __post_init__(self) -> None:
        check_filled("a section's title", self.title)
        for part in self.items:
            if isinstance(part, Section) and any(isinstance(below, Section) for below in part.items):
                raise InvalidParameter(
                    f"sections nest once; section {part.title!r} in {self.title!r} holds another. Raise it one level."
                )


Item: TypeAlias = Figure | Map | Table | Text | Facts | Code | Callout | Grid | Fold
_HOLDERS = (Section, Grid, Fold)


@dataclass(frozen=True)
class Report:
    """A whole report.

    Parameters
    ----------
    title : str
        Plain text.
    lead : str
        Prose: the finding in a sentence or two.
    sections : sequence of Section
        In reading order.
    methods : sequence of items
        How it was made: versions, seeds, the command. Shown last, under a heading of its own.
    footer : str
        Prose of the last line.
    highlights : mapping or pairs
        A few numbers shown large under the lead, such as ``{"worlds": 100}``.

    Examples
    --------
    >>> table = Table("scores", "Scores", "", ["Method"], [["ours"]])
    >>> report = Report("Study", "It works.", [Section("Scores", [table])])
    >>> [table.name for table in report.tables]
    ['scores']
    """

    title: str
    lead: str
    sections: Sequence[Section]
    methods: Sequence[Item] = ()
    footer: str = ""
    highlights: Mapping[str, object] | Iterable[tuple[str, object]] = ()

    def __post_init__(self) -> None:
        check_filled("a report's title", self.title)
        object.__setattr__(self, "highlights", Facts(self.highlights).entries)
        seen: set[str] = set()
        names = [figure.name for figure in self.figures] + [item.name for item in self.maps]
        names += [table.name for table in self.tables]
        for name in names:
            if name in seen:
                raise InvalidParameter(
                    f"names of figures, maps and tables must be unique in a report; {name!r} occurs twice. Rename one."
                )
            seen.add(name)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in reading order."""
        return tuple(item for item in self._items() if isinstance(item, Figure))

    @property
    def maps(self) -> tuple[Map, ...]:
        """All maps, in reading order."""
        return tuple(item for item in self._items() if isinstance(item, Map))

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in reading order."""
        return tuple(item for item in self._items() if isinstance(item, Table))

    def _items(self) -> Iterator[object]:
        waiting: list[object] = [*reversed([*self.sections, *self.methods])]
        while waiting:
            item = waiting.pop()
            yield item
            if isinstance(item, _HOLDERS):
                waiting.extend(reversed(cast("Sequence[object]", item.items)))
