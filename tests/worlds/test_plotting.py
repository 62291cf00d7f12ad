"""Plots of the worlds, read back from the figure."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from limiirl import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.worlds import WORLDS, ElementWorld, IntentWorld, ObjectWorld, PuddleWorld, SyntheticWorld
from limiirl.worlds.plotting import HUES, INTENTS
from tests.helpers import raises


def axes() -> Axes:
    return Figure().add_subplot()


def walks(ax: Axes) -> dict[str, LineCollection]:
    """The walks by the name of their intent."""
    return {
        str(c.get_label()): c
        for c in ax.collections
        if isinstance(c, LineCollection) and not str(c.get_label()).startswith("_")
    }


def legend(ax: Axes) -> list[str]:
    box = ax.get_legend()
    assert box is not None
    return [text.get_text() for text in box.get_texts()]


@pytest.mark.parametrize("name", WORLDS)
def test_walks_are_coloured_by_intent(name: str) -> None:
    world: IntentWorld = WORLDS[name]()
    demos, labels = world.sample(30, seed=1)
    ax = world.plot(ax=axes(), demos=demos)
    K = world.ensemble.n_intents
    drawn = walks(ax)
    assert list(drawn) == [f"intent {k}" for k in range(K)]
    assert legend(ax)[-K:] == list(drawn)
    for k, lines in enumerate(drawn.values()):
        assert {to_hex(colour) for colour in lines.get_colors()} == {INTENTS[k]}
        if name != "ElementWorld":  # whose walks are cut where they wrap around
            assert len(lines.get_segments()) == np.count_nonzero(labels == k)


@pytest.mark.parametrize("name", WORLDS)
def test_labels_may_be_responsibilities(name: str) -> None:
    world: IntentWorld = WORLDS[name]()
    demos, labels = world.sample(12, seed=1)
    U = np.full((12, 5), 0.1)
    U[np.arange(12), 4 - labels] = 0.6
    drawn = walks(world.plot(ax=axes(), demos=demos, labels=U))
    assert list(drawn) == [f"intent {4 - k}" for k in reversed(range(world.ensemble.n_intents))]
    # The colour is the intent's own, though intents 0 and 1 have no walks.
    assert to_hex(drawn["intent 4"].get_colors()[0]) == INTENTS[4]


def test_walks_without_labels_have_one_colour() -> None:
    world = PuddleWorld()
    demos, _ = world.sample(7)
    ax = world.plot(ax=axes(), demos=demos.replace(labels=None))
    assert list(walks(ax)) == ["demonstrations"]
    assert len(walks(ax)["demonstrations"].get_segments()) == 7
    assert list(walks(world.plot(ax=axes(), demos=demos, labels=["b", "a"] * 3 + ["a"]))) == ["intent a", "intent b"]


def test_line_of_a_walk_passes_through_its_cells() -> None:
    world = PuddleWorld()
    demos, _ = world.sample(20, seed=2)
    (lines,) = walks(world.plot(ax=axes(), demos=demos.replace(labels=None))).values()
    shifts = []
    for i, line in enumerate(lines.get_segments()):
        cells = np.array([world.cell(int(s)) for s in demos.states[demos.offsets[i] : demos.offsets[i + 1]]])
        shift = line - (cells[:, ::-1] + 0.5)
        np.testing.assert_allclose(shift, np.tile(shift[0], (len(cells), 1)), rtol=0.0, atol=1e-12)
        shifts.append(shift[0])
    assert np.abs(shifts).max() < 0.3  # within the cell
    assert len({tuple(np.round(shift, 6)) for shift in shifts}) == 20  # distinct shifts


def test_walk_around_the_cylinder_is_split_at_the_border() -> None:
    world = ElementWorld(wind=0.0)
    states = [world.state(row, 1) for row in (7, 8, 0, 1, 0, 8)]
    demos = Demonstrations.from_lists([states])
    ax = world.plot(ax=axes(), demos=demos)
    (lines,) = walks(ax).values()
    pieces = [np.rint(piece[:, 1] - 0.5).astype(int).tolist() for piece in lines.get_segments()]
    assert pieces == [[7, 8, 9], [-1, 0, 1, 0, -1], [9, 8]]
    for piece in lines.get_segments():
        assert np.abs(np.diff(piece, axis=0)).max() <= 1.0 + 1e-12  # no line across the picture
    assert ax.get_ylim() == (9, 0)
    assert ax.get_xlim() == (0, 6)


def test_cells_are_faded_below_walks() -> None:
    world = ElementWorld(seed=2)
    demos, _ = world.sample(5)
    bright, faded = (
        np.asarray(world.plot(ax=axes(), **kind).collections[0].to_rgba(np.arange(5)))[:, :3]  # type: ignore[arg-type]
        for kind in ({}, {"demos": demos})
    )
    np.testing.assert_allclose(1.0 - faded, 0.5 * (1.0 - bright), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("name", WORLDS)
def test_rewards_are_shown_with_a_colour_bar(name: str) -> None:
    world: IntentWorld = WORLDS[name]()
    theta = world.ensemble.thetas[0]
    demos, _ = world.sample(6)
    for kind in ({}, {"demos": demos}):
        ax = world.plot(theta, ax=axes(), **kind)  # type: ignore[arg-type]
        shown = [np.asarray(c.get_array()).ravel() for c in ax.collections if c.get_array() is not None]
        assert len(shown) == 1
        np.testing.assert_array_equal(shown[0], world.mdp.rewards(theta)[0][:, 0])
        assert [a.get_ylabel() for a in ax.figure.axes if a is not ax] == ["reward"]


def test_puddles_and_goal() -> None:
    world = PuddleWorld(seed=1)
    ax = world.plot(ax=axes())
    np.testing.assert_array_equal(np.asarray(ax.collections[0].get_array()).reshape(5, 5), world.grid)
    assert legend(ax) == ["dry", "puddle", "goal"]
    assert " ".join(text.get_text() for text in ax.texts) == " ".join(str(world).split())


def test_objects_are_drawn_as_two_discs() -> None:
    world = ObjectWorld(seed=1)
    ax = world.plot(ax=axes())
    assert legend(ax) == ["field", "colour A", "colour B", "colour C"]
    drawn = {
        (round(float(y) - 0.5), round(float(x) - 0.5), line.get_markersize(), to_hex(line.get_color()))
        for line in ax.lines
        for x, y in zip(*line.get_data(), strict=True)
    }
    big, small = sorted({size for _, _, size, _ in drawn}, reverse=True)
    things = list(zip(*world.objects, strict=True))
    expected = {(r, c, big, HUES[o]) for r, c, o, _ in things} | {(r, c, small, HUES[i]) for r, c, _, i in things}
    assert drawn == expected


def test_layers_are_drawn_as_columns_of_discs() -> None:
    world = SyntheticWorld(n_states=24, horizon=5)
    ax = world.plot(ax=axes())
    moves, discs = ax.collections
    places = np.asarray(discs.get_offsets())
    np.testing.assert_array_equal(places[:, 0], np.repeat(np.arange(6), [5, 5, 5, 4, 4, 1]))
    assert len(np.unique(places, axis=0)) == 24
    np.testing.assert_array_equal(np.asarray(discs.get_array())[:-1], world.kinds)
    pairs = {(int(s), int(t)) for s, t in zip(world.mdp.src, world.mdp.dst, strict=True)}
    assert len(moves.get_paths()) == len(pairs)
    assert [text.get_text() for text in ax.texts] == list(world.signs)
    assert legend(ax) == [*world.feature_names, "end"]


@pytest.mark.parametrize("name", WORLDS)
def test_new_figure_is_transparent(name: str) -> None:
    ax = WORLDS[name]().plot()
    try:
        assert ax.figure.get_facecolor() == (0.0, 0.0, 0.0, 0.0)
        assert ax.get_facecolor() == (0.0, 0.0, 0.0, 0.0)
    finally:
        plt.close(ax.figure)


@pytest.mark.parametrize("name", WORLDS)
def test_invalid_plot_arguments_are_rejected(name: str) -> None:
    world: IntentWorld = WORLDS[name]()
    demos, labels = world.sample(6)
    S = world.mdp.n_states
    with raises(InvalidParameter, parameter="labels", value=(5,)):
        world.plot(ax=axes(), demos=demos, labels=labels[:5])
    with raises(InvalidParameter, parameter="labels"):
        world.plot(ax=axes(), labels=labels)
    with raises(InvalidParameter, parameter="demos", value=S):
        world.plot(ax=axes(), demos=Demonstrations.from_lists([[0, S]]))
    with raises(InvalidParameter, parameter="demos"):
        world.plot(ax=axes(), demos=[[0, 1]])  # type: ignore[arg-type]
    with raises(InvalidParameter, parameter="thetas", value=(99,)):
        world.plot(np.zeros(99), ax=axes())
