"""The words of both matchers for what is missing of a trip."""

from __future__ import annotations

OUTSIDE = "nothing of it lies near the network"
SINGLE = "a single fix is no path"
CUT = "cut where no way leads on in time"
LEFT_OVER = "a single fix between cuts"
SKIPPED = "a fix that cannot be true was skipped"
AWAY = "a fix lies off the network"


def reasons_of(n_fixes: int, n_pieces: int, *, single: int, away: int, skipped: int) -> tuple[str, ...]:
    """Return a reason for each thing that is missing.

    Parameters
    ----------
    n_fixes, n_pieces : int
        Of the trip: fixes, and paths found.
    single : int
        Pieces of one fix, which are no paths.
    away, skipped : int
        Fixes without a place: off the network, and passed over although roads are near.

    Examples
    --------
    >>> reasons_of(9, 2, single=0, away=0, skipped=1)
    ('cut where no way leads on in time', 'a fix that cannot be true was skipped')
    >>> reasons_of(1, 0, single=1, away=0, skipped=0)
    ('a single fix is no path',)
    """
    if n_pieces == 0:
        return (OUTSIDE,) if not single else (SINGLE,) if n_fixes == 1 else (CUT,)
    return (CUT,) * (n_pieces + single - 1) + (LEFT_OVER,) * single + (AWAY,) * away + (SKIPPED,) * skipped
