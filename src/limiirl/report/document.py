"""Elements of a report as plain values: sections with text, facts, tables, figures and maps.

Titles, cells, keys and text alternatives are plain text. Introductions, captions, notes and paragraphs are prose in the
subset of Markdown of `limiirl.report.markup`; escape text from users with `literal`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

from limiirl._validation import check_choice
from limiirl.errors import InvalidParameter
from limiirl.report.maps import Map
from limiirl.report.tables import Table, check_filled, check_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from limiirl.report.figures import Plot


Verdict: TypeAlias = Literal["holds", "fails", "open", "note", "caution", "problem"]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Figure:
    """A figure with its text alternative and its data.

    Parameters
    ----------
    name : str
        File name without extension, unique in a report.
    title : str
    alt : str
        One or two sentences for readers who cannot see the figure.
    caption : str
        Prose that explains the figure.
    draw : callable
        Returns a matplotlib Figure; called once, with the settings `limiirl.report.svg.STYLE`.
    data : mapping of str to sequence
        Columns of equal length for the CSV file.

    >>> from matplotlib.figure import Figure as Drawing
    >>> Figure("empty", "Nothing", "An empty frame.", "", Drawing, {"x": [1, 2]}).title
    'Nothing'
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
                    f"data must have columns of equal length; {list(self.data)[index]!r} of figure {self.name!r} has "
                    f"{length} rows, and the first column has {lengths[0]}.",
                    parameter="data",
                    value=length,
                    index=index,
                )

    @classmethod
    def from_plot(cls, name: str, title: str, caption: str, plot: "Plot") -> "Figure":
        """Create a figure from a plot of `limiirl.report.figures`."""
        return cls(name, title, plot.alt, caption, lambda: plot.figure, plot.columns)


@dataclass(frozen=True)
class Text:
    r"""Paragraphs of prose separated by blank lines; lines that begin with "- " form a list.

    >>> Text("One.\n\n- two\n- three").prose
    'One.\n\n- two\n- three'
    """

    prose: str


@dataclass(frozen=True)
class Facts:
    """A list of keys with values, in plain text.

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
    """Verbatim text, such as a command or the output of a program.

    >>> Code("limiirl demo", title="Command").text
    'limiirl demo'
    """

    text: str
    title: str = ""


@dataclass(frozen=True)
class Callout:
    """A highlighted claim with its verdict.

    >>> Callout("holds", "The number of iterations does not depend on N", "3.4 at N = 20, 3.5 at N = 400.").verdict
    'holds'
    """

    verdict: Verdict
    title: str
    prose: str = ""

    def __post_init__(self) -> None:
        check_choice(self.verdict, "verdict", get_args(Verdict))


@dataclass(frozen=True)
class Grid:
    """Items that are placed side by side on wide screens.

    >>> len(Grid([Text("left"), Text("right")]).items)
    2
    """

    items: "Sequence[Item]"


@dataclass(frozen=True)
class Fold:
    """Collapsed items with a title; they are expanded in print.

    >>> Fold("Failed trials", [Text("None.")]).title
    'Failed trials'
    """

    title: str
    items: "Sequence[Item]"


@dataclass(frozen=True)
class Section:
    """A heading, an introductory paragraph (`lead`) and items; sections can be nested one level deep.

    >>> Section("Sensitivity", [Text("Five parameters were varied.")]).lead
    ''
    """

    title: str
    items: "Sequence[Item | Section]"
    lead: str = ""

    def __post_init__(self) -> None:
        check_filled("title", self.title)
        for index, item in enumerate(self.items):
            if isinstance(item, Section) and any(isinstance(nested, Section) for nested in item.items):
                raise InvalidParameter(
                    f"items can nest sections one level deep; {item.title!r} in {self.title!r} has a subsection.",
                    parameter="items",
                    value=item.title,
                    index=index,
                )


Item: TypeAlias = Figure | Map | Table | Text | Facts | Code | Callout | Grid | Fold


@dataclass(frozen=True)
class Report:
    """A report: title, summary, sections and methods.

    Parameters
    ----------
    title : str
        Plain text.
    lead : str
        Prose that summarises the results in one or two sentences.
    sections : sequence of Section
    methods : sequence of items
        Items of the section on methods, such as versions, seeds and commands.
    footer : str
        Prose in the last line.
    highlights : mapping or pairs
        Key figures shown in a large font, such as ``{"worlds": 100}``.
    project : str
        Letters and digits, such as the fingerprint of a network. Pages of one project in sibling folders link to each
        other.

    >>> table = Table("scores", "Scores", "", ["Method"], [["ours"]])
    >>> report = Report("Study", "Summary.", [Section("Scores", [table])])
    >>> [table.name for table in report.tables]
    ['scores']
    """

    title: str
    lead: str
    sections: Sequence[Section]
    methods: Sequence[Item] = ()
    footer: str = ""
    highlights: Mapping[str, object] | Iterable[tuple[str, object]] = ()
    project: str = ""

    def __post_init__(self) -> None:
        check_filled("title", self.title)
        if self.project and not (self.project.isascii() and self.project.isalnum()):
            raise InvalidParameter.of("project", self.project, "must consist of letters and digits")
        object.__setattr__(self, "highlights", Facts(self.highlights).entries)
        names = Counter([f.name for f in self.figures] + [m.name for m in self.maps] + [t.name for t in self.tables])
        for name, count in names.items():
            if count > 1:
                raise InvalidParameter(
                    f"sections must have figures, maps and tables with unique names; {name!r} is used {count} times.",
                    parameter="sections",
                    value=name,
                )

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in reading order."""
        return self._of_type(Figure)

    @property
    def maps(self) -> tuple[Map, ...]:
        """All maps, in reading order."""
        return self._of_type(Map)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in reading order."""
        return self._of_type(Table)

    def _of_type(self, kind: type[_T]) -> tuple[_T, ...]:
        return tuple(item for item in _flatten([*self.sections, *self.methods]) if isinstance(item, kind))


def _flatten(items: Iterable[object]) -> Iterator[object]:
    for item in items:
        yield item
        if isinstance(item, Section | Grid | Fold):
            yield from _flatten(item.items)
