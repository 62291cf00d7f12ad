"""The README's examples, as the tests on it and on the wheel both need them."""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).resolve().parents[1] / "README.md"

# A Python block, then nothing but blank lines, then the text block with what it prints.
_PAIR = re.compile(r"^```python\n(?P<code>.*?)^```\n\s*^```text\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    code: str
    output: str


def examples(text: str) -> list[Example]:
    """Every example of a Markdown text that states its output."""
    return [Example(match["code"], match["output"]) for match in _PAIR.finditer(text)]


def run_example(example: Example, python: Path | str, cwd: Path) -> str:
    """Run an example with an interpreter in a folder away from the sources; return what it printed, errors included."""
    script = cwd / "example.py"
    script.write_text(example.code, encoding="utf-8")
    # -I ignores PYTHONPATH and keeps the script's folder off the path: only what is installed can be imported.
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    result = subprocess.run(
        [str(python), "-I", "-X", "utf8", str(script)],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, f"the example failed:\n{result.stdout}"
    return result.stdout


def tidy(output: str) -> str:
    """Output without the trailing blanks that an editor strips from a README."""
    return "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
