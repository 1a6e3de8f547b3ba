"""Several players of a match by one policy, the others by frozen ones: against a plain loop over the controllers of a match."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env
from baldwin.envs.asynchronous import World
from baldwin.envs.matches import Matches, Turn
from baldwin.networks import ActionMap, GreedyPolicy, PolicyConfig, make_network
from baldwin.observations import ACTION_MASK
from baldwin.ops.moments import Moments
from baldwin.ops.seeds import mix
from baldwin.rollout import CollectJob, EpisodePosition, FrozenPlayers, RolloutSpec, WorkerSpec
from baldwin.types import Trial
from tests.toys.duels import Duel, TurnDuel
from tests.toys.signals import Signals

PLAIN = PolicyConfig(hidden=[6], normalize_obs=False, output_scale=1.0)
RECURRENT = PolicyConfig(hidden=[6], normalize_obs=False, output_scale=1.0, memory={"kind": "gru", "size": 4})
WORLDS: dict[str, type[World]] = {"Signals": Signals, "Duel": Duel, "TurnDuel": TurnDuel}


def env_of(name: str, players: list[str] | str, **kwargs: Any) -> EnvConfig:
    module = "signals" if name == "Signals" else "duels"
    return EnvConfig(id=f"tests.toys.{module}:{name}", players=players, kwargs=kwargs)


def frozen(env: EnvConfig, policy: PolicyConfig, seed: int) -> FrozenPlayers:
    env_spec = check_env(env)
    network = make_network(policy, env_spec.obs, ActionMap(env_spec.action_space, policy.squash, policy.head).outputs)
    arrays = {"params": network.init(seed), "obs_moments": Moments.empty(env_spec.obs.vector_size).pack()}
    return FrozenPlayers(tuple(env.players), env_spec, policy, arrays)


def play(world: World, cast: dict[str, GreedyPolicy], seed: int) -> dict[str, tuple[float, int]]:
    """Returns and decisions of one match in which each of these players has its own policy object."""
    matches = Matches()
    matches.begin(0, world, seed, list(cast))
    for policy in cast.values():
        policy.reset()
    totals, decisions = dict.fromkeys(cast, 0.0), dict.fromkeys(cast, 0)
    actions: dict[Turn, Any] = {}
    while True:
        for turn, step in matches.act(actions).items():
            totals[turn.player] += float(step.reward.sum())
        if not matches.waiting:
            break
        turn = matches.waiting[0]  # one after the other: the order within a frame changes nothing
        controller = matches.controller(turn)
        info = {} if controller.legal is None else {ACTION_MASK: controller.legal}
        actions = {turn: cast[turn.player].act(controller.observation, info)}
        decisions[turn.player] += 1
    matches.close()
    return {name: (totals[name], decisions[name]) for name in cast}


def single(players: FrozenPlayers, params: np.ndarray | None = None) -> GreedyPolicy:
    arrays = players.arrays if params is None else {**players.arrays, "params": params}
    return GreedyPolicy(players.policy, players.env_spec.obs, players.env_spec.action_space, arrays)


@pytest.mark.parametrize(
    ("name", "own", "other", "own_policy", "other_policy"),
    [
        ("Signals", ["caller_0", "caller_1"], ["listener"], PLAIN, RECURRENT),
        ("Signals", ["listener"], ["caller_0", "caller_1"], RECURRENT, PLAIN),
        ("Signals", ["listener"], ["caller_1"], PLAIN, PLAIN),  # and caller_0 by the script
        ("TurnDuel", ["red"], ["blue"], RECURRENT, RECURRENT),
        ("TurnDuel", ["blue"], ["red"], PLAIN, RECURRENT),
        ("TurnDuel", ["red", "blue"], [], RECURRENT, PLAIN),  # whoever waits remembers what it remembered
        ("Duel", ["blue", "red"], [], RECURRENT, PLAIN),
    ],
)
def test_whole_episodes_are_plain_loops(
    name: str, own: list[str], other: list[str], own_policy: PolicyConfig, other_policy: PolicyConfig
) -> None:
    """Five trials of two episodes each on three environments: refilled, and dropped at the end."""
    kwargs = {"rounds": 6} | ({"hidden": True, "shared": True} if "Duel" in name else {})
    learner = frozen(env_of(name, own, **kwargs), own_policy, 1)
    others = (frozen(env_of(name, other, **kwargs), other_policy, 2),) if other else ()
    worker = WorkerSpec(env_of(name, own, **kwargs), learner.env_spec, own_policy, others=others)()
    rng = np.random.default_rng(3)
    params = [learner.arrays["params"] + rng.normal(size=learner.arrays["params"].shape).astype(np.float32) for _ in range(5)]
    seeds = np.array([11, 12, 13])
    spec = RolloutSpec("train", 0, seeds, 4, episodes=2, obs_moments=learner.arrays["obs_moments"], collect_moments=True)
    outcomes = worker.evaluate([Trial(n, 0, p) for n, p in enumerate(params)], spec)
    worker.close()
    world = WORLDS[name](**kwargs)
    played = np.zeros(3, np.int64)
    decisions, returns = 0, []
    for n, (p, outcome) in enumerate(zip(params, outcomes, strict=True)):
        total, steps = [], 0
        for _ in range(2):
            cast = {player: single(learner, p) for player in own} | {player: single(o) for o in others for player in o.names}
            match = play(world, cast, mix(int(seeds[n % 3]), 4 + int(played[n % 3])))
            played[n % 3] += 1
            total.append(np.mean([match[player][0] for player in own]))
            steps += sum(match[player][1] for player in own)
        assert outcome.scalar == pytest.approx(np.mean(total))
        assert outcome.env_steps == steps
        decisions += steps
        returns.append(outcome.scalar)
    assert Moments.unpack(outcomes[0].arrays["obs_moments"]).count == decisions  # who waits sees nothing new
    assert len(set(returns)) > 1


def test_a_segment_is_the_same_on_a_worker_that_has_to_catch_up() -> None:
    """The frozen listener remembers its match: whoever takes over plays it again from its beginning."""
    env = env_of("Signals", ["caller_0", "caller_1"], rounds=9)
    learner, listener = frozen(env, PLAIN, 1), frozen(env_of("Signals", ["listener"], rounds=9), RECURRENT, 2)
    spec = WorkerSpec(env, learner.env_spec, PLAIN, others=(listener,))
    params, moments = learner.arrays["params"], learner.arrays["obs_moments"]

    def job(ticket: int, actions: np.ndarray) -> CollectJob:
        positions = tuple(EpisodePosition(n, 0, actions[n]) for n in range(4))
        return CollectJob(ticket, 5, params, moments, positions, 4, "sample")

    first = spec()
    begun = first.collect(job(0, np.zeros((4, 0), np.int64)))
    second = job(1, begun.arrays["action"])
    went_on, caught_up = first.collect(second), (other := spec()).collect(second)
    assert (went_on.replayed_steps, caught_up.replayed_steps) == (0, 16)
    for key, array in went_on.arrays.items():
        np.testing.assert_array_equal(array, caught_up.arrays[key])
    first.close()
    other.close()


class SeesTooMuch(Signals):
    """Shows its listener one number too many in the middle of some matches."""

    def reset(self, seed: int, players: Any) -> Any:
        self._bad = seed % 2 == 0
        return super().reset(seed, players)

    def _see(self, player: str, light: int, calls: list[int]) -> np.ndarray:
        seen = super()._see(player, light, calls)
        return np.append(seen, seen) if self._bad and player == "listener" and any(calls) else seen


@pytest.mark.parametrize("own", [["caller_0", "caller_1"], ["listener"]])
def test_a_match_that_fails_fails_its_trial_alone(own: list[str]) -> None:
    env = EnvConfig(id="tests.rollout.test_players_together:SeesTooMuch", players=own)
    learner = frozen(env_of("Signals", own), PLAIN, 1)
    other = frozen(env_of("Signals", ["listener"] if len(own) == 2 else ["caller_0", "caller_1"]), PLAIN, 2)
    worker = WorkerSpec(env, learner.env_spec, PLAIN, others=(other,))()
    seeds = np.arange(4, 10)
    spec = RolloutSpec("train", 0, seeds, 0, obs_moments=learner.arrays["obs_moments"])
    outcomes = worker.evaluate([Trial(n, 0, learner.arrays["params"]) for n in range(6)], spec)
    worker.close()
    bad = [mix(int(seed), 0) % 2 == 0 for seed in seeds]
    assert 0 < sum(bad) < 6
    assert [outcome.failed for outcome in outcomes] == bad
    assert all(("listener" in outcome.reason) == outcome.failed for outcome in outcomes)


def test_players_of_a_match_have_noise_of_their_own() -> None:
    spec = RolloutSpec("train", 0, np.array([3, 3, 8]), 0)
    assert spec.for_players(1) is spec
    assert spec.for_players(2).seeds.tolist() == [3, mix(3, 1), 3, mix(3, 1), 8, mix(8, 1)]
