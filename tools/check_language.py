"""Report words and names that the glossary of CONTRIBUTING.md replaces: `python tools/check_language.py [PATH ...]`.

Without paths, all source, tests, documentation and templates are checked. Docstrings must not begin with a headless
clause, functions must not be named by a participle, and no variable is called `found`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = (
    "src",
    "docs",
    "tests",
    "examples",
    "benchmarks",
    "tools",
    ".ci",
    "Makefile",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
SUFFIXES = {".py", ".md", ".html", ".js", ".css", ".j2", ".rst", ".txt", ".tex", ".toml", ".cu", ".cuh"}
# This list and its test name the words that they forbid.
SKIPPED = re.compile(
    r"docs/_build/|(tools/|tests/test_)check_language\.py$|__pycache__|\.min\.js$|/vendor/|_static/maplibre"
)
GLOSSARY = re.compile(r"<!-- glossary -->.*?<!-- end of glossary -->", re.DOTALL)

_NUMBERS = r"\d+|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|sixty|hundred"
_UNITS = (
    r"one|two|three|four|five|six|seven|eight|nine|ten|\d(?:[\d,.]*\d)?|ms|seconds?|minutes?|hours?|microseconds?|bytes?|[kMG]B|"
    r"rows?|lines?|files?|calls?|evaluations?|iterations?|steps|demonstrations|trips|points|numbers?|values?|columns?|"
    r"entries|nats|bits|times|once|twice|fits?|parameters?|vectors?|threads?|processes?|tasks?|kernels?|cores"
)
_RATES = (
    r"intents?|states?|steps?|seconds?|minutes?|hours?|days?|rows?|demonstrations?|trajector(?:y|ies)|iterations?|columns?|"
    r"M-step|E-step|fit|trial|repeat|worker|process|task|core|thread|block|evaluation|call|edge|node|action|segment|trip|"
    r"driver|point|path|file|shard|part|page|line|model|world|method|setting|study|experiment|goal|entry|feature|group|unit|"
    r"unknown|parameter|case|test|kilometre|metre|person|animal|mouse|agent|recording|fold|split|start|restart|restarts"
)
PROSE: tuple[tuple[str, str], ...] = (
    (rf"\b(?:{_UNITS}) (?-i:an?) (?:{_RATES})\b", '"per", not "a" or "an"'),
    (r"\banew\b", "again"),
    (r"\bfor ever\b", "forever, unbounded"),
    (r"\b(?:mend|mends|mended|mending)\b", "fix, repair"),
    (r"\bbut for\b", "except, without"),
    (r"\bin the mean\b(?! time)", "on average"),
    (r"\b(?:of|at) any length\b", "unbounded length"),
    (r"\bhardly (?:any|anybody|ever|anyone)\b", "nearly empty, rarely"),
    (r"\b(?:nobody|somebody|anybody|everybody)\b", "name the component or the user"),
    (r"\blest\b", "so that ... not"),
    (rf"\bsome (?:{_NUMBERS})\b", "about"),
    (r"\b(?:is|are|was|were|be|been) told\b", "is reported"),
    (r"\btold apart\b", "distinguished"),
    (r"\bsays? (?:so|that it|nothing|how|what|which|where|why|whether)\b", "report, state"),
    (r"\bdie[sd]? under\b", "exit while running"),
    (r"\bwhose \w+ is none\b", "without"),
    (r"\b(?:tally|tallies|tallied)\b", "expected counts"),
    (r"\b(?:onward|outlook|coldness)\b", "continuation, backward message, inverse temperature"),
    (r"\bnumber spaces?\b", 'arithmetic ("linear" or "log")'),
    (r"\bways? of (?:any|unbounded|every|at most|bounded|that|this) length", "paths"),
    (
        r"\b(?:all|likely|likeliest|many|long|longer|such|whole|of|possible|every|each) ways\b(?! (?:to|of|in which))",
        "paths",
    ),
    (r"\b(?:upon|thereof|therein|whereof|wherein|hitherto|thence|whence|hence it|betwixt|amid)\b", "plain English"),
    (r"\bstand(?:s|ing)? in (?:its|their|each other's) place\b", "replace, swapped"),
    (r"\bas it stands\b|\bwhere it stands\b", "current state"),
    (r"\bin (?:its|their) stead\b|\binstead thereof\b", "instead"),
    (r"\b(?:far|near)-off\b|\bof old\b|\bby and by\b|\bat hand\b", "available, nearby"),
    (r"\bno more than that\b|\bone and all\b|\ball the same\b|\bnone the less\b", "plain English"),
    (r"\b(?:sums|summed) of nothing\b|\bthe logarithm of nothing\b", "log of zero"),
    (r"\bhow many there are\b|\bwho follows which\b|\bwho follows what\b", "posterior over intents"),
    (r"\b(?:follow|follows|followed) (?:an |the |no |which |one )?intents?\b", "belongs to, assigned to"),
    (r"\bshares? of (?:an |the |each |every )?intents?\b|\bintents?'s? shares?\b", "mixture weight"),
    (r"\bPrepared\b|\bsettled\b", "FitProblem, resolved"),
    (r"\b(?:state of|as of) now\b|\bof late\b|\bof today\b", "current"),
    # Quoted names of version 0.1 are permitted.
    (r"(?<![`.\"'-])\bengines?\b(?![`\"'=])", "path sums, backend; executor"),
    (r"\bevidence of (?:the |these |all )?demonstrations\b", "unnormalised log-likelihood"),
    (r"\b(?:desks?|seats?)\b", "workspace, thread tile"),
    (r"(?<![`.\"'])\bsticks\b(?![`\"'])", "stick-breaking weights"),
    (r"\b(?<!`)(?:tells?|told)\b(?!=)", "report, distinguish"),
    (r"\bprepared\b", "FitProblem, resolved"),
)
# Whole identifiers. As words of longer ones they may be right, such as the ways of OpenStreetMap.
IDENTIFIERS = re.compile(r"(?:found|ways|sweeps?|slopes?|totals|engines?|seat|desk|pose|posed|knock|hush)")
# Words of identifiers, which are split at underscores and capitals.
WORDS = re.compile(
    r"(?:told|said|tells?|tally|tallies|onward|outlook|coldness|settled|mended|prepared|sticks|climb|pull|"
    r"(?:some|no|any|every)body|asks?|asked)"
)
# Words of the names of tests, besides the phrases of PROSE.
TEST_WORDS = re.compile(
    r"\b(?:hardly|remembers?|forgets?|knows?|thinks?|wants?|likes|likeliest|whatever|wherever|ways|slopes?|engines?|"
    r"that is no|as many as|where there is none|the one from|come to)\b"
)
_PARTICIPLE = re.compile(
    r"(?!feed|seed|need|embed|speed|exceed|proceed|shed|expected)\w{2,}ed|told|said|known|found|drawn|made|kept|held|taken|"
    r"given|seen|(?:re)?written|chosen|shown|thrown|grown|brought|built|sent|left|lost|gone|meant|understood|laid|"
    r"broken|driven|frozen|hidden"
)
_HEADLESS = re.compile(r"(?:What|Where|Who|How|When|Whether|Which|Why|Whose|That|Whatever|Whichever)\b")


def check_prose(text: str, first_line: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and advice for each old phrase in a text."""
    for pattern, advice in PROSE:
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE if "Prepared" not in pattern else 0):
            yield first_line + text.count("\n", 0, match.start()), " ".join(match.group().split()), advice


def is_old_name(name: str) -> bool:
    """Return True if an identifier, or one of its words, is on the lists."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return IDENTIFIERS.fullmatch(name.strip("_")) is not None or any(WORDS.fullmatch(word.lower()) for word in words)


def is_participle(name: str) -> bool:
    """Return True if the first word of a function's name is a past participle."""
    return _PARTICIPLE.fullmatch(name.strip("_").split("_")[0].lower()) is not None


def check_python(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and advice for a Python file: comments, strings, names and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            yield from check_prose(token.string, token.start[0])
        elif token.type == tokenize.NAME and is_old_name(token.string):
            yield token.start[0], token.string, "name what the value is, or use a verb of the glossary"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            docstring = ast.get_docstring(node) or ""
            if _HEADLESS.match(docstring):
                yield node.body[0].lineno, docstring.splitlines()[0][:60], "begin with a noun phrase or an imperative"
            elif docstring.split("\n")[0].endswith("?"):
                yield node.body[0].lineno, docstring.splitlines()[0][:60], "a docstring is not a question"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}
            if is_participle(node.name) and not decorators & {"property", "cached_property", "setter", "fixture"}:
                yield node.lineno, node.name, "functions are verbs"
            if node.name.startswith("test_"):
                sentence = node.name.replace("_", " ")
                old = TEST_WORDS.search(sentence) or next(check_prose(sentence), None)
                if old:
                    yield node.lineno, node.name, "state the behaviour that the test checks, in standard terms"


def check_file(path: Path) -> list[tuple[int, str, str]]:
    """Return line, phrase and advice for each finding in a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return sorted(check_python(text))
    return sorted(check_prose(GLOSSARY.sub(lambda match: "\n" * match.group().count("\n"), text)))


def list_files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files below the paths that are checked."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if (
                (file.suffix in SUFFIXES or file.parent in (ROOT, ROOT / ".ci"))
                and file.is_file()
                and not SKIPPED.search(file.as_posix())
            ):
                yield file


def main(arguments: list[str]) -> int:
    """Print the findings and their number; return 1 if there are any."""
    n_findings = 0
    for file in list_files([Path(argument) for argument in arguments] or [ROOT / name for name in DEFAULT]):
        for line, phrase, advice in check_file(file):
            n_findings += 1
            name = file.resolve().relative_to(ROOT) if file.resolve().is_relative_to(ROOT) else file
            print(f"{name}:{line}: {phrase!r}: {advice}")
    print(f"{n_findings} findings")
    return 1 if n_findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
