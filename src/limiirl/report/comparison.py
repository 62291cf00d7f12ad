"""`compare`: a table of several fitted models, with one column per model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from limiirl._io import to_pandas
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter, NotFitted
from limiirl.mixture import Summary, format_reward
from limiirl.report.tables import Cell, Column, Content, Table, table_html, table_latex, table_markdown
from limiirl.switching import SwitchingSummary

# A parameter: intent and name.
_Key = tuple[int, str]


@dataclass(frozen=True, eq=False)
class ModelTable:
    """Several fitted models side by side; prints as text, and converts to Markdown, LaTeX, HTML and a data frame.

    Attributes
    ----------
    names : tuple of str
        Names of the models.
    summaries : tuple of Summary or SwitchingSummary
    held_out : tuple of float
        Mean log-likelihood per held-out demonstration; nan without held-out demonstrations.
    """

    names: tuple[str, ...]
    summaries: tuple[Summary | SwitchingSummary, ...]
    held_out: tuple[float, ...]
    _best: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        comparable = len({(_unit(summary), _n_units(summary)) for summary in self.summaries}) == 1
        bic = np.array([summary.bic for summary in self.summaries])
        held_out = np.array(self.held_out)
        best = {}
        if comparable and len(bic) > 1:
            best["BIC"] = int(np.argmin(bic))
        if len(held_out) > 1 and np.all(np.isfinite(held_out)):
            best["held-out"] = int(np.argmax(held_out))
        object.__setattr__(self, "_best", best)

    def table(self) -> Table:
        """Return the table of a report."""
        columns = [Column("", "left"), *(Column(name) for name in self.names)]
        several = any(summary.n_intents > 1 for summary in self.summaries)
        rows: list[list[Content]] = [
            [f"intent {k}: {name}" if several else name, *self._cells((k, name))] for k, name in self._keys()
        ]
        facts: list[list[Content]] = [[label, *cells] for label, cells in self._facts()]
        return Table("models", "Fitted models", " ".join(self._notes()), columns, rows + facts)

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        return table_markdown(self.table())

    def to_latex(self) -> str:
        """Return the table as a LaTeX float, which requires the package booktabs."""
        return table_latex(self.table())

    def to_html(self) -> str:
        """Return the table and its notes in HTML."""
        return f"{table_html(self.table())}\n<p>{' '.join(self._notes())}</p>"

    _repr_html_ = to_html

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with the columns model, intent, parameter, value, standard_error, t and p."""
        columns: dict[str, list[Any]] = {name: [] for name in _FRAME}
        for name, summary in zip(self.names, self.summaries, strict=True):
            for (k, parameter), estimate in _estimates(summary).items():
                for column, value in zip(_FRAME, (name, k, parameter, *estimate[:4]), strict=True):
                    columns[column].append(value)
        return to_pandas(columns)

    def __str__(self) -> str:
        table = self.table()
        lines = [[column.title for column in table.headings], *([cell.text for cell in row] for row in table.cells)]
        widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
        first = len(list(self._keys())) + 1
        text = []
        for i, line in enumerate(lines):
            if i == first:
                text.append("")
            cells = (f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
            text.append("   ".join([f"{line[0]:<{widths[0]}}", *cells]).rstrip())
        return "\n".join([*text, "", *self._notes()])

    __repr__ = __str__

    def _keys(self) -> Iterator[_Key]:
        """Yield the parameters of all models, by intent; weights first, then in the order of the models."""
        keys = dict.fromkeys(key for summary in self.summaries for key in _estimates(summary))
        yield from sorted(keys, key=lambda key: (key[0], key[1] not in _WEIGHTS))

    def _cells(self, key: _Key) -> Iterator[Cell | None]:
        for summary in self.summaries:
            estimate = _estimates(summary).get(key)
            if estimate is None:
                yield None
                continue
            value, error, _, _, status = estimate
            half = error if math.isfinite(error) else None
            text = " ".join(format_reward(value, error, status)).strip().replace("-", "−")
            yield Cell(text, value=value, half_width=half)

    def _facts(self) -> Iterator[tuple[str, list[Cell]]]:
        """Yield the rows below the parameters."""
        summaries = self.summaries
        yield "intents", [Cell.count(summary.n_intents) for summary in summaries]
        units = {_unit(summary) for summary in summaries}
        yield units.pop() if len(units) == 1 else "units", [Cell.count(_n_units(summary)) for summary in summaries]
        yield "free parameters", [Cell.count(summary.n_free) for summary in summaries]
        yield "log-likelihood", [Cell.number(summary.total_log_likelihood) for summary in summaries]
        if any(math.isfinite(summary.rho_squared) for summary in summaries):
            yield "rho-squared", [Cell.number(summary.rho_squared, 4) for summary in summaries]
        yield (
            "BIC",
            [Cell.number(s.bic, 1, "best" if i == self._best.get("BIC") else None) for i, s in enumerate(summaries)],
        )
        if any(map(math.isfinite, self.held_out)):
            best = self._best.get("held-out")
            cells = [Cell.number(x, 4, "best" if i == best else None) for i, x in enumerate(self.held_out)]
            yield "held-out log-likelihood", cells

    def _notes(self) -> Iterator[str]:
        methods = dict.fromkeys(_method(summary) for summary in self.summaries)
        if len(methods) == 1:
            yield f"± {next(iter(methods))}."
        else:
            pairs = zip(self.names, self.summaries, strict=True)
            yield f"± {'; '.join(f'{name}: {_method(summary)}' for name, summary in pairs)}."
        if any(math.isfinite(summary.rho_squared) for summary in self.summaries):
            yield "rho-squared is relative to theta = 0."
        if any(map(math.isfinite, self.held_out)):
            yield "Held-out log-likelihood is the mean per demonstration."
        if len({(_unit(summary), _n_units(summary)) for summary in self.summaries}) > 1:
            yield "BIC is not comparable, because the models have different units."


_WEIGHTS = ("weight", "share of steps")
_FRAME = ("model", "intent", "parameter", "value", "standard_error", "t", "p")


def _estimates(summary: Any) -> dict[_Key, tuple[float, float, float, float, str]]:
    """Return value, error, t, p and status of the rewards, and of the weights of a mixture, by intent and name."""
    K, d = summary.thetas.shape
    result = {}
    mixed = isinstance(summary, Summary)
    for k in range(K):
        if K > 1:
            weight, error = (summary.weights[k], summary.weight_errors[k]) if mixed else (summary.shares[k], math.nan)
            result[k, _WEIGHTS[0] if mixed else _WEIGHTS[1]] = (float(weight), float(error), math.nan, math.nan, "ok")
        for j in range(d):
            tables = (summary.thetas, summary.errors, summary.t_values, summary.p_values)
            numbers = [float(table[k, j]) for table in tables]
            result[k, summary.feature_names[j]] = (*numbers, str(summary.status[k, j]))  # type: ignore[assignment]
    return result


def _unit(summary: Any) -> str:
    return summary.unit if isinstance(summary, Summary) else "steps"


def _n_units(summary: Any) -> int:
    return int(summary.n_units if isinstance(summary, Summary) else summary.n_steps)


def _method(summary: Any) -> str:
    if isinstance(summary, Summary):
        return summary.spread
    return f"one standard error, from the {summary.method}" if summary.method else "no standard errors"


def compare(
    models: Iterable[Any],
    names: Sequence[str] | None = None,
    *,
    held_out: Demonstrations | None = None,
    covariance: str | None = None,
) -> ModelTable:
    """Return a table of fitted models: parameters with standard errors, log-likelihood, BIC and held-out score.

    Parameters
    ----------
    models : iterable
        Fitted mixtures, or summaries, such as ``irl.summary(mdp, demos)`` of a model without a mixture. Intents are
        in the order of each model; see `IntentMixture.align_to`.
    names : sequence of str, optional
        By default "(1)", "(2)", ...
    held_out : Demonstrations, optional
        Demonstrations that were not used to fit; summaries have no score.
    covariance : {"observed", "robust", "cluster"}, optional
        See `IntentMixture.standard_errors`; not used for summaries.

    Returns
    -------
    ModelTable

    Examples
    --------
    >>> import limiirl as ll
    >>> world = ll.worlds.SyntheticWorld(n_states=31, horizon=6, n_intents=2, n_features=2, seed=1)
    >>> demos, _ = world.sample(200, seed=0, policy="boltzmann", beta=0.5)
    >>> mixtures = [ll.IntentMixture(k, random_state=0).fit(world.mdp, demos) for k in (1, 2)]
    >>> table = ll.compare(mixtures, ["one intent", "two intents"])
    >>> table.summaries[0].n_free, table.to_markdown().count("BIC")
    (1, 1)
    """
    given = list(models)
    if not given:
        raise InvalidParameter("models must not be empty. Pass at least one fitted model.", parameter="models")
    labels = tuple(f"({i + 1})" for i in range(len(given))) if names is None else tuple(names)
    if len(labels) != len(given):
        raise InvalidParameter.of("names", len(labels), f"must have {len(given)} entries, one per model")
    options = {} if covariance is None else {"covariance": covariance}
    summaries, scores = [], []
    for i, model in enumerate(given):
        is_summary = isinstance(model, Summary | SwitchingSummary)
        if not is_summary and not hasattr(model, "thetas_"):
            message = (
                f"models must be fitted mixtures or summaries; models[{i}] is a {type(model).__name__}. Call fit, or "
                "pass irl.summary(mdp, demos) for a model without a mixture."
            )
            raise NotFitted(message, parameter="models", index=i)
        summaries.append(model if is_summary else model.summary(**options))
        scored = held_out is not None and not is_summary
        scores.append(float(np.mean(model.score_samples(held_out))) if scored else math.nan)
    return ModelTable(labels, tuple(summaries), tuple(scores))
