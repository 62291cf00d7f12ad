"""The synthetic city: blocks, twins, ring, river and turns as documented, and legal trips."""

import itertools

import networkx as nx
import numpy as np
import pytest
import shapely

from limiirl import roads
from limiirl.errors import InvalidParameter
from limiirl.roads.synthetic.city import CENTRE, FEATURES, STYLES
from tests.helpers import raises

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module", params=SEEDS)
def city(request):
    return roads.City(seed=request.param)


@pytest.fixture(scope="module")
def driven():
    city = roads.City(seed=0)
    return city, city.drive(12, 4, seed=3)


def of_class(network, *names):
    return np.isin(np.array(network.class_names)[network.road_class], names)


def lines(network, chosen):
    ends = np.stack([network.node_xy[network.tail[chosen]], network.node_xy[network.head[chosen]]], axis=1)
    return shapely.linestrings(ends)


def streets_at_nodes(network):
    """Return the number of streets at each node, in either direction."""
    pairs = np.unique(np.sort(np.stack([network.tail, network.head], axis=1), axis=1), axis=0)
    return np.bincount(pairs.ravel(), minlength=network.n_nodes)


class TestMap:
    def test_is_the_same_every_time_and_another_for_another_seed(self):
        first, again, other = roads.City(seed=4), roads.City(seed=4), roads.City(seed=5)
        assert first.network == again.network
        np.testing.assert_array_equal(first.places, again.places)
        assert first == again
        assert first.network != other.network

    def test_size(self, city):
        assert 2000 <= city.network.n_segments <= 5000
        width = np.ptp(city.network.node_xy, axis=0)
        assert np.all((width > 4000.0) & (width < 5500.0))
        assert roads.City(seed=0, radius_km=1.0).network.n_segments < 1500

    def test_network_is_strongly_connected_without_u_turns(self, city):
        network = city.network
        graph = nx.DiGraph(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True))
        assert graph.number_of_nodes() == network.n_segments
        assert nx.is_strongly_connected(graph)
        assert not np.any(network.head[network.turn_to] == network.tail[network.turn_from])

    def test_blocks_have_sides_of_at_most_120_m(self, city):
        local = of_class(city.network, "tertiary", "residential")
        assert city.network.length_m[local].max() <= 120.0
        assert 60.0 < np.median(city.network.length_m[local]) < 110.0

    def test_avenues_have_two_opposite_roadways_30_m_apart(self, city):
        network = city.network
        avenue = np.flatnonzero(of_class(network, "primary"))
        # Connectors between the roadways belong to the cross streets, or to the other avenue where the two meet.
        avenue = avenue[network.length_m[avenue] > 50.0]
        assert np.all(network.opposite[avenue] == -1)
        middle = (network.node_xy[network.tail[avenue]] + network.node_xy[network.head[avenue]]) / 2.0
        opposed = np.abs((network.bearing[avenue][:, None] - network.bearing[avenue]) % 360.0 - 180.0) < 15.0
        apart = np.where(opposed, shapely.distance(shapely.points(middle)[:, None], lines(network, avenue)), np.inf)
        nearest = apart.min(axis=1)
        assert np.mean((nearest > 26.0) & (nearest < 34.0)) > 0.9

    def test_service_roads_run_30_m_beside_secondary_roads(self, city):
        network = city.network
        major, local = (np.flatnonzero(of_class(network, name)) for name in ("secondary", "residential"))
        middle = (network.node_xy[network.tail[local]] + network.node_xy[network.head[local]]) / 2.0
        along = np.abs((network.bearing[local][:, None] - network.bearing[major] + 90.0) % 180.0 - 90.0) < 10.0
        apart = np.where(along, shapely.distance(shapely.points(middle)[:, None], lines(network, major)), np.inf)
        beside = apart.min(axis=1)
        assert np.sum((beside > 26.0) & (beside < 34.0)) > 30
        assert beside.min() > 24.0

    def test_ring_is_two_closed_roadways_the_outer_one_anticlockwise(self, city):
        network = city.network
        graph = nx.DiGraph()
        for s in np.flatnonzero(of_class(network, "motorway")):
            graph.add_edge(int(network.tail[s]), int(network.head[s]))
        roadways = sorted(nx.simple_cycles(graph), key=len)
        areas = [float(shapely.LinearRing(network.node_xy[nodes]).is_ccw) for nodes in roadways]
        sizes = [shapely.Polygon(network.node_xy[nodes]).area for nodes in roadways]
        assert len(roadways) == 2
        assert areas[int(np.argmax(sizes))] == 1.0
        assert areas[int(np.argmin(sizes))] == 0.0
        inner, outer = (shapely.LinearRing(network.node_xy[roadways[k]]) for k in np.argsort(sizes))
        gap = shapely.distance(shapely.points(np.array(outer.coords)), inner)
        assert gap.min() > 28.0
        assert gap.max() < 31.0
        streets = lines(network, np.flatnonzero(of_class(network, "tertiary", "residential")))
        assert shapely.Polygon(inner.coords).contains(streets).all()

    def test_the_ring_is_entered_and_left_by_slip_roads_alone(self, city):
        network = city.network
        motorway, link = of_class(network, "motorway"), of_class(network, "motorway_link")
        onto = motorway[network.turn_to] & ~motorway[network.turn_from]
        off = motorway[network.turn_from] & ~motorway[network.turn_to]
        assert np.all(link[network.turn_from[onto]])
        assert np.all(link[network.turn_to[off]])
        assert onto.sum() == off.sum() >= 10
        # No turn leads from the ring directly back to it.
        both = link[network.turn_from] & link[network.turn_to]
        assert np.all(streets_at_nodes(network)[network.head[network.turn_from[both]]] == 2)

    def test_few_bridges_and_only_of_main_roads(self, city):
        network = city.network
        river = shapely.LineString(network.plane.xy(*city.river.T))
        over = shapely.intersects(lines(network, np.arange(network.n_segments)), river)
        assert not np.any(over & of_class(network, "tertiary", "residential"))
        assert 4 <= np.sum(over & of_class(network, "primary", "secondary")) <= 20
        assert np.sum(over & of_class(network, "motorway")) == 4

    def test_one_way_streets_bends_forbidden_turns_and_unknown_values(self, city):
        network = city.network
        local = of_class(network, "residential")
        assert 0.1 < np.mean(network.opposite[local] == -1) < 0.5
        bends = streets_at_nodes(network)[network.head[network.turn_from]] == 2
        assert np.sum(bends & (np.abs(network.turn_angle) > 5.0) & local[network.turn_from]) > 50
        allowed = roads.RoadNetwork.from_segments(network.lat, network.lon, network.tail, network.head)
        assert 0 < allowed.n_turns - network.n_turns < 0.05 * network.n_turns
        assert 0.05 < np.mean(np.isnan(network.speed_kmh[local])) < 0.4
        assert 0.3 < np.mean(np.isnan(network.lanes)) < 0.9
        assert np.nanmin(network.speed_kmh[of_class(network, "motorway")]) > np.nanmax(network.speed_kmh[local])

    def test_attributes_are_constant_within_an_osm_way(self, city):
        network = city.network
        for values in (network.road_class, np.nan_to_num(network.speed_kmh), np.nan_to_num(network.lanes)):
            pairs = np.unique(np.stack([network.way_id, values], axis=1), axis=0)
            assert len(pairs) == np.unique(network.way_id).size

    def test_survives_a_file(self, tmp_path):
        network = roads.City(seed=0, radius_km=0.8).network
        network.save(tmp_path / "city.npz")
        assert roads.RoadNetwork.load(tmp_path / "city.npz") == network

    def test_city_of_numpy_numbers_can_be_saved(self, tmp_path):
        city = roads.City(seed=np.int64(3), radius_km=np.float32(0.8125), n_places=np.int32(5))
        city.network.save(tmp_path / "city.npz")
        assert roads.RoadNetwork.load(tmp_path / "city.npz") == roads.City(3, 0.8125, 5).network

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"seed": -1}, {"parameter": "seed", "value": -1}),
            ({"radius_km": 0.1}, {"parameter": "radius_km", "value": 0.1}),
            ({"radius_km": float("nan")}, {"parameter": "radius_km"}),
            ({"n_places": 1}, {"parameter": "n_places", "value": 1}),
            ({"n_places": 10**5, "radius_km": 0.8}, {"parameter": "n_places", "value": 100000}),
        ],
    )
    def test_invalid_input_is_rejected(self, settings, expected):
        with raises(InvalidParameter, **expected):
            roads.City(**settings)


class TestFeatures:
    def test_names_and_numbers(self, city):
        network, mdp = city.network, city.mdp
        assert mdp.feature_names == FEATURES == city.features.names
        assert (mdp.n_states, mdp.n_edges) == (network.n_segments, network.n_turns)
        assert city.ensemble.thetas.shape == (3, len(FEATURES))
        assert city.styles == tuple(STYLES)

    def test_centre(self, city):
        network = city.network
        km = np.asarray(city.features.extra["km in the centre"])
        far, centre_m = np.hypot(*network.node_xy.T)[network.tail], 1000.0 * CENTRE * city.radius_km
        assert 850.0 < centre_m < 950.0
        assert np.all(km[far > centre_m + 150.0] == 0.0)
        np.testing.assert_allclose(
            km[far < centre_m - 150.0], network.length_m[far < centre_m - 150.0] / 1e3, rtol=1e-12
        )

    def test_paper_features_in_the_city(self, city):
        assert city.network.mdp("paper").n_features == 24


class TestDrivers:
    def test_same_seed_same_trips(self):
        city = roads.City(seed=1, radius_km=1.2)
        first, again, other = (city.drive(4, 3, seed=seed) for seed in (7, 7, 8))
        assert first.demos == again.demos
        assert first.demos != other.demos

    def test_trips_are_legal_and_long_enough(self, driven):
        city, result = driven
        network = city.network
        turns = set(zip(network.turn_from.tolist(), network.turn_to.tolist(), strict=True))
        for demo in result.demos:
            path = demo.states.tolist()
            assert len(path) >= 10
            assert all(pair in turns for pair in itertools.pairwise(path))
            assert path[-1] in city.places
            assert path.index(path[-1]) == len(path) - 1

    def test_one_style_and_one_home_per_driver(self, driven):
        city, result = driven
        np.testing.assert_array_equal(result.demos.groups, np.repeat(np.arange(12), 4))
        np.testing.assert_array_equal(result.demos.labels, result.style[result.demos.groups])
        starts = result.demos.states[result.demos.offsets[:-1]]
        np.testing.assert_array_equal(starts[::2], result.home[result.demos.groups[::2]])
        assert np.all(np.isin(starts[1::2], city.places))
        np.testing.assert_array_equal(np.bincount(result.style), [4, 5, 3])

    def test_homes_are_not_on_the_ring_road(self, driven):
        city, result = driven
        addresses = np.concatenate([result.home, city.places])
        assert not np.any(of_class(city.network, "motorway", "motorway_link")[addresses])

    def test_styles_differ_and_overlap(self):
        city = roads.City(seed=0)
        result = city.drive(30, 6, seed=1)
        counts = result.demos.features(city.mdp)
        motorway, avenue, street, central = (
            np.array([counts[result.demos.labels == k, j].mean() for k in range(3)]) for j in range(4)
        )
        assert motorway[0] > 1.0 > 10.0 * max(motorway[1], motorway[2])
        assert street[1] > 2.0 * max(street[0], street[2])
        assert central[2] < 0.5 * min(central[0], central[1])
        # Most trips of the style "ring road" do not use the ring: the routes of the styles overlap.
        assert 0.2 < np.mean(counts[result.demos.labels == 0, 0] > 0.1) < 0.8
        assert avenue.min() > 0.5

    def test_invalid_input_is_rejected(self):
        city = roads.City(seed=0, radius_km=0.8)
        with raises(InvalidParameter, parameter="n_drivers", value=0):
            city.drive(0)
        with raises(InvalidParameter, parameter="trips_each", value=0):
            city.drive(2, 0)
