"""The page of a report, one file of HTML that requests nothing, and the folder that it is written to."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from limiirl._io import atomic_write
from limiirl._version import __version__
from limiirl.errors import InvalidFile
from limiirl.report.document import Item, Report, Section
from limiirl.report.maps import map_columns, map_geojson
from limiirl.report.markup import blocks_html, clean, prose_html, prose_text
from limiirl.report.svg import VARIABLES, Picture, render
from limiirl.report.table_formats import (
    data_csv,
    sentence,
    table_csv,
    table_html,
    table_latex,
    table_markdown,
    table_notes,
)

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
    """What stands on the page for a map: its data as GeoJSON, and its picture for paper as PNG."""

    data: str
    still: bytes


def page_html(report: Report, figures: Mapping[str, str], maps: Mapping[str, MapParts] | None = None) -> str:
    """Render a report.

    Parameters
    ----------
    report : Report
        What to show.
    figures : mapping of str to str
        The markup of each figure by its name, from `limiirl.report.svg`.
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
    script = _source(environment, "map.js") if report.maps else ""
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


def _script_hash(script: str) -> str:
    """By which the page allows this script, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}" if script else ""


def _shown(parts: MapParts) -> dict[str, object]:
    from markupsafe import Markup

    # `map_geojson` leaves no sign that means anything to a page.
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
    environment.filters["blocks"] = lambda prose: Markup(blocks_html(prose))
    environment.filters["sentence"] = sentence
    environment.filters["prose_text"] = prose_text
    environment.filters["table_html"] = lambda table: Markup(table_html(table))
    environment.filters["table_notes"] = lambda table: [
        (kind, sign, Markup(html)) for kind, sign, html in table_notes(table)
    ]
    return environment


_MANIFEST = ".limiirl-report.json"
_INDEX = "index.html"

# All that a manifest may name: somebody else's list must not be able to remove somebody else's files.
_OURS = re.compile(r"figures/[a-z0-9_-]+\.(?:svg|png|csv)|tables/[a-z0-9_-]+\.(?:tex|md|csv)")


def write(
    report: Report, folder: str | os.PathLike[str], progress: Callable[[int, int, str], None] | None = None
) -> Path:
    """Write a report: `index.html`, `figures/NAME.{svg,png,csv}`, `tables/NAME.{tex,md,csv}`.

    A map is on the page itself; `figures/NAME.{png,csv}` are its picture and what it shows, for a GIS.

    Everything is drawn before anything is written, each file is replaced as a whole, and the page comes last. So an
    earlier report stays readable if drawing fails, the disk is full or the process is killed. Files of an earlier
    report that this one does not have are removed; files of anybody else are left alone.

    Parameters
    ----------
    report : Report
        What to write.
    folder : path
        Made if absent.
    progress : callable, optional
        Called as ``progress(done, total, what)`` before each figure or map is drawn, and once at the end.

    Returns
    -------
    Path
        Of `index.html`.

    Raises
    ------
    InvalidFile
        If the folder holds an `index.html` that is not a report, or a file where a folder must be.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl.report.document import Section, Text
    >>> report = Report("Study", "It works.", [Section("Why", [Text("Because.")])])
    >>> write(report, tempfile.mkdtemp()).name
    'index.html'
    """
    folder = Path(folder)
    earlier = check_folder(folder)
    pictures: dict[str, Picture] = {}
    total = len(report.figures) + len(report.maps) + 1
    for done, figure in enumerate(report.figures):
        if progress is not None:
            progress(done, total, figure.title)
        pictures[figure.name] = render(figure.draw, figure.name, figure.title, figure.alt)
    maps: dict[str, MapParts] = {}
    for done, item in enumerate(report.maps, start=len(report.figures)):
        if progress is not None:
            progress(done, total, item.title)
        # Only a report with maps pays for what draws them.
        from limiirl.report.map_image import still_png

        maps[item.name] = MapParts(map_geojson(item), still_png(item))
    if progress is not None:
        progress(total - 1, total, "page")
    page = page_html(report, {name: picture.inline for name, picture in pictures.items()}, maps)
    files = _side_files(report, pictures, maps)

    for kind in ("figures", "tables"):
        if any(name.startswith(kind) for name in files):
            (folder / kind).mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    # The list names old and new files while both may be there, so that the next report knows them after a crash.
    _write_manifest(folder, earlier | set(files))
    for name, content in files.items():
        _put(folder / name, content)
    _put(folder / _INDEX, page.encode())
    _remove(folder, earlier - set(files))
    _write_manifest(folder, set(files))
    if progress is not None:
        progress(total, total, "done")
    return folder / _INDEX


def _side_files(report: Report, pictures: dict[str, Picture], maps: dict[str, MapParts]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for figure in report.figures:
        files[f"figures/{figure.name}.svg"] = pictures[figure.name].svg
        files[f"figures/{figure.name}.png"] = pictures[figure.name].png
        files[f"figures/{figure.name}.csv"] = data_csv(figure.data).encode()
    for item in report.maps:
        files[f"figures/{item.name}.png"] = maps[item.name].still
        files[f"figures/{item.name}.csv"] = data_csv(map_columns(item)).encode()
    for table in report.tables:
        files[f"tables/{table.name}.tex"] = table_latex(table).encode()
        files[f"tables/{table.name}.md"] = table_markdown(table).encode()
        files[f"tables/{table.name}.csv"] = table_csv(table).encode()
    return files


def check_folder(folder: Path) -> set[str]:
    """Refuse a folder that a report cannot be written to; else give the files of the report that is there."""
    for part in (*reversed(folder.parents), folder, folder / "figures", folder / "tables"):
        if part.exists() and not part.is_dir():
            raise InvalidFile(
                f"A report needs a folder at {part}; there is a file. Move it, or choose another folder.",
                parameter="folder",
                value=str(part),
            )
    index = folder / _INDEX
    if index.is_dir() or (index.exists() and not _is_report(index)):
        raise InvalidFile(
            f"A report replaces only an earlier report; {index} is something else. Move it, or choose another folder.",
            parameter="folder",
            value=str(folder),
        )
    return _read_manifest(folder)


def _is_report(index: Path) -> bool:
    with index.open("rb") as page:
        return f'name="generator" content="{GENERATOR}'.encode() in page.read(4096)


def _read_manifest(folder: Path) -> set[str]:
    try:
        listed = json.loads((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return set()
    names = listed if isinstance(listed, list) else []
    return {name for name in names if isinstance(name, str) and _OURS.fullmatch(name)}


def _write_manifest(folder: Path, names: set[str]) -> None:
    _put(folder / _MANIFEST, (json.dumps(sorted(names), indent=0) + "\n").encode())


def _put(path: Path, content: bytes) -> None:
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)


def _remove(folder: Path, stale: set[str]) -> None:
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    for kind in ("figures", "tables"):
        inner = folder / kind
        if inner.is_dir() and not inner.is_symlink() and not any(inner.iterdir()):
            inner.rmdir()
