"""Who beats whom: ratings, mixtures of opponents, and the Nash equilibrium of a table of results.

`win_rate` [N, N]: the share of games that row won against column, a draw being half of one; `games` [N, N]: how many they played.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ELO_SCALE = 400.0
NEWEST_SHARE = 0.8  # OpenAI Five: 80 % of games against the newest version, 20 % against older ones (arXiv 1912.06680)


def elo_expected(rating: float, other: float) -> float:
    """The share of points that Elo's model expects against another rating."""
    return float(1 / (1 + 10 ** ((other - rating) / ELO_SCALE)))


def elo_update(rating: float, other: float, score: float, k: float = 32.0) -> tuple[float, float]:
    """Both ratings after a game with this score (1, 0.5 or 0) for the first."""
    change = k * (score - elo_expected(rating, other))
    return rating + change, other - change


def elo_ratings(win_rate: Array, games: Array, prior: float = 1.0, iterations: int = 200) -> Array:
    """The ratings [N] under which the table is most likely, with mean 0: Bradley and Terry's model by Hunter's iteration (2004).

    Unlike `elo_update` this does not depend on the order of games. `prior`: drawn games that everybody is given against an average player,
    so that one who never lost has a rating, too.
    """
    won = (win_rate * games).sum(1) + prior / 2
    strength = np.ones(len(games))
    for _ in range(iterations):
        pairs = games / (strength[:, None] + strength[None])
        strength = won / (pairs.sum(1) + prior / (strength + 1))
        strength /= np.exp(np.log(strength).mean())
    return np.asarray(ELO_SCALE * np.log10(strength))


def pfsp(win_rate: Array, games: Array, power: float = 3.0, games_needed: int = 10, prefer: str = "hard") -> Array:
    """Prioritised fictitious self-play (AlphaStar, Vinyals et al. 2019): probabilities [N] of opponents that one wins against at these rates [N].

    hard: (1 - w)^power; even: w (1 - w). Opponents with fewer games than needed get the largest weight of all.
    """
    weight = (1 - win_rate) ** power if prefer == "hard" else win_rate * (1 - win_rate)
    known = games >= games_needed
    largest = weight[known].max(initial=0.0) or 1.0
    weight = np.asarray(np.where(known, weight, largest))
    return uniform(len(weight)) if weight.sum() == 0 else np.asarray(weight / weight.sum())


def uniform(count: int) -> Array:
    """The same probability for each of so many opponents."""
    return np.full(count, 1 / count)


def latest(count: int) -> Array:
    """Only the newest, which is the last."""
    return np.asarray(np.eye(count)[-1])


def mostly_latest(count: int) -> Array:
    """80 % the newest, 20 % the older ones alike."""
    if count == 1:
        return np.ones(1)
    return np.append(np.full(count - 1, (1 - NEWEST_SHARE) / (count - 1)), NEWEST_SHARE)


def fictitious_play(payoff: Array, iterations: int = 10_000) -> Array:
    """The mixture [N] that nobody beats in the symmetric zero-sum game in which row gets payoff[row, column] = - payoff[column, row].

    Both sides answer the other's mixture so far by the best reply (Brown 1951); ties go to the first.
    """
    counts = np.zeros(len(payoff))
    counts[0] = 1
    scores = payoff[:, 0].copy()
    for _ in range(iterations):
        reply = int(scores.argmax())
        counts[reply] += 1
        scores += payoff[:, reply]
    return np.asarray(counts / counts.sum())


def nash(win_rate: Array, iterations: int = 10_000, threshold: float = 0.01) -> Array:
    """The equilibrium mixture [N] of a table of win rates; those with the smallest shares, `threshold` together, are left out."""
    payoff = win_rate - win_rate.T
    mixture = fictitious_play(payoff, iterations)
    order = np.argsort(mixture, kind="stable")
    dropped = order[np.cumsum(mixture[order]) < threshold]
    mixture[dropped] = 0.0
    return np.asarray(mixture / mixture.sum())


def nash_clusters(win_rate: Array, iterations: int = 10_000) -> list[list[int]]:
    """Layers of players: the support of the equilibrium, then that of those who are left, and so on (Czarnecki et al. 2020, arXiv 2004.09468)."""
    left = list(range(len(win_rate)))
    layers = []
    while left:
        mixture = nash(win_rate[np.ix_(left, left)], iterations)
        layers.append([left[n] for n in np.flatnonzero(mixture)])
        left = [n for n in left if n not in layers[-1]]
    return layers
