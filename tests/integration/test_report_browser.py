"""A page with every kind of item, opened in a real browser; and pages with faults, to see that they are found."""

import pytest

from limiirl.report import write
from tests.oracles.browser import Findings, examine, require_browser
from tests.oracles.report import every_kind


@pytest.fixture(autouse=True, scope="module")
def browser_at_hand() -> None:
    require_browser()


@pytest.fixture(scope="module")
def findings(browser_at_hand: None, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    page = write(every_kind(), tmp_path_factory.mktemp("report"))
    # Moved away from the files beside it, the page must still be whole.
    return examine(page.rename(tmp_path_factory.mktemp("alone") / "page.html"), printed=True)


@pytest.mark.smoke
def test_the_page_has_no_fault(findings: Findings) -> None:
    assert findings.faults == {}


def test_the_page_was_looked_at(findings: Findings) -> None:
    assert findings.n_figures == len(every_kind().figures)
    assert findings.n_texts > 200


def test_the_page_prints(findings: Findings) -> None:
    assert findings.pdf.startswith(b"%PDF")
    assert 2 <= findings.pdf.count(b"/Type /Page\n") + findings.pdf.count(b"/Type /Page ") <= 8


FAULTS = {
    "console": "<script>console.error('of mine')</script>",
    "errors": "<script>null.x</script>",
    "dialogs": "<script>alert('of mine')</script>",
    "requests": "<img alt='x' src='https://example.invalid/x.png'>",
    "without_alternative": "<svg viewBox='0 0 1 1'></svg>",
    "structure": "<p id='twice'></p>",
    "overflow": "<p id='twice' style='width: 500px'>wide</p>",
    "contrast": "<p style='color: #999; background: #fff'>pale</p>",
}


@pytest.fixture(scope="module")
def faulty(browser_at_hand: None, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    page = tmp_path_factory.mktemp("faulty") / "page.html"
    head = (
        "<!DOCTYPE html><html lang='en'><meta name='viewport' content='width=device-width'><title>t</title><h1>t</h1>"
    )
    page.write_text(head + "".join(FAULTS.values()))
    return examine(page)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_found(faulty: Findings, kind: str) -> None:
    sign = {
        "console": "error: of mine",
        "errors": "null",
        "dialogs": "of mine",
        "requests": "https://example.invalid/x.png",
        "without_alternative": "<svg viewBox",
        "structure": "id twice occurs twice",
        "overflow": "dark, 360 px: p#twice reaches",
        "contrast": 'for "pale"',
    }
    assert set(sign) == set(FAULTS)
    assert any(sign[kind] in fault for fault in faulty.faults[kind])
