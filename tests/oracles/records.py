"""Synthetic records of studies with known verdicts."""

import numpy as np

from limiirl.experiments import Record, Results


def make_results(study, value, n_worlds=14, seed=0):
    """Return results of a study from `value(method, x, measure, seed)` and a little noise.

    Up to 13 worlds, scipy enumerates all signs of tied differences, which takes a second per test.
    """
    rng = np.random.default_rng(seed)
    records = {}
    for s in range(n_worlds):
        # Equal for all cells of a world, so that equal values tie.
        noise = rng.normal(size=4) * 0.01
        for setting in study.settings:
            nll, anid, gevd, n_iter = (
                value(setting.method, setting.x, measure, s) + noise[i]
                for i, measure in enumerate(("nll", "anid", "gevd", "n_iter"))
            )
            record = Record(
                setting.spec.hash,
                s,
                nll=nll,
                anid=anid,
                accuracy=value(setting.method, setting.x, "accuracy", s),
                gevd=gevd,
                n_iter=int(100 * n_iter),
                seconds_start=0.1,
                seconds_em=n_iter,
                margin=value(setting.method, setting.x, "margin", s),
            )
            records[record.key] = record
    return Results.of(study, records.values())
