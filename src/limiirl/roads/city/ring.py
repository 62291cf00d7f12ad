"""The ring road of the invented city: two roadways 30 m apart, and slip roads to the avenues that lead out to it."""

import numpy as np

from limiirl.roads.city.plan import LINK, MOTORWAY, SECONDARY, TWIN_M, Drawing, Float

_PIECE_M = 120.0  # of the ring between two nodes
_INTERCHANGES = 8
_STREET_M = 110.0  # pieces of the avenues out to the ring
_SLIP = 2  # pieces of the ring from a slip road to the avenue
_APART_M = 130.0  # from the ring's inner roadway to the end of an avenue


def ring_outline(rng: np.random.Generator) -> Float:
    """Return the ring's distance (360,) from the centre in each direction (degrees from east), 1 on average."""
    angle = np.radians(np.arange(360.0))
    phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
    return np.asarray(1.0 + 0.05 * np.sin(2.0 * angle + phase[0]) + 0.025 * np.sin(3.0 * angle + phase[1]))


def lay_ring(drawing: Drawing, radius_m: float, outline: Float, ends: list[int]) -> None:
    """Lay the ring and join it to the avenues that end near it, at up to eight interchanges.

    Traffic keeps to the right: the outer roadway leads anticlockwise, the inner one clockwise.

    Parameters
    ----------
    drawing : Drawing
        To which the streets are added.
    radius_m : float
        Of the ring, on average.
    outline : (360,)
        Of the ring, by degrees, as a share of the radius.
    ends : list of int
        Nodes where arterials end.
    """
    n = round(2.0 * np.pi * radius_m / _PIECE_M)
    step = 2.0 * np.pi / n

    def point(at: float, inwards_m: float) -> Float:
        angle = at * step
        r = radius_m * np.interp(np.degrees(angle), np.arange(360.0), outline, period=360.0) - inwards_m
        return np.asarray([r * np.cos(angle), r * np.sin(angle)])

    outer = [drawing.node(point(k, -TWIN_M / 2.0)) for k in range(n)]
    inner = [drawing.node(point(k, TWIN_M / 2.0)) for k in range(n)]
    drawing.street([*outer, outer[0]], MOTORWAY, drawing.way(), one_way=True)
    drawing.street([*inner[::-1], inner[-1]], MOTORWAY, drawing.way(), one_way=True)
    places = np.array([drawing.xy[k] for k in ends])
    bearing = np.arctan2(places[:, 1], places[:, 0])
    for quarter in range(_INTERCHANGES):
        away = np.abs((bearing - quarter * 2.0 * np.pi / _INTERCHANGES + np.pi) % (2.0 * np.pi) - np.pi)
        chosen = int(np.argmin(away))
        if away[chosen] > np.pi / _INTERCHANGES:
            continue
        k = round(bearing[chosen] / step)
        end = drawing.node(point(k, TWIN_M / 2.0 + _APART_M))
        drawing.street(_avenue(drawing, ends[chosen], end), SECONDARY, drawing.way())
        # Off the ring before the avenue, onto it after: clockwise inside, anticlockwise outside.
        for roadway, clockwise, inwards_m in ((inner, True, 75.0), (outer, False, 45.0)):
            for off in (True, False):
                offset = _SLIP if off == clockwise else -_SLIP
                bend = drawing.node(point(k + 0.5 * offset, inwards_m))
                chain = [roadway[(k + offset) % n], bend, end]
                drawing.street(chain if off else chain[::-1], LINK, drawing.way(), one_way=True)


def _avenue(drawing: Drawing, start: int, end: int) -> list[int]:
    """Return the nodes of a straight avenue between two nodes, a piece every 110 m."""
    a, b = np.array(drawing.xy[start]), np.array(drawing.xy[end])
    n = max(1, round(float(np.hypot(*(b - a))) / _STREET_M))
    return [start, *(drawing.node(a + (b - a) * k / n) for k in range(1, n)), end]
