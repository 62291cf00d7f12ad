"""Writing of reports: repeated, interrupted and failed writes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from limiirl.errors import InvalidFile, InvalidParameter
from limiirl.report import Figure, Report, Section, Table, Text, write
from tests.helpers import raises
from tests.oracles.report import every_kind


def small(*names: str, title: str = "Small") -> Report:
    figures = [Figure(name, "F", "A frame.", "", Drawing, {"x": [1, 2]}) for name in names]
    return Report(title, "", [Section("S", [*figures, Table("t", "T", "", ["a"], [["x"]])])])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_written_deterministically(tmp_path: Path) -> None:
    index = write(every_kind(), tmp_path / "deep" / "report")
    assert index == tmp_path / "deep" / "report" / "index.html"
    first = tree(index.parent)
    figures = [f"figures/{name}.{end}" for name in ("anid-by-n", "reward", "weights") for end in ("svg", "png", "csv")]
    tables = [f"tables/{name}.{end}" for name in ("table-1", "failed") for end in ("tex", "md", "csv")]
    assert set(first) == {"index.html", ".limiirl-report.json", *figures, *tables}
    assert first["figures/anid-by-n.csv"].startswith(b"n,random,label\n20,1.3,")
    assert tree(write(every_kind(), tmp_path / "other").parent) == first


def test_an_earlier_report_is_replaced_and_other_files_are_kept(tmp_path: Path) -> None:
    write(small("a", "b"), tmp_path)
    foreign = {"notes.txt": b"mine", "figures/mine.svg": b"<svg/>", "tables/old.csv": b"1"}
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
    write(small("b", "c", title="Newer"), tmp_path)
    files = tree(tmp_path)
    assert {name for name in files if name.startswith("figures")} == {
        *(f"figures/{name}.{end}" for name in "bc" for end in ("svg", "png", "csv")),
        "figures/mine.svg",
    }
    assert {name: files[name] for name in foreign} == foreign
    assert b"<title>Newer</title>" in files["index.html"]


@pytest.mark.parametrize("name", ["figures/b.svg", "figures/b.csv", "tables/t.md"])
def test_files_of_others_with_names_of_the_report_are_kept(tmp_path: Path, name: str) -> None:
    report = tmp_path / "report"
    (report / name).parent.mkdir(parents=True)
    (report / name).write_bytes(b"mine")
    with raises(InvalidFile, parameter="folder", value=str(report)):
        write(small("a", "b"), report)
    assert tree(report) == {name: b"mine"}


def test_empty_folders_are_removed(tmp_path: Path) -> None:
    write(small("a"), tmp_path)
    write(Report("Bare", "", [Section("S", [Text("x")])]), tmp_path)
    assert set(tree(tmp_path)) == {"index.html", ".limiirl-report.json"}
    assert not (tmp_path / "figures").exists()


def test_a_failed_drawing_does_not_change_the_earlier_report(tmp_path: Path) -> None:
    def fail() -> Drawing:
        raise RuntimeError("no data")

    write(small("a"), tmp_path)
    before = tree(tmp_path)
    bad = Figure("z", "F", "A frame.", "", fail, {})
    with pytest.raises(RuntimeError, match="no data"):
        write(Report("Bad", "", [Section("S", [*small("b").figures, bad])]), tmp_path)
    assert tree(tmp_path) == before


WRITE_WITH_LIMIT = """
import resource, signal, sys
from tests.oracles.report import every_kind
from limiirl.report import write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    write(every_kind(), sys.argv[1])
except OSError as error:
    sys.exit(f"write failed: {error.strerror}")
"""


@pytest.mark.slow
def test_a_full_disk_leaves_the_earlier_page_and_no_temporary_files(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write(small("a"), tmp_path)
    page = (tmp_path / "index.html").read_bytes()
    # The first SVG file fits, its PNG file does not: the write fails half-way.
    process = subprocess.run(
        [sys.executable, "-c", WRITE_WITH_LIMIT, str(tmp_path), "50000"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1, process.stderr
    assert "write failed: File too large" in process.stderr
    assert (tmp_path / "index.html").read_bytes() == page
    assert {path.name for path in (tmp_path / "figures").glob("*.svg")} == {"a.svg", "anid-by-n.svg"}
    assert not [name for name in tree(tmp_path) if name.endswith(".tmp")]
    # The next report removes the files of the failed one.
    write(small("a"), tmp_path)
    assert tree(tmp_path) == tree(write(small("a"), tmp_path_factory.mktemp("fresh")).parent)


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html><title>My homepage</title>", b"\xff\xfe"])
def test_a_page_that_is_not_a_report_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "index.html").write_bytes(content)
    with raises(InvalidFile, parameter="folder", value=str(tmp_path)):
        write(small("a"), tmp_path)
    assert tree(tmp_path) == {"index.html": content}


@pytest.mark.parametrize("name", ["", "figures", "tables"])
def test_a_file_in_place_of_a_folder_is_rejected(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "report"
    if name:
        folder.mkdir()
    (folder / name).write_bytes(b"x")
    with raises(InvalidFile, parameter="folder", value=str(folder / name)):
        write(small("a"), folder)


@pytest.mark.parametrize(
    "listed",
    ["no json", "{}", "3", '["../keep.csv", "/etc/x", "figures/../keep.csv", "figures/a/b.svg", "keep.csv", 3, null]'],
)
def test_an_invalid_manifest_removes_no_files(tmp_path: Path, listed: str) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (tmp_path / "keep.csv").write_text("1")
    (folder / "keep.csv").write_text("1")
    (folder / ".limiirl-report.json").write_text(listed)
    write(small("a"), folder)
    assert (tmp_path / "keep.csv").exists()
    assert (folder / "keep.csv").exists()
    assert len(json.loads((folder / ".limiirl-report.json").read_text())) == 6


def test_progress_is_reported_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    write(small("a", "b"), tmp_path, progress=lambda *step: seen.append(step))
    assert seen == [(0, 3, "F"), (1, 3, "F"), (2, 3, "page"), (3, 3, "done")]


@pytest.mark.slow
def test_writing_does_not_import_pyplot(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.oracles.report import every_kind; from limiirl.report import write\n"
        "write(every_kind(), sys.argv[1])\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class TestProjects:
    def read_links(self, page):
        nav = re.search(r'<nav class="related".*?</nav>', page.read_text(encoding="utf-8"), re.DOTALL)[0]
        return re.findall(r'<a href="([^"]+)">([^<]+)</a>', nav)

    def write(self, folder, title, project):
        return write(Report(title, "", [Section("One", [Text("x")])], project=project), folder)

    def test_pages_of_a_project_link_to_each_other(self, tmp_path):
        one = self.write(tmp_path / "a", "Roads & <b>", "abc1")
        assert self.read_links(one) == []
        two = self.write(tmp_path / "b c", "Styles", "abc1")
        other = self.write(tmp_path / "d", "Elsewhere", "abc2")
        assert self.read_links(one) == [("../b%20c/index.html", "Styles")]
        assert self.read_links(two) == [("../a/index.html", "Roads &amp; &lt;b&gt;")]
        assert self.read_links(other) == []
        # A page that is written again has the links, and a page that was removed is not linked.
        self.write(tmp_path / "a", "Network", "abc1")
        assert self.read_links(two) == [("../a/index.html", "Network")]
        shutil.rmtree(tmp_path / "b c")
        assert self.read_links(self.write(tmp_path / "a", "Network", "abc1")) == []

    def test_equal_titles_have_the_names_of_their_folders(self, tmp_path):
        for name in ("x", "y"):
            page = self.write(tmp_path / name, "Styles", "p")
        assert self.read_links(page) == [("../x/index.html", "Styles (x)")]

    def test_files_that_are_not_pages_are_not_changed(self, tmp_path):
        (tmp_path / "mine").mkdir()
        mine = tmp_path / "mine" / "index.html"
        text = '<title>Mine</title><meta name="project" content="p"><nav class="related"></nav>'
        mine.write_text(text)
        (tmp_path / "file").write_text("x")
        page = self.write(tmp_path / "page", "Page", "p")
        assert self.read_links(page) == []
        assert mine.read_text() == text

    def test_a_page_without_a_project_has_no_links(self, tmp_path):
        assert "related" not in re.sub(
            r"<style>.*?</style>", "", self.write(tmp_path / "a", "A", "").read_text(), flags=re.S
        )

    @pytest.mark.parametrize("project", ["a b", '"', "ä"])
    def test_invalid_projects_are_rejected(self, project):
        with raises(InvalidParameter, parameter="project", value=project):
            Report("A", "", [], project=project)
