"""Writing a report to a folder, in place of an earlier one, so that no reader meets half of either."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from limiirl.errors import InvalidFile
from limiirl.files import atomic_write
from limiirl.report.document import Report
from limiirl.report.map_data import map_columns, map_json
from limiirl.report.page import GENERATOR, MapParts, page_html
from limiirl.report.tables import table_latex, table_markdown
from limiirl.report.values import data_csv, table_csv
from limiirl.report.vector import Picture, render

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
        from limiirl.report.map_still import still_png

        maps[item.name] = MapParts(map_json(item), still_png(item))
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
            raise InvalidFile(f"a report needs a folder at {part}; there is a file. Move it, or choose another folder.")
    index = folder / _INDEX
    if index.is_dir() or (index.exists() and not _is_report(index)):
        raise InvalidFile(
            f"a report replaces only an earlier report; {index} is something else. Move it, or choose another folder."
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
