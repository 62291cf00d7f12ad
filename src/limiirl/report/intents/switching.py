"""The page on a fitted `SwitchingMixture`: rewards, dwell times, switches, time lines, visits and groups."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl._progress import Progress
from limiirl._typing import FloatArray
from limiirl.baselines import MarkovChain, NGram, Uniform
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.metrics import GroupComparison
from limiirl.mixture import find_indistinct_pair, nearly_empty
from limiirl.report.document import Callout, Figure, Fold, Item, Report, Section, Text
from limiirl.report.figures import Plot, plot_ethogram, plot_switches, plot_visits
from limiirl.report.intents.cautions import list_names, reward_cautions
from limiirl.report.intents.page import (
    count_noun,
    describe_methods,
    draw_rewards,
    has_clear_rewards,
    intents_section,
    to_cell,
    visits_section,
)
from limiirl.report.intents.view import SwitchingView, make_switching_view
from limiirl.report.intents.words import capitalise, findings
from limiirl.report.markup import literal
from limiirl.report.page import write
from limiirl.report.tables import Cell, Column, Content, Mark, Table, format_percent
from limiirl.switching import SwitchingSelection

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

# Largest numbers of recordings in the time line, and of intents in the summary.
_RECORDINGS, _NAMED = 40, 4
# A dwell time is short if it is below this multiple of the planning horizon 1 / (1 - discount) (ADR 0028).
_SHORT = 0.5


def switching_report(  # noqa: PLR0913 (the mixture, and independent options with defaults)
    mixture: Any,
    demos: Demonstrations | None = None,
    *,
    covariates: Any = None,
    groups: ArrayLike | None = None,
    condition: Any = None,
    title: str | None = None,
    intent_names: Sequence[str] | None = None,
    coordinates: ArrayLike | None = None,
    selection: SwitchingSelection | None = None,
    command: str | None = None,
    warned: Sequence[str] = (),
) -> Report:
    """Return the report on a fitted `SwitchingMixture`.

    Parameters
    ----------
    mixture : SwitchingMixture
    demos : Demonstrations, optional
        By default the training data, which a mixture loaded from a file does not contain.
    covariates : (n, m) array or frame, optional
    groups : (N,), optional
        Group of each demonstration, such as an animal; by default, those of the fit or of the demonstrations.
    condition : (N,), or mapping of groups to conditions, optional
        Conditions to compare; see `SwitchingMixture.compare_groups`.
    title : str, optional
    intent_names : sequence of K strings, optional
    coordinates : (S, 2), optional
        Positions of the states.
    selection : SwitchingSelection, optional
        Comparison of settings and baselines on held-out demonstrations.
    command : str, optional
        Command line that reproduces the fit.
    warned : sequence of str
        Messages of warnings of the fit.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, MaxCausalEnt, SwitchingMixture
    >>> mdp = MDP.from_edges([0, 0], [0, 0], action=[0, 1], gamma=0.9, action_features=[[1.0], [0.0]])
    >>> demos = Demonstrations.from_lists([[0] * 41] * 2, [[0] * 20 + [1] * 20, [1] * 20 + [0] * 20])
    >>> sw = SwitchingMixture(2, MaxCausalEnt(ridge=1e-3), random_state=0).fit(mdp, demos)
    >>> switching_report(sw).title
    '2 intents that switch within 2 recordings'
    """
    view = make_switching_view(mixture, demos, covariates, groups, intent_names=intent_names, coordinates=coordinates)
    compared = None
    if condition is not None:
        if view.data is None:
            message = "demos is required to compare conditions. Pass the demonstrations and their condition."
            raise InvalidParameter(message, parameter="demos")
        compared = mixture.compare_groups(view.data, view.groups, condition, view.covariates)
    noted = _cautions(view, selection, warned)
    rewards = intents_section(view)
    where = visits_section(view)
    sections = [rewards if has_clear_rewards(view) or where is None else where, _switching_section(view)]
    sections += [] if view.data is None else [_timeline_section(view)]
    if compared is not None:
        sections.append(_groups_section(view, compared))
    if noted:
        serious = sum(caution.verdict == "problem" for caution in noted)
        lead = (
            "These points limit the interpretation of the results." if serious else "No serious problem was detected."
        )
        sections.append(Section("Cautions", noted, lead=lead))
    if where is not None:
        sections.append(where if sections[0] is rewards else rewards)
    maps = _reward_maps(view)
    sections += [] if maps is None else [Section("Reward maps", [maps])]
    sections.append(_prediction_section(view, selection))
    steps = "\n".join(f"- {step}" for step in _next_steps(view, selection, compared))
    sections.append(Section("Next steps", [Text(steps)]))
    n = "" if view.data is None else f" {count_noun(len(view.data), 'recordings')}"
    return Report(
        title or f"{count_noun(view.n_intents, 'intents')} that switch within{n or ' recordings'}",
        _lead(view, noted, compared),
        sections,
        methods=describe_methods(view, command),
        highlights=_highlights(view, selection),
    )


def write_switching(
    mixture: Any,
    folder: str | os.PathLike[str],
    demos: Demonstrations | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write the report on a fitted `SwitchingMixture` to a folder, and return its path; see `switching_report`."""
    return write(switching_report(mixture, demos, **options), folder, progress)


def plot_switching_timeline(mixture: Any, demos: Any, covariates: Any, intent_names: Any) -> Drawing:
    """Return the figure of the time lines; see `SwitchingMixture.plot_timeline`."""
    view = make_switching_view(mixture, demos, covariates, intent_names=intent_names)
    if view.data is None:
        message = "demos is required, because the training data of a loaded mixture are not available."
        raise InvalidParameter(message, parameter="demos")
    return _draw_timeline(view).figure


def plot_switching_rewards(
    mixture: Any, demos: Any, covariates: Any, maps: bool | None, coordinates: Any, intent_names: Any
) -> Drawing:
    """Return the figure of the rewards; see `SwitchingMixture.plot_rewards`."""
    view = make_switching_view(mixture, demos, covariates, intent_names=intent_names, coordinates=coordinates)
    if maps is None:
        maps = view.layout is not None and view.places is not None and view.mdp.n_state_features == view.places.n_states
    if not maps:
        return draw_rewards(view)[0].figure
    if view.layout is None or view.state_rewards is None:
        rule = "requires state features and a legible layout of the states"
        raise InvalidParameter.of("maps", maps, rule, remedy="Pass coordinates.")
    return _draw_maps(view, view.state_rewards).figure


def plot_switching_graph(mixture: Any, demos: Any, covariates: Any, intent_names: Any) -> Drawing:
    """Return the figure of the switches; see `SwitchingMixture.plot_switches`."""
    return _draw_graph(make_switching_view(mixture, demos, covariates, intent_names=intent_names)).figure


def _draw_timeline(view: SwitchingView) -> Plot:
    shown = np.arange(min(len(view.data), _RECORDINGS))
    own = view.owner < shown.size
    lengths = view.data.lengths[shown] - 1
    return plot_ethogram(view.path[own], view.steps[own], lengths, _recording_names(view)[: shown.size], view.names)


def _recording_names(view: SwitchingView) -> list[str]:
    if view.groups is None:
        return view.unit_names
    pairs = zip(view.groups.tolist(), view.unit_names, strict=True)
    return [name if str(group) in name else f"{group}: {name}" for group, name in pairs]


def _draw_maps(view: SwitchingView, rewards: FloatArray) -> Plot:
    assert view.layout is not None  # checked by the callers
    panels: dict[str, Any] = dict(zip(view.names, rewards, strict=True))
    grid = view.layout.kind == "grid"
    return plot_visits(view.layout.xy, view.layout.links, panels, view.state_names, grid=grid, columns=3, rewards=True)


def _draw_graph(view: SwitchingView) -> Plot:
    transition = view.mixture.mean_transition_
    switches = np.where(np.eye(view.n_intents, dtype=bool), 0.0, transition)
    left = switches.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        probability = np.where(left > 0.0, switches / left, np.nan)
    return plot_switches(probability, view.weights, view.mixture.dwell_times_, view.names)


def _lead(view: SwitchingView, noted: Sequence[Callout], compared: GroupComparison | None) -> str:
    sentences = [f"**{literal(item.title)}.**" for item in noted if item.verdict == "problem"]
    named = list(findings(view))
    sentences += named[:_NAMED]
    if len(named) > _NAMED:
        sentences.append(f"{len(named) - _NAMED} smaller intents are described below.")
    if compared is not None:
        sentences.append(_compare_in_words(view, compared))
    return " ".join(sentences)


def _compare_in_words(view: SwitchingView, compared: GroupComparison) -> str:
    """Return the significant differences between conditions as prose."""
    clear = [row for row in compared.rows if row.p_corrected <= 1.0 - compared.level]
    kinds = list_names([literal(kind) for kind in sorted(set(compared.condition))])
    if not clear:
        return f"No significant difference between {kinds} in shares of steps, dwell times and switching rates."
    parts = [
        f"{literal(view.rename(row.quantity))} ({literal(row.first)} {row.mean_first:.3g}, {literal(row.second)} "
        f"{row.mean_second:.3g}, p = {row.p_corrected:.2g})"
        for row in clear
    ]
    return f"Significant differences between {kinds}: {list_names(parts)}."


def _highlights(view: SwitchingView, selection: SwitchingSelection | None) -> dict[str, object]:
    facts: dict[str, object] = {"intents" if view.n_intents != 1 else "intent": view.n_intents}
    if view.data is not None:
        facts["recordings"] = f"{len(view.data):,}"
        facts["steps"] = f"{view.owner.size:,}"
    if selection is not None:
        held_out = next(row.held_out for row in selection.rows if row.setting == selection.recommended)
        facts["nats per step, held out"] = f"{held_out:.3f}".replace("-", "−")
    return facts


def _switching_section(view: SwitchingView) -> Section:
    summary, rows = view.summary, []
    for k in range(view.n_intents):
        row: list[Content] = [view.names[k], Cell.percent(summary.shares[k], 1), Cell.percent(summary.stationary[k], 1)]
        row.append(to_cell(summary.dwell_times[k], summary.dwell_errors[k]))
        if summary.n_segments is not None and summary.mean_segment is not None:
            row += [Cell.count(int(summary.n_segments[k])), Cell.number(summary.mean_segment[k], 1)]
        rows.append([*row, Cell.percent(summary.initial[k], 0)])
    columns: list[Column | str] = [Column("Intent", "left"), "Share of steps", "In the long run", "Dwell time"]
    columns += [] if summary.n_segments is None else ["Segments", "Mean length"]
    caption = (
        "*Dwell time*: expected number of steps until the intent ends"
        + (", ± one standard error" if np.isfinite(summary.dwell_errors).any() else "")
        + ". *Segments*: runs of the most probable sequence of intents; those at the ends of a recording are cut. "
        "*First*: probability of the intent at the first step."
    )
    items: list[Item] = [Table("dwell-times", "Intents", caption, [*columns, "First"], rows)]
    if view.n_intents > 1:
        note = (
            "The area of a circle is the share of steps. An arrow shows the probability of the next intent when an "
            "intent ends; those below 2 % are not drawn."
        )
        items.append(Figure.from_plot("switches", "Switches between intents", note, _draw_graph(view)))
        items.append(Fold("Transition probabilities", [_transition_table(view)]))
    return Section("Dwell times and switches", items, lead=f"Switching probabilities: {literal(summary.switching)}.")


def _transition_table(view: SwitchingView) -> Table:
    P, errors = view.summary.transition, view.summary.transition_errors
    rows: list[list[Content]] = []
    for j in range(view.n_intents):
        cells: list[Content] = []
        for k in range(view.n_intents):
            text = f"{100 * P[j, k]:.2f}" + (f" ± {100 * errors[j, k]:.2f}" if math.isfinite(errors[j, k]) else "")
            cells.append(Cell(f"{text}\u00a0%", value=float(P[j, k])))
        rows.append([view.names[j], *cells])
    columns: list[Column | str] = [Column("From", "left"), *(Column(name, group="to") for name in view.names)]
    caption = "Probability that the next step has an intent, given the intent of the present step."
    return Table("transitions", "Transition probabilities", caption, columns, rows)


def _timeline_section(view: SwitchingView) -> Section:
    n = len(view.data)
    caption = "For each recording: the most probable sequence of intents, and the posterior probabilities below it."
    if n > _RECORDINGS:
        caption += f" The first {_RECORDINGS} of {n:,} recordings are shown."
    items: list[Item] = [Figure.from_plot("timeline", "Time line of each recording", caption, _draw_timeline(view))]
    sure = float(np.mean(view.steps.max(axis=1) >= 0.9))
    lead = f"{format_percent(sure)} of the steps have an intent with a probability of at least 0.9."
    return Section("Time lines", items, lead=lead)


def _reward_maps(view: SwitchingView) -> Figure | None:
    if view.layout is None or view.state_rewards is None:
        return None
    caption = (
        "Reward of each state, relative to the mean over states. Rewards of edges and of actions are not included."
    )
    return Figure.from_plot("reward-maps", "Reward maps", caption, _draw_maps(view, view.state_rewards))


def _groups_section(view: SwitchingView, compared: GroupComparison) -> Section:
    rows: list[list[Content]] = []
    several = len(set(compared.condition)) > 2
    for row in compared.rows:
        mark: Mark | None = "certain" if row.p_corrected <= 1.0 - compared.level else None
        pair: list[Content] = [f"{row.first}, {row.second}"] if several else []
        interval = f" [{row.low:.3g}, {row.high:.3g}]" if math.isfinite(row.low) else ""
        rows.append(
            [
                view.rename(row.quantity),
                *pair,
                Cell(f"{row.mean_first:.3g}", value=row.mean_first),
                Cell(f"{row.mean_second:.3g}", value=row.mean_second),
                Cell(f"{row.difference:.3g}{interval}".replace("-", "−"), value=row.difference),
                Cell.number(row.p, 4),
                Cell(f"{row.p_corrected:.4f}", mark=mark, value=row.p_corrected)
                if math.isfinite(row.p_corrected)
                else Cell.number(None),
            ]
        )
    first, second = ("First", "Second") if several else sorted(set(compared.condition))
    columns: list[Column | str] = [Column("Quantity", "left"), *([Column("Conditions", "left")] if several else [])]
    columns += [first, second, "Difference", "p", "p, corrected"]
    caption = f"{capitalise('; '.join(compared.notes))}. Correction of the p-values: {compared.correction.title()}."
    table = Table("groups", "Comparison of the conditions", literal(caption), columns, rows)
    values: list[list[Content]] = [
        [name, kind, *(Cell.number(float(column[g]), 3) for column in compared.values.values())]
        for g, (name, kind) in enumerate(zip(compared.groups, compared.condition, strict=True))
    ]
    heads: list[Column | str] = [Column("Group", "left"), Column("Condition", "left")]
    heads += [view.rename(name) for name in compared.values]
    about = "Dwell times are shrunken towards that of all groups with the weight of one switch."
    each = Table("group-values", "Values of each group", about, heads, values)
    lead = (
        f"{_compare_in_words(view, compared)} Groups, not recordings or steps, are the units of the test. It is exact "
        "only if the mixture was fitted without the conditions."
    )
    return Section("Comparison of groups", [table, Fold("Values of each group", [each])], lead=lead)


def _prediction_section(view: SwitchingView, selection: SwitchingSelection | None) -> Section:
    columns: list[Column | str] = [Column("Model", "left"), "Nats per step"]
    rows: list[list[Content]] = []
    if selection is not None:
        for row in selection.rows:
            best = row.model == "switching" and row.setting == selection.recommended
            name = f"{count_noun(row.n_intents, 'intents')}" if row.model == "switching" else row.model
            remark = f"failed: {row.error}" if row.error else "recommended" if best else ""
            score = to_cell(row.held_out, row.held_out_se)
            marked = Cell(score.text, "best" if best else None, "", score.value, score.half_width)
            cells: list[Content] = [name, marked, to_cell(row.behind, row.behind_se)]
            ridges = (Cell(f"{x:g}", value=x) if math.isfinite(x) else Cell.number(None) for x in row.setting[1:3])
            rows.append([*cells, *ridges, remark])
        caption = (
            f"Predictive log-likelihood of held-out {selection.unit}, in nats per step; higher is better. ± is one "
            f"standard error, clustered by {selection.unit}. Models without rewards are compared on the same folds."
        )
        columns += ["Below the best", "Ridge", "Switching ridge", Column("Remarks", "left")]
        return Section("Prediction", [Table("prediction", "Held-out prediction", caption, columns, rows)])
    training = view.mixture._training[0]
    if view.data is None or training is None:
        text = f"The log-likelihood of the training data is {view.mixture.log_likelihood_:.4f} nats per step."
        return Section("Prediction", [Text(text)])
    models = {"uniform": Uniform(), "Markov chain of order 2": MarkovChain(2), "n-gram of order 5": NGram(5)}
    own = view.mixture.score(view.data, view.covariates)
    rows.append([count_noun(view.n_intents, "switching intents"), Cell.number(own, 4)])
    for name, model in models.items():
        rows.append([name, Cell.number(model.fit(training, view.mdp).score(view.data), 4)])
    caption = "Predictive log-likelihood in nats per step; higher is better."
    if view.trained:
        caption += (
            " **These are the training data: all scores are optimistic**, in particular that of the n-gram. Compare "
            "held-out scores with `limiirl switch` or `select_switching`."
        )
    return Section(
        "Prediction", [Table("prediction", "Prediction, and models without rewards", caption, columns, rows)]
    )


def _cautions(view: SwitchingView, selection: SwitchingSelection | None, warned: Sequence[str]) -> list[Callout]:
    """Return the cautions on a fit, most serious first."""
    mixture, K, out = view.mixture, view.n_intents, []
    empty = [view.names[k] for k in np.flatnonzero(nearly_empty(mixture.shares_ * mixture.n_steps_, mixture.n_steps_))]
    if empty and K > 1:
        verb = "is" if len(empty) == 1 else "are"
        text = "Almost no steps belong to a nearly empty intent, so its reward is unreliable. Use fewer intents."
        out.append(Callout("problem", f"{capitalise(list_names(empty))} {verb} nearly empty", text))
    pair = None if view.data is None or K < 2 else find_indistinct_pair(view.steps, np.ones(K, dtype=bool))
    if pair is not None:
        names = " and ".join(view.names[k] for k in pair)
        text = "They have the same posterior at every step. Use fewer intents."
        out.append(Callout("problem", f"{capitalise(names)} are the same intent", text))
    if not mixture.converged_:
        text = "More iterations would change the result. Raise `max_iter`."
        out.append(Callout("problem", "The fit did not converge", text))
    runs = mixture.restarts_
    if len(runs) > 1 and sum(run.best for run in runs) == 1:
        text = f"Only one of {len(runs)} initialisations reached the best solution. Raise `n_init`."
        out.append(Callout("caution", "Other initialisations lead to other intents", text))
    if selection is not None:
        scores = {row.model: row.held_out for row in selection.rows if row.model != "switching"}
        own = next(row.held_out for row in selection.rows if row.setting == selection.recommended)
        better = [name for name, score in scores.items() if score > own]
        if better:
            text = (
                "A model without rewards predicts held-out steps better: the rewards omit a regularity, such as "
                "habits. See `ll.with_history`."
            )
            verb = "predicts" if len(better) == 1 else "predict"
            out.append(Callout("caution", f"{capitalise(list_names(better))} {verb} better than the intents", text))
    out += _dwell_cautions(view)
    return [*out, *reward_cautions(view), *(Callout("note", "Warning of the fit", literal(x)) for x in warned)]


def _dwell_cautions(view: SwitchingView) -> list[Callout]:
    horizon = 1.0 / max(1.0 - view.mdp.gamma, 1e-9)
    short = [view.names[k] for k in np.flatnonzero(view.mixture.dwell_times_ < _SHORT * horizon)]
    if not short or view.n_intents == 1 or horizon > 1e6:
        return []
    text = (
        f"Policies plan as if the intent did not change, over about {horizon:.0f} steps at discount "
        f"{view.mdp.gamma:g}. The rewards of intents that end sooner are those of an agent that does not foresee the "
        "end. A lower discount shortens the horizon."
    )
    return [Callout("note", f"{capitalise(list_names(short))}: dwell time below the planning horizon", text)]


def _next_steps(
    view: SwitchingView, selection: SwitchingSelection | None, compared: GroupComparison | None
) -> list[str]:
    """Return recommendations that follow from a fit."""
    steps = []
    if selection is None or len({row.n_intents for row in selection.rows if row.model == "switching"}) == 1:
        steps.append("Compare numbers of intents on held-out recordings: `limiirl switch DEMOS --intents 1-6`.")
    if len(view.mixture.restarts_) == 1:
        steps.append("Check that the intents do not depend on the initialisation: `limiirl switch ... --n-init 10`.")
    if view.mixture.groups_ is None and view.groups is not None:
        steps.append("Hold out whole groups and cluster the errors by group: `limiirl switch ... --by-group`.")
    if view.mixture.switching == "homogeneous":
        steps.append("Let the probabilities of switching depend on the state: `limiirl switch ... --switching state`.")
    if compared is None:
        steps.append("Compare conditions with groups as units: `limiirl switch ... --condition COLUMN`.")
    steps.append("Write the segments as a table: `limiirl predict MIXTURE DEMOS --segments segments.csv`.")
    if all(name == f"intent {k}" for k, name in enumerate(view.names)):
        steps.append('Name the intents: `sw.report(folder, intent_names=["...", ...])`.')
    return steps
