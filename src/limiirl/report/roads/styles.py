"""The page of driving styles: words, maps, rewards, two routes, forecasts, and the selection of their number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos
from limiirl.forecast import Forecaster
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import IntentMixture, Selection, SelectionRow
from limiirl.report.document import Callout, Facts, Figure, Item, Report, Section, Text
from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.page import write
from limiirl.report.roads.figures import driver_rewards, find_pair, two_routes
from limiirl.report.roads.forecasts import forecast_example, forecast_section
from limiirl.report.roads.layers import chains, flow_layers, near, ranks, streets, way
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.report.svg import SERIES
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads import NOT_LENGTHS, DriverFit, FeatureChoice, RoadNetwork

GAUGE = (
    "The features of each group of lengths divide the same length: their kilometres sum to a segment's. Raising "
    "all weights of one group and lowering all of another by as much changes no reward, so the data cannot tell "
    "how much of it belongs to which. The plots use one fixed gauge: within each such group the mean over all "
    "kilometres that were driven is zero, and what was taken off is shown once, as the reward of an average km. "
    "The reward of every segment is the same as before. Weights can be compared within a group, between styles "
    "and between starts."
)
"""What a reader must know of the gauge."""

# A feature with less than this share of the driven kilometres is not drawn: its weight is the bound's, not the data's.
_DRIVEN = 0.002
_EXAMPLES = 3
_AROUND_M = 1500.0
_FORECASTS = 3
# A trip to forecast should be neither a hop nor a tour.
_EXAMPLE_SEGMENTS = (40, 150)
# Starts of `IntentMixture` as a reader knows them.
_NAMES = {
    "kmeans": "k-means",
    "gmm": "GMM",
    "best": "the best of k-means and GMM",
    "random": "random memberships",
    "random_rewards": "random rewards",
}


def drivers_page(view: DriversView) -> Report:
    """Return the report of driving styles.

    Parameters
    ----------
    view : DriversView
        What was learned, as plain values.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=6, trips_each=4).demos
    >>> features, truth = demos.features(city.mdp), np.eye(3)[demos.labels]
    >>> names, groups = city.mdp.feature_names, city.features.groups
    >>> page = drivers_page(DriversView(city.network, names, groups, {"true": city.ensemble}, demos, truth, features))
    >>> [section.title for section in page.sections[:2]]
    ['Styles', 'Who drives where']
    """
    sections = [
        Section("Styles", [_style_table(view), *_style_words(view)], lead=_styles_lead(view)),
        Section("Who drives where", [_flow_map(view)]),
        *(_pair_section(view) if view.examples else []),
        Section("Rewards", [Text(GAUGE), _rewards(view)], lead=_rewards_lead(view)),
    ]
    forecasts = forecast_section(view) if view.examples else None
    if forecasts is not None:
        sections.append(forecasts)
    if view.tables:
        sections.append(Section("Cross-validation", list(view.tables)))
    lead = view.lead or (
        f"{len(view.demos):,} trips fall into {view.main.n_intents} styles. "
        + " ".join(
            f"**{literal(name)}**: {literal(words.short)}."
            for name, words in zip(view.style_names, view.words, strict=True)
        )
    )
    return Report(
        view.title,
        lead,
        sections,
        methods=[
            Callout(
                "note",
                "Trips are people's",
                "A trip tells where somebody lives, works and goes. Trim the ends of trips and mask homes before you "
                "show a page like this to others: `limiirl.roads.privacy`. "
                f"Streets that fewer than {view.least} {view.counted} of a style use are not drawn for it; "
                + ("single trips shown as examples are." if view.examples else "nor are single trips."),
            ),
            *([Facts(view.facts)] if view.facts else []),
        ],
        highlights={
            "trips": f"{len(view.demos):,}",
            "styles": view.main.n_intents,
            "km driven": f"{view.network.length_m[view.demos.states].sum() / 1000.0:,.0f}",
        },
    )


def _styles_lead(view: DriversView) -> str:
    start = next(iter(view.ensembles))
    return (
        f"Of the mixture started by {literal(start)}. Words are made from the numbers: what a style's trips do more or "
        "less than all trips, and what its rewards prefer."
    )


def _style_table(view: DriversView) -> Table:
    km = (
        np.diff(np.concatenate([[0.0], np.cumsum(view.network.length_m[view.demos.states])])[view.demos.offsets])
        / 1000.0
    )
    weight = view.responsibilities
    rows: list[list[Content]] = []
    for k, name in enumerate(view.style_names):
        total = max(float(weight[:, k].sum()), 1e-300)
        few = view.drivers[k] < view.least
        mean = None if few else float(weight[:, k] @ km) / total
        sure = None if few else float(weight[view.labels == k, k].mean())
        rows.append(
            [
                name,
                Cell(f"{view.main.weights[k]:.0%}", value=float(view.main.weights[k])),
                Cell(f"{int((view.labels == k).sum()):,}" if not few else f"under {view.least} {view.counted}"),
                Cell.number(mean, 1),
                Cell("–" if sure is None else f"{sure:.0%}", value=sure),
                view.words[k].short,
            ]
        )
    columns: list[Column | str] = [
        Column("Style", "left"),
        "Share",
        "Trips",
        "Mean km",
        "Certainty",
        Column("In short", "left"),
    ]
    caption = "Trips are those for which the style is the likeliest; certainty is how likely, on average."
    return Table("styles", "Styles", caption, columns, rows)


def _style_words(view: DriversView) -> list[Item]:
    lines = [
        f"- **{literal(name)}**: {literal(words.long)}".replace(" %", "\u00a0%")
        for name, words in zip(view.style_names, view.words, strict=True)
    ]
    return [Text("\n".join(lines))]


def _flow_map(view: DriversView) -> Map:
    network = view.network
    shown = view.passed_by >= view.least
    flows = np.where(shown, view.counted_flows, np.nan)
    layers = [streets(network)]
    hidden = f"under {view.least} {view.counted}"
    layers += flow_layers(network, flows, view.style_names, unit=view.flow_unit, hidden=hidden)
    typical = _typical_trips(view) if view.examples else []
    all_uses = np.nansum(flows, axis=0)
    busiest = network.class_names[int(network.road_class[int(all_uses.argmax())])].replace("_", " ")
    return Map(
        "flows",
        "Flows by style",
        f"A map of the streets that {view.main.n_intents} styles of driving use. "
        + (f"The busiest segment is {busiest}." if shown.any() else "No street has enough drivers to be shown."),
        "Choose one style, or the map of who drives where: a street has a style's colour where that style's trips use "
        f"it clearly more than the others' do. Streets with fewer than {view.least} {view.counted} of a style are left "
        "out of its flows." + (" Typical trips are the surest of each style." if typical else ""),
        [*layers, *typical],
        attribution=network.attribution,
    )


def _typical_trips(view: DriversView) -> list[Layer]:
    """The surest trips of each style, of about its usual length, hidden at first."""
    network, layers = view.network, []
    km = np.diff(np.concatenate([[0.0], np.cumsum(network.length_m[view.demos.states])])[view.demos.offsets]) / 1000.0
    for k, name in enumerate(view.style_names):
        own = np.flatnonzero(view.labels == k)
        if view.drivers[k] < view.least:
            continue
        usual = own[km[own] >= np.median(km[own])]
        chosen = usual[np.argsort(-view.responsibilities[usual, k], kind="stable")][:_EXAMPLES]
        lines = [way(network, view.demos.states[view.demos.offsets[i] : view.demos.offsets[i + 1]]) for i in chosen]
        facts = {
            "length": [f"{km[i]:.1f} km" for i in chosen],
            "certainty": [f"{view.responsibilities[i, k]:.0%}" for i in chosen],
        }
        stroke = Stroke("", SERIES[k % len(SERIES)], 3.5, halo=True)
        layers.append(Layer.of_lines(f"Typical trips: {name}", lines, strokes=[stroke], facts=facts, shown=False))
    return layers


def _pair_section(view: DriversView) -> list[Section]:
    pair = find_pair(view.network, view.demos, view.labels)
    if pair is None:
        return []
    chosen = (pair.first, pair.second)
    lines = [way(view.network, view.demos.states[view.demos.offsets[i] : view.demos.offsets[i + 1]]) for i in chosen]
    intents = [int(view.labels[i]) for i in chosen]
    drawn = two_routes(lines, [view.style_names[k] for k in intents], intents, _background(view.network, lines))
    apart = f"{pair.apart_m:.0f} m apart at most" if pair.apart_m >= 1.0 else "the same"
    shared = f"{pair.shared:.0%}".replace("%", "\u00a0%")
    figure = Figure(
        "two-routes",
        "Two ways from here to there",
        drawn.alt,
        f"Two trips of different styles; their ends are {apart}, and they share {shared} of the shorter one's length."
        + (f" Map: {literal(view.network.attribution)}." if view.network.attribution else ""),
        lambda: drawn.figure,
        drawn.columns,
    )
    lead = "Drivers going from nearly the same place to nearly the same destination choose different routes."
    return [Section("Two routes", [figure], lead=lead)]


def _background(network: RoadNetwork, lines: list[FloatArray]) -> list[tuple[FloatArray, float]]:
    """Streets around, local ones thin: points with gaps between lines, so that each kind is one path of the picture."""
    found = chains(network, [network.road_class], near(network, np.concatenate(lines), _AROUND_M))
    rank = ranks(network)[found.first]
    layers = []
    for low, high, width in ((1, 1, 0.6), (2, 3, 0.9), (4, 5, 1.6)):
        chosen = np.flatnonzero((rank >= low) & (rank <= high))
        gap = np.full((1, 2), np.nan)
        parts = [part for i in chosen for part in (found.points[found.offsets[i] : found.offsets[i + 1]], gap)]
        if parts:
            layers.append((np.concatenate(parts), width))
    return layers


def _rewards_lead(view: DriversView) -> str:
    n = len(view.ensembles)
    return "Each line is a style, as wide as its share." + (
        f" The {n} columns are {n} ways of starting EM; colours pair the styles that are most alike." if n > 1 else ""
    )


def _rewards(view: DriversView) -> Figure:
    drawn_features = view.km > 0.0
    for name, places in view.groups.items():
        if name not in NOT_LENGTHS:
            of_group = view.km[list(places)]
            drawn_features[list(places)] = of_group >= _DRIVEN * of_group.sum()
    drawn = driver_rewards(view.panels, view.feature_names, view.groups, drawn_features, view.style_names)
    left_out = int((~drawn_features).sum())
    caption = "Rewards of a km beside the average one, by group of features; above, the reward of an average km."
    if left_out:
        caption += (
            f" Left out are features that make up less than {100 * _DRIVEN:g}\u00a0% of the way driven ({left_out} of "
            f"{len(view.feature_names)}), on which the data say little."
        )
    if view.source:
        caption += f" {literal(view.source)}"
    return Figure("rewards", "Learned rewards", drawn.alt, caption, lambda: drawn.figure, drawn.columns)


def styles_view(
    network: RoadNetwork, fit: DriverFit, *, title: str = "Driving styles", examples: int = 0
) -> DriversView:
    """Return what the page of one fit shows, with so many example forecasts."""
    mixture, demos = fit.mixture, fit.demos
    facts = {
        "model": type(mixture.irl_).__name__,
        "trips": f"{len(demos):,}",
        "clusters that a stick-breaking GMM sees": fit.sticks,
        "EM iterations": mixture.n_iter_,
    }
    start = _NAMES.get(mixture.init, mixture.init) if isinstance(mixture.init, str) else "a start that was given"
    forecasts = example_forecasts(network, mixture, demos, examples)
    view = view_of_mixture(network, fit.features, {start: mixture.ensemble_}, mixture, demos)
    tables = [] if fit.selection is None else [selection_table(fit.selection)]
    return replace(view, title=title, facts=facts, forecasts=forecasts, trained=True, tables=tables)


def styles_report(
    network: RoadNetwork, fit: DriverFit, *, title: str = "Driving styles", examples: bool = True
) -> Report:
    """Return the page of one fit: styles in words and on the map, rewards, and, as examples, single trips.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> from limiirl.roads import fit_drivers
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=6, trips_each=4).demos
    >>> fit = fit_drivers(city.network, demos, 2, model="DestinationMaxEnt", features=city.features, by_driver=True)
    >>> styles_report(city.network, fit).title
    'Driving styles'
    """
    view = styles_view(network, fit, title=title, examples=_FORECASTS if examples else 0)
    return drivers_page(replace(view, examples=examples))


def write_styles(network: RoadNetwork, fit: DriverFit, folder: str | PathLike[str], *, examples: bool = True) -> Path:
    """Write the page of a fit to a folder, with single trips as examples or without, and return its address."""
    return write(styles_report(network, fit, examples=examples), folder)


def view_of_mixture(
    network: RoadNetwork,
    features: FeatureChoice,
    ensembles: Mapping[str, RewardEnsemble],
    mixture: IntentMixture,
    demos: Demonstrations,
) -> DriversView:
    """Return the view of a fitted mixture and the trips whose memberships it has."""
    plain = mixture.mdp_.replace(gamma=1.0)
    memberships = np.asarray(mixture.responsibilities_)
    return DriversView(
        network, plain.feature_names, features.groups, ensembles, demos, memberships, demos.features(plain)
    )


def example_forecasts(
    network: RoadNetwork, mixture: IntentMixture, demos: Demonstrations, n: int
) -> list[ForecastExample]:
    """Return forecasts of the first n trips of middling length, whose own ends are not among the candidates.

    A trip that leads to no other's end has none.
    """
    if n == 0 or len(demos) < 2:  # no other trip's end
        return []
    low, high = _EXAMPLE_SEGMENTS
    middling = np.flatnonzero((demos.lengths >= low) & (demos.lengths <= high))
    found: list[ForecastExample] = []
    forecaster = Forecaster(mixture, demos)
    for i in (middling if middling.size else np.argsort(-demos.lengths)).tolist():
        others = forecaster.with_destinations(demos[np.arange(len(demos)) != i])
        with suppress(InvalidDemos):
            found.append(forecast_example(others, network, demos[i].states, title=f"Trip {len(found) + 1}"))
        if len(found) == n:
            break
    return found


def selection_table(selection: Selection) -> Table:
    """Return a table with a line a number of styles; the recommended one is marked.

    Examples
    --------
    >>> one, two = SelectionRow(1, held_out=-9.0), SelectionRow(2, held_out=-8.5, held_out_se=0.2, bic=17.0)
    >>> found = Selection((one, two), 2, {"held_out": 2}, "2 intents, by cross-validation.", {})
    >>> [cell.text for cell in selection_table(found).cells[1]][:3]
    ['2', '–', '−8.50 ± 0.20']
    """
    columns: list[Column | str] = [
        Column("Styles", "left"),
        "Log-likelihood",
        "Held out",
        "Behind the best",
        "BIC",
        "ICL",
        Column("Remarks", "left"),
    ]
    what = "trip" if selection.noun == "demonstrations" else "driver"
    caption = (
        f"Log-likelihoods in nats a {what}: of the fit to all, and of what cross-validation left out, with standard "
        "errors. Behind is how far the held-out one is below the best, with the standard error of that difference. BIC "
        f"and ICL count parameters; lower is better. {literal(selection.reason)}"
    )
    rows = [_line(row, selection) for row in selection.rows]
    return Table("cross-validation-styles", "How many styles", caption, columns, rows)


def _line(row: SelectionRow, selection: Selection) -> list[Content]:
    best = row.n_intents == selection.recommended
    remarks = [
        "recommended" if best else "",
        f"failed: {row.error}" if row.error else "",
        "" if row.error or row.converged else "EM did not converge",
        f"{row.n_empty} without trips" if row.n_empty else "",
    ]
    return [
        Cell(f"{row.n_intents}", mark="best" if best else None, value=row.n_intents),
        Cell.number(row.log_likelihood, 2),
        _with_error(row.held_out, row.held_out_se),
        _with_error(row.behind, row.behind_se),
        Cell.number(row.bic, 0),
        Cell.number(row.icl, 0),
        ", ".join(remark for remark in remarks if remark),
    ]


def _with_error(value: float, error: float) -> Cell:
    return Cell.estimate(value, error, 2) if math.isfinite(error) else Cell.number(value, 2)
