"""The language check of tools/check_language.py reports old words and accepts plain ones."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[1] / "tools" / "check_language.py"
SPEC = importlib.util.spec_from_file_location("check_language", PATH)
check_language = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_language)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("It learns 3 vectors an intent.", "vectors an intent"),
        ("The file is written anew.", "anew"),
        ("Paths of any\nlength are summed.", "of any length"),
        ("Nobody reads this.", "Nobody"),
        ("It takes some ten minutes.", "some ten"),
        ("An intent that was settled early.", "settled"),
        ("Engines compute the sums.", "Engines"),
        ("The evidence of demonstrations is -3.", "evidence of demonstrations"),
        ("The message tells the reason.", "tells"),
        ("One seat per thread.", "seat"),
        ("The prior of the sticks.", "sticks"),
    ],
)
def test_old_phrases_are_reported(text, phrase):
    assert [finding[1] for finding in check_language.check_prose(text)] == [phrase]


@pytest.mark.parametrize(
    "text", ["One vector per intent.", "The file is written again.", "A walk of 3 steps.", "`engine=` is `executor=`."]
)
def test_plain_phrases_are_accepted(text):
    assert list(check_language.check_prose(text)) == []


@pytest.mark.parametrize(
    ("source", "line", "phrase"),
    [
        ("x = 1\nfound = 2\n", 2, "found"),
        ("def told():\n    pass\n", 1, "told"),
        ("def _frozen():\n    pass\n", 1, "_frozen"),
        ("tally_edges = 0\n", 1, "tally_edges"),
        ("def test_a_model_knows_its_data():\n    pass\n", 1, "test_a_model_knows_its_data"),
        ("def test_paths_of_any_length():\n    pass\n", 1, "test_paths_of_any_length"),
        ('def f():\n    """Whether f is true."""\n', 2, "Whether f is true."),
        ('def f():\n    """What f returns."""\n', 2, "What f returns."),
        ('def f():\n    """Is this a question?"""\n', 2, "Is this a question?"),
        ("x = 1  # but for rounding\n", 1, "but for"),
    ],
)
def test_names_and_docstrings_of_python(source, line, phrase):
    assert (line, phrase) in [finding[:2] for finding in check_language.check_python(source)]


@pytest.mark.parametrize("name", ["osm_ways", "FileNotFoundError", "test_results_are_equal"])
def test_plain_names_are_accepted(name):
    assert not check_language.is_old_name(name)


def test_properties_and_fixtures_may_be_participles():
    source = "class A:\n    @property\n    def converged(self):\n        return True\n"
    assert list(check_language.check_python(source)) == []
    assert len(list(check_language.check_python(source.replace("    @property\n", "")))) == 1


def test_glossary_is_not_checked(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- glossary -->\nanew\n<!-- end of glossary -->\nanew\n", encoding="utf-8")
    assert [finding[0] for finding in check_language.check_file(page)] == [4]
