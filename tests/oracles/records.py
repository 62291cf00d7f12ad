"""Records of studies whose answers are known, because they are made up."""

import numpy as np

from limiirl.experiments import Record, Results


def made(study, value, n_worlds=14, seed=0):
    """Records of a study in which `value(method, x, measure, seed)` decides, but for a little noise.

    Of 13 worlds and fewer scipy tries all signs where differences are equal, which takes a second each.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for s in range(n_worlds):
        # The same for all cells of a world: equal ones tie, so that no verdict hangs on chance.
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
            found[record.key] = record
    return Results.of(study, found.values())
