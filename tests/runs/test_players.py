"""Runs in worlds of several players: one against a script, and all of them by one policy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.config import RunConfig, load_config
from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World
from baldwin.envs.pong_backend import PongVectorEnv
from baldwin.envs.vector_env import Ids, StepResult
from baldwin.errors import ConfigError, EnvironmentFailure, RunDirectoryError
from baldwin.runs.build import build
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.history import load_policy, rebuild
from baldwin.runs.opponents import league_table
from baldwin.runs.run import start, train
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, in_process, shown, train_and_kill_twice, train_run, worker_killer

SMALL = [
    "env.max_episode_steps=60",
    "policy.hidden=[8]",
    "algorithm.n_envs=12",
    "algorithm.block=6",
    "algorithm.rollout_length=25",
    "algorithm.batch_size=64",
    "algorithm.epochs=2",
    "algorithm.steps_per_epoch=300",
    "executor.name=inline",
    "run.evaluate_every=2",
    "run.episodes=2",
    "run.checkpoint_every=1",
    "stop.generations=4",
]
POOL = "opponents={choice: pfsp, games_needed: 2, capacity: 3, snapshot: {steps: 300}}"
GAMES = {
    "pong": ["env.id=baldwin:VectorPong-v0", "env.self_play=true"],
    "spread": ["env.id=pettingzoo:mpe2.simple_spread_v3", "env.self_play=true"],
    "pong-pool": ["env.id=baldwin:VectorPong-v0", POOL],
    "two-rate-pool": ["env.id=baldwin:TwoRatePong-v0", POOL.replace("pfsp", "nash")],
    "tic-tac-toe": ["env.id=pettingzoo:classic.tictactoe_v3", "env.self_play=true"],
    "two-rates-lstm": ["env.id=baldwin:TwoRatePong-v0", "env.self_play=true", "policy.memory={kind: lstm, size: 3}"],
    "nim-a2c": ["env.id=examples.nim:Nim", "env.self_play=true", "algorithm.name=a2c", "algorithm.normalize_reward=true"],
    "dqn-nim": ["env.id=examples.nim:Nim", "env.self_play=true"],
    "dqn-pool": ["env.id=baldwin:VectorPong-v0", POOL],
    "torn": ["env.id=tests.toys.duels:TornDuel", "env.self_play=true"],  # matches fail, and some do not begin
    "dqn-torn-pool": ["env.id=tests.toys.duels:TornDuel", POOL],
    "tic-tac-toe-pool": ["env.id=pettingzoo:classic.tictactoe_v3", POOL.replace("pfsp", "80-20")],
}


DQN = [
    "algorithm.name=dqn",
    "algorithm.n_envs=4",
    "algorithm.rollout_length=25",
    "algorithm.start_steps=150",
    "algorithm.batch_size=32",
    "algorithm.buffer_size=500",
    "algorithm.steps_per_epoch=300",
]


def options(kind: str) -> list[str]:
    own = [*DQN, *(o for o in SMALL if "algorithm" not in o)] if kind.startswith("dqn") else ["algorithm.name=ppo", *SMALL]
    own = [o for o in own if not ("a2c" in kind and ("batch_size" in o or "epochs" in o))]
    return [*own, *GAMES[kind]]


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*options(kind), *overrides])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> RunsWhenAsked:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


@pytest.mark.parametrize("kind", GAMES)
def test_any_number_of_workers_gives_the_same_hash(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    run = train_run(small(kind, "executor.name=process", "executor.workers=3"), tmp_path / "run")
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)
    assert (run.last["failed_episodes"] > 0) == ("torn" in kind)
    assert run.last["failed_segments"] == 0


@pytest.mark.parametrize("kind", ["pong", "pong-pool", "dqn-pool", "dqn-nim", "tic-tac-toe-pool", "tic-tac-toe"])
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    train_and_kill_twice(options(kind), tmp_path / "run", quiet[kind])
    assert shown(tmp_path / "run")["params_sha256"] == quiet[kind].params_sha256()


@pytest.mark.parametrize("kind", ["pong-pool", "tic-tac-toe-pool", "tic-tac-toe", "two-rates-lstm", "torn"])
def test_a_killed_worker_changes_nothing(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    """Whoever takes over an episode plays it again, opponent and all."""
    with worker_killer(3) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


def test_the_pool_grows_and_the_league_is_shown(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    path = quiet["pong-pool"].directory.path
    found = league_table(path)
    assert found["players"][0] == "script"
    assert found["players"][-1] == "learner"
    assert len(found["players"]) == 4  # of at most three members, one of which is the script
    rates, games = np.array(found["win_rate"]), np.array(found["games"])
    np.testing.assert_allclose(rates + rates.T, 1)
    np.testing.assert_array_equal(games, games.T)
    assert np.isfinite(found["elo"]).all()
    done = in_process("league", path, "--plot", tmp_path / "league.png")
    assert (done.returncode, "learner" in done.stdout) == (0, True)
    assert (tmp_path / "league.png").stat().st_size > 5000
    with pytest.raises(RunDirectoryError, match="has no opponents: train with the section opponents:"):
        league_table(quiet["pong"].directory.path)


def test_a_run_may_begin_with_the_policy_of_another(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    path = quiet["pong"].directory.path
    run = train_run(small("pong-pool", f"opponents.pool=[script, {path}]", "opponents.capacity=9"), tmp_path / "run")
    assert league_table(run.directory.path)["players"][1] == str(path)
    folder = tmp_path / "folder"
    shutil.copytree(path, folder / "a")
    shutil.copytree(path, folder / "b")
    both = small("pong-pool", f"opponents.pool=[script, {folder}]", "opponents.capacity=9", "stop.generations=1")
    run = train_run(both, tmp_path / "of-a-folder")
    assert league_table(run.directory.path)["players"][1:3] == [str(folder / "a"), str(folder / "b")]
    with pytest.raises(ConfigError, match=r"the policy of .* has another policy.hidden: members have the network"):
        build(small("pong-pool", f"opponents.pool=[{path}]", "policy.hidden=[9]"))
    with pytest.raises(ConfigError, match="expected script, script:NAME or run directories; no run in 'nowhere'"):
        build(small("pong-pool", "opponents.pool=[nowhere]"))


def test_a_run_keeps_the_opponents_that_it_began_with(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    """The run that they come from may be gone, or may have gone on."""
    older = tmp_path / "older"
    shutil.copytree(quiet["pong"].directory.path, older)
    run = train_run(small("pong-pool", f"opponents.pool=[script, {older}]", "opponents.capacity=9"), tmp_path / "run")
    shutil.rmtree(older)
    assert policy_hash(rebuild(run.directory, 2))
    done = in_process("resume", tmp_path / "run", "-m", "stop.generations=5")
    assert done.returncode == 0, done.stderr
    run.directory.opponents.write_bytes(b"torn")
    broken = in_process("resume", tmp_path / "run", "-m", "stop.generations=6")
    assert (broken.returncode, "cannot read the opponents of this run" in broken.stderr) == (2, True)


TINY = {
    "es": ["algorithm.population=4", "algorithm.block=2", "stop.generations=1"],
    "sep-cma-es": ["algorithm.population=4", "algorithm.block=2", "stop.generations=1"],
    "aes": ["algorithm.block=2", "stop.learning_steps=64"],
    "a2c": ["algorithm.n_envs=2", "algorithm.block=2", "algorithm.steps_per_epoch=32", "stop.env_steps=64"],
    "impala": ["algorithm.n_envs=2", "algorithm.block=2", "algorithm.steps_per_epoch=32", "stop.env_steps=64"],
    "reinforce": ["algorithm.episodes_per_update=2", "algorithm.steps_per_epoch=16", "stop.env_steps=32"],
    "dqn": ["algorithm.start_steps=20", "algorithm.batch_size=8", "algorithm.rollout_length=10", "algorithm.steps_per_epoch=40"],
    "sac": ["algorithm.start_steps=20", "algorithm.batch_size=8", "algorithm.rollout_length=10", "algorithm.steps_per_epoch=40"],
    "p-cem-rl": ["algorithm.start_steps=20", "algorithm.strategy.population=4", "algorithm.rl_individuals=2", "stop.generations=2"],
}


@pytest.mark.parametrize("name", TINY)
def test_every_kind_of_algorithm_trains_in_a_match_as_one_player(name: str, tmp_path: Path) -> None:
    """One player of eight rounds against the script: every algorithm sees a Gymnasium environment."""
    options = [f"algorithm.name={name}", "env.id=tests.toys.duels:Duel", "policy.hidden=[4]", "run.episodes=1", "executor.name=inline"]
    if name in ("dqn", "sac"):
        options += ["algorithm.buffer_size=200", "algorithm.checkpoint_slack=20000", "stop.env_steps=80"]
    if name == "p-cem-rl":
        options += ["algorithm.buffer_size=2000", "algorithm.checkpoint_slack=2000", "env.max_episode_steps=8", "policy.activation=tanh"]
        options += ["algorithm.learner={name: sac, batch_size: 8, critic: {hidden: [8]}}"]
    run = train_run(load_config(None, [], [*options, *TINY[name]]), tmp_path / "run")
    assert run.algorithm.env_steps >= 32
    assert run.score is not None
    assert abs(run.score) <= 8


class TwoGoals(World):
    """Both players act at once; a reward of two components, three steps, and the larger number wins."""

    def __init__(self) -> None:
        self.players = [Player(name, spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2), ("speed", "care")) for name in ("a", "b")]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        seats = [Seat(name, 2) for name in players]
        return SimpleMatch(seats, [self._tick(seats)])

    async def _tick(self, seats: list[Seat]) -> None:
        for seat in seats:
            seat.show(np.zeros(2, np.float32))
        for frame in range(3):
            actions = [int(await seat.action()) for seat in seats]
            for seat, action in zip(seats, actions, strict=True):
                seat.add([action, 1 - action])
                seat.show(np.zeros(2, np.float32), terminated=frame == 2)


@pytest.mark.parametrize("option", ["env.self_play=true", POOL])
def test_components_of_the_reward_reach_the_learner(option: str, tmp_path: Path) -> None:
    wide = ["algorithm.n_envs=132", "algorithm.block=66", "env.reward_weights={speed: 2}", "algorithm.gammas={care: 0.5}"]
    run = train_run(
        load_config(
            None, [], ["algorithm.name=ppo", "env.id=tests.runs.test_players:TwoGoals", option, *SMALL, *wide, "stop.env_steps=20000"]
        ),
        tmp_path / "run",
    )
    assert run.last["failed_segments"] == 0
    assert 3 <= run.last["return_mean"] <= 6  # one or two points a step


class Patience(World):
    """One point soon, or one and a half after twenty frames."""

    def __init__(self) -> None:
        self.players = [Player("p", spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2))]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        (seat,) = (Seat(name) for name in players)
        return SimpleMatch([seat], [self._tick(seat)])

    async def _tick(self, seat: Seat) -> None:
        seat.show(np.array([1, 0], np.float32))
        late = int(await seat.action())
        seat.add(0.0, 20 if late else 1)
        seat.show(np.array([0, 1], np.float32))
        await seat.action()
        seat.add(1.5 if late else 1.0)
        seat.show(np.array([0, 1], np.float32), terminated=True)


@pytest.mark.parametrize("windows", ["algorithm.n_step=2", "algorithm.sequence=2"])
@pytest.mark.parametrize(("gamma", "score"), [(0.95, 1.0), (0.999, 1.5)])
def test_waiting_costs_a_replay_learner_the_same(gamma: float, score: float, windows: str, tmp_path: Path) -> None:
    options = [
        *("algorithm.name=dqn", "env.id=tests.runs.test_players:Patience", f"algorithm.gamma={gamma}", windows, "executor.name=inline"),
        *("algorithm.lr=3e-3", "algorithm.updates_per_step=0.5", "algorithm.target_update_interval=20", "algorithm.epsilon_steps=1000"),
        *("algorithm.epsilon_end=0.3", "policy.hidden=[16]", "run.episodes=2", "stop.env_steps=3000", "algorithm.threads=1"),
    ]
    assert train_run(load_config(None, [], options), tmp_path / "run").score == score


@pytest.mark.parametrize(("gamma", "score"), [(0.95, 1.0), (0.999, 1.5)])
def test_waiting_costs_what_the_discount_says(gamma: float, score: float, tmp_path: Path) -> None:
    """0.95^20 x 1.5 is 0.54, less than 0.95; a discount per decision would make it worth the wait."""
    options = [
        "algorithm.name=ppo",
        "env.id=tests.runs.test_players:Patience",
        f"algorithm.gamma={gamma}",
        "algorithm.n_envs=16",
        "algorithm.block=16",
        "algorithm.rollout_length=16",
        "algorithm.lr=3e-3",
        "algorithm.normalize_reward=false",
        "executor.name=inline",
        "run.episodes=2",
        "stop.env_steps=10_000",
    ]
    assert train_run(load_config(None, [], options), tmp_path / "run").score == score


class TwoRates(World):
    """One point now, or two later: after 16 frames in games at a decision every two, after 60 in games at one every 30.

    With 0.97 per frame later is right in the first, 2 x 0.97^16 = 1.23, and wrong in the second, 2 x 0.97^60 = 0.32. By decisions it is eight of
    them and two: whatever the discount of a decision is, it is never both right to wait for eight and wrong to wait for two.
    """

    def __init__(self, counted: bool = True) -> None:
        """`counted`: steps say how many frames they took."""
        self.players = [Player("p", spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(2))]
        self._counted = counted

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        (seat,) = (Seat(name) for name in players)
        return SimpleMatch([seat], [self._tick(seat, bool(np.random.default_rng(seed).integers(2)))])

    async def _tick(self, seat: Seat, slow: bool) -> None:
        seat.show(np.array([1, slow, 0], np.float32))
        later = int(await seat.action())
        decisions, frames = (2, 30) if slow else (8, 2)
        for left in range(decisions, 0, -1) if later else []:
            seat.add(0.0, frames if self._counted else 1)
            seat.show(np.array([0, slow, left / 8], np.float32))
            await seat.action()
        seat.add(1.0 + later, 0)
        seat.finish(score=1.0 if later != slow else 0.0)
        seat.show(np.zeros(3, np.float32), terminated=True)


@pytest.mark.parametrize(("gamma", "counted", "right"), [(0.97, True, 1.0), (0.97, False, 0.5), (0.6, False, 0.5)])
def test_no_discount_per_decision_fits_games_that_differ_in_rate(gamma: float, counted: bool, right: float, tmp_path: Path) -> None:
    options = ["algorithm.name=ppo", "env.id=tests.runs.test_players:TwoRates", f"env.kwargs={{counted: {counted}}}", "policy.hidden=[16]"]
    options += ["algorithm.n_envs=32", "algorithm.block=32", "algorithm.rollout_length=32", "algorithm.lr=3e-3", f"algorithm.gamma={gamma}"]
    options += ["algorithm.gae_lambda=1", "algorithm.normalize_reward=false", "policy.normalize_obs=false", "executor.name=inline"]
    options += ["algorithm.entropy_coef=0.01", "run.episodes=2", "run.evaluate_every=1000", "stop.env_steps=8_000"]
    run = train_run(load_config(None, [], options), tmp_path / "run")
    policy = load_policy(tmp_path / "run", trust=True)
    waits = [int(policy.act(np.array([1, slow, 0], np.float32))) for slow in (0, 1)]
    assert ((waits[0] == 1) + (waits[1] == 0)) / 2 == right, (waits, run.score)


@pytest.mark.slow
def test_elapsed_frames_matter_in_pong_where_games_differ_in_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A player decides every k frames, k from 1 to 12 and the same for a whole game: no discount per decision has one horizon in all games.

    0.79 is the best discount per decision that was found, and 0.83 the mean of 0.97^k. More seeds: docs/multiplayer.md.
    """
    options = ["env.id=baldwin:TwoRatePong-v0", "env.kwargs={frames: [1, 12], redraw: false}", "algorithm.n_envs=64", "algorithm.block=64"]
    options += ["algorithm.rollout_length=64", "algorithm.lr=2e-3", "stop.score=null", "stop.env_steps=300_000", "executor.name=inline"]
    options += ["run.evaluate_every=100", "run.episodes=64"]

    def score(gamma: float) -> float:
        scores = []
        for seed in (1, 2):
            run = train_run(
                load_config("vector-pong-ppo", [], [*options, f"algorithm.gamma={gamma}", f"run.seed={seed}"]), tmp_path / f"{gamma}-{seed}"
            )
            scores.append(run.score or 0.0)
        return float(np.mean(scores))

    by_frames = score(0.97)
    step = PongVectorEnv.step

    def without_elapsed(env: PongVectorEnv, actions: NDArray[Any], ids: Ids) -> StepResult:
        found = step(env, actions, ids)
        return found._replace(elapsed=np.ones(len(ids), np.int32))

    monkeypatch.setattr(PongVectorEnv, "step", without_elapsed)
    assert by_frames > max(score(0.79), score(0.83), -6.0)  # the script is 12 points ahead at the start


@pytest.mark.slow
def test_ppo_beats_the_scripted_player(tmp_path: Path) -> None:
    options = ["executor.name=inline", "run.evaluate_every=5", "stop.score=5", "stop.env_steps=2_000_000"]
    run = train_run(load_config("vector-pong-ppo", [], options), tmp_path / "run")
    assert (run.score or 0) >= 5  # points ahead


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["algorithm.name=es", "env.id=baldwin:VectorPong-v0"], ConfigError, "env.self_play is for learners: es evaluates"),
        (
            ["algorithm.name=ppo", "env.id=baldwin:VectorPong-v0", "algorithm.block=3"],
            ConfigError,
            "algorithm.block=3 must be a multiple of the 2",
        ),
        (["algorithm.name=ppo", "env.id=CartPole-v1"], EnvironmentFailure, "'CartPole-v1' has one player"),
        (["algorithm.name=ppo", "env.id=pettingzoo:mpe2.simple_tag_v3"], EnvironmentFailure, "see or do different things"),
        (["algorithm.name=reinforce", "env.id=baldwin:VectorPong-v0"], ConfigError, "env.self_play needs segments"),
        (["algorithm.name=ppo", "env.id=baldwin:VectorPong-v0", "env.kwargs={player: left}"], ConfigError, "leave player out"),
        (["algorithm.name=ppo", "env.id=baldwin:VectorPong-v0", "env.backend=gymnasium"], EnvironmentFailure, "has one player"),
    ],
)
def test_what_cannot_play_itself_is_refused(options: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(load_config(None, [], [*options, "env.self_play=true"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["algorithm.name=ppo", "env.id=CartPole-v1"], "'CartPole-v1' has one player"),
        (["algorithm.name=ppo", "env.id=baldwin:VectorPong-v0", "env.self_play=true"], "the policy meets itself"),
        (["algorithm.name=ppo", "env.id=pettingzoo:mpe2.simple_tag_v3", "env.kwargs={player: agent_0}"], "see or do different things"),
    ],
)
def test_who_cannot_meet_opponents_is_told_so(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(load_config(None, [], [*options, "opponents={}"]))


def test_stacked_frames_and_turns_do_not_go_together(tmp_path: Path) -> None:
    options = ["env.id=tests.toys.duels:TurnDuel", "env.kwargs={picture: true}", "env.frame_stack=2", "env.self_play=true"]
    options += ["algorithm.max_failures_in_a_row=2", "policy.images={conv: small, hidden: [8]}"]
    with pytest.raises(EnvironmentFailure, match=r"set env.frame_stack=1"):
        train_run(load_config(None, [], ["algorithm.name=ppo", *SMALL, *options]), tmp_path / "run")


LEARN_NIM = {
    "ppo": "normalize_reward=false n_envs=16 block=16 rollout_length=64 lr=2e-3 batch_size=256 steps_per_epoch=4096",
    "dqn": "n_envs=16 rollout_length=8 lr=1e-3 updates_per_step=0.25 gamma=1 target_update_interval=200 epsilon_steps=10_000 "
    "buffer_size=20_000 steps_per_epoch=2048",
}


@pytest.mark.parametrize("name", list(LEARN_NIM))
def test_a_game_in_turns_is_learned_by_self_play(name: str, tmp_path: Path) -> None:
    """Nim, whose first player wins against anybody: who has only met itself beats random moves."""
    options = [
        "env.id=examples.nim:Nim",
        "env.self_play=true",
        f"algorithm.name={name}",
        "policy.normalize_obs=false",
        "policy.hidden=[32]",
    ]
    options += [*(f"algorithm.{option}" for option in LEARN_NIM[name].split()), "executor.name=inline"]
    options += ["run.evaluate_every=2", "run.episodes=64", "stop.score=0.85", "stop.env_steps=80_000"]
    assert (train_run(load_config(None, [], options), tmp_path / "run").score or 0) >= 0.85


def random_spread(matches: int) -> float:
    """Mean return of players that move at random."""
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env(N=2, max_cycles=25)
    total = 0.0
    for seed in range(matches):
        env.reset(seed=seed)
        for n, name in enumerate(env.agents):
            env.action_space(name).seed(10 * seed + n)
        while env.agents:
            _, reward, *_ = env.step({name: env.action_space(name).sample() for name in env.agents})
            total += reward["agent_0"]
    return total / matches


def test_one_policy_for_all_learns_to_cooperate(tmp_path: Path) -> None:
    """Two players share out two landmarks, and what one loses the other loses, too. Random play: -21 on average."""
    options = ["env.id=pettingzoo:mpe2.simple_spread_v3", "env.kwargs={N: 2, max_cycles: 25}", "env.self_play=true", "algorithm.name=ppo"]
    options += ["algorithm.n_envs=16", "algorithm.block=16", "algorithm.rollout_length=100", "algorithm.lr=2e-3", "algorithm.gamma=0.9"]
    options += ["algorithm.batch_size=400", "algorithm.steps_per_epoch=8000", "policy.hidden=[32, 32]", "executor.name=inline"]
    run = train_run(
        load_config(None, [], [*options, "run.evaluate_every=100", "run.episodes=2", "stop.env_steps=40_000"]), tmp_path / "run"
    )
    assert run.last["episodes"] >= 100
    assert run.last["return_mean"] > random_spread(60) + 4


@pytest.mark.slow
def test_tic_tac_toe_is_learned_against_random_moves(tmp_path: Path) -> None:
    options = [
        "env.id=pettingzoo:classic.tictactoe_v3",
        "algorithm.name=ppo",
        "policy.normalize_obs=false",
        "algorithm.n_envs=16",
        "algorithm.block=8",
        "algorithm.rollout_length=64",
        "algorithm.batch_size=256",
        "algorithm.epochs=5",
        "algorithm.lr=1e-3",
        "algorithm.entropy_coef=0.01",
        "algorithm.steps_per_epoch=4096",
        "run.evaluate_every=5",
        "run.episodes=64",
        "stop.env_steps=400_000",
        "stop.score=0.93",
    ]
    run = start(load_config(None, [], options), tmp_path / "run")
    train(run)
    assert (run.score or 0) >= 0.93
