"""1,000 trips in Porto that were matched by other software, and the geometry of their paths.

Reads `porto_matched_green` of the shared data (matched with FMM for GREEN, KDD 2025): ../shared/data beside the
checkout, or the folder in `LIMIIRL_DATA`. Its network differs from ours (OSMnx, simplified, another date, no service
roads), so only geometries can be compared. The network is derived from OpenStreetMap, ODbL.
"""

import csv
import itertools
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.roads import Trips

Float = NDArray[np.float64]
FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "porto_matched_green"


class Green(NamedTuple):
    """Trips, and lines (k, 2) of latitudes and longitudes of their paths.

    Attributes
    ----------
    lines : whole edges, which extend beyond the first and the last fix
    clipped : the same, clipped at the points nearest to the first and to the last fix
    """

    trips: Trips
    lines: list[Float]
    clipped: list[Float]


def available() -> bool:
    """Return True if the data are present."""
    return (FOLDER / "traj_1000_sample.csv").exists()


def load() -> Green:
    """Read the trips and the geometry of their paths."""
    edges = _edges()
    lat, lon, time_s, drivers, lines, clipped = [], [], [], [], [], []
    with (FOLDER / "traj_1000_sample.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            east, north = np.array(json.loads(row["gps"])).T
            lat.append(north)
            lon.append(east)
            time_s.append(np.array(json.loads(row["time"]), dtype=np.float64))
            drivers.append(int(row["user_id"]))
            parts = [edges[edge] for edge in json.loads(row["road"])]
            for one, two in itertools.pairwise(parts):
                if not np.array_equal(one[-1], two[0]):
                    raise ValueError(f"Edges of trip {len(lines)} are not connected. Check the version of the file.")
            lines.append(_join(parts))
            fixes = np.column_stack([north, east])
            # The end is clipped first, so that a path of one edge still starts at the same point.
            parts[-1] = _from_nearest(parts[-1][::-1], fixes[-1])[::-1]
            parts[0] = _from_nearest(parts[0], fixes[0])
            clipped.append(_join(parts))
    return Green(Trips.from_lists(lat, lon, time_s, groups=drivers), lines, clipped)


def _join(parts: list[Float]) -> Float:
    return np.concatenate([parts[0][:1], *(part[1:] for part in parts)])


def _from_nearest(line: Float, fix: Float) -> Float:
    """Return the part of a line after its point nearest to a fix."""
    scale = np.array([1.0, np.cos(np.radians(fix[0]))])
    start, run = line[:-1] * scale, np.diff(line, axis=0) * scale
    square = np.maximum((run**2).sum(axis=1), 1e-30)
    fraction = np.clip(((fix * scale - start) * run).sum(axis=1) / square, 0.0, 1.0)
    square_distance = ((fix * scale - start - fraction[:, None] * run) ** 2).sum(axis=1)
    k = int(np.argmin(square_distance))
    return np.vstack([line[k] + fraction[k] * (line[k + 1] - line[k]), line[k + 1 :]])


def _edges() -> list[Float]:
    """Return the vertices (k, 2) of each edge as (latitude, longitude)."""
    with (FOLDER / "edge.csv").open(newline="", encoding="utf-8") as file:
        numbers = (re.findall(r"-?\d+\.\d+(?:e-?\d+)?", row["geometry"]) for row in csv.DictReader(file))
        return [np.array(each, dtype=np.float64).reshape(-1, 2)[:, ::-1] for each in numbers]
