"""Faults of a page as a browser reports them: Debian's chromium, driven without a window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PHONE = 360
"""Width in pixels of a small phone."""
# Seconds that a page may take to load on a busy machine.
_PATIENCE = 180

_OVERFLOW = """() => {
  const inBox = element => element.closest('.scroll') && !element.classList.contains('scroll');
  const name = element => element.tagName.toLowerCase() + (element.id ? '#' + element.id : '') +
    (element.getAttribute('class') ? '.' + element.getAttribute('class').replaceAll(' ', '.') : '');
  const found = [];
  const width = document.scrollingElement.scrollWidth;
  if (width > innerWidth) found.push(`the page is ${width} wide`);
  for (const element of document.body.querySelectorAll('*')) {
    if (inBox(element) || element.closest('.unseen, .skip, svg')) continue;
    const box = element.getBoundingClientRect();
    if (box.right > innerWidth + 0.5 || box.left < -0.5)
      found.push(`${name(element)} reaches ${Math.round(box.right)}`);
  }
  return found;
}"""

# Contrast as WCAG 2 defines it, of every element that shows text of its own, against the nearest opaque background.
_CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  // Text in a figure stands on the first solid shape drawn below its middle; what a raster picture shows is not known.
  const drawn = element => {
    element.scrollIntoView({behavior: 'instant', block: 'center', inline: 'center'});
    const box = element.getBoundingClientRect();
    const below = document.elementsFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    for (const shape of below.filter(shape => shape.closest('svg') && !shape.closest('text'))) {
      if (shape.tagName === 'image') return null;
      const style = getComputedStyle(shape);
      const solid = Number(style.opacity) * Number(style.fillOpacity) > 0.5 && style.fill.startsWith('rgb');
      if (solid && ['path', 'rect', 'use', 'polygon', 'circle'].includes(shape.tagName)) return parse(style.fill);
    }
    return ground(element.closest('svg'));
  };
  const found = [];
  let count = 0;
  for (const element of document.body.querySelectorAll('*')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest('.unseen, title, desc') || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const svg = element.closest('svg');
    const colour = parse(svg ? style.fill : style.color);
    const behind = svg ? drawn(element) : ground(element);
    if (!behind) continue;
    const [high, low] = [light(colour), light(behind)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    count += 1;
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} for "${element.textContent.trim().slice(0, 40)}"`);
  }
  return [count, found];
}"""

_ALTERNATIVES = """() => [...document.querySelectorAll('svg, img, canvas, object, embed, iframe')]
  .filter(picture => {
    if (picture.closest('[aria-hidden=true]')) return false;
    const ids = (picture.getAttribute('aria-labelledby') || '').split(' ').filter(Boolean);
    const words = ids.map(id => document.getElementById(id)?.textContent.trim() || '');
    const label = picture.getAttribute('aria-label') || picture.getAttribute('alt') || '';
    return !(label.trim() || (words.length && words.every(Boolean))) ||
      (picture.tagName === 'svg' && picture.getAttribute('role') !== 'img');
  })
  .map(picture => picture.outerHTML.slice(0, 120))"""

_STRUCTURE = """() => {
  const found = [];
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  ids.filter((id, place) => ids.indexOf(id) !== place).forEach(id => found.push(`id ${id} occurs twice`));
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) found.push(`h${next} "${heading.textContent}" follows h${level}`);
    level = next;
  }
  if (document.querySelectorAll('h1').length !== 1) found.push('not exactly one h1');
  for (const tag of ['main', 'nav', 'header', 'footer'])
    if (!document.querySelector(tag)) found.push(`no ${tag}`);
  if (!document.documentElement.lang) found.push('no language');
  if (!document.title) found.push('no title');
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(decodeURIComponent(link.hash.slice(1)))) found.push(`${link.hash} leads nowhere`);
  for (const use of document.querySelectorAll('use'))
    if (!document.querySelector(use.getAttribute('href'))) found.push(`${use.getAttribute('href')} is not drawn`);
  for (const script of document.querySelectorAll('script, [onclick], [onerror], [onload]'))
    found.push(`a script: ${script.outerHTML.slice(0, 80)}`);
  return found;
}"""


@dataclass
class Findings:
    """Faults of a page, one list per kind; all are empty for a correct page."""

    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    without_alternative: list[str] = field(default_factory=list)
    structure: list[str] = field(default_factory=list)
    overflow: list[str] = field(default_factory=list)
    contrast: list[str] = field(default_factory=list)
    n_figures: int = 0
    n_texts: int = 0
    pdf: bytes = b""

    @property
    def faults(self) -> dict[str, list[str]]:
        """The lists that are not empty, by name."""
        lists = {name: value for name, value in vars(self).items() if isinstance(value, list)}
        return {name: value for name, value in lists.items() if value}


def why_absent() -> str:
    """Return the reason why no browser can be driven here; empty if one can."""
    if not executable():
        return "no chromium: install Debian's package of that name"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "no playwright: pip install playwright"
    return ""


def require_browser() -> None:
    """Skip the test where no browser can be driven, or fail it under LIMIIRL_REQUIRE_BROWSER=1."""
    reason = why_absent()
    if reason and os.environ.get("LIMIIRL_REQUIRE_BROWSER") == "1":
        pytest.fail(f"LIMIIRL_REQUIRE_BROWSER=1, but {reason}")
    if reason:
        pytest.skip(reason)


def executable() -> str:
    """Return the path of chromium, empty if it is absent."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    # Chromium refuses to confine its processes when root runs it, as in a container.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def examine(page: str | os.PathLike[str], *, printed: bool = False) -> Findings:
    """Open a page from disk, and collect what is wrong with it, at three widths and in light and dark.

    Colours are looked at once in each scheme, and once wide and once narrow: reading all texts takes long.
    """
    address = Path(page).resolve().as_uri()
    findings = Findings()
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1440, "height": 800}, color_scheme="light")
        tab = context.new_page()
        _listen(context, tab, address, findings)
        tab.goto(address, wait_until="load", timeout=1e3 * _PATIENCE)
        # What is folded away must hold to the same rules as what is in the open.
        tab.evaluate("() => document.querySelectorAll('details').forEach(fold => fold.open = true)")
        _look(tab, findings, "light", 1440, colours=True)
        _look(tab, findings, "light", 820)
        _look(tab, findings, "dark", PHONE, colours=True)
        findings.n_figures = tab.evaluate("() => document.querySelectorAll('svg, img').length")
        findings.without_alternative += tab.evaluate(_ALTERNATIVES)
        findings.structure += tab.evaluate(_STRUCTURE)
        if printed:
            tab.set_viewport_size({"width": 1440, "height": 800})
            findings.pdf = tab.pdf(prefer_css_page_size=True, print_background=True)
        context.close()
    return findings


def _look(tab: Any, findings: Findings, scheme: str, width: int, *, colours: bool = False) -> None:
    tab.emulate_media(color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 800})
    where = f"{scheme}, {width} px: "
    findings.overflow += [where + fault for fault in tab.evaluate(_OVERFLOW)]
    if colours:
        count, faults = tab.evaluate(_CONTRAST)
        findings.n_texts += count
        findings.contrast += [where + fault for fault in faults]


def _listen(context: Any, tab: Any, address: str, findings: Findings) -> None:
    def console(message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            findings.console.append(f"{message.type}: {message.text}")

    def request(sent: Any) -> None:
        if sent.url != address and not sent.url.startswith("data:"):
            findings.requests.append(sent.url)

    def dialog(shown: Any) -> None:
        findings.dialogs.append(shown.message)
        shown.dismiss()

    tab.on("console", console)
    tab.on("pageerror", lambda error: findings.errors.append(str(error)))
    tab.on("dialog", dialog)
    context.on("request", request)
