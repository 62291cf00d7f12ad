"""Print which tables in docs/results differ from those of a commit, and by how much: `python tools/compare_results.py`.

A file is listed if a line or a number of it changed. Times differ from run to run, so the largest relative change of a
number is printed with its line, and changes above the tolerance are marked.
"""

import argparse
import difflib
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "docs/results"
SUFFIXES = {".txt", ".md", ".csv", ".json"}

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


class Change(NamedTuple):
    """Differences of two versions of a table."""

    lines: int  # lines of other words, added or removed
    numbers: int  # numbers that differ in lines with equal words
    largest: float  # largest relative change of such a number
    where: str  # line of the new version with this number


def compare_tables(old: str, new: str) -> Change:
    """Compare two versions of a table; lines are aligned by their words, and their numbers compared in order."""
    before, after = ([line.rstrip() for line in text.splitlines()] for text in (old, new))
    words_before, words_after = ([_words(line) for line in lines] for lines in (before, after))
    lines = numbers = 0
    largest, where = 0.0, ""
    matcher = difflib.SequenceMatcher(None, words_before, words_after, autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind != "equal":
            lines += (i_end - i) + (j_end - j)
            continue
        for first, second in zip(before[i:i_end], after[j:j_end], strict=True):
            for a, b in zip(_numbers(first), _numbers(second), strict=True):
                if a != b:
                    numbers += 1
                    change = abs(b - a) / max(abs(a), abs(b))
                    if change > largest:
                        largest, where = change, second.strip()
    return Change(lines, numbers, largest, where)


def _words(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def _numbers(line: str) -> list[float]:
    return [float(match.group().replace(",", "")) for match in _NUMBER.finditer(line)]


def list_changes(root: Path, revision: str) -> dict[str, Change | None]:
    """Return the change of each table that differs from its version in a commit; None for a new or removed table."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8")

    tracked = set(git("ls-tree", "-r", "--name-only", "-z", revision, RESULTS).split("\0")) - {""}
    present = {path.relative_to(root).as_posix() for path in (root / RESULTS).rglob("*") if path.is_file()}
    changes: dict[str, Change | None] = {}
    for name in sorted(tracked | present):
        if Path(name).suffix not in SUFFIXES:
            continue
        if name not in tracked & present:
            changes[name] = None
            continue
        old, new = git("show", f"{revision}:{name}"), (root / name).read_bytes().decode("utf-8")
        if old != new:
            changes[name] = compare_tables(old, new)
    return changes


def main() -> None:
    """Print the changed tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default="HEAD", help="commit to compare with")
    parser.add_argument("--tolerance", type=float, default=0.2, help="relative change from which a number is marked")
    options = parser.parse_args()
    changes = list_changes(ROOT, options.against)
    for name, change in changes.items():
        if change is None:
            print(f"  {name}: new or removed")
            continue
        mark = "*" if change.lines or change.largest > options.tolerance else " "
        print(f"{mark} {name}: {change.lines} lines, {change.numbers} numbers, at most {100 * change.largest:.1f} %")
        if change.where:
            print(f"      {change.where[:140]}")
    print(f"{len(changes)} tables changed; * marks other words, or a change above {100 * options.tolerance:.0f} %")


if __name__ == "__main__":
    main()
