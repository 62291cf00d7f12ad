"""Reading trips: all formats, and broken files."""

import gzip
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiirl.errors import InvalidFile, InvalidParameter, InvalidTrips, MissingFile, SkippedTripsWarning
from limiirl.roads import RoadNetwork, Trips, read_trips
from limiirl.roads.kernels.gps import read_polylines
from limiirl.roads.traces.tables import read_points
from tests.helpers import examples, raises

LINE = [[-8.63, 41.15], [-8.62, 41.16], [-8.61, 41.17]]
PORTO = RoadNetwork.from_segments([41.1, 41.2, 41.2], [-8.7, -8.7, -8.5], [0, 1, 2], [1, 2, 0])


def csv_file(tmp_path: Path, *rows: str, head: str = "TRIP_ID,TAXI_ID,TIMESTAMP,POLYLINE", name="trips.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path


def row(trip: object, line: object = LINE, taxi: object = 5, time: object = 100) -> str:
    return f'{trip},{taxi},{time},"{line if isinstance(line, str) else json.dumps(line)}"'


def reasons(trips: Trips) -> dict[str, str]:
    return {skip.id: skip.reason for skip in trips.skipped}


def quietly(*args, **known) -> Trips:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedTripsWarning)
        return read_trips(*args, **known)


# Formats


def test_all_of_porto_is_read(shared_data: Callable[[str], Path]):
    path = shared_data("porto_taxi_trips") / "porto_trips_1pct.csv.gz"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trips = read_trips(path)
    assert (len(trips), trips.n_fixes, np.unique(trips.groups).size, np.median(trips.lengths)) == (
        17084,
        836221,
        439,
        41,
    )
    with gzip.open(path, "rt", encoding="utf-8") as file:
        next(file)
        for i, line in enumerate(file):
            if i % 50 == 0:
                cells = line.split(",", 7)
                points = np.array(json.loads(cells[7].strip().strip('"')))
                lat, lon, time_s = trips[i]
                np.testing.assert_array_equal(np.stack([lon, lat], axis=1), points)
                np.testing.assert_array_equal(time_s, float(cells[5]) + 15.0 * np.arange(len(points)))
                assert (trips.ids[i], trips.groups[i]) == (int(cells[0]), int(cells[4]))


def test_polylines_in_csv_gzipped_or_not(tmp_path):
    path = csv_file(tmp_path, row(1), row(2, LINE[:1], taxi=6, time=200))
    trips = read_trips(path, step_s=5.0)
    assert (trips.lat.tolist(), trips.lon.tolist()) == ([41.15, 41.16, 41.17, 41.15], [-8.63, -8.62, -8.61, -8.63])
    assert (trips.time_s.tolist(), trips.ids.tolist(), trips.groups.tolist()) == ([100, 105, 110, 200], [1, 2], [5, 6])
    zipped = tmp_path / "named.anything"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read_trips(zipped, step_s=5.0) == trips


@pytest.mark.parametrize("kind", ["text", "lists", "gaps", "names"])
def test_polylines_in_parquet(tmp_path, kind):
    lines = [LINE, None, [], LINE[1:]]
    if kind == "text":
        column = pa.array([None if line is None else json.dumps(line) for line in lines])
    elif kind == "names":
        column = pa.array([None if x is None else [{"lng": lon, "lat": lat} for lon, lat in x] for x in lines])
    else:
        # A missing number is parsed by the JSON parser.
        column = pa.array(
            [*lines, [[None, 41.0], *LINE]] if kind == "gaps" else lines, pa.list_(pa.list_(pa.float64()))
        )
    table = {"trip": [f"t{i}" for i in range(len(column))], "polyline": column}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    trips = quietly(tmp_path / "a.parquet")
    assert trips.ids.tolist() == ["t0", "t3", "t4"] if kind == "gaps" else ["t0", "t3"]
    np.testing.assert_array_equal(trips.lat[:5], [41.15, 41.16, 41.17, 41.16, 41.17])
    assert [skip.row for skip in trips.skipped] == [1, 2]
    assert trips.groups is None
    if kind == "gaps":
        assert (trips[2][0].tolist(), trips[2][2].tolist()) == ([41.15, 41.16, 41.17], [15.0, 30.0, 45.0])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_fix_rows_in_any_order(tmp_path, suffix):
    columns = {
        "Driver": ["x", "y", "x", "y", "x", "x"],
        "Trip": ["1", "1", "1", "1", "2", "1"],
        "Time": [30.0, 0.0, 10.0, 5.0, 7.0, 20.0],
        "Latitude": [41.3, 42.0, 41.1, 42.1, 43.0, 41.2],
        "LNG": [-8.3, -9.0, -8.1, -9.1, -7.0, -8.2],
    }
    path = tmp_path / f"fixes.{suffix}"
    if suffix == "csv":
        rows = [",".join(map(str, cells)) for cells in zip(*columns.values(), strict=True)]
        csv_file(tmp_path, *rows, head=",".join(columns), name=path.name)
    else:
        pq.write_table(pa.table(columns), path)
    with pytest.warns(SkippedTripsWarning, match="not in order of time, sorted: 1"):
        trips = read_trips(path)
    # Trip 1 of y and trip 1 of x are different trips.
    assert (trips.ids.tolist(), trips.groups.tolist()) == (["1", "1#2", "2"], ["x", "y", "x"])
    assert [lat.tolist() for lat, _, _ in trips] == [[41.1, 41.2, 41.3], [42.0, 42.1], [43.0]]
    assert [lon.tolist() for _, lon, _ in trips] == [[-8.1, -8.2, -8.3], [-9.0, -9.1], [-7.0]]
    assert [time.tolist() for _, _, time in trips] == [[10, 20, 30], [0, 5], [7]]


def test_a_table_without_trips_or_times(tmp_path):
    path = csv_file(tmp_path, "41.1,-8.6", "41.2,-8.7", head="y,x", name="monday.csv")
    trips = read_trips(path, step_s=2.0)
    assert (trips.ids.tolist(), trips.time_s.tolist(), trips.lat.tolist()) == (["monday"], [0.0, 2.0], [41.1, 41.2])
    path = csv_file(tmp_path, "41.1,-8.6,ann", "41.2,-8.7,bob", "41.3,-8.6,ann", head="y,x,user")
    trips = read_trips(path)
    assert (trips.ids.tolist(), trips.groups.tolist(), trips.lengths.tolist()) == (
        ["ann", "bob"],
        ["ann", "bob"],
        [2, 1],
    )


GPX = """<?xml version="1.0"?><gpx version="{v}" xmlns="http://www.topografix.com/GPX/{v2}">
<wpt lat="1" lon="1"/><trk><name>a</name><trkseg>
<trkpt lat="41.1" lon="-8.1"><ele>3</ele><time>2013-07-01T00:00:00Z</time></trkpt>
<trkpt lat="41.2" lon="-8.2"><time>2013-07-01T02:00:10+02:00</time></trkpt></trkseg>
<trkseg><trkpt lat="41.3" lon="-8.3"/><trkpt lat="41.4" lon="-8.4"/></trkseg></trk>
<trk><trkseg/><trkseg><trkpt lat="41.5" lon="-8.5"><time>2013-07-01T00:00:00.5</time></trkpt>
<trkpt lat="41.6" lon="-8.6"/></trkseg></trk></gpx>"""


@pytest.mark.parametrize(("version", "zipped"), [("1.0", False), ("1.1", True)])
def test_gpx(tmp_path, version, zipped):
    text = GPX.format(v=version, v2=version.replace(".", "/")).encode()
    path = tmp_path / ("day.gpx.gz" if zipped else "day.gpx")
    path.write_bytes(gzip.compress(text) if zipped else text)
    trips = quietly(path, step_s=3.0)
    start = 1372636800.0
    assert trips.ids.tolist() == ["day:1.1", "day:1.2", "day:2.2"]
    assert trips.lat.tolist() == [41.1, 41.2, 41.3, 41.4, 41.5]
    assert trips.time_s.tolist() == [start, start + 10, 0.0, 3.0, start + 0.5]
    assert reasons(trips) == {"day:2.1": "it has no fixes"}
    assert trips.notes == {
        "trips without times, read with a constant time step": 1,
        "fixes without latitude, longitude or time, dropped": 1,
    }


def test_a_folder_and_a_list_of_files(tmp_path):
    folder = tmp_path / "all"
    folder.mkdir()
    csv_file(folder, "a,0,41.1,-8.6", "a,5,41.2,-8.6", head="trip,time,lat,lon", name="b.csv")
    (folder / "a.gpx").write_text(GPX.format(v="1.1", v2="1/1"), encoding="utf-8")
    (folder / "c.gpx").write_text("<gpx><trk>", encoding="utf-8")
    (folder / "notes.txt").write_text("nothing", encoding="utf-8")
    trips = quietly(folder)
    assert trips.ids.tolist() == ["a:1.1", "a:1.2", "a:2.2", "a"]
    assert trips.time_s.tolist()[-2:] == [0.0, 5.0]
    assert "c.gpx is truncated or not a GPX file" in reasons(trips)["c.gpx"]
    assert quietly([folder / "b.csv", folder / "a.gpx"]).ids.tolist() == ["a", "a:1.1", "a:1.2", "a:2.2"]
    some = quietly([folder / "b.csv", folder / "none.csv"])
    assert some.ids.tolist() == ["a"]
    assert reasons(some)["none.csv"].endswith("does not exist. Pass a file or a folder of trips.")
    with raises(MissingFile, parameter="path"):
        read_trips(folder / "none.csv")
    with raises(InvalidFile, parameter="path"):
        read_trips(tmp_path)
    with raises(InvalidParameter, parameter="path"):
        read_trips([])
    drivers = csv_file(tmp_path, row(1))
    with raises(InvalidTrips, parameter="columns"):
        read_trips([drivers, folder / "b.csv"])
    assert len(read_trips([drivers, folder / "b.csv"], columns={"driver": None})) == 2


# Columns and times


def test_columns_by_name_or_as_given(tmp_path):
    path = csv_file(tmp_path, row(1), head="nr,who,when,line")
    with raises(InvalidFile, parameter="columns", value=str(path)):
        read_trips(path)
    roles = {"trip": "nr", "driver": "who", "time": "when", "polyline": "line"}
    trips = read_trips(path, columns=roles)
    assert (trips.ids.tolist(), trips.groups.tolist(), trips.time_s[0]) == ([1], [5], 100.0)
    with raises(InvalidParameter, parameter="columns", value="x"):
        read_trips(path, columns={"lat": "x"})
    with raises(InvalidParameter, parameter="columns", value="latitude"):
        read_trips(path, columns={"latitude": "nr"})
    with raises(InvalidParameter, parameter="step_s", value=0.0):
        read_trips(path, columns=roles, step_s=0.0)


@pytest.mark.parametrize(
    ("written", "seconds", "note"),
    [
        ("1372636858", 1372636858.0, None),
        ("1372636858250", 1372636858.25, "times in milliseconds, divided by 1000"),
        ("2013-07-01T00:00:58", 1372636858.0, None),
        ("2013-07-01 00:00:58.25", 1372636858.25, None),
        ("2013-07-01T01:00:58+01:00", 1372636858.0, None),
        ("2013/07/01 00:00:58", 1372636858.0, None),
    ],
)
def test_times_as_numbers_and_as_dates(tmp_path, written, seconds, note):
    trips = quietly(csv_file(tmp_path, row(1, time=written), row(2, time=written)))
    assert trips.time_s[0] == seconds
    assert list(trips.notes) == ([note] if note else [])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_parquet_s_own_type(tmp_path, unit):
    times = pa.array([1372636858, 1372636860], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit, tz="UTC"))
    table = pa.table({"trip": [1, 1], "time": times, "lat": [41.1, 41.2], "lon": [-8.1, -8.2]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_trips(tmp_path / "a.parquet").time_s.tolist() == [1372636858.0, 1372636860.0]


def test_ids_are_numbers_only_where_that_loses_nothing(tmp_path):
    assert read_trips(csv_file(tmp_path, row(7), row(12))).ids.tolist() == [7, 12]
    assert read_trips(csv_file(tmp_path, row("007"), row(12))).ids.tolist() == ["007", "12"]
    assert read_trips(csv_file(tmp_path, row(10**25))).ids.tolist() == [str(10**25)]


# Broken input


@pytest.mark.parametrize(
    ("given", "ids", "lost"),
    [
        ([1.0, np.nan, 2.0], [1, 2], "1 row of the table has no trip id"),
        ([1.0, np.inf, 1.0], ["1", "inf"], None),
        ([1e20, 1e20, 1e20], ["1e+20"], None),
    ],
)
def test_ids_that_parquet_has_as_floats(tmp_path, given, ids, lost):
    path = tmp_path / "trips.parquet"
    columns = {"trip": given, "lat": [41.15, 41.16, 41.17], "lon": [-8.6] * 3, "time": [0.0, 15.0, 30.0]}
    pq.write_table(pa.table(columns), path)
    trips = quietly(path)
    assert trips.ids.tolist() == ids
    assert [skip.reason for skip in trips.skipped] == ([] if lost is None else [lost])
    assert not any(skip.trip for skip in trips.skipped)
    polylines = pa.table({"trip_id": given, "polyline": [json.dumps(LINE[:k]) for k in (1, 2, 3)]})
    pq.write_table(polylines, path)
    assert len(quietly(path)) == 3


def test_format_is_detected_from_the_content(tmp_path):
    rows = ("1,41.1,-8.6", "1,41.2,-8.6")
    assert read_trips(csv_file(tmp_path, *rows, head="trip,lat,lon", name="my.gpx.csv")).lat.tolist() == [41.1, 41.2]


def test_broken_trips_are_skipped_with_a_reason(tmp_path):
    path = csv_file(
        tmp_path,
        row("good"),
        row("cut", "[[-8.63,41.15],[-8.62,41."),
        row("none", []),
        row("blank", ""),
        row("one", LINE[:1]),
        row("flat", [-8.63, 41.15]),
        row("words", "[[-8.63,north]]"),
        row("nan", "[[NaN,41.15],[NaN,41.16]]"),
        row("when", LINE, time="soon"),
        "short,5",
        row("last"),
        row("after", []),
    )
    with pytest.warns(SkippedTripsWarning, match=r"3 trips read. 9 skipped, the first \(id 'cut', row 1\): its"):
        trips = read_trips(path)
    assert trips.ids.tolist() == ["good", "one", "last"]
    result = reasons(trips)
    assert set(result) == {"cut", "none", "blank", "flat", "words", "nan", "when", "short", "after"}
    assert result["cut"].startswith("its polyline is not JSON")
    assert result["cut"].endswith("it ends in '63,41.15],[-8.62,41.'")
    assert result["words"].startswith("its polyline is not JSON")
    assert (result["none"], result["blank"]) == ("it has no fixes", "it has no polyline")
    assert result["flat"] == "its polyline is not a list of pairs [longitude, latitude]"
    assert result["nan"] == result["when"] == "none of its fixes has a readable latitude, longitude and time"
    assert result["short"].startswith("its row has too few or too many cells")
    rows = {skip.id: skip.row for skip in trips.skipped}
    assert rows == {
        "cut": 1,
        "none": 2,
        "blank": 3,
        "flat": 5,
        "words": 6,
        "nan": 7,
        "when": 8,
        "short": 9,
        "after": 11,
    }


def test_single_invalid_fixes_are_dropped_and_counted(tmp_path):
    line = [LINE[0], [-8.6, 141.0], LINE[1], ["a", 41.0], [-8.6, None], LINE[2]]
    trips = quietly(csv_file(tmp_path, row(1, json.dumps(line).replace('"', '""'))))
    assert trips.lat.tolist() == [41.15, 41.16, 41.17]
    assert trips.time_s.tolist() == [100.0, 130.0, 175.0]
    assert trips.notes == {
        "fixes without latitude, longitude or time, dropped": 2,
        "fixes with degrees out of range, dropped": 1,
    }
    assert trips.skipped == ()


def test_unclosed_quote_costs_one_trip(tmp_path):
    path = csv_file(tmp_path, row(1), '2,5,100,"[[-8.63,41.15]', row(3), row(4), "5,5,100", row(6))
    trips = quietly(path)
    assert sorted(trips.ids.tolist()) == [1, 3, 4, 6]
    assert sorted(reasons(trips)) == ["2", "5"]


def test_names_after_an_unclosed_quote_are_unchanged(tmp_path):
    # Å is C3 85 in UTF-8, and 85 ends a line for `splitlines`.
    fixes = [f"1,José Å,{k},41.1{k},-8.6" for k in range(8)]
    fixes[3] = '1,"José Å,3,41.13,-8.6'
    trips = quietly(csv_file(tmp_path, *fixes[:6], "", "é,7", *fixes[6:], head="trip,driver,time,lat,lon"))
    assert (trips.ids.tolist(), trips.groups.tolist(), trips.lengths.tolist()) == ([1], ["José Å"], [7])
    assert [(skip.id, skip.row, skip.trip) for skip in trips.skipped] == [("é", -1, False), ("1", 3, False)]
    # Only the row with a cell beyond the size limit of the csv module is skipped.
    fixes[5] = "1," + "é" * 140_000
    trips = quietly(csv_file(tmp_path, *fixes, head="trip,driver,time,lat,lon"))
    assert (trips.lengths.tolist(), [skip.row for skip in trips.skipped]) == ([6], [-1, 3])
    lines = [row(i, LINE[: i + 1], taxi="José") for i in range(3)]
    lines[1] = lines[1].replace("José", '"José')
    trips = quietly(csv_file(tmp_path, *lines, "é", "x,é"))
    assert (trips.ids.tolist(), trips.groups.tolist()) == ([0, 2], ["José", "José"])
    assert sorted((skip.id, skip.trip) for skip in trips.skipped) == [("1", True), ("x", True), ("é", True)]


def test_undecodable_bytes_affect_only_names(tmp_path):
    path = csv_file(
        tmp_path, row("é"), row("x"), "bad,row", row("z", "[[\xe9,1]]"), head="\ufeffTRIP_ID,TAXI_ID,A\xe9,POLYLINE"
    )
    path.write_bytes(path.read_bytes().replace(b"x,", b"\xff,").replace(b"bad", b"b\x81d"))
    trips = quietly(path)
    assert trips.ids.tolist() == ["é", "\xff"]
    assert trips.notes["cells that are not UTF-8, read as Latin-1"] == 1
    assert [skip.row for skip in trips.skipped] == [2, 3]


def test_trips_that_the_file_marks_as_incomplete(tmp_path):
    path = csv_file(tmp_path, 'a,True,"[[1,2]]"', 'b,False,"[[1,2]]"', head="TRIP_ID,MISSING_DATA,POLYLINE")
    trips = quietly(path)
    assert (trips.ids.tolist(), list(reasons(trips))) == (["b"], ["a"])
    assert read_trips(path, columns={"missing": None}).ids.tolist() == ["a", "b"]


def test_copies_are_skipped_and_others_of_the_same_id_are_renamed(tmp_path):
    path = csv_file(tmp_path, row(7), row(8), row(7, LINE[:2]), row(7), row(7, LINE[:2]), row(7, LINE[:1]))
    trips = quietly(path)
    assert trips.ids.tolist() == ["7", "8", "7#2", "7#3"]
    assert trips.lengths.tolist() == [3, 3, 2, 1]
    assert [(skip.row, skip.reason) for skip in trips.skipped] == [
        (3, "it is a copy of an earlier trip"),
        (4, "it is a copy of an earlier trip"),
    ]
    assert trips.notes == {"other trips of the same id, renamed (id#2, id#3, ...)": 2}


def test_swapped_coordinates_are_reported_and_never_exchanged(tmp_path):
    shanghai = [[31.2, 121.4], [31.3, 121.5]]
    mixed = csv_file(tmp_path, row("good"), row("bad", shanghai))
    trips = quietly(mixed)
    assert trips.ids.tolist() == ["good"]
    assert "read it with swap=True" in reasons(trips)["bad"]
    whole = csv_file(tmp_path, row(1, shanghai), row(2, shanghai[:1]))
    with raises(InvalidTrips, parameter="swap", value=False):
        read_trips(whole)
    assert read_trips(whole, swap=True)[0][0].tolist() == [31.2, 31.3]
    with raises(InvalidTrips, parameter="swap", value=False):
        read_trips(csv_file(tmp_path, row(1, shanghai), row(2, [])))


def test_swapped_coordinates_within_range_are_detected_with_a_network(tmp_path):
    swapped = [[lat, lon] for lon, lat in LINE]
    path = csv_file(tmp_path, row(1, swapped), row(2, swapped), row(3))
    assert read_trips(path)[0][0].tolist() == [-8.63, -8.62, -8.61]
    with raises(InvalidTrips, parameter="trips", value=2):
        read_trips(path, network=PORTO)
    assert len(read_trips(csv_file(tmp_path, row(1), row(2)), network=PORTO)) == 2
    with raises(InvalidTrips, parameter="network", value=PORTO.centre):
        read_trips(csv_file(tmp_path, row(1, [[2.3, 48.9]])), network=PORTO)


def test_a_trip_of_ten_thousand_fixes(tmp_path):
    rng = np.random.default_rng(0)
    line = np.round(rng.uniform([-9, 41], [-8, 42], (10_000, 2)), 6).tolist()
    trips = read_trips(csv_file(tmp_path, row(1), row(2, line), row(3)))
    assert trips.lengths.tolist() == [3, 10_000, 3]
    np.testing.assert_array_equal(trips[1][1], np.array(line)[:, 0])


def test_truncated_or_empty_files_are_rejected(tmp_path):
    whole = csv_file(tmp_path, *(row(i, np.random.default_rng(i).normal(size=(50, 2)).tolist()) for i in range(50)))
    data = whole.read_bytes()
    zipped, cut = gzip.compress(data), tmp_path / "cut"
    for content, words in (
        (zipped[: len(zipped) // 2], "[Tt]runcated"),
        (b"", "empty"),
        (gzip.compress(b""), "empty"),
        (b"PAR1" + data[:100], "corrupted"),
        (b"<gpx><trk><trkseg>", "not a GPX file"),
        (b"<gpx></gpx>", "no track"),
        (b"<html></html>", "<html>"),
    ):
        cut.write_bytes(content)
        with raises(InvalidFile, parameter="path", value=str(cut)) as caught:
            read_trips(cut)
        assert re.search(words, str(caught.value))
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(data)
    with raises(InvalidFile, parameter="path"):
        read_trips(cut)
    with pytest.raises(FileNotFoundError):
        read_trips(tmp_path / "absent.csv")
    # In truncated text, only the last trip is lost.
    cut = tmp_path / "cut.csv"
    cut.write_bytes(data[: len(data) // 2])
    trips = quietly(cut)
    assert (len(trips.skipped), trips.skipped[0].row) == (1, len(trips))
    assert "not JSON" in trips.skipped[0].reason
    cut.write_bytes(data.split(b"\n")[0])
    assert len(read_trips(cut)) == 0


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_truncated_parquet_is_rejected(tmp_path, part):
    path = tmp_path / "a.parquet"
    Trips.from_lists([np.linspace(41, 42, 5000)], [np.linspace(-8, -7, 5000)]).to_parquet(path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with raises(InvalidFile, parameter="path", value=str(path)):
        read_trips(path)


@pytest.mark.parametrize(
    ("cut", "lat", "ids"),
    [
        ("41.4", [41.1, 41.2, 41.3], ["day:1.1", "day:1.2"]),
        ("41.3", [41.1, 41.2], ["day"]),
        ("41.2", [41.1], ["day"]),
        ("</trkseg>", [41.1, 41.2], ["day"]),
    ],
)
def test_truncated_gpx_keeps_every_complete_point(tmp_path, cut, lat, ids):
    path = tmp_path / "day.gpx"
    text = GPX.format(v="1.1", v2="1/1")
    path.write_text(text[: text.index(cut)], encoding="utf-8")
    trips = quietly(path)
    assert (trips.lat.tolist(), trips.ids.tolist()) == (lat, ids)
    phrase = reasons(trips)["day:rest"]
    assert phrase.startswith(f"the file is truncated or corrupted after {len(lat)} points, which are kept (")


@pytest.mark.parametrize("damage", ["cut", "block"])
def test_corrupted_gzip_of_gpx_keeps_earlier_points(tmp_path, damage):
    rng = np.random.default_rng(0)
    points = "".join(f'<trkpt lat="{lat}" lon="{lon}"/>' for lat, lon in rng.uniform(0, 80, (20_000, 2)))
    text = f"<gpx><trk><trkseg>{points}</trkseg></trk></gpx>".encode()
    packed = gzip.compress(text)
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    else:  # a block of a type that there is not, which zlib itself refuses
        packed = gzip.compress(text[: len(text) // 2]) + packed[:10] + b"\xff" * 99
    path = tmp_path / "day.gpx.gz"
    path.write_bytes(packed)
    trips = quietly(path)
    assert 5_000 < trips.n_fixes < 20_000
    assert f"after {trips.n_fixes:,} points, which are kept" in reasons(trips)["day:rest"]


def test_rows_without_a_trip_are_counted(tmp_path):
    path = csv_file(tmp_path, "a,1,41.1,-8.6", ",2,41.1,-8.6", "a,x,41.1,-8.6", ",3,41,-8", head="trip,time,lat,lon")
    trips = quietly(path)
    assert (trips.ids.tolist(), trips.n_fixes) == (["a"], 1)
    assert [(skip.row, skip.reason) for skip in trips.skipped] == [(1, "2 rows of the table have no trip id")]
    assert trips.notes == {"fixes without latitude, longitude or time, dropped": 1}


def test_blank_driver_is_a_separate_driver(tmp_path):
    rows = ("1,ann,0,41.1,-8.6", "2,,0,41.2,-8.6", "3,zoe,0,41.3,-8.6")
    trips = quietly(csv_file(tmp_path, *rows, head="trip,driver,time,lat,lon"))
    assert trips.groups.tolist() == ["ann", "", "zoe"]
    assert trips.notes == {"trips without a driver name": 1}


def test_milliseconds_beside_a_blank_time_are_not_dates(tmp_path):
    rows = ("a,1512010801000,41.1,-8.6", "a,,41.2,-8.6", "a,1512010802000,41.3,-8.6")
    trips = quietly(csv_file(tmp_path, *rows, head="trip,time,lat,lon"))
    assert trips.time_s.tolist() == [1512010801.0, 1512010802.0]


# Compiled parser of polylines


NUMBERS = st.one_of(
    st.floats(-180, 180, allow_nan=False).map(lambda x: round(x, 6)),
    st.floats(-180, 180, allow_nan=False),
    st.integers(-180, 180),
    st.sampled_from([0.0, -0.0, 1e-7, 41.1, 1e300]),
)


@settings(max_examples=examples(200), deadline=None)
@given(lines=st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5), max_size=5), indent=st.sampled_from([None, 1]))
def test_polylines_are_read_as_json_reads_them(lines, indent):
    texts = [json.dumps(line, indent=indent) for line in lines]
    xy, counts, faults = read_points(pa.array(texts, pa.string()))
    assert (counts.tolist(), faults) == ([len(line) for line in lines], {})
    np.testing.assert_array_equal(xy, np.array([p for line in lines for p in line], dtype=float).reshape(-1, 2))


@settings(max_examples=examples(300), deadline=None)
@given(text=st.text(alphabet="[],.- 0189\n", max_size=14))
def test_fast_reader_agrees_with_json(text):
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    xy, counts, odd = read_polylines(data, np.array([0, data.size]))
    if odd.size == 0:
        points = json.loads(text)
        assert counts[0] == len(points)
        np.testing.assert_array_equal(xy, np.array(points, dtype=float).reshape(-1, 2))


@pytest.mark.parametrize(
    "text", ["[[1,2],]", "[[1,2][3,4]]", "[[01,2]]", "[[1.,2]]", "[[.5,2]]", "[[1,2,3]]", "[[1 2]]"]
)
def test_fast_reader_leaves_unusual_input(text):
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    assert read_polylines(data, np.array([0, data.size]))[2].tolist() == [0]
