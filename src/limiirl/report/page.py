"""Rendering of a report as one self-contained HTML page, and writing it to a folder with its figures and tables."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from limiirl._io import as_path, atomic_write, load_json
from limiirl._version import __version__
from limiirl.errors import InvalidFile
from limiirl.report.document import Report, Section
from limiirl.report.maps import map_columns, map_geojson
from limiirl.report.markup import blocks_html, clean, escape_html, prose_html, prose_text
from limiirl.report.svg import VARIABLES, Picture, render
from limiirl.report.tables import (
    data_csv,
    end_sentence,
    table_csv,
    table_html,
    table_latex,
    table_markdown,
    table_notes,
)

if TYPE_CHECKING:
    from jinja2 import Environment


GENERATOR = "limiirl"
"""Value of the generator element that identifies reports."""

VERDICTS = {
    "holds": "Holds",
    "fails": "Does not hold",
    "open": "Open",
    "note": "Note",
    "caution": "Caution",
    "problem": "Problem",
}
"""Label of each verdict on the page."""

METHODS = "Methods"
"""Heading of the last section."""

_OPENING = '<nav class="related" aria-label="Pages of this project">'
_RELATED = re.compile(rf"{re.escape(_OPENING)}.*?</nav>", re.DOTALL)
_PROJECT = re.compile(r'<meta name="project" content="([A-Za-z0-9]+)">')
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
# Number of bytes of a page that contain its metadata.
_HEAD = 4096
# Maximum number of pages that link to each other.
_MOST_PAGES = 30
_MANIFEST = ".limiirl-report.json"
_INDEX = "index.html"
# Only files with names of this form are removed, whatever the manifest contains.
_FILE_NAME = re.compile(r"figures/[a-z0-9_-]+\.(?:svg|png|csv)|tables/[a-z0-9_-]+\.(?:tex|md|csv)")


class AnchoredSection(NamedTuple):
    """A section with its HTML anchor; `inner` maps indices of items to subsections."""

    anchor: str
    section: Section
    inner: "dict[int, AnchoredSection]"


class RenderedMap(NamedTuple):
    """A map as GeoJSON and as a PNG image."""

    data: str
    image: bytes


def page_html(report: Report, figures: Mapping[str, str], maps: Mapping[str, RenderedMap] | None = None) -> str:
    """Render a report as an HTML page.

    `figures` maps names to inline SVG, and `maps` maps names to rendered maps. A page without maps has no script, and
    its content security policy permits none.

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
    anchored = [_add_anchor(section, taken) for section in sections]
    environment = _environment()
    style = _read_template(environment, "style.css") + (_read_template(environment, "map.css") if report.maps else "")
    script = _read_template(environment, "map.js") if report.maps else ""
    return (
        environment.get_template("page.html.j2")
        .render(
            report=report,
            sections=anchored,
            figures={name: Markup(markup) for name, markup in figures.items()},
            # `map_geojson` escapes all special characters of HTML.
            maps={
                name: {"data": Markup(rendered.data), "image": base64.b64encode(rendered.image).decode()}
                for name, rendered in (maps or {}).items()
            },
            style=Markup(style),
            script=Markup(script),
            script_hash=Markup(_script_hash(script)),
            variables=VARIABLES,
            generator=f"{GENERATOR} {__version__}",
            verdicts=VERDICTS,
            kind=lambda item: type(item).__name__.lower(),
            related=Markup(_render_links([])),
        )
        .lstrip()
    )


def _read_template(environment: "Environment", name: str) -> str:
    return environment.loader.get_source(environment, name)[0] if environment.loader else ""


def _script_hash(script: str) -> str:
    # The content security policy permits this script only.
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}" if script else ""


def _add_anchor(section: Section, taken: set[str]) -> AnchoredSection:
    anchor = _make_anchor(section.title, taken)
    inner = {i: _add_anchor(item, taken) for i, item in enumerate(section.items) if isinstance(item, Section)}
    return AnchoredSection(anchor, section, inner)


def _make_anchor(title: str, taken: set[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    # Anchors of figures, tables and landmarks are reserved.
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
        # Replace unprintable characters in all text.
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters["prose"] = lambda prose: Markup(prose_html(prose))
    environment.filters["blocks"] = lambda prose: Markup(blocks_html(prose))
    environment.filters["sentence"] = end_sentence
    environment.filters["prose_text"] = prose_text
    environment.filters["table_html"] = lambda table: Markup(table_html(table))
    environment.filters["table_notes"] = lambda table: [
        (kind, sign, Markup(html)) for kind, sign, html in table_notes(table)
    ]
    return environment


def write(
    report: Report, folder: str | os.PathLike[str], progress: Callable[[int, int, str], None] | None = None
) -> Path:
    """Write a report: `index.html`, `figures/NAME.{svg,png,csv}`, `tables/NAME.{tex,md,csv}`.

    All figures are drawn before files are written, files are replaced atomically, and the page is written last, so an
    earlier report remains readable if drawing fails, the disk is full or the process is killed. Files of an earlier
    report that are not part of the new one are removed; all other files are kept. Pages of the same project in sibling
    folders are linked.

    Parameters
    ----------
    report : Report
    folder : path
        Created if absent.
    progress : callable, optional
        Called as ``progress(done, total, title)`` before each figure or map is drawn, and at the end.

    Returns
    -------
    Path
        Path of `index.html`.

    Raises
    ------
    InvalidFile
        If the folder has an `index.html` or another file of the report that was not written by an earlier report, or if
        a file has the name of a required folder.

    Examples
    --------
    >>> import tempfile
    >>> from limiirl.report.document import Section, Text
    >>> report = Report("Study", "Results.", [Section("Scores", [Text("No data.")])])
    >>> write(report, tempfile.mkdtemp()).name
    'index.html'
    """
    folder = as_path(folder, "folder")
    earlier = check_folder(folder)
    advance = progress or (lambda *_: None)
    pictures: dict[str, Picture] = {}
    total = len(report.figures) + len(report.maps) + 1
    for done, figure in enumerate(report.figures):
        advance(done, total, figure.title)
        pictures[figure.name] = render(figure.draw, figure.name, figure.title, figure.alt)
    maps: dict[str, RenderedMap] = {}
    for done, item in enumerate(report.maps, start=len(report.figures)):
        advance(done, total, item.title)
        from limiirl.report.map_image import map_png  # imports matplotlib

        maps[item.name] = RenderedMap(map_geojson(item), map_png(item))
    advance(total - 1, total, "page")
    page = page_html(report, {name: picture.inline for name, picture in pictures.items()}, maps)
    files = _side_files(report, pictures, maps)
    _check_files(folder, set(files) - earlier)

    for kind in ("figures", "tables"):
        if any(name.startswith(kind) for name in files):
            (folder / kind).mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    # The manifest lists old and new files until the end, so that the next report can clean up after a crash.
    _write_manifest(folder, earlier | set(files))
    for name, content in files.items():
        _write_file(folder / name, content)
    _write_file(folder / _INDEX, page.encode())
    _remove(folder, earlier - set(files))
    _write_manifest(folder, set(files))
    if report.project:
        _link_pages(folder, report.project)
    advance(total, total, "done")
    return folder / _INDEX


def _render_links(entries: list[tuple[str, str]]) -> str:
    """Return the HTML of the links between pages, from (title, address); the current page has no address."""
    if len(entries) < 2:
        return f"{_OPENING}</nav>"
    links = (
        f'<a href="{href}">{title}</a>' if href else f'<b aria-current="page">{title}</b>' for title, href in entries
    )
    return f"{_OPENING}{' '.join(links)}</nav>"


def _link_pages(folder: Path, project: str) -> None:
    """Link the pages of a project in sibling folders."""
    titles: dict[Path, str] = {}
    for other in sorted(folder.resolve().parent.iterdir()):
        index = other / _INDEX
        try:
            if other.is_symlink() or not index.is_file() or not _is_report(index):
                continue
            with index.open(encoding="utf-8") as file:
                head = file.read(_HEAD)
        except (OSError, UnicodeDecodeError):  # a page that cannot be read is not linked
            continue
        known, title = _PROJECT.search(head), _TITLE.search(head)
        if known is not None and known[1] == project and title is not None:
            titles[other] = title[1]
    pages = list(titles)[:_MOST_PAGES]
    names = [
        title if list(titles.values()).count(title) == 1 else f"{title} ({escape_html(at.name)})"
        for at, title in titles.items()
    ]
    for own in pages:
        entries = [
            (name, "" if at == own else f"../{quote(at.name)}/{_INDEX}") for at, name in zip(pages, names, strict=False)
        ]
        page = (own / _INDEX).read_text(encoding="utf-8")
        place = _RELATED.search(page)
        if place is not None and place[0] != (links := _render_links(entries)):
            _write_file(own / _INDEX, (page[: place.start()] + links + page[place.end() :]).encode())


def _check_files(folder: Path, names: set[str]) -> None:
    """Raise InvalidFile if a file exists that the report would replace."""
    taken = sorted(name for name in names if os.path.lexists(folder / name))
    if taken:
        raise InvalidFile(
            f"folder must not contain other files with names of the report; {folder / taken[0]} was not written by an "
            "earlier report. Move it, or choose another folder.",
            parameter="folder",
            value=str(folder),
        )


def _side_files(report: Report, pictures: dict[str, Picture], maps: dict[str, RenderedMap]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for figure in report.figures:
        files[f"figures/{figure.name}.svg"] = pictures[figure.name].svg
        files[f"figures/{figure.name}.png"] = pictures[figure.name].png
        files[f"figures/{figure.name}.csv"] = data_csv(figure.data).encode()
    for item in report.maps:
        files[f"figures/{item.name}.png"] = maps[item.name].image
        files[f"figures/{item.name}.csv"] = data_csv(map_columns(item)).encode()
    for table in report.tables:
        files[f"tables/{table.name}.tex"] = table_latex(table).encode()
        files[f"tables/{table.name}.md"] = table_markdown(table).encode()
        files[f"tables/{table.name}.csv"] = table_csv(table).encode()
    return files


def check_folder(folder: Path) -> set[str]:
    """Return the files of the earlier report in a folder; raise InvalidFile if no report can be written there."""
    for part in (*reversed(folder.parents), folder, folder / "figures", folder / "tables"):
        if part.exists() and not part.is_dir():
            raise InvalidFile(
                f"folder must be a directory; {part} is a file. Move the file, or choose another folder.",
                parameter="folder",
                value=str(part),
            )
    index = folder / _INDEX
    if index.is_dir() or (index.exists() and not _is_report(index)):
        raise InvalidFile(
            f"folder must not contain another index.html; {index} is not a report. Move it, or choose another folder.",
            parameter="folder",
            value=str(folder),
        )
    return _read_manifest(folder)


def _is_report(index: Path) -> bool:
    with index.open("rb") as page:
        return f'name="generator" content="{GENERATOR}'.encode() in page.read(_HEAD)


def _read_manifest(folder: Path) -> set[str]:
    try:
        listed = load_json((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return set()
    names = listed if isinstance(listed, list) else []
    return {name for name in names if isinstance(name, str) and _FILE_NAME.fullmatch(name)}


def _write_manifest(folder: Path, names: set[str]) -> None:
    _write_file(folder / _MANIFEST, (json.dumps(sorted(names), indent=0) + "\n").encode())


def _write_file(path: Path, content: bytes) -> None:
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)


def _remove(folder: Path, stale: set[str]) -> None:
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    for kind in ("figures", "tables"):
        inner = folder / kind
        if inner.is_dir() and not inner.is_symlink() and not any(inner.iterdir()):
            inner.rmdir()
