"""The continuous PuddleWorld one number at a time, from spec.md, section B: no arrays, no code of the library's."""

import math


def radial_features(x: float, y: float) -> list[float]:
    """25 normalised Gaussians on a grid, numbered along x first."""
    grid = [0.0, 2.25, 4.5, 6.75, 9.0]
    raw = [math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2.0 * 1.265625)) for cy in grid for cx in grid]
    return [value / math.fsum(raw) for value in raw]


def reward_features(x: float, y: float, kind: str) -> list[float]:
    if math.dist((x, y), (9.0, 4.5)) < 1.0:
        return [0.0, 0.0, 1.0]
    puddle = 2.0 < x < 7.0 and 2.0 < y < 7.0
    if puddle or (kind == "up" and y < 4.5) or (kind == "down" and y > 4.5):
        return [0.0, -1.0, 0.0]
    return [-1.0, 0.0, 0.0]


def walk(weights, kind: str, noise) -> dict[str, list]:
    """One walk of a policy with weights (25, 2), disturbed by noise (H, 2), and what is recorded of it."""
    x, y = 0.0, 4.5
    positions, seen, actions, collected, live = [[x, y]], [], [], [], []
    ended = False
    for step in noise:
        if ended:
            seen.append([0.0] * 25)
            actions.append([0.0, 0.0])
            collected.append([0.0, 0.0, 1.0])
        else:
            features = radial_features(x, y)
            action = [
                math.fsum(f * float(row[b]) for f, row in zip(features, weights, strict=True))
                + math.sqrt(0.1) * float(step[b])
                for b in (0, 1)
            ]
            x = min(max(x + min(max(action[0], -1.0), 1.0), 0.0), 9.0 - 1e-8)
            y = min(max(y + min(max(action[1], -1.0), 1.0), 0.0), 9.0 - 1e-8)
            seen.append(features)
            actions.append(action)
            collected.append(reward_features(x, y, kind))
        live.append(not ended)
        ended = ended or collected[-1][2] == 1.0
        positions.append([x, y])
    return {
        "positions": positions,
        "policy_features": seen,
        "actions": actions,
        "reward_features": collected,
        "live": live,
    }
