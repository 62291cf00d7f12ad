"""CSV dialects: unambiguous files are read, others are rejected with the position."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limiirl.errors import InvalidFile, SkippedTripsWarning
from limiirl.roads import Trips, read_trips
from limiirl.roads.traces.tables import DECIMAL_COMMAS
from tests.helpers import raises

PLAIN = "trip,time,lat,lon\n1,2013-07-01 00:00:00,41.15,-8.63\n1,2013-07-01 00:00:15,41.16,-8.62\n"
START = 1372636800.0


def quietly(*args, **known) -> Trips:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedTripsWarning)
        return read_trips(*args, **known)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        b"\xfe\xff" + PLAIN.encode("utf-16-be"),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", "|").encode(),
        PLAIN.replace(",", ";").replace(".", ",").encode(),
        PLAIN.replace(",", ";").replace(".", ",").replace("\n", "\r").encode("utf-16"),
        PLAIN.replace("41.15", '"41,15"').replace("41.16", '"41,16"').encode(),
    ],
    ids=["cr", "crlf", "bom", "utf16", "utf16be", "semicolon", "tab", "bar", "decimal-comma", "all", "quoted"],
)
def test_unambiguous_formats_are_read(tmp_path, data):
    path = tmp_path / "trips.csv"
    path.write_bytes(data)
    trips = quietly(path)
    assert (trips.ids.tolist(), trips.lat.tolist(), trips.lon.tolist()) == ([1], [41.15, 41.16], [-8.63, -8.62])
    assert trips.time_s.tolist() == [START, START + 15.0]


def test_decimal_commas_are_counted(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text("trip;time;lat;lon\n1;5,5;41,15;-8,63\n1;7;north;-8,62\n1;8;1,234,567;-8\n", encoding="utf-8")
    trips = quietly(path)
    assert (trips.lat.tolist(), trips.time_s.tolist()) == ([41.15], [5.5])
    assert trips.notes == {DECIMAL_COMMAS: 4, "fixes without latitude, longitude or time, dropped": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAIN.replace("2013-07-01", "01/07/2013"), "column 'time' .* row 0 .*'01/07/2013 00:00:00'"),
        (PLAIN.replace("41.", "N41d"), "column 'lat' .* row 0 .*'N41d15'"),
        (PLAIN.replace("-8.", "W"), "column 'lon' .*'W63'"),
        (
            "trip,time,lat,lon\n1,2013-07-01,41,15,-8,63\n1,2013-07-02,41,16,-8,62\n",
            "'1,2013-07-01,41,15,-8,63'",
        ),
        (PLAIN.partition("\n")[2], "1, 2013-07-01 00:00:00, 41.15"),
        ("trip,when\n1,2\n", "trip, when"),
        ("\n" + PLAIN, "empty"),
        (PLAIN.encode("utf-16-le"), "null bytes"),
        (bytes(range(256)) * 9, "null bytes"),
        (b'"' + b"x" * 200_000, "field larger than"),
        ("id,time,lat,lon\n1,0,41,-8\n", "column 'id'"),
        ("trajectory,lat,lon\n1,41,-8\n", "'trajectory'"),
        ("id,path\n1,/home\n", "polyline"),
        ("id,points\n1,12\n", "polyline"),
    ],
)  # fmt: skip
def test_unreadable_or_ambiguous_files_are_rejected(tmp_path, text, words):
    path = tmp_path / "trips.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidFile, match=words):
        read_trips(path)


def test_ambiguous_id_column_follows_the_given_role(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("id,lat,lon\n1,41.1,-8.1\n2,41.2,-8.2\n", encoding="utf-8")
    assert read_trips(path, columns={"trip": "id"}).lengths.tolist() == [1, 1]
    assert read_trips(path, columns={"trip": None}).lengths.tolist() == [2]
    # In a table of polylines, an id is a trip id.
    path.write_text('id,lat,polyline\nx7,0,"[[-8.1,41.1]]"\n', encoding="utf-8")
    assert read_trips(path).ids.tolist() == ["x7"]
    path.write_text('trip,trajectory\nx7,"[[-8.1,41.1]]"\n', encoding="utf-8")
    assert read_trips(path).lat.tolist() == [41.1]


def test_unreadable_times_beside_a_polyline(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text('TRIP_ID,TIMESTAMP,POLYLINE\n1,,"[[-8.1,41.1]]"\n2,13.7.2013,"[[-8.1,41.1]]"\n', encoding="utf-8")
    with raises(InvalidFile, parameter="columns", value="TIMESTAMP", index=1):
        read_trips(path)
    assert read_trips(path, columns={"time": None}).time_s.tolist() == [0.0, 0.0]


def test_blank_columns_are_accepted(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text("trip,time,lat,lon\n1,,41,-8\n1,NA,41,-8\n", encoding="utf-8")
    trips = quietly(path)
    assert (len(trips), trips.skipped[0].reason[:17]) == (0, "none of its fixes")


def test_metres_are_not_taken_for_degrees(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text("trip,x,y\n1,531000,4556000\n1,531100,4556000\n", encoding="utf-8")
    assert "out of range; degrees are needed" in quietly(path).skipped[0].reason


def test_names_in_latin_1_stay_distinct(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_bytes("trip,lat,länge\né,41.1,-8.1\nè,41.2,-8.1\n".encode("latin-1"))
    with pytest.warns(SkippedTripsWarning, match="cells that are not UTF-8, read as Latin-1: 2"):
        trips = read_trips(path, columns={"lon": "länge"})
    assert trips.ids.tolist() == ["é", "è"]


def test_parquet_with_columns_of_another_kind(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"trip": [[1], [1]], "lat": [41.0, 41.1], "lon": [-8.0, -8.1]}), path)
    assert read_trips(path).ids.tolist() == ["[1]"]
    pq.write_table(pa.table({"trip": [1], "lat": [[41.0]], "lon": [-8.0]}), path)
    with raises(InvalidFile, parameter="columns", value="lat", index=0):
        read_trips(path)


def test_the_row_is_counted_over_blocks(tmp_path):
    n, path = 40_000, tmp_path / "a.parquet"
    table = {"trip": [1] * n, "time": [None] * (n - 1) + ["soon"], "lat": [41.0] * n, "lon": [-8.0] * n}
    pq.write_table(pa.table(table), path)
    with raises(InvalidFile, parameter="columns", value="time", index=39999):
        read_trips(path)


def test_nothing_to_read_beside_a_network_is_silent(tmp_path):
    from limiirl.roads import RoadNetwork

    network = RoadNetwork.from_segments([41.1, 41.2, 41.2], [-8.7, -8.7, -8.5], [0, 1, 2], [1, 2, 0])
    path = tmp_path / "head.csv"
    path.write_text("trip,lat,lon\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy once warned of the mean of nothing
        assert len(read_trips(path, network=network)) == 0
    assert np.array_equal(read_trips(path).offsets, [0])
