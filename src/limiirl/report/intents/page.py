"""The page on a fitted mixture of intents."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._progress import Progress
from limiirl._typing import FloatArray
from limiirl._version import __version__
from limiirl.errors import InvalidParameter
from limiirl.mixture import Selection
from limiirl.report.document import Callout, Code, Facts, Figure, Fold, Item, Report, Section, Text
from limiirl.report.figures import Plot
from limiirl.report.figures import fits as figures
from limiirl.report.intents.cautions import cautions, next_steps
from limiirl.report.intents.view import SURE, Contrasts, IntentsView, make_view, sampling_distance, total_variation
from limiirl.report.intents.words import (
    capitalise,
    count_digits,
    describe,
    describe_rewards,
    describe_visits,
    findings,
    format_rate,
    format_weight,
    reward_claims,
    visit_claims,
)
from limiirl.report.markup import literal
from limiirl.report.page import write
from limiirl.report.tables import Cell, Column, Content, Table, format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from limiirl.metrics import Adequacy, Evaluation

# Largest numbers of rows of the figures and tables.
_FEATURES, _STATES, _RECORDINGS, _UNCERTAIN = 20, 12, 40, 8
# Maximum number of states of an example trajectory in the text, and of intents in the summary.
_WRITTEN, _NAMED = 14, 4
# Number of demonstrations, states and steps with the largest residuals in the table.
_WORST = 5
# A time line requires at least this many demonstrations in some recording.
_LINE = 3
# Minimum number of demonstrations for the figures in the order of the data.
_ORDERED = 40
# Statuses of rewards without a standard error, and the fraction of such rewards above which their figure is collapsed.
_UNDETERMINED, _MOSTLY = ("not identified", "flat", "empty"), 0.5


def intents_report(  # noqa: PLR0913 (the mixture, and independent options with defaults)
    mixture: Any,
    demos: Any = None,
    groups: ArrayLike | None = None,
    *,
    covariates: Any = None,
    title: str | None = None,
    intent_names: Sequence[str] | None = None,
    coordinates: ArrayLike | None = None,
    selection: Selection | None = None,
    evaluation: Evaluation | None = None,
    adequacy: Adequacy | None = None,
    command: str | None = None,
    warned: Sequence[str] = (),
) -> Report:
    """Return the report on a fitted `IntentMixture` or `BayesianIntentMixture`.

    Parameters
    ----------
    mixture : fitted mixture
    demos, groups : Demonstrations or Agents, (N,), optional
        By default the training data, which a mixture loaded from a file does not contain. Other demonstrations are
        assigned to the intents, and the rewards have no standard errors.
    covariates : array or table, optional
        Covariates of the given demonstrations, if the mixture was fitted with covariates.
    title : str, optional
    intent_names : sequence of K strings, optional
        Names of the intents, such as "water" and "exploration".
    coordinates : (S, 2), optional
        Positions of the states; by default, a grid or a layout of the graph is used where it is legible.
    selection : Selection, optional
        Comparison of numbers of intents.
    evaluation : limiirl.metrics.Evaluation, optional
        Scores on held-out demonstrations.
    adequacy : limiirl.metrics.Adequacy, optional
        Residuals and calibration, the result of `limiirl.metrics.check_fit`.
    command : str, optional
        Command line that reproduces the fit.
    warned : sequence of str
        Messages of warnings of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=np.eye(4)[:, 1:3])
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 9 + [[0, 2, 3]] * 3)
    >>> mix = IntentMixture(2, MaxEnt(bounds=(-5, 5)), random_state=0).fit(mdp, demos)
    >>> intents_report(mix).title
    '2 intents behind 12 demonstrations'
    """
    view = make_view(mixture, demos, groups, covariates=covariates, intent_names=intent_names, coordinates=coordinates)
    noted = cautions(view, warned)
    where = visits_section(view)
    sections = [intents_section(view), _sizes_section(view)]
    if where is not None and not has_clear_rewards(view):  # show visits early: they describe the intents
        sections.insert(1, where)
        where = None
    if noted:
        serious = sum(caution.verdict == "problem" for caution in noted)
        lead = (
            "These points limit the interpretation of the results." if serious else "No serious problem was detected."
        )
        sections.append(Section("Cautions", noted, lead=lead))
    optional = (_members_section(view), where, _examples_section(view))
    sections += [section for section in optional if section is not None]
    sections.append(_number_section(view, selection))
    if evaluation is not None:
        sections.append(_evaluation_section(view, evaluation))
    if adequacy is not None:
        sections.append(_adequacy_section(adequacy))
    steps = "\n".join(f"- {step}" for step in next_steps(view, selection, evaluation is not None))
    sections.append(Section("Next steps", [Text(steps)]))
    return Report(
        title or _title(view),
        _lead(view, noted),
        sections,
        methods=describe_methods(view, command),
        highlights=_highlights(view, evaluation),
    )


def write_intents(
    mixture: Any, folder: str | os.PathLike[str], demos: Any = None, progress: Progress | None = None, **options: Any
) -> Path:
    """Write the report on a fitted mixture to a folder, and return the path of its page; see `intents_report`."""
    return write(intents_report(mixture, demos, **options), folder, progress)


def plot_mixture_rewards(
    mixture: Any, demos: Any, groups: ArrayLike | None, covariates: Any, intent_names: Any
) -> Drawing:
    """Return the figure of the rewards; see `IntentMixture.plot`."""
    view = make_view(mixture, demos, groups, covariates=covariates, intent_names=intent_names)
    return draw_rewards(view)[0].figure


def plot_mixture_memberships(
    mixture: Any, demos: Any, groups: ArrayLike | None, covariates: Any, intent_names: Any
) -> Drawing:
    """Return the figure of the posteriors; see `IntentMixture.plot_memberships`."""
    view = make_view(mixture, demos, groups, covariates=covariates, intent_names=intent_names)
    if view.unit_posterior is None:
        message = "demos is required, because a mixture fitted to a stream has no responsibilities."
        raise InvalidParameter(message, parameter="demos")
    drawing: Drawing = figures.plot_memberships(view.unit_posterior, view.names).figure
    return drawing


def has_clear_rewards(view: IntentsView) -> bool:
    """Return True if a reward differs clearly between intents."""
    return any(reward_claims(view, k).n_clear for k in range(view.n_intents))


def count_noun(n: int, noun: str) -> str:
    """Return a number with a plural noun, which loses its s for 1."""
    return f"{n:,} {noun if n != 1 else noun.removesuffix('s')}"


def _title(view: IntentsView) -> str:
    intents = count_noun(view.n_intents, "intents")
    if view.data is None:
        return (
            intents
            if view.unit_posterior is None
            else f"{intents} behind {count_noun(len(view.unit_posterior), view.noun)}"
        )
    n = len(view.units) if view.units is not None else len(view.data)
    return f"{intents} {'behind' if view.trained else 'in'} {count_noun(n, view.noun)}"


def _lead(view: IntentsView, noted: Sequence[Callout]) -> str:
    """Return the summary as prose: serious problems first, then the intents."""
    problems = [f"**{literal(item.title)}.**" for item in noted if item.verdict == "problem"]
    described = any(reward_claims(view, k).n_clear or visit_claims(view, k).n_clear for k in range(view.n_intents))
    if view.n_intents > 1 and not described and np.isfinite(view.rewards.errors).any():
        return " ".join([*problems, "No reward differs between the intents by more than its error."])
    sentences = list(findings(view))
    if len(sentences) > _NAMED:
        sentences = [*sentences[:_NAMED], f"{len(sentences) - _NAMED} smaller intents are described below."]
    return " ".join([*problems, *sentences])


def _highlights(view: IntentsView, evaluation: Evaluation | None) -> dict[str, object]:
    facts: dict[str, object] = {}
    if view.unit_posterior is not None and view.n_intents > 1:
        sure = float(np.mean(view.unit_posterior.max(axis=1) >= SURE))
        facts[f"of the {view.noun} clearly assigned"] = format_percent(sure)
    if evaluation is not None:
        facts["nats per step, held out"] = f"{-evaluation.nll.per_step:.3f}".replace("-", "−")
    facts["intents" if view.n_intents != 1 else "intent"] = view.n_intents
    if view.data is not None:
        facts["agents" if view.mdp is None else "demonstrations"] = f"{len(view.data):,}"
    return facts


def intents_section(view: IntentsView) -> Section:
    """Return the section on the rewards, in words, as a table and as a figure."""
    lines = []
    for k in np.argsort(-view.weights, kind="stable").tolist():
        text = f"**{capitalise(literal(view.names[k]))}** ({format_weight(view, k)}): {describe(view, k)}."
        # Add the visits, unless the list would be long.
        if describe_rewards(view, k) and visit_claims(view, k).claims:
            text += f" It {describe_visits(view, k)}."
        lines.append(f"- {text}")
    items: list[Item] = [Text("\n".join(lines))]
    table = _contrast_table(view)
    items += [] if table is None else [table]
    figure = rewards_figure(view)
    if np.mean(np.isin(view.status, _UNDETERMINED)) > _MOSTLY and not has_clear_rewards(view):
        items.append(Fold("Rewards, most of which the data do not determine", [figure]))
    else:
        items.append(figure)
    items.append(Fold("How to read this section", [Text(_explain_rewards(view))]))
    return Section("Rewards of the intents", items)


def _explain_rewards(view: IntentsView) -> str:
    text = (
        "An intent is a reward function: behaviour that leads to higher rewards is more probable. Rewards have no "
        "unit; compare them between intents, and between features of the same scale. "
    )
    if np.isfinite(view.rewards.errors).any():
        text += (
            "± is one standard error. A difference is called clear, and stated in words, if it is larger than "
            f"{view.rewards.z:.1f} standard errors: the threshold of a joint test at the 5\u00a0% level (Bonferroni). "
            "Differences are ordered by their effect on the likelihood of typical demonstrations. If several are "
            "equally large within their errors, either all of them are named or only their number. "
        )
    else:
        text += "Standard errors of the rewards are not available here, so no reward is stated in words. "
    if view.visits is not None:
        text += (
            "Visits are the percentage of time steps in a state. Differences between visits are tested in the same "
            "way, with errors clustered by recording. Because the same demonstrations define the intents, these "
            "differences describe the intents and do not prove that they exist."
        )
    return text


def _contrast_table(view: IntentsView) -> Table | None:
    single, rows = view.n_intents == 1, []
    for k in np.argsort(-view.weights, kind="stable").tolist():
        for claim in reward_claims(view, k).claims:
            j = claim.index
            value, error = float(view.rewards.values[k, j]), float(view.errors[k, j])
            cells: list[Content] = [view.names[k], claim.name, to_cell(value, error)]
            if not single:
                cells += [
                    Cell.number(claim.other, count_digits(claim.error)),
                    to_cell(claim.difference, claim.error),
                ]
            rows.append(cells)
    if not rows:
        return None
    columns: list[Column | str] = [Column("Intent", "left"), Column("Feature", "left"), "Reward"]
    columns += [] if single else ["Other intents", "Difference"]
    caption = "Clear differences of each intent, largest effect first; ± is one standard error."
    return Table("contrasts", "Largest differences between the rewards", caption, columns, rows)


def to_cell(value: float, error: float) -> Cell:
    """Return a cell with an estimate to two digits of its standard error."""
    if not math.isfinite(error):
        return Cell.number(value, 2)
    return Cell.estimate(value, error, count_digits(error))


def draw_rewards(view: IntentsView) -> tuple[Plot, int]:
    """Return the plot of the rewards with the largest differences, and the number of other rewards per intent."""
    size = np.abs(view.rewards.differences).max(axis=0) * view.scale
    clear = view.rewards.clear.any(axis=0)
    order = np.lexsort((-size, ~clear))
    known = [j for j in order.tolist() if not np.isin(view.status[:, j], _UNDETERMINED).all()]
    order = np.array(known or order.tolist())[:_FEATURES]
    thetas = view.mixture.thetas_
    plot = figures.plot_reward_errors(thetas, view.errors, view.feature_names, view.names, view.status, order)
    return plot, thetas.shape[1] - order.size


def rewards_figure(view: IntentsView) -> Figure:
    """Return the figure of the rewards with the largest differences."""
    plot, left = draw_rewards(view)
    caption = "Features with clear differences come first."
    caption += f" {left} more feature{' is' if left == 1 else 's are'} in the CSV file." if left else ""
    return Figure.from_plot("rewards", "Learned rewards", caption, plot)


def _sizes_section(view: IntentsView) -> Section:
    U = view.unit_posterior
    columns: list[Column | str] = [Column("Intent", "left"), "Weight"]
    columns += [] if U is None else ["Assigned", "Clearly assigned"]
    demos, posterior = view.demos, view.posterior
    behaviour = demos is not None and posterior is not None
    columns += ["Mean steps", "Different states", "Turns back"] if behaviour else []
    labels = None if U is None else U.argmax(axis=1)
    rows: list[list[Content]] = []
    for k in np.argsort(-view.weights, kind="stable").tolist():
        error = float(view.weight_errors[k])
        weight = Cell.percent(float(view.weights[k]), 1)
        if error < 0.5 and view.n_intents > 1:  # a larger one means that the weight is not determined
            text = f"{100.0 * view.weights[k]:.1f} ± {100.0 * error:.1f}\u00a0%"
            weight = Cell(text, value=float(view.weights[k]), half_width=error)
        row: list[Content] = [view.names[k], weight]
        if U is not None and labels is not None:
            own = labels == k
            row += [Cell.count(int(own.sum())), Cell.count(int(np.sum(U[own, k] >= SURE)))]
        if behaviour:
            row += _behaviour(view, k)
        rows.append(row)
    caption = (
        f"*Assigned*: {view.noun} whose most probable intent this is; *clearly*: with a probability of at "
        f"least {SURE:g}."
    )
    if behaviour:
        caption += (
            " Averages are weighted by the posterior probabilities of the demonstrations: number of steps, distinct "
            "states as a percentage of all visits, and percentage of steps that return to the previous state."
        )
    return Section("Sizes of the intents", [Table("sizes", "Intents", caption, columns, rows)])


def _behaviour(view: IntentsView, k: int) -> list[Content]:
    demos, posterior = view.demos, view.posterior
    assert demos is not None  # checked by the caller
    assert posterior is not None
    u = posterior[:, k] / max(float(posterior[:, k].sum()), 1e-300)
    states = view.visited
    pairs = np.column_stack([np.repeat(np.arange(len(demos)), demos.lengths), states])
    distinct = np.bincount(np.unique(pairs, axis=0)[:, 0], minlength=len(demos))
    back = np.zeros(states.size)
    same = (states[2:] == states[:-2]) & (pairs[2:, 0] == pairs[:-2, 0])
    back[2:] = same & (states[1:-1] != states[2:])
    turns = np.add.reduceat(back, demos.offsets[:-1])
    steps = float(u @ demos.lengths)
    return [
        Cell.number(steps, 1),
        Cell.percent(float(u @ distinct) / steps),
        Cell.percent(float(u @ turns) / max(float(u @ np.maximum(demos.lengths - 1, 0)), 1e-300)),
    ]


def _members_section(view: IntentsView) -> Section | None:
    U, posterior = view.unit_posterior, view.posterior
    if U is None or posterior is None or view.n_intents == 1:
        return None
    names = list(view.names)
    sure = int(np.sum(U.max(axis=1) >= SURE))
    lead = (
        f"{sure:,} of {len(U):,} {view.noun} belong to one intent with a probability of at least {SURE:g}; "
        f"for {int(np.sum(U.max(axis=1) < 0.6)):,}, no probability reaches 0.6."
    )
    plot = figures.plot_memberships(U, names)
    caption = f"One column per {view.noun.removesuffix('s')}; the colours show its probabilities."
    items: list[Item] = [Figure.from_plot("memberships", "Posterior probabilities", caption, plot)]
    recordings = view.recordings
    if recordings is not None and recordings.index is not None and len(recordings) > 1:
        items += _recording_figures(view, posterior, recordings)
    elif view.demos is not None and len(view.demos) >= _ORDERED and view.groups is None:
        position = (np.arange(len(view.demos)) + 0.5) / len(view.demos)
        order = figures.plot_order(posterior, position, names, "position in the data, per cent")
        caption = (
            "Mean probability of each intent. Ignore this figure if the order of the demonstrations has no meaning."
        )
        figure = Figure.from_plot("order", "In the order of the data", caption, order)
        items.append(Fold("In the order of the data", [figure]))
    uncertain = _uncertain_table(view)
    items += [] if uncertain is None else [Fold("Least certain assignments", [uncertain])]
    return Section("Assignment to intents", items, lead=lead)


def _recording_figures(view: IntentsView, posterior: Any, recordings: Any) -> list[Item]:
    names, index, G = list(view.names), recordings.index, len(recordings)
    fractions = np.column_stack([np.bincount(index, weights=column, minlength=G) for column in posterior.T])
    fractions = fractions / recordings.counts[:, None]
    # Sort by the fraction of the intent that varies most, so that similar recordings are adjacent.
    varying = int(np.argmax(np.std(fractions, axis=0)))
    order = np.argsort(-fractions[:, varying], kind="stable")
    shown = order[:_RECORDINGS]
    cut = ""
    if G > _RECORDINGS:
        cut = f" The {_RECORDINGS} of {G:,} groups with the highest fraction of {literal(names[varying])} are shown."
    plot = figures.plot_composition(
        fractions[shown], [str(name) for name in recordings.names[shown]], names, recordings.counts[shown]
    )
    caption = f"Mean probability of each intent per group, sorted by {literal(names[varying])}.{cut}"
    items: list[Item] = [Figure.from_plot("groups", "Intents of each group", caption, plot)]
    if view.groups is not None or recordings.counts.max() < _LINE:
        return items  # all demonstrations of a group have the same intent
    rank = np.zeros(len(index), dtype=np.int64)
    by_group = np.argsort(index, kind="stable")
    starts = np.concatenate([[0], np.cumsum(recordings.counts.astype(np.int64))])[:-1]
    rank[by_group] = np.arange(len(index)) - np.repeat(starts, recordings.counts.astype(np.int64))
    position = (rank + 0.5) / recordings.counts[index]
    over = figures.plot_order(posterior, position, names, "position within the group, per cent")
    caption = "Mean probability of each intent, from the first to the last demonstration of each group."
    items.append(Figure.from_plot("order", "From the first to the last demonstration", caption, over))
    row_of = np.full(G, -1)
    row_of[shown] = np.arange(shown.size)
    kept = row_of[index] >= 0
    line = figures.plot_timeline(
        posterior.argmax(axis=1)[kept],
        posterior.max(axis=1)[kept],
        row_of[index][kept],
        [str(name) for name in recordings.names[shown]],
        names,
    )
    caption = f"Most probable intent of each demonstration, in the order of the data; uncertain ones are paler.{cut}"
    items.append(Figure.from_plot("timeline", "Time line of each group", caption, line))
    return items


def _uncertain_table(view: IntentsView) -> Table | None:
    U = view.unit_posterior
    if U is None or view.data is None or view.units is None:
        return None
    least = np.argsort(U.max(axis=1), kind="stable")[:_UNCERTAIN]
    least = least[U[least].max(axis=1) < SURE]
    if least.size == 0:
        return None
    known = [str(name) for name in view.units.names] if view.units.grouped else view.unit_names
    noun = "Group" if view.units.grouped else "Agent" if view.mdp is None else "Demonstration"
    rows: list[list[Content]] = [[known[i], *(Cell.number(float(p), 3) for p in U[i])] for i in least]
    columns: list[Column | str] = [Column(noun, "left"), *view.names]
    return Table("uncertain", "Least certain assignments", "Probability of each intent.", columns, rows)


def visits_section(view: IntentsView) -> Section | None:
    """Return the section on the visits under each intent, or None without demonstrations."""
    visits, expected = view.visits, view.expected_visits
    if visits is None:
        return None
    names = view.state_names
    caption = f"Visits per 100 steps, averaged over {view.weighted} weighted by their posterior probabilities."
    lead = ""
    if expected is not None:
        lead = _compare_visits(view, visits.values, expected)
    items: list[Item] = []
    if view.layout is not None:
        panels: dict[str, Any] = dict(zip(view.names, visits.values, strict=True))
        if expected is not None:
            panels = {f"{name}: observed": of for name, of in panels.items()}
            panels |= {f"{name}: expected": of for name, of in zip(view.names, expected, strict=True)}
        grid = view.layout.kind == "grid"
        plot = figures.plot_visits(view.layout.xy, view.layout.links, panels, names, grid=grid, columns=view.n_intents)
        where = {
            "grid": "Each cell is a state.",
            "coordinates": "Each dot is a state at its coordinates.",
            "graph": "Each dot is a state. Lines connect states that are one step apart; positions have no other "
            "meaning.",
        }[view.layout.kind]
        items.append(Figure.from_plot("visits", "Visits under each intent", f"{caption} {where}", plot))
    chosen = _distinctive_states(visits)
    if view.layout is None or view.layout.kind == "graph":
        plot = figures.plot_visit_bars(visits.values, expected, chosen, names, list(view.names))
        shown = "States with the largest differences between the intents."
        items.append(Figure.from_plot("states", "States that distinguish the intents", f"{caption} {shown}", plot))
    items += _visits_table(view)
    return Section("Visits", items, lead=lead)


def _compare_visits(view: IntentsView, observed: FloatArray, expected: FloatArray) -> str:
    """Return the distance between observed and expected visits as prose, with a verdict."""
    assert view.demos is not None  # checked by the caller
    assert view.posterior is not None
    distance = total_variation(observed, expected)
    steps = np.maximum(view.posterior.T @ view.demos.lengths, 1.0)
    chance = sampling_distance(expected, steps)
    parts = [
        f"{format_percent(float(distance[k]))} for {literal(view.names[k])} (chance: "
        f"{format_percent(float(chance[k]))})"
        for k in range(view.n_intents)
    ]
    excess = float(np.max(distance - chance))
    verdict = _FITS[0] if excess < 0.1 else _FITS[1] if excess < 0.25 else _FITS[2]
    return (
        f"{verdict} Total variation distance between observed and expected visits: {', '.join(parts)}. *Chance* is the "
        "expected distance for the same number of independent steps of the model."
    )


_POOR = (
    "**The fitted model does not reproduce the visits of the demonstrations.** Interpret the rewards as a summary "
    "only, and try other features or another model."
)
_FITS = (
    "The fitted model reproduces the visits of the demonstrations.",
    "The fitted model approximately reproduces the visits of the demonstrations.",
    _POOR,
)


def _distinctive_states(visits: Contrasts) -> list[int]:
    """Return the states with the largest differences between the intents, or the most visited ones if all are equal."""
    largest = np.abs(visits.differences).max(axis=0)
    ranked = np.lexsort((-visits.values.max(axis=0), -largest))[:_STATES]
    return [int(s) for s in ranked if visits.values[:, s].max() > 0.0]


def _visits_table(view: IntentsView) -> list[Item]:
    rows: list[list[Content]] = []
    for k in range(view.n_intents):
        for claim in visit_claims(view, k).claims:
            cells: list[Content] = [view.names[k], claim.name, Cell(format_rate(claim.value), value=claim.value)]
            if view.n_intents > 1:
                cells += [
                    Cell(format_rate(claim.other), value=claim.other),
                    to_cell(claim.difference, claim.error),
                ]
            rows.append(cells)
    if not rows:
        return []
    columns: list[Column | str] = [Column("Intent", "left"), Column("State", "left"), "Visits per 100 steps"]
    columns += ["Other intents", "Difference"] if view.n_intents > 1 else []
    caption = "Clear differences of each intent, largest first; ± is one standard error, clustered by recording."
    return [Table("visits-table", "Largest differences between the visits", caption, columns, rows)]


def _examples_section(view: IntentsView) -> Section | None:
    demos, posterior = view.demos, view.posterior
    if demos is None or posterior is None or view.mdp is None:
        return None
    chosen = {k: view.examples(k) for k in range(view.n_intents)}
    rows: list[list[Content]] = []
    for k, indices in chosen.items():
        for i in indices.tolist():
            states = view.path(i).tolist()
            path = " → ".join(view.state_name(s) for s in states[:_WRITTEN])
            path += f" → … ({len(states) - _WRITTEN} more)" if len(states) > _WRITTEN else ""
            rows.append([view.names[k], view.unit_names[i], Cell.number(float(posterior[i, k]), 2), len(states), path])
    if not rows:
        return None
    columns: list[Column | str] = [Column("Intent", "left"), Column("Demonstration", "left"), "Probability", "States"]
    columns.append(Column("Trajectory", "left"))
    caption = "Demonstrations of at least median length with the highest probability of each intent."
    items: list[Item] = []
    if view.layout is not None:
        paths = {
            view.names[k]: (k, [view.path(i) for i in indices.tolist()])
            for k, indices in chosen.items()
            if indices.size
        }
        plot = figures.plot_trajectories(view.layout.xy, view.layout.links, paths, grid=view.layout.kind == "grid")
        about = f"{caption} Lines are slightly displaced so that they do not hide each other."
        items.append(Figure.from_plot("trajectories", "Example trajectories", about, plot))
    table = Table("examples", "Example demonstrations", caption, columns, rows)
    items.append(Fold("The trajectories as lists of states", [table]) if items else table)
    return Section("Example trajectories", items)


def _number_section(view: IntentsView, selection: Selection | None) -> Section:
    title = "Number of intents"
    if selection is None:
        if view.estimator == "BayesianIntentMixture":
            return Section(title, _posterior_items(view))
        text = (
            f"The number of intents, {view.n_intents}, was chosen by the user and not compared with others. "
            "`limiirl select` or `limiirl.select_intents` compare numbers by cross-validation."
        )
        return Section(title, [Text(text)])
    columns: list[Column | str] = [
        "Intents",
        "Held out",
        "Below the best",
        "BIC",
        "ICL",
        "Stability",
        Column("Remarks", "left"),
    ]
    rows: list[list[Content]] = []
    for row in selection.rows:
        best = row.n_intents == selection.recommended
        remarks = [
            "recommended" if best else "",
            f"failed: {row.error}" if row.error else "",
            "" if row.error or row.converged else "EM did not converge",
            f"nearly empty intents: {row.n_empty}" if row.n_empty else "",
        ]
        rows.append(
            [
                Cell(str(row.n_intents), mark="best" if best else None, value=row.n_intents),
                to_cell(row.held_out, row.held_out_se),
                to_cell(row.behind, row.behind_se),
                Cell.number(row.bic, 1),
                Cell.number(row.icl, 1),
                Cell.number(row.stability, 2),
                ", ".join(filter(None, remarks)),
            ]
        )
    unit = selection.noun.removesuffix("s")
    caption = (
        f"*Held out*: mean log-likelihood per {unit} in cross-validation; higher is better. Lower BIC and ICL are "
        "better. "
        "*Stability*: agreement of the assignments between resamples of the data; 1 is perfect. ± is one "
        "standard error."
    )
    plot = figures.plot_criteria(selection)
    note = "The band marks the recommended number; bars are standard errors."
    return Section(
        title,
        [
            Figure.from_plot("criteria", "Comparison of numbers of intents", note, plot),
            Table("numbers", "Numbers of intents", caption, columns, rows),
        ],
        lead=literal(selection.reason),
    )


def _posterior_items(view: IntentsView) -> list[Item]:
    fitted = view._source
    posterior = getattr(fitted, "intent_posterior_", None)
    if posterior is None:
        return [Text("The number of intents was inferred with a Dirichlet process prior.")]
    rows: list[list[Content]] = [
        [Cell.count(int(k)), Cell.number(float(p), 3)] for k, p in posterior.items() if p >= 5e-4
    ]
    caption = "Posterior probability of each number of intents, with a Dirichlet process prior."
    text = (
        f"The probability that a new {view.noun.removesuffix('s')} has an intent that was not observed is "
        f"{fitted.new_intent_weight_:.3f}."
    )
    return [Table("posterior", "Number of intents", caption, ["Intents", "Probability"], rows), Text(text)]


def _evaluation_section(view: IntentsView, evaluation: Evaluation) -> Section:
    nll = evaluation.nll
    facts: dict[str, object] = {
        f"log-likelihood per {nll.unit.removesuffix('s')}": f"{-nll.mean:.4f}",
        "log-likelihood per step": f"{-nll.per_step:.4f}",
        "demonstrations": f"{int(nll.n_demos.sum()):,}",
        "steps": f"{int(nll.n_steps.sum()):,}",
    }
    recovery = getattr(evaluation, "recovery", None)
    if recovery is not None:
        facts["assigned to their known label, after matching"] = format_percent(float(recovery.accuracy), 1)
    lead = "Log-likelihoods of demonstrations that were not used in the fit, in nats; higher is better."
    if view.trained:
        lead = "These are the training demonstrations: the scores are optimistic. Pass other demonstrations."
    return Section("Held-out accuracy", [Facts(facts), Code(str(evaluation), title="All scores")], lead=lead)


def _adequacy_section(adequacy: Adequacy) -> Section:
    rows: list[list[Content]] = []
    named = (
        ("demonstration", adequacy.by_demo, adequacy.name_demo),
        ("state", adequacy.by_state, adequacy.name_state),
        ("step", adequacy.by_step, str),
    )
    for noun, residuals, name in named:
        worst = residuals.worst(_WORST)
        for i, z, excess, count, p in zip(worst.index, worst.z, worst.excess, worst.count, worst.p, strict=True):
            numbers = Cell.number(float(z), 1), Cell.number(float(excess), 3), Cell.count(int(count))
            rows.append([noun, name(int(i)), *numbers, Cell.number(float(p), 3)])
    columns: list[Column | str] = [Column("", "left"), Column("Name", "left"), "z", "Excess surprise", "Predictions"]
    caption = (
        "Surprise is -log of the predicted probability of what happened; *excess* is its mean minus the expectation "
        "under the model, in nats, and *z* is in standard deviations. The p-values are adjusted for the number of "
        "demonstrations, states or steps (Holm)."
    )
    c = adequacy.calibration
    bins = [
        {"predicted": float(p), "observed": float(o), "n": int(n)}
        for p, o, n in zip(c.predicted, c.observed, c.count, strict=True)
    ]
    plot = Plot(adequacy.plot(), bins, "Calibration of next-step probabilities, and residuals in order of size.")
    about = "Left: frequency of outcomes by predicted probability, with 95\u00a0% intervals."
    return Section(
        "What the model explains worst",
        [
            Figure.from_plot("adequacy", "Adequacy", about, plot),
            Table("residuals", "Largest residuals", caption, [*columns, "p"], rows),
            Code(str(adequacy), title="Summary"),
        ],
        lead="Next-step predictions of the mixture, compared with what happened.",
    )


def describe_methods(view: IntentsView, command: str | None) -> list[Item]:
    """Return the settings and versions, the command, and a program that repeats the fit."""
    facts: dict[str, object] = {}
    summary = view.summary
    if summary is not None:
        facts |= {
            "model": summary.model,
            "initialisation": summary.init,
            "EM": summary.convergence,
            "initialisations": summary.starts,
            "log-likelihood of the training data": f"{summary.log_likelihood:.4f} per {summary.unit.removesuffix('s')}",
            "BIC": f"{summary.bic:.1f}, with {summary.n_free} free parameters",
        }
    if view.mdp is not None:
        facts["MDP"] = (
            f"{view.mdp.n_states:,} states, {view.mdp.n_edges:,} transitions, fingerprint {view.mdp.fingerprint()}"
        )
    facts["versions"] = f"limiirl {__version__}, NumPy {np.__version__}, Python {platform.python_version()}"
    items: list[Item] = [Facts(facts)]
    if command:
        items.append(Code(command, title="Command"))
    items.append(Code(python_code(view), title="The same in Python"))
    return items


_READ_AGENTS = ('agents = ll.Agents.load("agents.npz")',)


def _read_demos(data_file: Mapping[str, Any] | None) -> list[str]:
    """Return the lines that read the demonstrations, from the file recorded by the command line, and the MDP."""
    name, columns, cut = "demos.csv", "", ""
    if data_file is not None:
        name = PurePath(data_file["path"]).name
        roles = dict(part.strip().split("=", 1) for part in (data_file["columns"] or "").split(",") if part.strip())
        columns = f", {roles!r}" if roles else ""
        cut = f".cut({data_file['cut']})" if data_file["cut"] is not None else ""
    return [
        f"demos = ll.Demonstrations.from_file({name!r}{columns}){cut}",
        'mdp = ll.MDP.load("mixture/mdp.npz")  # in the folder of the saved mixture',
    ]


def python_code(view: IntentsView) -> str:
    """Return the program that repeats the fit, given the MDP and the demonstrations."""
    mixture = view.mixture
    irl = " ".join(repr(mixture.irl_).split())
    defaults = type(mixture)().get_params(deep=False)
    options = {
        name: value
        for name, value in mixture.get_params(deep=False).items()
        if name not in ("n_intents", "irl", "progress", "verbose")
        and isinstance(value, str | int | float | tuple | None)
        and value != defaults[name]
    }
    arguments = ", ".join([f"{view.n_intents}", f"ll.{irl}", *(f"{name}={value!r}" for name, value in options.items())])
    data = "mdp, demos" if view.mdp is not None else "None, agents"
    data += ", demos.groups" if mixture.groups_ is not None else ""
    data += ", covariates=X" if getattr(mixture, "covariates_", None) is not None else ""
    return "\n".join(
        [
            "import limiirl as ll",
            "",
            *(_READ_AGENTS if view.mdp is None else _read_demos(getattr(mixture, "data_file_", None))),
            f"mix = ll.{type(mixture).__name__}({arguments})",
            f"mix.fit({data})",
            'mix.report("report")',
        ]
    )
