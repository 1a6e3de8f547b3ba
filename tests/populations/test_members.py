"""A member's training is a pure function, equal to a run of its own; and a changed hyper-parameter is used by the very next update."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.algorithm import ALGORITHMS
from baldwin.config import RunConfig, load_config
from baldwin.errors import BaldwinError, ConfigError, RunDirectoryError, StaleShare
from baldwin.learners import ppo
from baldwin.networks.optimizers import Adam, RMSProp
from baldwin.ops.optimizers import OPTIMIZERS
from baldwin.parts import Sections
from baldwin.populations.member import STATE, STATE_HASH, TrainMember, train_for, with_hyperparameters
from baldwin.populations.states import CONTENT, StateFiles, dropped_state, pack_state, shared_state, state_key, unpack_state
from baldwin.rollout import RESULT
from baldwin.runs.build import build, probe_env
from baldwin.runs.checkpoint import policy_hash
from baldwin.strategies import openai_es
from baldwin.tree import split
from tests.runs.tools import train_run

EVERY = ["env.backend=gymnasium", "env.max_episode_steps=40", "policy.hidden=[8]", "run.episodes=2", "run.evaluate_every=100"]
OFF_POLICY = [
    *EVERY,
    "env.id=Pendulum-v1",
    "algorithm.critic.hidden=[8]",
    "algorithm.start_steps=20",
    "algorithm.batch_size=8",
    "algorithm.rollout_length=10",
    "algorithm.steps_per_epoch=60",
    "algorithm.buffer_size=500",
    "algorithm.threads=1",
]
PPO = [
    *EVERY,
    "algorithm.n_envs=4",
    "algorithm.block=4",
    "algorithm.rollout_length=16",
    "algorithm.batch_size=32",
    "algorithm.epochs=2",
    "algorithm.steps_per_epoch=64",
    "algorithm.threads=1",
]
HYBRID = [
    *EVERY,
    "env.id=Pendulum-v1",
    "algorithm.start_steps=80",
    "algorithm.buffer_size=500",
    "algorithm.learner.critic.hidden=[8]",
    "algorithm.learner.batch_size=8",
]
ALGORITHM: dict[str, list[str]] = {
    "ppo": [*PPO, "env.id=CartPole-v1"],
    "sac": OFF_POLICY,
    "td3": OFF_POLICY,
    "dqn": [*(o for o in OFF_POLICY if "critic" not in o and "Pendulum" not in o), "env.id=CartPole-v1"],
    "es": [*EVERY, "env.id=Pendulum-v1", "algorithm.population=8", "algorithm.block=4"],
    "cem-rl": [*HYBRID, "algorithm.strategy.population=4", "algorithm.rl_individuals=2"],
}
SEGMENTS = [
    *EVERY,
    "env.id=CartPole-v1",
    "algorithm.n_envs=2",
    "algorithm.rollout_length=16",
    "algorithm.steps_per_epoch=32",
    "algorithm.block=1",
    "algorithm.threads=1",
]
ASYNCHRONOUS_HYBRID = [*HYBRID, "algorithm.critic_steps_per_job=20", "algorithm.steps_per_epoch=80"]
STRATEGY = [*EVERY, "env.id=Pendulum-v1", "algorithm.population=4"]
STEADY = [*EVERY, "env.id=Pendulum-v1", "algorithm.block=2"]
REST: dict[str, list[str]] = {
    "a2c": SEGMENTS,
    "a3c": SEGMENTS,
    "impala": SEGMENTS,
    "reinforce": [*EVERY, "env.id=CartPole-v1", "algorithm.steps_per_epoch=60", "algorithm.threads=1"],
    "aes": STEADY,
    "one-plus-one": STEADY,
    "acem": STEADY,
    "cem": STRATEGY,
    "sep-cma-es": STRATEGY,
    "nsga2": STRATEGY,
    "random-search": STRATEGY,
    "p-cem-rl": [*HYBRID, "algorithm.strategy.population=4", "algorithm.rl_individuals=2"],
    "aes-rl": [*ASYNCHRONOUS_HYBRID, "algorithm.mean_episodes=1"],
    "one-plus-one-rl": [*ASYNCHRONOUS_HYBRID, "algorithm.mean_episodes=1"],
    "acem-rl": ASYNCHRONOUS_HYBRID,
}
SETTINGS = ALGORITHM | REST


def config_of(algorithm: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [f"algorithm.name={algorithm}", *SETTINGS[algorithm], *overrides])


def sections_of(config: RunConfig) -> Sections:
    return Sections(config.env, probe_env(config), config.policy, config.algorithm)


def job(sections: Sections, folder: Path, **changes: Any) -> TrainMember:
    made = TrainMember(0, 0, sections, seed=5, steps=60, evaluation_seed=1, episodes=3, files=StateFiles(folder))
    return replace(made, **changes)


def state_of(found: Any) -> str:
    return bytes(found.arrays[STATE_HASH]).hex()


@pytest.mark.parametrize("algorithm", ALGORITHM)
def test_two_rounds_equal_a_run_of_as_many_generations(algorithm: str, tmp_path: Path) -> None:
    """Nothing is lost between rounds: no step, no moment of an optimiser, no random number."""
    config = config_of(algorithm, "run.seed=5", "executor.name=inline")
    sections = sections_of(config)
    (first,) = job(sections, tmp_path).run(None)  # type: ignore[arg-type]
    (second,) = job(sections, tmp_path, parent_sha256=state_of(first)).run(None)  # type: ignore[arg-type]
    state = StateFiles(tmp_path).load(state_of(second))
    generations = int(state["algorithm"]["counters"]["version"])
    run = train_run(load_config(None, [], [f"stop.generations={generations}"], base=config.model_dump(mode="json")), tmp_path / "run")
    assert policy_hash(state["policy"]) == run.params_sha256()
    assert first.env_steps + second.env_steps == run.algorithm.env_steps


def test_a_job_gives_the_same_state_wherever_it_runs(tmp_path: Path) -> None:
    sections = sections_of(config_of("ppo"))
    (first,) = job(sections, tmp_path / "a").run(None)  # type: ignore[arg-type]
    (again,) = job(sections, tmp_path / "b").run(None)  # type: ignore[arg-type]
    assert state_of(first) == state_of(again)


def test_without_files_a_state_is_read_from_the_worker_that_made_it_or_was_sent_it(tmp_path: Path) -> None:
    sections = sections_of(config_of("ppo"))
    spec = sections.build(0)[1]
    maker, other = spec(), spec()
    (written,) = job(sections, tmp_path).run(maker)
    (travelling,) = job(sections, tmp_path, files=None).run(maker)
    name, content = state_of(written), travelling.derived[STATE].tobytes()
    assert hashlib.sha256(content).hexdigest() == name == state_of(travelling)
    assert maker.held_on_demand() == (state_key(name),)
    next_round = job(sections, tmp_path, files=None, parent_sha256=name)
    assert next_round.reads == (state_key(name),)
    with pytest.raises(StaleShare):
        next_round.run(other)
    other.receive(shared_state(content))
    (expected,) = job(sections, tmp_path, parent_sha256=name).run(maker)
    assert [state_of(next_round.run(worker)[0]) for worker in (maker, other)] == [state_of(expected)] * 2
    other.receive(dropped_state(name))
    assert other.held_on_demand() == (state_key(state_of(expected)),)
    other.receive(shared_state(content)._replace(arrays={CONTENT: np.zeros(3, np.uint8)}))
    with pytest.raises(BaldwinError, match="damaged on its way"):
        next_round.run(other)


def test_a_worker_keeps_the_states_that_it_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baldwin.rollout.worker.ON_DEMAND_BYTES", 20)
    worker = sections_of(config_of("ppo")).build(0)[1]()
    a, b, c, large = (shared_state(bytes([n]) * size) for n, size in enumerate((8, 8, 8, 100)))
    worker.receive(a)
    worker.receive(b)
    worker.shared(a.key, 0)
    worker.receive(c)
    assert worker.held_on_demand() == (a.key, c.key)
    worker.receive(large)  # one that is larger than the limit is kept by itself
    assert worker.held_on_demand() == (large.key,)


def test_a_copy_leaves_the_originals_episodes_and_learns_by_its_own_seed(tmp_path: Path) -> None:
    sections = sections_of(config_of("ppo"))
    (first,) = job(sections, tmp_path).run(None)  # type: ignore[arg-type]
    hashes = {
        state_of(job(sections, tmp_path, parent_sha256=state_of(first), **changes).run(None)[0])  # type: ignore[arg-type]
        for changes in ({}, {"leave_episodes": True, "seed": 6}, {"leave_episodes": True, "seed": 7}, {"fresh_optimizer": True})
    }
    assert len(hashes) == 4


NO_OPTIMIZER = {"aes", "one-plus-one", "acem", "cem", "nsga2", "sep-cma-es", "random-search"}
HYBRIDS = {name for name, entry in ALGORITHMS.items() if entry.family == "hybrid"}
CASES = {
    "copied": ("population.name=pbt", set()),
    "fresh": ("population={name: pbt, optimizer: fresh}", NO_OPTIMIZER),
    "params": ("population={name: genetic, variation: {weight_sigma: 0.1}}", {"nsga2"}),
    "weights": ("population.name=evolver", {"nsga2"} | HYBRIDS),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Sections, Path, str]]:
    """Of an algorithm: its sections, and the folder and hash of the state of a member after a round."""

    @cache
    def train(algorithm: str) -> tuple[Sections, Path, str]:
        sections, folder = sections_of(config_of(algorithm)), tmp_path_factory.mktemp(algorithm)
        (found,) = job(sections, folder, steps=200, episodes=1).run(None)  # type: ignore[arg-type]
        return sections, folder, state_of(found)

    return train


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_changed_between_rounds_or_is_refused(algorithm: str, case: str, trained: Any) -> None:
    """A copy, a fresh optimiser, other weights of the policy or of everything: what it then does differs, or the population is refused at build."""
    population, refused = CASES[case]
    if algorithm in refused:
        with pytest.raises(ConfigError, match=r"population\."):
            build(config_of(algorithm, population, "population.members=2"))
        return
    build(config_of(algorithm, population, "population.members=2"))
    sections, folder, name = trained(algorithm)
    before = StateFiles(folder).load(name)
    changes: dict[str, Any] = {"copied": {"leave_episodes": True, "seed": 6}, "fresh": {"fresh_optimizer": True}}.get(case, {})
    if case in ("params", "weights"):
        changes = {case: before[case] + np.float32(0.5)}
        (placed,) = job(sections, folder, parent_sha256=name, steps=0, episodes=1, **changes).run(None)  # type: ignore[arg-type]
        state = StateFiles(folder).load(state_of(placed))
        np.testing.assert_array_equal(state[case], changes[case])
        assert not np.array_equal(state["policy"]["params"], before["policy"]["params"])
    again, changed = (
        job(sections, folder, parent_sha256=name, steps=1, episodes=1, **more).run(None)[0]  # type: ignore[arg-type]
        for more in ({}, changes)
    )
    assert state_of(again) != state_of(changed) != name


@pytest.mark.parametrize("algorithm", ["ppo", "sac", "es", "cem-rl"])
def test_a_fresh_normalizer_knows_only_what_the_copy_has_seen(algorithm: str, tmp_path: Path) -> None:
    """Of observations, and of rewards where those are scaled."""
    options = ["policy.normalize_obs=true", *(["algorithm.normalize_reward=true"] if algorithm == "ppo" else [])]
    sections = sections_of(config_of(algorithm, *options))
    (first,) = job(sections, tmp_path, steps=200).run(None)  # type: ignore[arg-type]
    copy = job(sections, tmp_path, parent_sha256=state_of(first), leave_episodes=True, seed=6, steps=1)
    for fresh in (False, True):
        (found,) = replace(copy, fresh_normalizer=fresh).run(None)  # type: ignore[arg-type]
        state = StateFiles(tmp_path).load(state_of(found))["algorithm"]
        counts = [state["obs_moments"][0], *(state["rewards"]["moments"][:1] if algorithm == "ppo" else [])]
        assert set(counts) == {found.env_steps + (0 if fresh else first.env_steps)}


@pytest.mark.parametrize("change", ["weights", "fresh"])
def test_moments_of_gradients_are_forgotten(change: str) -> None:
    """Of ES, SAC with its temperature, and the critics of a hybrid, also where weights come from elsewhere."""
    for name in ("es", "sac", "cem-rl") if change == "fresh" else ("es", "sac"):
        algorithm: Any
        algorithm, spec = sections_of(config_of(name)).build(3)
        worker = spec()
        train_for(algorithm, worker, 200)
        assert any(np.any(value) for value in moments(algorithm))
        algorithm.reset_optimizer() if change == "fresh" else algorithm.set_weights(algorithm.weights())
        assert not any(np.any(value) for value in moments(algorithm))
        worker.close()


def moments(algorithm: Any) -> list[Any]:
    """Of all optimisers, step counts included."""
    arrays: dict[str, Any] = {}
    split(algorithm.state_dict(), arrays)
    return [value for name, value in arrays.items() if "adam" in name or "optimizer" in name]


def test_a_part_of_a_state_is_read_alone(tmp_path: Path) -> None:
    state = {"a": {"b": np.arange(3), "c": {"d": np.ones(2), "e": [1, {"f": np.zeros((0, 2))}]}}, "ab": np.full(2, 7), "n": 5}
    files = StateFiles(tmp_path)
    name = files.write(pack_state(state))
    for keys in [(), ("a",), ("a", "b"), ("a", "c"), ("a", "c", "e"), ("ab",), ("n",)]:
        expected: Any = state
        for key in keys:
            expected = expected[key]
        np.testing.assert_equal(files.load_part(name, *keys), expected)
    with pytest.raises(RunDirectoryError, match="does not hold the state"):
        files.load_part(name, "a", "x")


def test_damaged_states_are_noticed(tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    name = files.write(pack_state({"algorithm": {"n": 3}, "rows": [1, 2]}))
    assert unpack_state(files.read(name)) == {"algorithm": {"n": 3}, "rows": [1, 2]}
    path = next(tmp_path.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    for read in (files.load, files.load_part):
        with pytest.raises(RunDirectoryError, match="does not have the hash"):
            read(name)
    files.remove([name])
    with pytest.raises(RunDirectoryError, match="is missing"):
        files.load(name)


def test_what_the_environment_tells_is_among_the_results(tmp_path: Path) -> None:
    config = load_config(None, [], ["algorithm.name=ppo", *PPO, "env.id=baldwin:VectorPong-v0", "env.backend=auto"])
    (found,) = job(sections_of(config), tmp_path, episodes=5).run(None)  # type: ignore[arg-type]
    lazy, busy, score = (found.arrays[RESULT + name] for name in ("lazy", "busy", "score"))
    assert lazy.shape == busy.shape == score.shape == (5,)
    assert all(((values >= 0) & (values <= 1)).all() for values in (lazy, busy, score))
    assert (lazy + busy <= 1 + 1e-6).all()  # a bat that is held against a wall is neither


def test_members_are_compared_by_the_same_weights_of_rewards(tmp_path: Path) -> None:
    """A member that is trained with a weight of 100 does not score a hundred times as much for the same behaviour."""
    config = load_config(None, [], ["algorithm.name=ppo", *PPO, "env.id=tests.toys.delayed:TwoRewards"])
    sections = sections_of(config)
    heavy = with_hyperparameters(sections, {"env.reward_weights.soon": 100.0, "env.reward_weights.late": 100.0})
    same, own = (job(heavy, tmp_path, steps=0, evaluation_env=env).run(None)[0] for env in (sections.env, None))  # type: ignore[arg-type]
    (plain,) = job(sections, tmp_path, steps=0).run(None)  # type: ignore[arg-type]
    assert same.scalar == plain.scalar
    assert own.scalar == 100 * plain.scalar


CHANGES: dict[str, dict[str, tuple[Any, list[str]]]] = {
    "ppo": {
        "lr": (1e-2, []),
        "gamma": (0.5, []),
        "gammas": ({"reward": 0.5}, []),
        "entropy_coef": (0.5, []),
        "value_coef": (2.0, ["algorithm.shared_critic=true"]),
        "max_grad_norm": (1e-3, []),
        "eps": (1e-1, []),
        "reward_clip": (1e-3, ["algorithm.normalize_reward=true"]),
        "gae_lambda": (0.1, []),
        "gae_lambdas": ({"reward": 0.1}, []),
        "normalize_advantage": (False, []),
        "batch_size": (16, []),
        "epochs": (5, []),
        "clip_range": (1e-4, ["algorithm.lr=0.05"]),
        "value_clip_range": (1e-4, ["algorithm.lr=0.05"]),
        "target_kl": (1e-9, ["algorithm.lr=0.05"]),
        "recompute_advantages": (True, []),
    },
    "sac": {
        "batch_size": (16, []),
        "gamma": (0.5, []),
        "tau": (0.5, []),
        "n_step": (3, []),
        "actor_lr": (1e-2, []),
        "critic_lr": (1e-2, []),
        "alpha": (0.5, ["algorithm.alpha=0.1"]),
        "alpha_lr": (1e-2, []),
        "target_entropy": (-3.0, []),
        "target_entropy_scale": (0.9, ["env.id=CartPole-v1"]),
        "target_subset": (1, []),
        "policy_delay": (3, []),
        "updates_per_step": (0.5, []),
        "clip_epsilon": (1e-6, []),
        "trace_lambda": (0.1, ["algorithm.target=retrace", "algorithm.n_step=3"]),
    },
    "td3": {
        "batch_size": (16, []),
        "gamma": (0.5, []),
        "tau": (0.5, []),
        "n_step": (3, []),
        "actor_lr": (1e-2, []),
        "critic_lr": (1e-2, []),
        "target_noise": (0.6, []),
        "target_noise_clip": (0.05, []),
        "policy_delay": (3, []),
        "updates_per_step": (0.5, []),
        "exploration_noise": (0.5, []),
        "clip_epsilon": (1e-6, []),
    },
    "es": {
        "episodes": (2, []),
        "action_noise": (0.5, []),
        "step_cost": (2.0, ["env.id=CartPole-v1"]),
        "sigma": (0.5, []),
        "lr": (0.5, []),
        "momentum": (0.1, ["algorithm.optimizer=sgd"]),
        "beta1": (0.1, []),
        "beta2": (0.1, []),
        "epsilon": (0.1, []),
        "max_speed": (1e-3, ["algorithm.optimizer=clipup"]),
        "weight_decay": (0.5, []),
        "shaping": ("zscore", []),
    },
}


def mutable_keys(algorithm: str) -> set[str]:
    config = ALGORITHMS.find(algorithm).config
    return {key for c in config.__mro__ for key in getattr(c, "mutable", ())}


@pytest.mark.parametrize("algorithm", CHANGES)
def test_every_mutable_key_is_tested(algorithm: str) -> None:
    assert set(CHANGES[algorithm]) == mutable_keys(algorithm)


@pytest.mark.parametrize(("algorithm", "key"), [(a, key) for a, changes in CHANGES.items() for key in changes])
def test_a_changed_hyper_parameter_is_used_by_the_very_next_update(algorithm: str, key: str) -> None:
    """Copy a member, change one key, train the copy for one update: its state differs from that of an unchanged copy, and from the same value it does not."""
    value, options = CHANGES[algorithm][key]
    sections = sections_of(config_of(algorithm, *options))
    original, spec = sections.build(3)
    train_for(original, spec(), 60)
    content = pack_state(original.state_dict())

    def next_state(own: Sections) -> bytes:
        algorithm_of_copy, copy_spec = own.build(3)
        algorithm_of_copy.load_state_dict(unpack_state(content))
        worker = copy_spec()
        train_for(algorithm_of_copy, worker, 1)
        worker.close()
        return pack_state(algorithm_of_copy.state_dict())

    changed = with_hyperparameters(sections, {f"algorithm.{key}": value})
    assert getattr(changed.algorithm, key) == value
    assert next_state(sections) == next_state(sections)
    assert next_state(changed) != next_state(sections)


def copy_of_a_trained_member(algorithm: str, folder: Path, values: dict[str, Any], *options: str) -> TrainMember:
    """The job of a member that has copied another one's state, with other values of config keys."""
    sections = sections_of(config_of(algorithm, *options))
    (original,) = job(sections, folder).run(None)  # type: ignore[arg-type]
    return job(with_hyperparameters(sections, values), folder, parent_sha256=state_of(original), leave_episodes=True, seed=6, steps=1)


@pytest.mark.parametrize(
    ("algorithm", "key", "others"),
    [("ppo", "lr", []), ("a2c", "lr", []), ("sac", "actor_lr", [3e-4]), ("td3", "critic_lr", [3e-4]), ("dqn", "lr", [])],
)
def test_the_optimiser_of_a_copy_steps_at_its_own_learning_rate(
    algorithm: str, key: str, others: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of a copy's Adam or RMSProp: at the new rate, or at those of the learner's other networks."""
    changed = copy_of_a_trained_member(algorithm, tmp_path, {f"algorithm.{key}": 0.0123}, *(RATES.get(algorithm, [])))
    rates: list[float] = []
    for optimizer in (Adam, RMSProp):
        step = optimizer.step

        def spy(self: Any, gradient: Any, step: Any = step) -> None:
            rates.append(self.lr)
            step(self, gradient)

        monkeypatch.setattr(optimizer, "step", spy)
    changed.run(None)  # type: ignore[arg-type]
    assert 0.0123 in rates
    assert set(rates) == {0.0123, *others}


RATES = {"sac": ["algorithm.alpha=0.2", "algorithm.critic_lr=3e-4"], "td3": ["algorithm.actor_lr=3e-4"]}


def test_the_loss_of_a_copy_clips_at_its_own_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = copy_of_a_trained_member("ppo", tmp_path, {"algorithm.clip_range": 0.0321, "algorithm.value_clip_range": 0.0456})
    clips: dict[str, set[float]] = {"surrogate_loss": set(), "clipped_value_loss": set()}
    for name, seen in clips.items():
        loss = getattr(ppo, name)

        def spy(*args: Any, loss: Any = loss, seen: Any = seen, **kwargs: Any) -> Any:
            seen.add(inspect.signature(loss).bind(*args, **kwargs).arguments["clip"])
            return loss(*args, **kwargs)

        monkeypatch.setattr(ppo, name, spy)
    changed.run(None)  # type: ignore[arg-type]
    assert clips == {"surrogate_loss": {0.0321}, "clipped_value_loss": {0.0456}}


def test_an_es_that_was_copied_draws_and_steps_by_its_own_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"lr": 0.0123, "beta1": 0.456, "sigma": 0.0321}
    changed = copy_of_a_trained_member("es", tmp_path, {f"algorithm.{key}": value for key, value in values.items()})
    step, perturbation = OPTIMIZERS["adam"], openai_es.Perturbation
    used: dict[str, set[float]] = {key: set() for key in values}

    def spy_on_step(gradient: Any, state: Any, lr: float, config: Any) -> Any:
        used["lr"].add(lr)
        used["beta1"].add(config.beta1)
        return step(gradient, state, lr, config)

    def spy_on_draw(noise: Any, version: int, pair: int, scale: float) -> Any:
        used["sigma"] |= {abs(scale)} - {0.0}  # which the center has
        return perturbation(noise, version, pair, scale)

    monkeypatch.setitem(OPTIMIZERS, "adam", spy_on_step)
    monkeypatch.setattr(openai_es, "Perturbation", spy_on_draw)
    changed.run(None)  # type: ignore[arg-type]
    assert used == {key: {value} for key, value in values.items()}
