"""Names of streets: what a map's tags call them, finding a street by its name, and how to speak of one without."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from limiirl.errors import InvalidParameter

if TYPE_CHECKING:
    from limiirl.roads.network import RoadNetwork

Int = NDArray[np.int64]

_LISTED = 8


def tagged(tags: Mapping[str, Any]) -> str:
    """Return what tags of OpenStreetMap call a street: its name, that of its bridge or tunnel, and its number.

    Examples
    --------
    >>> tagged({"name": "Ponte da Arrábida", "bridge:name": "Ponte da Arrábida", "ref": "A 1"})
    'Ponte da Arrábida (A 1)'
    >>> tagged({"name": "Rua Nova", "bridge:name": "Ponte Velha"}), tagged({"ref": "A 1;IC 23"}), tagged({})
    ('Rua Nova, Ponte Velha', 'A 1, IC 23', '')
    """
    said, number = (", ".join(_texts(tags, keys)) for keys in (("name", "bridge:name", "tunnel:name"), ("ref",)))
    return f"{said} ({number})" if said and number else said or number


def _texts(tags: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return the distinct values of some tags; a semicolon separates several of one."""
    given = (part.strip() for key in keys for part in str(tags.get(key) or "").split(";"))
    return list(dict.fromkeys(part for part in given if part))


def indexed(names: Sequence[str]) -> tuple[tuple[str, ...], Int]:
    """Return each name once, sorted, "" first, and which of them each is.

    Examples
    --------
    >>> indexed(["b", "", "a", "b"])
    (('', 'a', 'b'), array([2, 0, 1, 2]))
    """
    distinct = sorted({"", *names})
    place = {name: i for i, name in enumerate(distinct)}
    return tuple(distinct), np.array([place[name] for name in names], dtype=np.int64)


def find(network: RoadNetwork, name: str) -> Int:
    """Return the segments of streets by name; see `RoadNetwork.find`."""
    wanted = _plain(name)
    if not wanted:
        raise InvalidParameter("The name of a street is needed; got none.")
    names = network.street_names
    if not any(names):
        raise InvalidParameter(
            "This network has no names of streets: its map has none, or it was built by an earlier limiirl. Build it "
            "again (trips stay matched to it), or point at a place with network.nearest."
        )
    plain = [_plain(known) for known in names]
    whole = [i for i, known in enumerate(plain) if wanted in (known, known.partition(" (")[0])]
    chosen = whole or [i for i, known in enumerate(plain) if wanted in known]
    if not chosen:
        close = difflib.get_close_matches(wanted, [known for known in plain if known], n=_LISTED, cutoff=0.5)
        like = ", ".join(dict.fromkeys(names[plain.index(known)] for known in close))
        raise InvalidParameter(
            f"No street is called {name!r}. " + (f"Alike are {like}." if like else "Nor is any name like it.")
        )
    return np.flatnonzero(np.isin(network.street_of, chosen))


def names_of(network: RoadNetwork, segments: Int) -> list[str]:
    """Return the distinct names of some segments, the longest street first, those without one left out."""
    metres = np.bincount(network.street_of[segments], network.length_m[segments], minlength=len(network.street_names))
    order = np.argsort(-metres, kind="stable")
    return [network.street_names[i] for i in order if metres[i] > 0.0 and network.street_names[i]]


def called(network: RoadNetwork, segment: int) -> str:
    """Return how to speak of the street of a segment: its name, or what it is and where.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> called(RoadNetwork.from_segments([41.15, 41.16], [-8.63, -8.63], [0, 1], [1, 0]), 0)
    'a road near 41.1550,-8.6300'
    """
    name = network.street(segment)
    return name or f"{unnamed(network, segment)} near {place(network, segment)}"


def unnamed(network: RoadNetwork, segment: int) -> str:
    """Return what a street is, by its class: a tertiary road, a motorway."""
    word = network.class_names[network.road_class[segment]].replace("_", " ")
    noun = "" if word.endswith(("road", "way", "street", "avenue", "ring", "link", "service")) else " road"
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}{noun}"


def place(network: RoadNetwork, segment: int) -> str:
    """Return the middle of a segment as LAT,LON."""
    nodes = [network.tail[segment], network.head[segment]]
    return f"{network.lat[nodes].mean():.4f},{network.lon[nodes].mean():.4f}"


def parts(network: RoadNetwork) -> Int:
    """Return a number (S,) for each part of a street that hangs together: of one name, or one way where it has none.

    Two streets of one name in different quarters are two; so are the carriageways of an avenue.

    Examples
    --------
    >>> from limiirl.roads import RoadNetwork
    >>> line = RoadNetwork.from_segments([41.15, 41.16, 41.17], [-8.63] * 3, [0, 1, 1], [1, 0, 2], way_id=[4, 4, 5])
    >>> parts(line)
    array([0, 0, 1])
    """
    street = np.where(network.street_of > 0, -1 - network.street_of.astype(np.int64), network.way_id)
    alone = (network.street_of == 0) & (network.way_id < 0)
    _, key = np.unique(street, return_inverse=True)
    key = np.where(alone, key.max() + 1 + np.arange(key.size), key)
    ends = np.concatenate([key * network.n_nodes + network.tail, key * network.n_nodes + network.head])
    distinct, at = np.unique(ends, return_inverse=True)
    n = network.n_segments
    graph = sparse.csr_array((np.ones(n, dtype=np.int8), (at[:n], at[n:])), shape=(distinct.size, distinct.size))
    label = connected_components(graph, directed=False)[1][at[:n]]
    return np.asarray(np.unique(label, return_inverse=True)[1], dtype=np.int64)


def _plain(text: str) -> str:
    """Return a name as it is compared: no capitals, no accents, single blanks."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).split())
