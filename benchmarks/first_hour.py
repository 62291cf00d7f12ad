"""Times of the commands of the first hour: styles, closures and forecasts on Porto, numbers of intents of mice.

Run as `python -m benchmarks.first_hour` from the root of a checkout. It reads `porto_road_osm`, `porto_taxi_trips` and
`mouse_labyrinth` of the shared data. `--folder FOLDER` keeps the network, the matched trips and the styles. Each row
is one command of `limiirl` in a process of its own, with its wall-clock and processor time (all threads and child
processes, including the start of Python).
"""

import argparse
import csv
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import describe_machine

DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))
PIECES, STEPS = 60, 50  # pieces per mouse, and their largest number of steps
COLUMNS = "--columns demo=piece,t=step,state=place,group=mouse"
ROADS = "porto.npz styles matches.npz"
# Commands, and the limit of seconds on two idle cores; None if there is none.
COMMANDS = [
    (f"roads build {DATA / 'porto_road_osm'} --out porto.npz", None),
    (f"roads match porto.npz {DATA / 'porto_taxi_trips' / 'porto_trips_1pct.csv.gz'} --out matches.npz", None),
    ("roads fit porto.npz matches.npz --intents 3 --out styles --page styles-page", 120),
    ("roads fit porto.npz matches.npz --intents 3 --trips 1000 --model MaxEnt --out maxent", None),
    (f"roads close {ROADS} --at 41.1475,-8.6403 --page closed", 60),
    (f"roads close {ROADS.replace('styles', 'maxent')} --at 41.1475,-8.6403 --page closed-maxent", 60),
    (f"roads forecast {ROADS} --fraction 0.3 --report forecast", 15),
    (f"select mice.csv {COLUMNS}", 60),
    (f"infer mice.csv {COLUMNS} --out inferred", 60),
]


def write_mice(path: Path) -> None:
    """Write 60 pieces of up to 50 steps of each mouse, evenly spaced among its pieces."""
    by_mouse: dict[str, list[list[str]]] = {}
    with (DATA / "mouse_labyrinth" / "bouts.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            nodes = row["nodes"].split()
            pieces = [nodes[i : i + STEPS + 1] for i in range(0, len(nodes), STEPS)]
            by_mouse.setdefault(row["mouse"], []).extend(piece for piece in pieces if len(piece) > 1)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["piece", "mouse", "step", "place"])
        number = 0
        for mouse, pieces in by_mouse.items():
            if len(pieces) < PIECES:
                continue
            for i in range(PIECES):
                number += 1
                for step, place in enumerate(pieces[i * len(pieces) // PIECES]):
                    table.writerow([number, mouse, step, f"node {place}"])
    print(f"mice.csv: {number:,} pieces")


def main() -> None:
    """Run the commands, or those whose line contains the text of --only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="folder of the files; a temporary one by default")
    parser.add_argument("--only", default="", help="run the commands that contain this text")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(describe_machine())
        print(f"load before the run: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        write_mice(folder / "mice.csv")
        print("  wall s  processor s  limit  command")
        for command, limit in COMMANDS:
            if given.only not in command:
                continue
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", "from limiirl.cli import main; main()", *shlex.split(command)],
                cwd=folder, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            shown = command.replace(f"{DATA}/", "")
            print(f"{wall:8.1f}  {used:11.1f}  {limit or '-':>5}  limiirl {shown}", flush=True)
            if done.returncode:
                raise SystemExit(done.stdout)


if __name__ == "__main__":
    main()
