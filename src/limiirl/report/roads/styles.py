"""Page on driving styles: descriptions, maps, rewards, two routes, forecasts, and the number of styles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos
from limiirl.forecast import Forecaster
from limiirl.mdp import RewardEnsemble
from limiirl.mixture import IntentMixture, Selection, SelectionRow
from limiirl.report.document import Callout, Facts, Figure, Fold, Report, Section, Text
from limiirl.report.maps import Layer, Map, Stroke
from limiirl.report.markup import literal
from limiirl.report.roads.figures import find_pair, plot_driver_rewards, plot_routes
from limiirl.report.roads.forecasts import forecast_example, forecast_section
from limiirl.report.roads.layers import (
    class_label,
    flow_layers,
    join_segments,
    path_points,
    segment_ranks,
    segments_near,
    street_layer,
    with_landmarks,
)
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.report.svg import SERIES
from limiirl.report.tables import Cell, Column, Content, Table, format_percent
from limiirl.roads import NOT_LENGTHS, DriverFit, FeatureChoice, RoadNetwork

NORMALISATION = (
    "Within each group of length features, such as the road classes, the features of a segment sum to its length. "
    "Adding a constant to all weights of one group and subtracting it from all weights of another therefore leaves "
    "every reward unchanged: these constants are not identified. The figure shows normalised weights: their mean over "
    "all driven kilometres is zero within each group, and the sum of the subtracted means is shown as the reward of "
    "an average km. The rewards of the segments are unchanged. Weights are comparable within a group, between styles "
    "and between initialisations."
)
"""Explanation of normalised rewards."""

# Features below this fraction of the driven kilometres are not drawn: the data do not determine their weights.
_DRIVEN = 0.002
_EXAMPLES = 3
_AROUND_M = 1500.0
_FORECASTS = 3
# Smallest and largest number of segments of an example trip.
_EXAMPLE_SEGMENTS = (40, 150)
# Names of the initialisations of `IntentMixture`.
_NAMES = {
    "kmeans": "k-means",
    "gmm": "GMM",
    "best": "the best of k-means and GMM",
    "random": "random responsibilities",
    "random_rewards": "random rewards",
}


def drivers_page(view: DriversView) -> Report:
    """Return the report on driving styles."""
    described = list(zip(map(literal, view.style_names), view.descriptions, strict=True))
    descriptions = "\n".join(f"- **{name}**: {literal(words.long)}" for name, words in described)
    n = len(view.ensembles)
    rewards_lead = "Each colour is a style." + (
        f" Each column is one of {n} initialisations of EM; matched styles have the same colour." if n > 1 else ""
    )
    sections = [
        Section("Styles", [_style_table(view), Text(descriptions.replace(" %", "\u00a0%"))], lead=_styles_lead(view)),
        Section("Streets by style", [_flow_map(view)]),
        *(_pair_section(view) if view.examples else []),
        Section(
            "Rewards",
            [_rewards_figure(view), Fold("How rewards are normalised", [Text(NORMALISATION)])],
            lead=rewards_lead,
        ),
    ]
    forecasts = forecast_section(view) if view.examples else None
    sections += [] if forecasts is None else [forecasts]
    sections += [Section("Cross-validation", list(view.tables))] if view.tables else []
    privacy = (
        "Trips can reveal where a person lives and works. Before you share this page, trim the ends of the trips and "
        f"mask homes with `limiirl.roads.privacy`. For each style, streets with {view.too_few} are hidden. "
        + ("Single trips are shown as examples." if view.examples else "Single trips are not shown.")
    )
    return Report(
        view.title,
        f"{view.main.n_intents} driving styles: "
        + "; ".join(
            f"**{name}** ({literal(words.short)}, {format_percent(weight)} of the trips)"
            for (name, words), weight in zip(described, view.main.weights, strict=True)
        )
        + ".",
        sections,
        methods=[Callout("note", "Privacy", privacy), *([Facts(view.facts)] if view.facts else [])],
        project=view.network.fingerprint(),
        highlights={
            "trips": f"{len(view.demos):,}",
            "styles": view.main.n_intents,
            "km driven": f"{view.network.length_m[view.demos.states].sum() / 1000.0:,.0f}",
        },
    )


def _styles_lead(view: DriversView) -> str:
    return (
        f"The styles are those of the mixture initialised with {literal(next(iter(view.ensembles)))}. The descriptions "
        "are generated automatically. They state how the trips of a style differ from all trips, and which features "
        "have the highest and lowest rewards"
        + (". ± is one standard error; rewards within two standard errors are omitted." if view.errors else ".")
    )


def _style_table(view: DriversView) -> Table:
    weight = view.responsibilities
    rows: list[list[Content]] = []
    for k, name in enumerate(view.style_names):
        total = max(float(weight[:, k].sum()), 1e-300)
        few = view.drivers_per_style[k] < view.min_drivers
        rows.append(
            [
                name,
                Cell.percent(float(view.main.weights[k])),
                Cell(view.too_few if few else f"{int((view.labels == k).sum()):,}"),
                Cell.number(None if few else float(weight[:, k] @ view.trip_km) / total, 1),
                Cell.number(None) if few else Cell.percent(float(weight[view.labels == k, k].mean())),
                view.descriptions[k].short,
            ]
        )
    columns: list[Column | str] = [Column("Style", "left"), "Weight", "Trips", "Mean km", "Mean probability"]
    columns.append(Column("Description", "left"))
    caption = (
        "*Trips* is the number of trips for which the style is the most likely one, and *mean probability* is its mean "
        "posterior probability for these trips."
    )
    return Table("styles", "Styles", caption, columns, rows)


def _flow_map(view: DriversView) -> Map:
    network = view.network
    shown = view.drivers_per_street >= view.min_drivers
    flows = np.where(shown, view.flows, np.nan)
    layers = [street_layer(network), *flow_layers(network, flows, view.style_names, hidden=view.too_few)]
    typical = _typical_trips(view) if view.examples else []
    busiest = class_label(network.class_names[int(network.road_class[int(np.nansum(flows, axis=0).argmax())])])
    return Map(
        "flows",
        "Trips by style",
        f"A map of the streets used by {view.main.n_intents} driving styles. "
        + (
            f"The busiest segment is of class {busiest}."
            if shown.any()
            else "No street has enough drivers to be shown."
        ),
        "Select one style, or the dominant style of each street: a street is coloured by a style if it is clearly more "
        f"frequent in trips of that style than in other trips. For each style, streets with {view.too_few} are hidden."
        + (" Typical trips have the highest posterior probability of a style." if typical else ""),
        with_landmarks(network, [*layers, *typical]),
        attribution=network.attribution,
    )


def _typical_trips(view: DriversView) -> list[Layer]:
    """Return one initially hidden layer per style: its most probable trips of at least median length."""
    layers = []
    for k, name in enumerate(view.style_names):
        own = np.flatnonzero(view.labels == k)
        if view.drivers_per_style[k] < view.min_drivers:
            continue
        usual = own[view.trip_km[own] >= np.median(view.trip_km[own])]
        chosen = usual[np.argsort(-view.responsibilities[usual, k], kind="stable")][:_EXAMPLES]
        lines = [path_points(view.network, view.path(i)) for i in chosen]
        facts = {
            "length": [f"{view.trip_km[i]:.1f} km" for i in chosen],
            "probability": [format_percent(view.responsibilities[i, k]) for i in chosen],
        }
        stroke = Stroke("", SERIES[k % len(SERIES)], 3.5, halo=True)
        layers.append(Layer.of_lines(f"Typical trips: {name}", lines, strokes=[stroke], facts=facts, shown=False))
    return layers


def _pair_section(view: DriversView) -> list[Section]:
    pair = find_pair(view.network, view.demos, view.labels)
    if pair is None:
        return []
    chosen = (pair.first, pair.second)
    lines = [path_points(view.network, view.path(i)) for i in chosen]
    intents = [int(view.labels[i]) for i in chosen]
    plot = plot_routes(lines, [view.style_names[k] for k in intents], intents, _background(view.network, lines))
    ends = f"end points at most {pair.apart_m:.0f} m apart" if pair.apart_m >= 1.0 else "the same end points"
    caption = (
        f"Two trips of different styles with {ends}. They share {format_percent(pair.shared)} of the shorter trip."
    )
    caption += f" Map: {literal(view.network.attribution)}." if view.network.attribution else ""
    figure = Figure.from_plot("two-routes", "Two routes with similar origins and destinations", caption, plot)
    lead = "Two trips of different styles with similar origins and destinations follow different routes."
    return [Section("Two routes", [figure], lead=lead)]


def _background(network: RoadNetwork, lines: list[FloatArray]) -> list[tuple[FloatArray, float]]:
    """Return the streets near the given lines, with points separated by rows of NaN, and their line widths."""
    streets = join_segments(network, [network.road_class], segments_near(network, np.concatenate(lines), _AROUND_M))
    rank = segment_ranks(network)[streets.first]
    layers = []
    for low, high, width in ((1, 1, 0.6), (2, 3, 0.9), (4, 5, 1.6)):
        chosen = np.flatnonzero((rank >= low) & (rank <= high))
        gap = np.full((1, 2), np.nan)
        parts = [part for i in chosen for part in (streets.points[streets.offsets[i] : streets.offsets[i + 1]], gap)]
        if parts:
            layers.append((np.concatenate(parts), width))
    return layers


def _rewards_figure(view: DriversView) -> Figure:
    drawn = view.km > 0.0
    for name, indices in view.groups.items():
        if name not in NOT_LENGTHS:
            of_group = view.km[list(indices)]
            drawn[list(indices)] = of_group >= _DRIVEN * of_group.sum()
    plot = plot_driver_rewards(view.panels, view.feature_names, view.groups, drawn, view.style_names)
    hidden = int((~drawn).sum())
    caption = (
        "Top: reward of an average km. Bottom: reward per km relative to the average of the group, or per turn. Within "
        "a group, features are in the order of their mean reward; the size of a dot increases with the mixture weight."
    )
    if view.errors is not None:
        caption += (
            " Bars are 95\u00a0% intervals, cut off at the frame. An open dot has no interval: its reward is on a "
            "bound of the model, or is not determined by the trips."
        )
    if hidden:
        caption += (
            f" {hidden} of {len(view.feature_names)} features are omitted, because each accounts for less than "
            f"{100 * _DRIVEN:g}\u00a0% of the driven distance and its reward is poorly determined."
        )
    if view.source:
        caption += f" {literal(view.source)}"
    return Figure.from_plot("rewards", "Learned rewards", caption, plot)


def styles_view(network: RoadNetwork, fit: DriverFit, *, examples: int = 0) -> DriversView:
    """Return the contents of the page on a fit; `examples` is the number of example forecasts."""
    mixture, demos = fit.mixture, fit.demos
    facts = {
        "model": type(mixture.irl_).__name__,
        "trips": f"{len(demos):,}",
        "clusters (stick-breaking GMM)": fit.n_clusters,
        "EM iterations": mixture.n_iter_,
    }
    start = _NAMES.get(mixture.init, mixture.init) if isinstance(mixture.init, str) else "custom values"
    forecasts = example_forecasts(network, mixture, demos, examples)
    view = view_of_mixture(network, fit.features, {start: mixture.ensemble_}, mixture, demos)
    tables = [] if fit.selection is None else [selection_table(fit.selection)]
    errors = mixture.standard_errors()
    return replace(view, facts=facts, forecasts=forecasts, trained=True, tables=tables, errors=errors)


def styles_report(network: RoadNetwork, fit: DriverFit, *, examples: bool = True) -> Report:
    """Return the report on a fit, including single trips and their forecasts if `examples` is True.

    >>> from limiirl.roads import City, fit_drivers
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=6, trips_each=4).demos
    >>> fit = fit_drivers(city.network, demos, 2, model="DestinationMaxEnt", features=city.features, by_driver=True)
    >>> styles_report(city.network, fit).title
    'Driving styles'
    """
    view = styles_view(network, fit, examples=_FORECASTS if examples else 0)
    return drivers_page(replace(view, examples=examples))


def view_of_mixture(
    network: RoadNetwork,
    features: FeatureChoice,
    ensembles: Mapping[str, RewardEnsemble],
    mixture: IntentMixture,
    demos: Demonstrations,
) -> DriversView:
    """Return the contents of the page on a fitted mixture and its training trips."""
    plain = mixture.mdp_.replace(gamma=1.0)
    responsibilities = np.asarray(mixture.responsibilities_)
    groups, phi = features.groups, demos.features(plain)
    return DriversView(network, plain.feature_names, groups, ensembles, demos, responsibilities, phi)


def example_forecasts(
    network: RoadNetwork, mixture: IntentMixture, demos: Demonstrations, n: int
) -> list[ForecastExample]:
    """Return forecasts of the first n trips of medium length.

    The candidate destinations are the ends of all other trips. Trips that cannot reach any candidate are skipped.
    """
    if n == 0 or len(demos) < 2:
        return []
    low, high = _EXAMPLE_SEGMENTS
    medium = np.flatnonzero((demos.lengths >= low) & (demos.lengths <= high))
    examples: list[ForecastExample] = []
    forecaster = Forecaster(mixture, demos)
    for i in (medium if medium.size else np.argsort(-demos.lengths)).tolist():
        others = forecaster.with_destinations(demos[np.arange(len(demos)) != i])
        with suppress(InvalidDemos):
            examples.append(forecast_example(others, network, demos[i].states, title=f"Trip {len(examples) + 1}"))
        if len(examples) == n:
            break
    return examples


def selection_table(selection: Selection) -> Table:
    """Return the table of scores by number of styles; the recommended number is marked.

    >>> one, two = SelectionRow(1, held_out=-9.0), SelectionRow(2, held_out=-8.5, held_out_se=0.2, bic=17.0)
    >>> selection = Selection((one, two), 2, {"held_out": 2}, "2 intents, by cross-validation.", {})
    >>> [cell.text for cell in selection_table(selection).cells[1]][:3]
    ['2', '–', '−8.50 ± 0.20']
    """
    columns: list[Column | str] = [Column("Styles", "left"), "Log-likelihood", "Held out", "Difference from the best"]
    columns += ["BIC", "ICL", Column("Remarks", "left")]
    unit = "trip" if selection.noun == "demonstrations" else "driver"
    caption = (
        "*Log-likelihood* is the training log-likelihood of the fit to all data, and *held out* the log-likelihood in "
        f"cross-validation, both in nats per {unit}. The difference is between held-out log-likelihoods; ± is one "
        f"standard error. Lower BIC and ICL are better. {literal(selection.reason)}"
    )
    rows = [_selection_row(row, selection) for row in selection.rows]
    return Table("cross-validation-styles", "Number of styles", caption, columns, rows)


def _selection_row(row: SelectionRow, selection: Selection) -> list[Content]:
    best = row.n_intents == selection.recommended
    remarks = [
        "recommended" if best else "",
        f"failed: {row.error}" if row.error else "",
        "" if row.error or row.converged else "EM did not converge",
        f"empty styles: {row.n_empty}" if row.n_empty else "",
    ]
    return [
        Cell(f"{row.n_intents}", mark="best" if best else None, value=row.n_intents),
        Cell.number(row.log_likelihood, 2),
        *(
            Cell.estimate(value, error, 2) if math.isfinite(error) else Cell.number(value, 2)
            for value, error in ((row.held_out, row.held_out_se), (row.behind, row.behind_se))
        ),
        Cell.number(row.bic, 0),
        Cell.number(row.icl, 0),
        ", ".join(remark for remark in remarks if remark),
    ]
