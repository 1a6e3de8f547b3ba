"""Ratings, mixtures and equilibria against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baldwin.ops.league import (
    elo_expected,
    elo_ratings,
    elo_update,
    fictitious_play,
    latest,
    mostly_latest,
    nash,
    nash_clusters,
    pfsp,
    uniform,
)

ROCK_PAPER_SCISSORS = np.array([[0.5, 0, 1], [1, 0.5, 0], [0, 1, 0.5]])


def test_elo_of_one_game() -> None:
    assert elo_expected(1500, 1500) == 0.5
    assert elo_expected(1900, 1500) == pytest.approx(10 / 11)
    assert elo_update(1500, 1500, 1.0) == (1516, 1484)
    assert elo_update(1900, 1500, 0.5) == pytest.approx((1900 + 32 * (0.5 - 10 / 11), 1500 - 32 * (0.5 - 10 / 11)))


def test_ratings_of_two_players_are_their_odds() -> None:
    """Three wins in four games: odds of 3, and 400 log10 3 = 190.85 between them."""
    rates, games = np.array([[0.5, 0.75], [0.25, 0.5]]), np.array([[0.0, 4], [4, 0]])
    ratings = elo_ratings(rates, games, prior=0.0)
    np.testing.assert_allclose(ratings, [95.42, -95.42], atol=0.01)
    assert elo_expected(*ratings) == pytest.approx(0.75)


def test_ratings_are_finite_for_one_who_never_lost_and_follow_the_model() -> None:
    assert np.isfinite(elo_ratings(np.array([[0.5, 1], [0, 0.5]]), np.array([[0.0, 9], [9, 0]]))).all()
    strength = np.array([4.0, 2.0, 1.0])
    rates = strength[:, None] / (strength[:, None] + strength[None])
    found = elo_ratings(rates, 1000 * (1 - np.eye(3)), prior=0.0)
    np.testing.assert_allclose(found, 400 * np.log10(strength / 2), atol=0.01)


def test_pfsp_prefers_those_who_are_hard_to_beat() -> None:
    many = np.full(3, 100.0)
    np.testing.assert_allclose(pfsp(np.array([0.5, 0.0, 1.0]), many), [0.125 / 1.125, 1 / 1.125, 0])
    np.testing.assert_allclose(pfsp(np.array([0.5, 0.1, 0.9]), many, prefer="even"), np.array([0.25, 0.09, 0.09]) / 0.43)
    np.testing.assert_allclose(pfsp(np.array([0.5, 0.9, 0.0]), np.array([100.0, 100, 2])), np.array([0.125, 0.001, 0.125]) / 0.251)
    np.testing.assert_allclose(pfsp(np.ones(4), np.full(4, 100.0)), 0.25)  # all are always beaten


def test_simple_mixtures() -> None:
    np.testing.assert_array_equal(uniform(4), 0.25)
    np.testing.assert_array_equal(latest(3), [0, 0, 1])
    np.testing.assert_allclose(mostly_latest(5), [0.05, 0.05, 0.05, 0.05, 0.8])
    np.testing.assert_array_equal(mostly_latest(1), [1])


def test_the_equilibrium_of_a_cycle_is_its_mixture() -> None:
    np.testing.assert_allclose(nash(ROCK_PAPER_SCISSORS), 1 / 3, atol=0.01)
    uneven = np.array([[0, -1, 2], [1, 0, -1], [-2, 1, 0]])  # of rock against scissors twice as much
    np.testing.assert_allclose(fictitious_play(uneven.astype(float), 100_000), [0.25, 0.5, 0.25], atol=0.01)


def test_who_always_loses_has_no_share() -> None:
    with_loser = np.full((4, 4), 0.5)
    with_loser[:3, :3] = ROCK_PAPER_SCISSORS
    with_loser[:3, 3], with_loser[3, :3] = 1, 0
    assert nash(with_loser)[3] == 0
    assert nash_clusters(with_loser) == [[0, 1, 2], [3]]
    chain = np.array([[0.5, 1, 1], [0, 0.5, 1], [0, 0, 0.5]])
    assert nash_clusters(chain) == [[0], [1], [2]]
