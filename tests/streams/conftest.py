"""Demonstrations and stores that several tests of streams use."""

from pathlib import Path

import pytest

from limiirl import Demonstrations
from limiirl.streams import FeatureStore, write_features
from tests.oracles.mixture import crossings, walks


@pytest.fixture
def few() -> Demonstrations:
    return walks(100, seed=1)[0]


@pytest.fixture
def small_store(tmp_path: Path, few: Demonstrations) -> FeatureStore:
    return write_features(crossings(), [few], tmp_path / "features")


@pytest.fixture
def walked() -> Demonstrations:
    return walks(300, seed=1)[0]


@pytest.fixture
def named_shards(walked: Demonstrations) -> list[Demonstrations]:
    named = walked.replace(ids=[f"w{i}" for i in range(300)])
    return [named[:100], named[100:]]
