"""The page of a report: one file of HTML that holds its own style and figures and asks nobody for anything."""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from limiirl._version import __version__
from limiirl.report.document import Item, Report, Section
from limiirl.report.ink import VARIABLES
from limiirl.report.inline import clean, prose_html, prose_text
from limiirl.report.tables import sentence, table_html, table_notes

if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR = "limiirl"
"""By which a page is known as a report of ours."""

VERDICTS = {"holds": "Holds", "fails": "Does not hold", "open": "Open", "note": "Note"}
"""The words for a verdict."""

METHODS = "Methods"
"""The heading of the last section."""


class Place(NamedTuple):
    """A section with its anchor and the places of the sections in it."""

    anchor: str
    section: Section
    inner: "dict[int, Place]"


class MapParts(NamedTuple):
    """What stands on the page for a map: its data as JSON, and its picture for paper as PNG."""

    data: str
    still: bytes


def page_html(report: Report, figures: Mapping[str, str], maps: Mapping[str, MapParts] | None = None) -> str:
    """Render a report.

    Parameters
    ----------
    report : Report
        What to show.
    figures : mapping of str to str
        The markup of each figure by its name, from `limiirl.report.vector`.
    maps : mapping of str to MapParts, optional
        The parts of each map by its name. A page without maps has no script, and allows none.

    Examples
    --------
    >>> from limiirl.report.document import Text
    >>> page = page_html(Report("A & B", "Lead.", [Section("One", [Text("*x*")])]), {})
    >>> "<title>A &amp; B</title>" in page, "<em>x</em>" in page
    (True, True)
    """
    from markupsafe import Markup

    sections = [*report.sections]
    if report.methods:
        sections.append(Section(METHODS, report.methods))
    taken: set[str] = set()
    places = [_place(section, taken) for section in sections]
    environment = _environment()
    style = _source(environment, "style.css") + (_source(environment, "map.css") if report.maps else "")
    script = _script(environment) if report.maps else ""
    return (
        environment.get_template("page.html.j2")
        .render(
            report=report,
            places=places,
            figures={name: Markup(markup) for name, markup in figures.items()},
            maps={name: _shown(parts) for name, parts in (maps or {}).items()},
            style=Markup(style),
            script=Markup(script),
            script_hash=Markup(_script_hash(script)),
            variables=VARIABLES,
            generator=f"{GENERATOR} {__version__}",
            verdicts=VERDICTS,
            kind=_kind,
        )
        .lstrip()
    )


def _source(environment: "Environment", name: str) -> str:
    return environment.loader.get_source(environment, name)[0] if environment.loader else ""


def _script(environment: "Environment") -> str:
    """The script that draws maps: two files within one function, so that no name of theirs is the page's."""
    parts = (_source(environment, name) for name in ("map_shapes.js", "map.js"))
    return f'"use strict";\n(() => {{\n{"".join(parts)}}})();\n'


def _script_hash(script: str) -> str:
    """By which the page allows this script, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}" if script else ""


def _shown(parts: MapParts) -> dict[str, object]:
    from markupsafe import Markup

    # `map_json` leaves no sign that means anything to a page.
    return {"data": Markup(parts.data), "still": base64.b64encode(parts.still).decode()}


def _kind(item: Item | Section) -> str:
    return type(item).__name__.lower()


def _place(section: Section, taken: set[str]) -> Place:
    anchor = _anchor(section.title, taken)
    inner = {number: _place(part, taken) for number, part in enumerate(section.items) if isinstance(part, Section)}
    return Place(anchor, section, inner)


def _anchor(title: str, taken: set[str]) -> str:
    """An address for a section from its title, unlike those already taken.

    Examples
    --------
    >>> taken = set()
    >>> _anchor("Box plots: ANID", taken), _anchor("Box plots, ANID", taken), _anchor("θ", taken)
    ('box-plots-anid', 'box-plots-anid-2', 'section')
    """
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    # The prefixes of figures and tables, and the landmarks of the template, have addresses of their own.
    if slug in ("main", "contents", "top") or slug.startswith(("figure-", "table-")):
        slug = f"section-{slug}"
    anchor, count = slug, 1
    while anchor in taken:
        count += 1
        anchor = f"{slug}-{count}"
    taken.add(anchor)
    return anchor


def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("limiirl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # What no page can hold is replaced in every text that the template shows.
        finalize=lambda shown: clean(shown) if type(shown) is str else shown,
    )
    environment.filters["prose"] = lambda prose: Markup(prose_html(prose))
    environment.filters["sentence"] = sentence
    environment.filters["prose_text"] = prose_text
    environment.filters["table_html"] = lambda table: Markup(table_html(table))
    environment.filters["table_notes"] = lambda table: [
        (kind, sign, Markup(html)) for kind, sign, html in table_notes(table)
    ]
    return environment
