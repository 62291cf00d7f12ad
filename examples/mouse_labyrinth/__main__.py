"""Intents of mice in a labyrinth: `python -m examples.mouse_labyrinth --data FOLDER --out FOLDER`.

The folder of --data must contain bouts.csv, with the columns mouse, water_restricted, bout and nodes. Without --data,
simulated mice are used.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.measure import describe_machine
from examples.mouse_labyrinth import page, recordings, simulated, study
from limiirl.report import write

WHERE = (
    "The recordings are those of Rosenberg, Zhang, Perona and Meister (2021, eLife 10:e66175; "
    "https://github.com/markusmeister/Rosenberg-2021-Repository). bouts.csv has one row per bout, with the "
    "columns mouse, water_restricted (0 or 1), bout and nodes (node numbers from 0 to 126, separated by spaces)."
)


def main(arguments: list[str] | None = None) -> Path:
    """Run the study, write the report, and return the path of its page."""
    parser = argparse.ArgumentParser("python -m examples.mouse_labyrinth", description=__doc__, epilog=WHERE)
    parser.add_argument("--data", type=Path, help="folder that contains bouts.csv (default: simulate mice)")
    parser.add_argument("--out", type=Path, default=Path("labyrinth"), help="folder of the report (default: labyrinth)")
    given = parser.parse_args(arguments)
    start = time.monotonic()

    def log(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - start:6.1f} s  {text}\n")

    if given.data is not None and not (given.data / "bouts.csv").is_file():
        parser.error(f"there is no bouts.csv in {given.data}. {WHERE}")
    if given.data is None:
        log(f"no --data: simulating mice with three known intents. {WHERE}")
        settings = study.Settings(most=4, per_mouse=60, resamples=2, models=False, check=False)
        findings = study.run(simulated.simulate(settings.gamma), settings, log)
    else:
        findings = study.run(recordings.read(given.data), study.Settings(), log)
    call = f"python -m examples.mouse_labyrinth{'' if given.data is None else ' --data FOLDER'} --out FOLDER"
    written = write(page.report(findings, given.data, call), given.out)
    text = f"labyrinth: {call}, {time.monotonic() - start:.0f} s\n{describe_machine()}\n{page.format_text(findings)}"
    (given.out / "numbers.txt").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"{text}\n{written}\n")
    return written


if __name__ == "__main__":
    main()
