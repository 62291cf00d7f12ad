"""Conversion of prose in a subset of Markdown to HTML, LaTeX, Markdown and plain text, with markdown-it.

The subset is `code`, *emphasis*, **strong**, [words](https://address) or [words](#anchor), lists, and backslash
escapes. All other text is escaped, so that it cannot contain tags, commands or scripts.
"""

import html
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# Control characters except white space, surrogates and non-characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

_GREEK = """
    α:alpha β:beta γ:gamma δ:delta ε:varepsilon ζ:zeta η:eta θ:theta ι:iota κ:kappa λ:lambda μ:mu ν:nu ξ:xi π:pi ρ:rho
    σ:sigma τ:tau φ:phi χ:chi ψ:psi ω:omega Γ:Gamma Δ:Delta Θ:Theta Λ:Lambda Ξ:Xi Π:Pi Σ:Sigma Φ:Phi Ψ:Psi Ω:Omega
"""

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # At the start of a row, these characters would be arguments of the preceding line break.
    "[": "{[}",
    "*": "{*}",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "→": r"$\rightarrow$",
    "²": r"\textsuperscript{2}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "\0": "{}",
    "\u00a0": "~",
    "\u2009": r"\,",
} | {letter: f"$\\{name}$" for letter, name in (pair.split(":") for pair in _GREEK.split())}


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("zero", {"html": False}).enable(["emphasis", "backticks", "link", "escape", "list"])
    parser.validateLink = lambda url: url.startswith(("https://", "http://", "#"))  # type: ignore[method-assign]
    return parser


def literal(text: str) -> str:
    """Escape text for use in prose.

    Examples
    --------
    >>> prose_text("run " + literal("*.csv and `x`"))
    'run *.csv and `x`'
    """
    return re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", text)


def clean(text: str) -> str:
    """Replace unprintable characters with the Unicode replacement character."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escape_html(text: str) -> str:
    """Escape text for HTML content and quoted attributes."""
    return html.escape(clean(text), quote=True)


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, on one line."""
    flat = re.sub(r"[^\S\u00a0\u2009]+", " ", clean(text))
    # Two hyphens, as in an option, must not become a dash. Cleaned text cannot contain the inserted character.
    flat = re.sub(r"-(?=-)", "-\0", flat)
    return "".join(_LATEX.get(letter, letter) for letter in flat)


def escape_markdown(text: str) -> str:
    """Escape text for a Markdown table cell, on one line."""
    flat = re.sub(r"\s+", " ", clean(text))
    return re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", flat.replace("&", "&amp;").replace("<", "&lt;"))


def prose_html(prose: str) -> str:
    """Return prose as inline HTML."""
    return str(_parser().renderInline(clean(prose)))


def blocks_html(prose: str) -> str:
    """Return prose as HTML paragraphs and lists."""
    return str(_parser().render(clean(prose)))


def _render(prose: str, escape: Callable[[str], str], forms: dict[str, str], code: Callable[[str], str]) -> str:
    """Render prose; `forms` maps types of tokens to their output, where "{}" is replaced by the address of a link."""
    pieces, address = [], ""
    for token in _parser().parseInline(clean(prose))[0].children or []:
        if token.type == "text":
            pieces.append(escape(token.content))
        elif token.type == "code_inline":
            pieces.append(code(token.content))
        else:
            address = str(token.attrs.get("href", address))
            within = token.type.startswith("link") and address.startswith("#")
            pieces.append("" if within else forms.get(token.type, "").replace("{}", address))
    return "".join(pieces)


def prose_latex(prose: str) -> str:
    """Return prose as LaTeX, with links as plain text."""
    forms = {"em_open": r"\emph{", "em_close": "}", "strong_open": r"\textbf{", "strong_close": "}"}
    return _render(prose, escape_latex, forms, lambda text: rf"\texttt{{{escape_latex(text)}}}")


def prose_markdown(prose: str) -> str:
    """Return prose as Markdown for a table cell, with links within the page as plain text."""
    forms = {"em_open": "*", "em_close": "*", "strong_open": "**", "strong_close": "**"}
    forms |= {"link_open": "[", "link_close": "]({})"}
    return _render(prose, escape_markdown, forms, lambda text: f"`{text}`")


def prose_text(prose: str) -> str:
    """Return prose as plain text."""
    return _render(prose, str, {}, str)
