"""The rules of CONTRIBUTING.md on this repository, and each rule on a fault that it must detect."""

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
import types
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import limiirl
from tests import repository_rules

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])

MODULES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES
}
FACES = {
    name: repository_rules.public_names(path.read_text(encoding="utf-8"))
    for name, path in MODULES.items()
    if path.name == "__init__.py"
}
MOST_MODULES, MOST_WITH_ONE_IMPORTER = 300, 70


def list_tracked_files() -> list[Path]:
    """Return the files that git tracks or would track; without git, all files outside hidden folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        paths = [path for path in ROOT.rglob("*") if not path.relative_to(ROOT).parts[0].startswith(".")]
    else:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def report(faults: dict[Path, list[str]]) -> str:
    return "\n".join(f"{path.relative_to(ROOT)}: {fault}" for path, lines in faults.items() for fault in lines)


def test_sources_and_tests_exist():
    assert len(SOURCES) > 5
    assert len(TESTS) > 5


def test_number_of_modules_and_of_single_importers():
    importers: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, path in MODULES.items():
        for target in repository_rules.imports(text_of(path), set(MODULES)) - {name}:
            importers[target].add(name)
    alone = [name for name in MODULES if len(importers[name]) == 1 and name not in FACES]
    assert len(MODULES) <= MOST_MODULES
    assert len(alone) <= MOST_WITH_ONE_IMPORTER, f"consider merging each of these into its importer: {alone}"


def test_no_class_name_is_used_twice():
    defined = Counter(name for path in SOURCES for name in repository_rules.classes(text_of(path)))
    assert {name for name, count in defined.items() if count > 1} == set()


def test_packages_import_each_others_faces():
    faults = {path: repository_rules.imports_past_faces(name, text_of(path), FACES) for name, path in MODULES.items()}
    assert not report(faults)


def test_functions_are_short():
    assert not report({path: repository_rules.long_functions(text_of(path)) for path in SOURCES})


def test_no_module_is_named_utils():
    assert [path for path in SOURCES + TESTS if path.stem in {"utils", "util", "misc"}] == []


def test_only_the_command_line_prints():
    library = [path for path in SOURCES if "cli" not in path.relative_to(ROOT / "src/limiirl").parts]
    assert not report({path: repository_rules.prints(text_of(path)) for path in library})


# Functions are pickled for worker processes, and a check of user-defined models pickles what it made itself.
PICKLES = {"executors/dask.py", "executors/local.py", "testing/conformance.py"}


def test_no_file_is_read_by_executing_it():
    sources = {path.relative_to(ROOT / "src/limiirl").as_posix(): path for path in SOURCES}
    faults = {path: repository_rules.unsafe_loading(text_of(path)) for path in sources.values()}
    assert {name for name, path in sources.items() if faults[path]} == PICKLES


def test_comparisons_are_asserted():
    assert not report({path: repository_rules.comparisons_without_assert(text_of(path)) for path in TESTS})


def test_tolerances_are_named():
    assert not report({path: repository_rules.loose_tolerances(text_of(path)) for path in TESTS})


def test_no_machine_paths_or_registries():
    faults = {}
    for path in list_tracked_files():
        try:
            faults[path] = repository_rules.machine_paths(text_of(path))
        except UnicodeDecodeError:
            continue  # an image or an archive
    assert len(faults) > 20
    # The lock file names the public index and nothing else.
    lock = ROOT / "uv.lock"
    assert set(re.findall(r"https?://[^/\"]+|file:[^\"]+", text_of(lock))) == {
        "https://files.pythonhosted.org",
        "https://pypi.org",
    }
    faults.pop(lock)
    # The rules themselves spell out what they look for, and this file gives the faults that they must find.
    for name in ("repository_rules.py", "integration/test_repository.py"):
        faults.pop(ROOT / "tests" / name)
    assert not report(faults)


@pytest.mark.parametrize("name", limiirl.__all__)
def test_public_name_is_documented_with_an_example(name: str):
    value = getattr(limiirl, name)
    if isinstance(value, str):
        return  # the version
    doc = inspect.getdoc(value)
    assert doc, f"limiirl.{name} has no docstring"
    if isinstance(value, types.ModuleType) or (inspect.isclass(value) and issubclass(value, BaseException | Warning)):
        return  # a module's names have examples of their own, and an exception is met, not called
    assert "Examples\n--------" in doc, f"limiirl.{name} needs an Examples section in its docstring"
    assert ">>> " in doc, f"the Examples section of limiirl.{name} has nothing that runs"


PAPER_ROWS = repository_rules.paper_rows(text_of(ROOT / "docs" / "paper_map.md"))


def test_paper_map_has_rows():
    assert PAPER_ROWS


@pytest.mark.parametrize("row", PAPER_ROWS, ids=[row["equation"] for row in PAPER_ROWS])
def test_paper_map_names_code_and_tests_that_exist(row: dict[str, str]):
    names, nodes = repository_rules.code_names(row["code"]), repository_rules.code_names(row["test"])
    assert names, "a row names the code that computes its equation"
    assert nodes, "a row names a test of its equation"
    assert [name for name in names if not resolves(name)] == []
    assert [node for node in nodes if not exists(node)] == []


def resolves(dotted: str) -> bool:
    """Return True if a dotted name is a module, or an attribute of an attribute ... of a module."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            # A dataclass's field without a default is no attribute of the class.
            if part in getattr(value, "__dataclass_fields__", {}):
                return True
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def exists(node: str) -> bool:
    path, _, name = node.partition("::")
    return (ROOT / path).is_file() and name in repository_rules.tests_of(text_of(ROOT / path))


def test_table_of_supported_versions_is_that_of_the_package():
    with (ROOT / "pyproject.toml").open("rb") as stream:
        project = tomllib.load(stream)["project"]
    table = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", text_of(ROOT / "docs" / "installation.md"), re.MULTILINE))
    floors = dict(line.split(">=") for line in project["dependencies"])
    assert table == {"Python": project["requires-python"].removeprefix(">=")} | floors
    minors = [line.rpartition(" :: ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert minors == [f"3.{minor}" for minor in range(11, 15)]


def test_import_is_light():
    heavy = ["gymnasium", "matplotlib", "networkx", "pandas", "polars", "pyarrow", "sklearn"]
    code = f"import sys, limiirl; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (repository_rules.long_functions, "def f():\n" + "    x = 1\n" * 80, "def f():\n" + "    x = 1\n" * 79),
        (repository_rules.prints, "print(1)", 'def f():\n    """>>> print(1)"""'),
        (repository_rules.unsafe_loading, "import pickle", "import json"),
        (repository_rules.unsafe_loading, "from pickle import load", "from json import load"),
        (repository_rules.unsafe_loading, "x = eval(text)", "x = ast.literal_eval(text)"),
        (repository_rules.unsafe_loading, "x = pd.read_pickle(path)", "x = pd.read_csv(path)"),
        (repository_rules.unsafe_loading, "x = np.load(path)", "x = np.load(path, allow_pickle=False)"),
        (repository_rules.unsafe_loading, "import_module('a.pickle')", "import_module('a')"),
        (repository_rules.comparisons_without_assert, "np.allclose(a, b)", "assert np.allclose(a, b)"),
        (
            repository_rules.comparisons_without_assert,
            "np.testing.assert_allclose(a, b), np.isclose(a, b)",
            "isclose(a) or 1",
        ),
        (repository_rules.loose_tolerances, "assert_allclose(a, b, 4)", "assert_allclose(a, b, rtol=1e-4)"),
        (repository_rules.loose_tolerances, "np.testing.assert_allclose(a, b)", "np.testing.assert_array_equal(a, b)"),
        (repository_rules.loose_tolerances, "assert x == pytest.approx(1, 2)", "assert x == pytest.approx(1, rel=2)"),
        (repository_rules.machine_paths, "cd /home/ann/main", "see https://example.org/home/ann/main"),
        (repository_rules.machine_paths, "DATA = '/home/ann/data'", "DATA = '../shared/home/data'"),
        (repository_rules.machine_paths, "pip install --index-url x", "pip install x"),
    ],
)
def test_each_rule_finds_its_fault_and_nothing_else(rule, bad, good):
    assert len(rule(bad)) == 1
    assert rule(good) == []


def test_rules_about_imports_find_their_faults():
    faces = {"limiirl.mdp": {"MDP"}, "limiirl.roads.maps": {"build"}}
    for good in (
        "from limiirl.mdp import MDP",
        "from limiirl.roads.maps import build",
        "from limiirl.kernels.graph import build_graph",
        "from limiirl.irl.maxent.model import MaxEnt",
        "from limiirl.errors import LimiirlError",
    ):
        assert repository_rules.imports_past_faces("limiirl.irl.device", good, faces) == []
    for bad in (
        "from limiirl.mdp.mdp import MDP",
        "from limiirl.mdp import io",
        "from limiirl.roads.maps.osm import x",
    ):
        assert len(repository_rules.imports_past_faces("limiirl.irl.device", bad, faces)) == 1
    assert repository_rules.classes("class A: ...\nclass _B: ...\ndef f():\n    class C: ...\n") == ["A"]
    assert repository_rules.imports("from a.b import c, d\nimport a", {"a", "a.b", "a.b.c"}) == {"a", "a.b", "a.b.c"}
    assert repository_rules.public_names('from a import b\nx = 1\n__all__ = ["y"]') >= {"b", "x", "y"}


def test_paper_map_parser_and_resolver_find_faults():
    head = "text\n\n| equation | symbol | code | test |\n|---|---|---|---|\n"
    body = "| (1) | $a \\| b$ | `limiirl.nope` | `tests/x.py::test_y` |\n"
    (row,) = repository_rules.paper_rows(head + body + "\n| other | table |\n|---|---|\n| a | b |\n")
    assert row["symbol"] == "$a \\| b$"
    assert not resolves("limiirl.nope")
    assert not resolves("nowhere.at_all")
    assert resolves("limiirl.errors.LimiirlError.__doc__")
    assert not exists("tests/x.py::test_y")
    assert not exists("tests/integration/test_repository.py::test_y")
    assert not exists("tests/integration/test_repository.py::resolves")
    assert exists("tests/integration/test_repository.py::test_import_is_light")
