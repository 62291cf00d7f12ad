"""Prose in a small part of Markdown, parsed by markdown-it, as HTML, LaTeX, Markdown and plain text.

The part is `code`, *emphasis*, **strong**, [words](https://address) or [words](#anchor), lists, and backslash escapes.
Everything else is text and is escaped: a user's text cannot become a tag, a command or a script.
"""

import html
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# What no text format can hold: control characters except white space, halves of surrogate pairs, and non-characters.
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
    # At the start of a row these two would be read as arguments of the line break before them.
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
    """Escape the markup in a user's text, so that it can be part of prose.

    Examples
    --------
    >>> prose_text("run " + literal("*.csv and `x`"))
    'run *.csv and `x`'
    """
    return re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", text)


def clean(text: str) -> str:
    """Replace the characters that no page or file can hold by the replacement character.

    Examples
    --------
    >>> clean("bell" + chr(7))
    'bell\ufffd'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def escape_html(text: str) -> str:
    """Text as HTML, for content and for quoted attributes.

    Examples
    --------
    >>> escape_html('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(clean(text), quote=True)


def escape_latex(text: str) -> str:
    r"""Text as LaTeX, on one line.

    Examples
    --------
    >>> print(escape_latex("50% of x_1 ± 2"))
    50\% of x\_1 $\pm$ 2
    """
    flat = re.sub(r"[^\S\u00a0\u2009]+", " ", clean(text))
    # Two hyphens in a text, such as an option's, are not a dash: a mark that cleaned text cannot hold goes between.
    flat = re.sub(r"-(?=-)", "-\0", flat)
    return "".join(_LATEX.get(letter, letter) for letter in flat)


def escape_markdown(text: str) -> str:
    r"""Text as Markdown, on one line, safe in a cell of a table.

    Examples
    --------
    >>> print(escape_markdown("a|b <i> *c*"))
    a\|b &lt;i> \*c\*
    """
    flat = re.sub(r"\s+", " ", clean(text))
    return re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", flat.replace("&", "&amp;").replace("<", "&lt;"))


def prose_html(prose: str) -> str:
    """Return prose as HTML, without a paragraph around it.

    Examples
    --------
    >>> prose_html("*less* <than>")
    '<em>less</em> &lt;than&gt;'
    """
    return str(_parser().renderInline(clean(prose)))


def blocks_html(prose: str) -> str:
    r"""Return the paragraphs and lists of prose as HTML.

    Examples
    --------
    >>> print(blocks_html("One.\n\n- two"))
    <p>One.</p>
    <ul>
    <li>two</li>
    </ul>
    <BLANKLINE>
    """
    return str(_parser().render(clean(prose)))


def _render(prose: str, escape: Callable[[str], str], forms: dict[str, str], code: Callable[[str], str]) -> str:
    """Render prose by the text that opens and closes each kind of span; "{}" is a link's address."""
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
    r"""Return prose as LaTeX; of a link the words remain.

    Examples
    --------
    >>> print(prose_latex("`a_b` and *c*"))
    \texttt{a\_b} and \emph{c}
    """
    forms = {"em_open": r"\emph{", "em_close": "}", "strong_open": r"\textbf{", "strong_close": "}"}
    return _render(prose, escape_latex, forms, lambda text: rf"\texttt{{{escape_latex(text)}}}")


def prose_markdown(prose: str) -> str:
    r"""Return prose as Markdown that is safe in a cell of a table; links within a page are words.

    Examples
    --------
    >>> print(prose_markdown("**best** of a_b"))
    **best** of a\_b
    """
    forms = {"em_open": "*", "em_close": "*", "strong_open": "**", "strong_close": "**"}
    forms |= {"link_open": "[", "link_close": "]({})"}
    return _render(prose, escape_markdown, forms, lambda text: f"`{text}`")


def prose_text(prose: str) -> str:
    """Return prose as plain text.

    Examples
    --------
    >>> prose_text("*less* is `more`")
    'less is more'
    """
    return _render(prose, str, {}, str)
