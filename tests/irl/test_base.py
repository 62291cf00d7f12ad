"""Optional members of models."""

import numpy as np

from limiirl.irl import MaxCausalEnt, MaxEnt, OptionalMembers, SigmaGIRL


class Plain:
    """A model without optional members."""


def test_defaults_apply_to_a_model_without_optional_members():
    members = OptionalMembers.of(Plain())
    assert members == OptionalMembers()
    assert members.make_problem is members.fit_many is members.features is members.null_directions is None
    assert members.bounds is None
    assert members.null_directions_vary
    assert members.null_status == "not identified"
    assert members.normalised
    assert members.takes_action_features


def test_members_of_models():
    assert OptionalMembers.of(MaxEnt(bounds=(-3, 2))).bounds == (-3, 2)
    assert not OptionalMembers.of(MaxCausalEnt()).null_directions_vary
    assert [OptionalMembers.of(MaxEnt(stop=stop)).null_directions_vary for stop in ("anywhere", "terminal")] == [
        False,
        True,
    ]
    sigma = OptionalMembers.of(SigmaGIRL())
    assert sigma.null_status == "up to scale"
    assert not sigma.normalised
    assert sigma.null_directions is not None
    np.testing.assert_array_equal(sigma.null_directions(None, [0.0, 2.0]), [[0.0, 1.0]])
