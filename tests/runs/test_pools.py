"""Runs against a pool of opponents: by evolution and by hybrids, and members that remember or see pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError
from baldwin.opponents import GAMES
from baldwin.rollout import RolloutJob
from baldwin.runs.build import build
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.history import rebuild
from baldwin.runs.opponents import league_table
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, shown, train_and_kill_twice, train_run, worker_killer

RUN = ["executor.name=inline", "run.evaluate_every=2", "run.episodes=2", "run.checkpoint_every=1", "stop.generations=5"]
POOL = "opponents={choice: pfsp, games_needed: 2, capacity: 3, snapshot: {steps: 40}}"
DUEL = ["env.id=tests.toys.duels:Duel", "policy.hidden=[4]"]
PONG = ["env.id=baldwin:VectorPong-v0", "env.max_episode_steps=60", "policy.hidden=[4]"]
EVOLUTION = ["algorithm.block=4", "algorithm.episodes=2"]
PPO = ["algorithm.name=ppo", "algorithm.n_envs=8", "algorithm.block=4", "algorithm.rollout_length=12", "algorithm.batch_size=48"]
PPO += ["algorithm.epochs=2", "algorithm.steps_per_epoch=96"]
HYBRID = ["algorithm.start_steps=60", "algorithm.buffer_size=2000", "algorithm.checkpoint_slack=2000", "env.max_episode_steps=8"]
HYBRID += ["algorithm.learner={name: sac, batch_size: 16, critic: {hidden: [8]}}", "policy.activation=tanh"]
PICTURES = [*DUEL, "env.kwargs={picture: true, hidden: true}", "env.frame_stack=2", "policy.images={conv: small, hidden: [8]}"]
SETTINGS = {
    "es": [*PONG, *EVOLUTION, "algorithm.name=es", "algorithm.population=12"],
    "es-duel": [*DUEL, *EVOLUTION, "algorithm.name=es", "algorithm.population=12", "algorithm.common_random_numbers=none"],
    "cem": [*DUEL, *EVOLUTION, "algorithm.name=cem", "algorithm.population=8"],
    "sep-cma-es": [*DUEL, *EVOLUTION, "algorithm.name=sep-cma-es", "algorithm.population=8"],
    "aes": [*PONG, *EVOLUTION, "algorithm.name=aes"],
    "cem-rl": [*DUEL, *HYBRID, "algorithm.name=cem-rl", "algorithm.strategy.population=6", "algorithm.rl_individuals=2"],
    "p-cem-rl": [*DUEL, *HYBRID, "algorithm.name=p-cem-rl", "algorithm.strategy.population=6", "algorithm.rl_individuals=2"],
    "aes-rl": [*DUEL, *HYBRID, "algorithm.name=aes-rl", "algorithm.steps_per_epoch=60", "algorithm.critic_steps_per_job=10"],
    "lstm": [*PPO, "env.id=baldwin:TwoRatePong-v0", "env.max_episode_steps=30", "policy.hidden=[4]", "policy.memory={kind: lstm, size: 3}"],
    "pictures": [*PPO, *PICTURES],
    "es-pictures-lstm": [*PICTURES, *EVOLUTION, "algorithm.name=es", "algorithm.population=8", "policy.memory={kind: lstm, size: 3}"],
}
SYNCHRONOUS = [kind for kind in SETTINGS if not kind.startswith("aes")]


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*SETTINGS[kind], *RUN, POOL, *overrides])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> RunsWhenAsked:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_any_number_of_workers_gives_the_same_hash(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    run = train_run(small(kind, "executor.name=process", "executor.workers=3"), tmp_path / "run")
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)
    assert run.last["opponents"] == 3


@pytest.mark.parametrize("kind", ["es", "cem-rl", "lstm", "pictures"])
def test_a_killed_worker_changes_nothing(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    with worker_killer(3) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", ["es", "aes", "aes-rl", "lstm"])
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    train_and_kill_twice([*SETTINGS[kind], *RUN, POOL], tmp_path / "run", quiet[kind])
    assert shown(tmp_path / "run")["params_sha256"] == quiet[kind].params_sha256()


@pytest.mark.parametrize("kind", ["es", "aes", "cem-rl", "aes-rl"])
def test_the_journal_rebuilds_a_run_with_opponents(quiet: RunsWhenAsked, kind: str) -> None:
    run = quiet[kind]
    assert policy_hash(rebuild(run.directory, run.algorithm.version)) == run.params_sha256()
    table = league_table(run.directory.path)
    assert (table["players"][0], table["players"][-1]) == ("script", "learner")
    assert np.array(table["games"]).sum() > 0


@pytest.mark.parametrize("kind", ["es", "cem", "aes"])
def test_those_who_are_compared_meet_the_same_opponents(quiet: RunsWhenAsked, kind: str) -> None:
    """After a few generations the pool has several members; pairs, or all of a block, meet one sequence of them."""
    algorithm = build(small(kind, "opponents.choice=uniform")).algorithm
    algorithm.load_state_dict(quiet[kind].algorithm.state_dict())
    jobs = [job for job in algorithm.ask(6) if isinstance(job, RolloutJob)]
    group = 2 if kind == "es" else 4
    met = [[[job.spec.choose_opponent(env, episode) for episode in range(2)] for env in range(4)] for job in jobs]
    for block in met:
        for first in range(0, 4, group):
            assert len({tuple(own) for own in block[first : first + group]}) == 1
    assert len({number for block in met for own in block for number in own}) > 1


def test_the_games_of_a_block_travel_with_its_first_outcome() -> None:
    parts = build(small("es-duel"))
    worker = parts.worker_spec()
    for shared in parts.algorithm.publish():
        worker.receive(shared)
    (job,) = parts.algorithm.ask(1)
    outcomes = job.run(worker)
    assert [GAMES in o.arrays for o in outcomes] == [True, False, False, False]
    games = outcomes[0].arrays[GAMES]
    assert games.shape == (8, 3)  # four individuals, two episodes each
    assert set(games[:, 0]) == {0.0}
    np.testing.assert_allclose(games[:, 1].reshape(4, 2).mean(1), [o.scalar for o in outcomes])
    worker.close()


def test_evolution_learns_the_best_reply(tmp_path: Path) -> None:
    """Of eight rounds half are won against random words; whoever is always right is never beaten."""
    options = ["env.id=tests.toys.duels:Duel", "policy.hidden=[]", "algorithm.name=es", "algorithm.population=16", "algorithm.block=16"]
    options += ["algorithm.sigma=0.2", "algorithm.lr=0.1", *RUN, "run.episodes=16", "stop.generations=30"]
    pool = "opponents={choice: uniform, snapshot: {steps: 500, win_rate: 0.5}, capacity: 4}"
    run = train_run(load_config(None, [], [*options, pool]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= 3
    assert league_table(run.directory.path)["elo"][0] == min(league_table(run.directory.path)["elo"])  # the script


def test_members_with_virtual_batch_normalisation_come_from_the_run_itself(quiet: RunsWhenAsked) -> None:
    """The fixed batch is another one in every run."""
    path = quiet["es-pictures-lstm"].directory.path
    with pytest.raises(ConfigError, match="virtual batch normalisation"):
        build(small("es-pictures-lstm", "policy.images.norm=virtual-batch", f"opponents.pool=[script, {path}]"))


@pytest.mark.parametrize("kind", ["aes", "aes-rl"])
def test_the_journal_rebuilds_what_three_workers_did_in_any_order(kind: str, tmp_path: Path) -> None:
    run = train_run(small(kind, "executor.name=process", "executor.workers=3"), tmp_path / "run")
    assert run.last["failed"] == 0
    assert run.last["opponents"] == 3
    assert policy_hash(rebuild(run.directory, run.algorithm.version)) == run.params_sha256()


def test_matches_that_do_not_begin_fail_alone(tmp_path: Path) -> None:
    options = [*SETTINGS["es-duel"], *RUN, "env.id=tests.toys.duels:ShakyDuel"]
    run = train_run(load_config(None, [], [*options, "opponents={pool: [script, 'script:random'], snapshot: null}"]), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert 0 < max(line.get("failed_pairs", 0) for line in lines) < 6
    assert "no light today" in shown(tmp_path / "run")["failures"][0]
    assert run.algorithm.version > 1


SCRIPTS = "[script, 'script:random', 'script:tests.toys.scripts:says_what_it_sees']"


def test_scripts_by_name_are_members_of_the_pool(tmp_path: Path) -> None:
    """Drawn by weights, and the same with any number of workers: what a script draws is a function of the match and the moment."""
    scripts = [f"opponents={{pool: {SCRIPTS}, choice: given, weights: [1, 3, 2], snapshot: null}}"]
    runs = {}
    for workers in (1, 3):
        options = [*SETTINGS["es-duel"], *RUN, *scripts, "executor.name=process", f"executor.workers={workers}"]
        runs[workers] = train_run(load_config(None, [], options), tmp_path / str(workers))
    assert runs[1].params_sha256() == runs[3].params_sha256()
    table = league_table(tmp_path / "1")
    assert table["players"] == ["script", "script:random", "script:tests.toys.scripts:says_what_it_sees", "learner"]
    games, rates = (np.array(table[name])[-1, :3] for name in ("games", "win_rate"))
    assert games[1] > games[2] > games[0] > 0
    assert rates[2] < 0.5 < rates[1] + 0.2  # nobody beats the one that is always right
    assert policy_hash(rebuild(runs[1].directory, runs[1].algorithm.version)) == runs[1].params_sha256()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("script:", r"expected script \(the world's own\), script:random"),
        ("script:randm", r"expected script \(the world's own\), script:random or script:package.module:function"),
        ("script:tests.toys.nothing:f", "cannot import 'tests.toys.nothing'"),
        ("script:tests.toys.scripts:f", "'tests.toys.scripts' has no function 'f'"),
    ],
)
def test_scripts_that_are_not_there_are_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(load_config(None, [], [*SETTINGS["es-duel"], *RUN, f"opponents.pool=['{name}']"]))


def test_scripts_of_a_users_modules_are_foreign_code() -> None:
    assert load_config(None, [], [*SETTINGS["es-duel"], f"opponents.pool={SCRIPTS}"]).foreign_code() == [
        "env.id=tests.toys.duels:Duel",
        "opponents.pool=script:tests.toys.scripts:says_what_it_sees",
    ]


DQN = [
    "algorithm.name=dqn",
    "algorithm.start_steps=16",
    "algorithm.batch_size=8",
    "algorithm.buffer_size=500",
    "algorithm.steps_per_epoch=64",
]
LEAGUE = [*PPO, "population.name=league", "population.steps=96", "population.main=1", "population.episodes=2"]


@pytest.mark.parametrize("kind", ["ppo", "dqn", "es-duel", "cem-rl", "league"])
def test_who_won_is_what_the_world_says(kind: str, tmp_path: Path) -> None:
    """Although half of the returns are negative: on segments, whole episodes of evolution and of hybrids, and matches of a league."""
    own = {"ppo": PPO, "dqn": DQN, "league": LEAGUE}.get(kind) or SETTINGS[kind]
    pool = [] if kind == "league" else [POOL, "opponents.snapshot=null"]
    options = [*own, *DUEL, *RUN, *pool, "env.id=tests.toys.duels:AlwaysWon"]
    train_run(load_config(None, [], options), tmp_path / "run")
    table = league_table(tmp_path / "run")
    games, rates = np.array(table["games"]), np.array(table["win_rate"])
    assert games.sum() > 3
    assert set(rates[games > 0]) == {0.0, 1.0}
    assert kind == "league" or rates[-1, 0] == 1.0
