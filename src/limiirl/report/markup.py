"""Prose with a little markup, and its rendering as HTML, LaTeX, Markdown and plain text.

The markup is `code`, *emphasis*, **strong** and [words](https://address) or [words](#anchor); a backslash takes the
meaning from the character after it. Everything else is text, and is escaped wherever it goes: no user's text can
become a tag, a command or a script.
"""

import html
import re
from collections.abc import Callable
from typing import NamedTuple

_MARKUP = re.compile(
    r"\\(?P<escaped>[\\`*\[\]])"
    r"|`(?P<code>[^`\n]+)`"
    r"|\*\*(?=\S)(?P<strong>[^*]+?)(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=[^\s*])(?P<em>[^*]+?)(?<=\S)\*(?![\w*])"
    r"|\[(?P<words>[^\[\]]+)\]\((?P<address>https?://[^\s()<>\"]+|#[\w-]+)\)"
)

# What no text format can hold: control characters but for white space, halves of surrogate pairs, and non-characters.
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


class Span(NamedTuple):
    """A stretch of text of one kind: "text", "code", "em", "strong" or "link"."""

    kind: str
    text: str
    address: str = ""


def parse(prose: str) -> list[Span]:
    """Cut prose into spans of one kind each.

    Examples
    --------
    >>> parse("run `limiirl`, *now*")
    [Span(kind='text', text='run ', address=''), Span(kind='code', text='limiirl', address=''),
     Span(kind='text', text=', ', address=''), Span(kind='em', text='now', address='')]
    """
    spans: list[Span] = []
    end = 0
    for match in _MARKUP.finditer(prose):
        if match.start() > end:
            spans.append(Span("text", prose[end : match.start()]))
        end = match.end()
        kind, text = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "address":
            spans.append(Span("link", match["words"], text))
        else:
            spans.append(Span("text" if kind == "escaped" else kind, text))
    if end < len(prose):
        spans.append(Span("text", prose[end:]))
    return spans


def literal(text: str) -> str:
    r"""Take the meaning from the markup in a user's text, so that it can stand in prose.

    Examples
    --------
    >>> parse(literal("a*b*c"))[0].text, escape_html("a*b*c")
    ('a', 'a*b*c')
    >>> prose_text("run " + literal("*.csv and `x`"))
    'run *.csv and `x`'
    """
    return re.sub(r"[\\`*\[\]]", r"\\\g<0>", text)


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


def _render(prose: str, escape: Callable[[str], str], forms: dict[str, str]) -> str:
    pieces = []
    for kind, text, address in parse(prose):
        form = forms.get(kind, "{0}")
        pieces.append(form.format(escape(text), escape(address)))
    return "".join(pieces)


def prose_html(prose: str) -> str:
    """Prose as HTML.

    Examples
    --------
    >>> prose_html("*less* <than>")
    '<em>less</em> &lt;than&gt;'
    """
    forms = {
        "code": "<code>{0}</code>",
        "em": "<em>{0}</em>",
        "strong": "<strong>{0}</strong>",
        "link": '<a href="{1}">{0}</a>',
    }
    return _render(prose, escape_html, forms)


def prose_latex(prose: str) -> str:
    r"""Prose as LaTeX; of a link the words remain.

    Examples
    --------
    >>> print(prose_latex("`a_b` and *c*"))
    \texttt{a\_b} and \emph{c}
    """
    return _render(prose, escape_latex, {"code": r"\texttt{{{0}}}", "em": r"\emph{{{0}}}", "strong": r"\textbf{{{0}}}"})


def prose_markdown(prose: str) -> str:
    r"""Prose as Markdown.

    Examples
    --------
    >>> print(prose_markdown("**best** of a_b"))
    **best** of a\_b
    """
    forms = {"em": "*{0}*", "strong": "**{0}**", "link": "{0}"}
    pieces = []
    for span in parse(prose):
        if span.kind == "code":
            pieces.append(f"`{clean(span.text)}`")
        elif span.kind == "link" and span.address.startswith("http"):
            pieces.append(f"[{escape_markdown(span.text)}]({clean(span.address)})")
        else:
            pieces.append(forms.get(span.kind, "{0}").format(escape_markdown(span.text)))
    return "".join(pieces)


def prose_text(prose: str) -> str:
    """Prose as plain text.

    Examples
    --------
    >>> prose_text("*less* is `more`")
    'less is more'
    """
    return clean("".join(span.text for span in parse(prose)))
