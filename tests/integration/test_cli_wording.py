"""Messages of the library on the command line: they name what can be typed, and only that."""

import re
import warnings

import pytest
import typer

from limiirl import Demonstrations, IntentMixture
from limiirl._io import atomic_write
from limiirl.cli import app
from limiirl.cli.wording import _ADVICE, _FIRST, _PARAMETERS, _WORD, _WRITERS, in_options, options_of
from limiirl.errors import LimiirlError
from limiirl.executors import Executor
from limiirl.irl.device import choose_device
from limiirl.roads import City, Matches, RoadNetwork, Trips, build, fit_drivers, match, read_trips, record
from limiirl.streams import FeatureStore
from limiirl.streams.fit import _enough_drawn

GROUP = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("words", "said", "typed"),
    [
        (["roads", "match"], "Say which: columns={'trip': 'my id'} or columns={'trip': None}.",
         "Say which: --columns trip='my id' or --columns trip=."),
        (["roads", "match"], "Say: columns={'polyline': ...} or columns={'lat': ..., 'lon': ...}.",
         "Say: --columns polyline=NAME or --columns lat=NAME,lon=NAME."),
        (["roads", "match"], "Read them with read_trips(..., swap=True).", "Read them with --swap."),
        (["roads", "match"], "3 skipped. See Trips.skipped and Trips.notes.", "3 skipped."),
        (["roads", "match"], "step_s must be positive", "--step must be positive"),
        (["roads", "match"], "method must be hmm; no method is magic", "--method must be hmm; no method is magic"),
        (["roads", "match"], "step_s.csv and a/step_s are files", "step_s.csv and a/step_s are files"),
        (["roads", "fit"], "by_driver needs groups", "--by-driver needs groups"),
        (["roads", "fit"], "Give a file that RoadNetwork.save or `limiirl roads build` wrote.",
         "Give a file that `limiirl roads build` wrote."),
        (["roads", "build"], "pass nodes=, a CSV file", "pass --nodes, a CSV file"),
        (["roads", "build"], "Pass component=None to keep everything, or u_turns='dead_ends'.",
         "Pass --component all to keep everything, or --u-turns."),
        (["fit"], "Unset it, or use device='cpu'.", "Unset it, or use --device cpu."),
        (["fit"], "workers must be at least 1, or None; got 0.", "--workers must be at least 1; got 0."),
        (["stream", "fit"], "Give a folder that write_features wrote.",
         "Give a folder that `limiirl stream features` wrote."),
        (["roads", "demo"], "n_drivers must be", "--drivers must be"),
        (["roads", "fit"], "It must lie in (0, 1]; gamma is 7.0.", "It must lie in (0, 1]; --gamma is 7.0."),
        # Of SigmaGIRL, whose discount is no option.
        (["fit"], "gamma must be above 0", "gamma must be above 0"),
        (["roads", "fit"], "trips must be longer; method x", "trips must be longer; method x"),
        # A command that has no such option says what the library says.
        (["roads", "build"], "step_s must be positive; swap=True", "step_s must be positive; swap=True"),
        (["roads"], "n_intents must be", "n_intents must be"),
        (["nonsense"], "n_intents must be", "n_intents must be"),
        ([], "n_intents must be", "n_intents must be"),
    ],
)  # fmt: skip
def test_advice_is_in_the_words_of_the_command(words, said, typed):
    assert in_options(said, options_of(GROUP, words)) == typed


def test_options_are_those_of_the_command_that_was_typed():
    assert "--columns" in options_of(GROUP, ["roads", "match", "town.npz", "--columns", "fit"])
    assert "--columns" not in options_of(GROUP, ["roads", "fit", "match"])
    assert "--version" in options_of(GROUP, ["--version"])


def test_every_option_that_is_advised_exists():
    commands = [["fit"], ["stream", "fit"], *(["roads", name] for name in ("build", "match", "fit", "demo"))]
    options = set().union(*(options_of(GROUP, words) for words in commands))
    advised = {option for option, _, _ in _ADVICE} | set(_PARAMETERS.values()) | {f"--{name}" for name in _FIRST}
    assert advised <= options
    for _, _, words in _ADVICE:
        assert set(re.findall(r"--[a-z-]+", words)) <= options


def no_gpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMIIRL_GPU", "off")
        choose_device("gpu", 0)


def provoked(folder):
    """Return calls of the library, each of which says something that a command may have to say in other words."""
    street = RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0], u_turns=True)
    trip = Trips.from_lists([[41.151, 41.152, 41.153]], [[-8.63] * 3])
    back_and_forth = Demonstrations.from_lists([[0, 1], [1, 0]])

    def file(name, text):
        (folder / name).write_text(text)
        return folder / name

    node, way = '<node id="{0}" lat="41.0{0}" lon="-8.0"/>', '<way id="1"><nd ref="5"/><nd ref="6"/>{}</way>'
    tags = '<tag k="highway" v="road"/><tag k="oneway" v="yes"/>'
    one_way = file("a.osm", f"<osm>{node.format(5)}{node.format(6)}{way.format(tags)}</osm>")
    broken = file("skipped.csv", 'TRIP_ID,POLYLINE\n1,"[[-8.63,41.15],[-8.63,41.16]]"\n2,"[]"\n')
    swapped = file("swapped.csv", 'TRIP_ID,POLYLINE\n1,"[[41.15,98.63],[41.15,98.63]]"\n')
    city = City(seed=1, radius_km=0.8)
    return [
        lambda: fit_drivers(street, back_and_forth, "many"),
        lambda: fit_drivers(street, back_and_forth, 1, by_driver=True),
        lambda: fit_drivers(street, back_and_forth, 1, model="Magic"),
        lambda: fit_drivers(street, back_and_forth, 1, features="all"),
        lambda: fit_drivers(street, back_and_forth, 1, features="plain", random_state=-1),
        lambda: fit_drivers(street, back_and_forth, 2, features="plain", init="kmeens"),
        lambda: fit_drivers(street, back_and_forth, 1, features="plain", gamma=7.0),
        lambda: fit_drivers(street, back_and_forth, 1, model="DestinationMaxEnt", features="plain", gamma=0.9),
        lambda: read_trips(broken, step_s=0.0),
        lambda: read_trips(broken, columns={"nobody": "x"}),
        lambda: read_trips(file("names.csv", "a,b\n1,2\n")),
        lambda: read_trips(file("doubt.csv", "id,lat,lon\n1,41.15,-8.63\n")),
        lambda: read_trips(broken),
        lambda: read_trips(swapped),
        lambda: match(street, trip, sigma_m=-1.0),
        lambda: match(street, trip, "magic"),
        lambda: match(street, trip, "particles", seed=-1),
        lambda: City(radius_km=99.0),
        lambda: City(seed=-1),
        lambda: city.drive(0, 1),
        lambda: city.drive(1, 0),
        lambda: record(city.network, Demonstrations.from_lists([[0]]), noise_m=-1.0),
        lambda: build(one_way),
        lambda: build(one_way, u_turns="always"),
        lambda: build(one_way, component="x"),
        lambda: build(one_way, component=None, centre=(99.0, 0.0)),
        lambda: build(file("ways.jsonl", "")),
        lambda: RoadNetwork.load(broken),
        lambda: Matches.load(broken),
        lambda: IntentMixture.load(folder),
        lambda: FeatureStore.open(folder),
        lambda: _enough_drawn(1, 3),
        lambda: Executor(workers=0),
        lambda: choose_device("tpu", 0),
        no_gpu,
    ]


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """What the library says of each of these, the errors and the warnings."""
    said = []
    for call in provoked(tmp_path_factory.mktemp("said")):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                call()
            except LimiirlError as error:
                said.append(str(error))
        said += [str(warning.message) for warning in warned]
    return said


@pytest.mark.parametrize(
    "pattern",
    [*(_WORD.format(name) for name in _PARAMETERS), *(found for _, found, _ in _ADVICE), *(p for p, _ in _WRITERS)],
)
def test_what_is_reworded_is_still_said_somewhere(messages, pattern):
    assert [message for message in messages if re.search(pattern, message)]


@pytest.mark.parametrize("word", _FIRST)
def test_what_begins_a_message_still_does(messages, word):
    assert [message for message in messages if message.startswith(f"{word} ")]


def test_a_missing_folder_is_named_and_not_a_file_that_nobody_knows(tmp_path):
    with pytest.raises(FileNotFoundError) as found, atomic_write(tmp_path / "nowhere" / "a.npz"):
        pass
    assert found.value.filename == str(tmp_path / "nowhere")
