"""The parts of a report: sections of text, facts, tables, figures and maps, as plain values.

Titles, cells, keys and alternatives are plain text. Leads, captions, notes and paragraphs are prose, in the part of
Markdown that `limiirl.report.markup` reads; wrap a user's text in `literal`. All of it is escaped when written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from limiirl._validation import check_choice
from limiirl.errors import InvalidParameter
from limiirl.report.maps import Map
from limiirl.report.tables import Table, check_filled, check_name

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
        check_name(self.name)
        check_filled("title", self.title)
        check_filled("alt", self.alt)
        lengths = [len(values) for values in self.data.values()]
        for index, length in enumerate(lengths):
            if length != lengths[0]:
                raise InvalidParameter(
                    f"The columns of data must have equal length; in figure {self.name!r}, {list(self.data)[index]!r} "
                    f"has {length} rows and the first {lengths[0]}. Repeat or fill the shorter one.",
                    parameter="data",
                    value=length,
                    index=index,
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
    >>> Text("One.\n\n- two\n- three").prose
    'One.\n\n- two\n- three'
    """

    prose: str


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
        check_choice(self.verdict, "verdict", get_args(Verdict))


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
        check_filled("title", self.title)
        for index, part in enumerate(self.items):
            if isinstance(part, Section) and any(isinstance(below, Section) for below in part.items):
                raise InvalidParameter(
                    f"Sections nest once; section {part.title!r} in {self.title!r} holds another. Raise it one level.",
                    parameter="items",
                    value=part.title,
                    index=index,
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
        check_filled("title", self.title)
        object.__setattr__(self, "highlights", Facts(self.highlights).entries)
        seen: set[str] = set()
        names = [figure.name for figure in self.figures] + [item.name for item in self.maps]
        names += [table.name for table in self.tables]
        for name in names:
            if name in seen:
                raise InvalidParameter(
                    f"Names of figures, maps and tables must be unique in a report; {name!r} occurs twice. Rename one.",
                    parameter="sections",
                    value=name,
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
