"""The labyrinth example: the data, the maze, the exact test, and recovery of the intents of simulated mice."""

import csv
from collections.abc import Callable
from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.neighbors import NearestCentroid

import limiirl as ll
from examples.mouse_labyrinth import __main__ as command
from examples.mouse_labyrinth import drawing, maze, page, prediction, recordings, simulated, study
from limiirl._parallel import one_thread

GAMMA = 0.8
SMALL = study.Settings(most=3, per_mouse=40, folds=2, resamples=0, models=False, check=False, tol=0.03)


@pytest.fixture(scope="module")
def mice() -> recordings.Recordings:
    return simulated.simulate(GAMMA, n_mice=4, n_bouts=15, seed=3)


@pytest.fixture(scope="module")
def findings(mice: recordings.Recordings) -> study.Findings:
    return study.run(mice, SMALL, lambda text: None)


def make_prediction(
    right: list[bool], name: str = "x", p_exact: float = 0.5, p_within: float = 0.5
) -> prediction.Prediction:
    labels = np.arange(len(right)) % 2 == 0
    return prediction.Prediction(name, labels == np.array(right), labels, (0, 9), p_exact, 70, p_within, 35)


class TestMaze:
    def test_steps_are_all_arrivals_at_junctions_and_the_home(self):
        mdp = maze.steps_mdp(GAMMA)
        came = [(int(maze.came_from(s)), int(maze.node_of(s))) for s in range(maze.HOME)]
        junctions = range(maze.N_JUNCTIONS)
        above = [(-1 if n == 0 else (n - 1) // 2, n) for n in junctions]
        below = [(child, n) for n in junctions for child in (2 * n + 1, 2 * n + 2)]
        assert sorted(came) == sorted(above + below)
        assert np.flatnonzero(mdp.terminal).tolist() == [maze.HOME]
        assert mdp.n_edges == 3 * maze.HOME

    def test_moves_leave_the_junction_at_which_the_last_one_arrived(self):
        src, dst = maze.moves()
        here, dead_end = maze.node_of(src), maze.came_from(dst) >= maze.N_JUNCTIONS
        left = np.where(dead_end, maze.parent(maze.came_from(dst)), maze.came_from(dst))
        np.testing.assert_array_equal(left, here)
        assert len(set(zip(src.tolist(), dst.tolist(), strict=True))) == src.size

    def test_nodes_come_back_from_steps(self):
        bout = [0, 2, 5, 12, 25, 52, 105, 52, 106, 52, 25, 12, 5, 2, 0]
        states = maze.steps_of(bout)
        assert states.tolist() == [0, 2, 5, 12, 25, 52, 167, 168, 114, 87, 74, 67, 64, maze.HOME]
        assert maze.nodes_of(states).tolist() == bout
        assert maze.steps_of([0]).tolist() == [0, maze.HOME]

    def test_habits_are_those_of_a_junction_seen_from_a_branch(self):
        # Up from node 3 to node 1: back into 3 is turning round, into 4 is across, up to 0 is neither.
        src, dst = maze.moves()
        at = src == maze.N_JUNCTIONS + 3 - 1
        habits = {int(d): h.tolist() for d, h in zip(dst[at], maze.habits(src, dst)[at], strict=True)}
        assert habits == {3: [1.0, 0.0], 4: [0.0, 1.0], maze.N_JUNCTIONS: [0.0, 0.0]}
        # Down into node 3: only back up is a habit.
        at = src == 3
        habits = {int(d): h.tolist() for d, h in zip(dst[at], maze.habits(src, dst)[at], strict=True)}
        assert habits == {7: [0.0, 0.0], 8: [0.0, 0.0], maze.N_JUNCTIONS + 3 - 1: [1.0, 0.0]}

    def test_into_a_dead_end_again_is_turning_round(self):
        src, dst = maze.moves()
        again = maze.habits(src, dst)[(src == dst)]
        np.testing.assert_array_equal(again, np.tile([1.0, 0.0], (64, 1)))

    @pytest.mark.parametrize("bout", [[0, 3, 0], [1, 0], [0, 1], [0, 127, 0], [0, -1, 0]])
    def test_illegal_bouts_are_detected(self, bout: list[int]):
        assert not maze.legal(bout)
        assert maze.legal([0, 1, 3, 1, 0])

    def test_reward_map_is_what_the_mdp_pays(self):
        mdp = maze.steps_mdp(GAMMA)
        theta = np.random.default_rng(0).normal(size=mdp.n_features)
        paid = np.asarray(mdp.state_features) @ theta[:-2]
        np.testing.assert_allclose(maze.visit_matrix() @ maze.reward_map(theta), paid, atol=1e-12)


class TestRecordings:
    def test_data_agree_with_their_readme(self, shared_data: Callable[[str], Path]):
        recorded = recordings.read(shared_data("mouse_labyrinth"))
        assert (len(recorded.bouts), recorded.n_visits, recorded.left_out) == (3318, 286360, ("D6",))
        assert max(map(len, recorded.bouts)) == 4553
        restricted = [name for name in recorded.mice if recorded.restricted[name]]
        assert restricted == ["B1", "B2", "B3", "B4", "C1", "C3", "C6", "C7", "C8", "C9"]
        assert len(recorded.mice) == 19
        batches = {str(b): recorded.labels[recorded.batches == b].tolist() for b in np.unique(recorded.batches)}
        assert batches == {"B": [True] * 4 + [False] * 3, "C": [True] * 6, "D": [False] * 6}
        visits = [
            sum(int(np.sum(b == maze.WATER)) for b in np.array(recorded.bouts, dtype=object)[recorded.mouse == m])
            for m in recorded.mice
        ]
        assert (min(np.array(visits)[recorded.labels]), max(np.array(visits)[recorded.labels])) == (81, 400)
        assert (min(np.array(visits)[~recorded.labels]), max(np.array(visits)[~recorded.labels])) == (9, 202)

    @pytest.mark.smoke
    def test_every_recorded_move_is_possible(self, shared_data: Callable[[str], Path]):
        recorded = recordings.read(shared_data("mouse_labyrinth"))
        pieces = recordings.cut(recorded, 20)
        assert pieces.demos().steps(maze.steps_mdp(GAMMA)).n_transitions == pieces.moves.sum()

    def test_the_maze_lies_where_the_readme_draws_it(self, shared_data: Callable[[str], Path]):
        with (shared_data("mouse_labyrinth") / "node_xy.csv").open(newline="", encoding="utf-8") as file:
            xy = [[float(row["x"]), float(row["y"])] for row in csv.DictReader(file)]
        np.testing.assert_array_equal(maze.h_tree(), xy)

    @pytest.mark.parametrize("length", [1, 7, 20, 10_000])
    def test_cutting_keeps_every_visit(self, mice: recordings.Recordings, length: int):
        pieces = recordings.cut(mice, length)
        assert pieces.moves.max() <= length
        assert pieces.moves.min() >= 1
        for i, nodes in enumerate(mice.bouts):
            own = [pieces.states[j] for j in np.flatnonzero(pieces.bout == i)]
            assert all(a[-1] == b[0] for a, b in pairwise(own))
            joined = np.concatenate([own[0][:1], *(piece[1:] for piece in own)])
            np.testing.assert_array_equal(maze.nodes_of(joined), nodes)
            assert set(pieces.mouse[pieces.bout == i]) == {mice.mouse[i]}

    def test_a_jump_is_named_with_its_line(self, tmp_path: Path):
        (tmp_path / "bouts.csv").write_text("mouse,water_restricted,bout,nodes\nA,1,0,0 1 0\nA,1,1,0 5 0\n")
        with pytest.raises(ll.errors.InvalidDemos, match="line 3"):
            recordings.read(tmp_path)


class TestPrediction:
    @pytest.mark.parametrize("seed", range(3))
    def test_exact_p_is_that_of_trying_every_order(self, seed: int):
        rng = np.random.default_rng(seed)
        points, labels = rng.normal(size=(6, 2)), np.array([True, True, True, False, False, False])
        points[labels] += 0.8
        strata = np.array(["B", "B", "C", "B", "B", "C"])

        def right(given: np.ndarray) -> int:
            hits = 0
            for i in range(6):
                others = np.arange(6) != i
                predicted = NearestCentroid().fit(points[others], given[others]).predict(points[i : i + 1])[0]
                hits += int(predicted == given[i])
            return hits

        orders = sorted(set(permutations(labels.tolist())))
        with one_thread():  # six points are too few for several threads
            every = np.array([right(np.array(order)) for order in orders])
        own = every[orders.index(tuple(labels.tolist()))]
        result = prediction.predict("x", points, labels, strata)
        assert result.n_right == own
        assert result.p_exact == pytest.approx(np.mean(every >= own), abs=1e-12)
        low, high = result.by_chance
        assert np.mean(every < low) <= 0.05 <= np.mean(every <= low)
        assert np.mean(every < high) <= 0.95 <= np.mean(every <= high)
        assert result.n_labelings == 20
        # Batch B keeps two of its four labels, batch C one of its two.
        within = np.array([sum(np.array(order)[strata == "B"]) == 2 for order in orders])
        assert result.p_within == pytest.approx(np.mean(every[within] >= own), abs=1e-12)
        assert result.n_within == 6 * 2
        assert prediction.predict("x", points, labels).p_within == result.p_exact

    def test_separable_labels_have_the_smallest_possible_p(self):
        labels = np.arange(8) < 4
        result = prediction.predict("x", np.where(labels, 1.0, 0.0)[:, None], labels)
        assert result.n_right == 8
        # The labeling and its opposite are equally separable.
        assert result.p_exact == pytest.approx(2 / 70, abs=1e-12)

    def test_nothing_is_compared_within_strata_of_one_group_each(self):
        labels = np.arange(8) < 4
        result = prediction.predict("x", np.where(labels, 1.0, 0.0)[:, None], labels, labels)
        assert (result.p_within, result.n_within) == (1.0, 1)

    def test_too_many_labelings_are_rejected(self):
        with pytest.raises(ll.errors.InvalidParameter, match=r"1\.4e\+06 labelings"):
            prediction.predict("x", np.zeros((23, 1)), np.arange(23) < 11)

    @pytest.mark.parametrize(("n_true", "message"), [(0, "none of the 6"), (6, "all of the 6")])
    def test_one_group_alone_is_rejected(self, n_true: int, message: str):
        labels = np.arange(6) < n_true
        with pytest.raises(ll.errors.InvalidParameter, match=message):
            prediction.predict("x", np.zeros((6, 1)), labels)
        with pytest.raises(ll.errors.InvalidParameter, match=message):
            prediction.rank_test(np.zeros(6), labels)

    def test_two_predictions_are_compared_by_an_exact_sign_test(self):
        one, other = (
            make_prediction([True] * 6 + [False] + [True, False]),
            make_prediction([False] * 6 + [True] + [True, False]),
        )
        falls = np.array([sum(f) for f in product([0, 1], repeat=7)])
        expected = np.mean(np.abs(falls - 3.5) >= abs(6 - 3.5))
        assert prediction.compare(one, other) == (6, 1, pytest.approx(expected, abs=1e-12))
        assert prediction.compare(one, one) == (0, 0, 1.0)

    def test_points_may_depend_on_who_is_left_out(self):
        labels = np.array([True, True, False, False])
        good = np.where(labels, 1.0, 0.0)[:, None]
        points = np.stack([good, -good, 5.0 + good, 1.0 - good])
        assert prediction.predict("x", points, labels).n_right == 4
        points[0, 0] = 0.0  # mouse 0 looks like the others where it is left out
        assert prediction.predict("x", points, labels).predicted.tolist() == [False, True, False, False]

    def test_rank_test_is_scipys_over_all_labelings(self):
        values, labels = np.array([0.1, 2.0, 3.5, 1.2, 7.0, 0.4, 5.0]), np.array([0, 1, 1, 0, 1, 0, 0], dtype=bool)
        auc, p = prediction.rank_test(values, labels)
        assert auc == pytest.approx(np.mean(values[labels][:, None] > values[~labels]), abs=1e-12)
        test = stats.permutation_test(
            (values[labels], values[~labels]), lambda a, b: abs(np.mean(a[:, None] > b) - 0.5), alternative="greater"
        )
        assert p == pytest.approx(test.pvalue, abs=1e-9)


class TestSimulatedMice:
    def test_bouts_are_legal_and_every_state_has_an_intent(self, mice: recordings.Recordings):
        assert all(maze.legal(nodes) for nodes in mice.bouts)
        assert [len(i) for i in mice.intents or []] == [len(maze.steps_of(nodes)) for nodes in mice.bouts]
        assert len(study.piece_truth(mice, 20)) == len(recordings.cut(mice, 20).states)

    def test_three_intents_are_recovered_and_reported_on_a_page(self, findings: study.Findings, tmp_path: Path):
        assert findings.selection.recommended == 3
        assert findings.truth["ANID"] < 0.35
        assert findings.truth["pieces with the intent of most of their group"] > 0.85
        np.testing.assert_allclose(findings.shares.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(study.visits(findings.pieces, findings.U).sum(axis=1), 1.0, rtol=1e-12)
        made = page.report(findings, None, "test")
        assert [figure.name for figure in made.figures] == [
            "rewards",
            "visits",
            "criteria",
            "shares",
            "counting",
            "time",
            "bout",
        ]
        assert "compared with the truth: ANID" in page.format_text(findings)
        assert drawing.walls(tmp_path) is None

    def test_no_fit_sees_a_label(self, mice: recordings.Recordings, findings: study.Findings):
        # Other groups than before, and not the opposite ones either.
        others = dict(zip(mice.mice, [False, True, True, True], strict=True))
        again = study.run(
            recordings.Recordings(mice.bouts, mice.mouse, others, (), mice.intents), SMALL, lambda text: None
        )
        np.testing.assert_array_equal(again.U, findings.U)
        np.testing.assert_array_equal(again.shares_without, findings.shares_without)
        assert again.selection.to_dict() == findings.selection.to_dict()
        for name, scores in findings.held_out.items():
            np.testing.assert_array_equal(again.held_out[name], scores)
        assert again.predictions[0].labels.tolist() == list(others.values())


class TestComparisonOfModels:
    @pytest.mark.filterwarnings("ignore::limiirl.errors.IdentifiabilityWarning")
    def test_a_mouse_is_scored_by_a_fit_without_it(self, mice: recordings.Recordings, findings: study.Findings):
        mdp, pieces = maze.steps_mdp(GAMMA), recordings.cut(mice, 20)
        out = pieces.mouse == "S02"
        irl = ll.MaxCausalEnt(ridge=1e-3)
        theta = irl.fit(mdp, pieces.demos()[~out])
        own = pieces.demos()[out]
        expected = np.sum(irl.log_prob(mdp, theta[None], own)[:, 0] - own.log_q(mdp)) / pieces.moves[out].sum()
        assert findings.held_out[study.CHOSEN][1] == pytest.approx(expected, abs=1e-5)
        assert list(findings.held_out) == [study.CHOSEN, "3 intents"]

    def test_differences_are_paired_by_mouse(self, findings: study.Findings):
        rows = {name: (own, beyond) for name, own, beyond in page.compare_held_out(findings)}
        difference = findings.held_out["3 intents"] - findings.held_out[study.CHOSEN]
        own, beyond = rows["3 intents"]
        assert own == pytest.approx(findings.held_out["3 intents"].mean(), rel=1e-12)
        test = stats.ttest_1samp(difference, 0.0).confidence_interval(0.99)
        assert (beyond.low, beyond.high) == pytest.approx((test.low, test.high), rel=1e-9)
        assert rows[study.CHOSEN][1].mean == 0.0


class TestVerdicts:
    @pytest.mark.parametrize(
        ("right", "p_exact", "p_within", "expected"),
        [
            (12, 0.0099, 0.0099, ["holds", "holds", "holds"]),
            (12, 0.01, 0.029, ["open", "open", "holds"]),
            (7, 0.001, 0.029, ["holds", "open", "open"]),
            (0, 0.9, 0.9, ["open", "open", "open"]),
        ],
    )
    def test_verdicts_without_significance_are_open(
        self, right: int, p_exact: float, p_within: float, expected: list[str]
    ):
        counted = make_prediction([False] * 12)
        best = make_prediction([i < right for i in range(12)], p_exact=p_exact, p_within=p_within)
        assert [callout.verdict for callout in page.verdicts(best, counted)] == expected


def test_without_the_data_the_error_names_their_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        command.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")])
    message = capsys.readouterr().err
    assert "no bouts.csv" in message
    assert "Rosenberg" in message
