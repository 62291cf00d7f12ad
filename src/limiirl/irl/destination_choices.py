"""What a choice costs: the feature that keeps sums over ways of any length finite.

Ways may turn round and round among short segments, and their number grows by a factor at every choice. A cost a
kilometre hardly holds that back where choices are ten metres apart; a cost a choice does.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from limiirl.irl import checks
from limiirl.mdp import MDP

NAME = "choices"


def with_choices(mdp: MDP) -> MDP:
    """Return the MDP with one more action feature, "choices": the log of the number of actions to choose from.

    0 where there is no choice. At a parameter of -1 every choice is weighed as by a random walk, which prefers none of
    its actions: then any cost on every cycle, however small, makes all sums over ways finite. A fit says how much a
    choice costs beyond, or below, that.

    Examples
    --------
    >>> mdp = with_choices(MDP.from_edges([0, 0, 1, 2], [1, 2, 0, 0]))
    >>> mdp.feature_names
    ('state[0]', 'state[1]', 'state[2]', 'choices')
    >>> mdp.action_features.ravel().round(3)
    array([0.693, 0.693, 0.   , 0.   ])
    """
    checks.mdp(mdp)
    n_actions = np.bincount(mdp.pair_state, minlength=mdp.n_states)
    column = np.log(n_actions[mdp.pair_state])[:, None]
    given = mdp.action_features
    if given is None:
        joined = column
    elif isinstance(given, np.ndarray):
        joined = np.hstack([given, column])
    else:
        joined = sparse.hstack([given, sparse.csr_array(column)], format="csr")
    at = mdp.n_state_features + mdp.n_action_features
    names = (*mdp.feature_names[:at], NAME, *mdp.feature_names[at:])
    return mdp.replace(action_features=joined, feature_names=names)
