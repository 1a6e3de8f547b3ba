"""Small files as those programs have them, and what becomes of each key."""

from __future__ import annotations

import json
import math
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baldwin.config import load_config
from baldwin.config.importers import asac, import_config, render_config, zoo
from baldwin.config.importers.aesrl import ALGORITHMS, DEFAULTS, rules_for
from baldwin.config.importers.literals import parse_literal
from baldwin.config.importers.steps import checkpoints_for
from baldwin.config.model import RunConfig
from baldwin.errors import ConfigError
from baldwin.runs.build import build
from tests.runs.tools import in_process


def imported(kind: str, path: Path, **choice: Any) -> tuple[RunConfig, dict[str, Any]]:
    """The config as `load_config` reads it from the written file, and the rows by key."""
    found = import_config(kind, path, **choice)
    written = path.with_name("baldwin.yaml")
    written.write_text(render_config(found, kind, path))
    return load_config(files=[written]), {row.key: row for row in found.rows}


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


HALFCHEETAH_PPO = """
HalfCheetah-v4: &tuned
  normalize: true
  n_envs: 1
  policy: 'MlpPolicy'
  n_timesteps: !!float 1e6
  batch_size: 64
  n_steps: 512
  gamma: 0.98
  learning_rate: 2.0633e-05
  ent_coef: 0.000401762
  clip_range: lin_0.1
  n_epochs: 20
  gae_lambda: 0.92
  max_grad_norm: 0.8
  vf_coef: 0.58096
  use_sde: True
  policy_kwargs: "dict(
                    log_std_init=-2,
                    ortho_init=False,
                    activation_fn=nn.ReLU,
                    net_arch=[dict(pi=[256, 128], vf=[256, 64])]
                  )"
Swimmer-v3:
  <<: *tuned
  gamma: 0.9999
atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_envs: 8
  n_steps: 128
  n_timesteps: !!float 1e7
  learning_rate: lin_2.5e-4
"""


def test_zoo_ppo(tmp_path: Path) -> None:
    config, rows = imported("zoo", write(tmp_path, "ppo.yml", HALFCHEETAH_PPO), env="HalfCheetah-v4")
    ppo: Any = config.algorithm
    assert (config.env.id, ppo.name, config.stop.env_steps, config.run.name) == ("HalfCheetah-v4", "ppo", 1_000_000, "HalfCheetah-v4-ppo")
    assert (ppo.n_envs, ppo.block, ppo.rollout_length, ppo.batch_size, ppo.epochs) == (1, 1, 512, 64, 20)
    assert (ppo.lr, ppo.gamma, ppo.gae_lambda, ppo.entropy_coef, ppo.value_coef) == (2.0633e-05, 0.98, 0.92, 0.000401762, 0.58096)
    assert ppo.clip_range.model_dump() == {"kind": "linear", "start": 0.1, "end": 0.0, "env_steps": 1_000_000}
    assert (ppo.max_grad_norm, ppo.log_std_init, ppo.normalize_reward, ppo.reward_clip) == (0.8, -2, True, 10)
    assert (config.policy.hidden, config.policy.activation, config.policy.init) == ([256, 128], "relu", "torch")
    assert (ppo.critic.hidden, ppo.critic.activation, ppo.critic.init) == ([256, 64], "relu", "torch")
    assert (config.policy.normalize_obs, config.policy.obs_clip) == (True, 10)
    assert not rows["use_sde"].became
    assert "depends on the state" in rows["use_sde"].note
    assert {row.origin for row in rows.values()} == {"file", "option"}


def test_zoo_merges_aliases_and_names_todays_environment(tmp_path: Path) -> None:
    config, rows = imported("zoo", write(tmp_path, "ppo.yml", HALFCHEETAH_PPO), env="Swimmer-v3")
    assert (config.env.id, config.algorithm.gamma) == ("Swimmer-v5", 0.9999)  # type: ignore[attr-defined]
    assert "versions differ" in rows["env"].note


def test_zoo_atari(tmp_path: Path) -> None:
    config, rows = imported("zoo", write(tmp_path, "ppo.yml", HALFCHEETAH_PPO), env="BreakoutNoFrameskip-v4")
    assert config.env.id == "ALE/Breakout-v5"
    assert config.env.atari
    assert (config.env.atari.stack, config.env.atari.clip_reward, config.env.atari.end_on_life_loss) == (4, True, True)
    assert (config.policy.network, config.policy.hidden, config.policy.init) == ("nature", [], "orthogonal")
    assert not config.algorithm.normalize_reward  # type: ignore[attr-defined]
    assert config.algorithm.epochs == 10  # type: ignore[attr-defined]
    assert rows["n_epochs"].origin == "default"


def test_zoo_dqn_counts_in_updates(tmp_path: Path) -> None:
    text = """
CartPole-v1:
  n_timesteps: !!float 5e4
  learning_rate: !!float 2.3e-3
  batch_size: 64
  buffer_size: 100000
  learning_starts: 1000
  target_update_interval: 10
  train_freq: 256
  gradient_steps: 128
  exploration_fraction: 0.16
  exploration_final_eps: 0.04
  policy_kwargs: "dict(net_arch=[256, 256])"
"""
    config, _ = imported("zoo", write(tmp_path, "dqn.yml", text), env="CartPole-v1")
    preset: Any = load_config("cartpole-dqn").algorithm
    ours = config.algorithm.model_dump(exclude={"steps_per_epoch"})
    assert ours == preset.model_dump(exclude={"steps_per_epoch"})  # the preset was written by hand from the same entry
    assert config.policy.hidden == [256, 256]


def test_zoo_target_interval_by_hand(tmp_path: Path) -> None:
    text = "E-v0: {train_freq: 4, gradient_steps: 1, target_update_interval: 10000, n_timesteps: 1e5}"
    config, _ = imported("zoo", write(tmp_path, "dqn.yml", text), env="E-v0")
    assert config.algorithm.target_update_interval == 2500  # type: ignore[attr-defined]
    assert config.algorithm.epsilon_steps == 10_000  # type: ignore[attr-defined]


def test_zoo_sac(tmp_path: Path) -> None:
    text = """
BipedalWalker-v3:
  n_timesteps: !!float 5e5
  learning_rate: lin_7.3e-4
  ent_coef: 'auto_0.1'
  train_freq: 64
  gradient_steps: 32
  n_envs: 2
  use_sde: False
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  policy_kwargs: "dict(log_std_init=-3, net_arch=dict(pi=[400, 300], qf=[500]), activation_fn=nn.GELU)"
"""
    config, rows = imported("zoo", write(tmp_path, "sac.yml", text), env="BipedalWalker-v3")
    sac: Any = config.algorithm
    assert (sac.actor_lr, sac.critic_lr, sac.alpha_lr, sac.init_alpha, sac.start_steps) == (7.3e-4, 7.3e-4, 7.3e-4, 0.1, 100)
    assert (sac.rollout_length, sac.n_envs, sac.updates_per_step) == (64, 2, 0.25)
    assert (config.policy.hidden, sac.critic.hidden, config.policy.normalize_obs) == ([400, 300], [500], True)
    assert "no schedule" in rows["learning_rate"].note
    assert "GELU is not there" in rows["policy_kwargs"].note
    assert "log_std_init: not there" in rows["policy_kwargs"].note
    assert "nothing is lost" in rows["use_sde"].note


def test_zoo_wrappers_and_updates_after_episodes(tmp_path: Path) -> None:
    text = """
Track-v0:
  env_wrapper:
    - gymnasium.wrappers.TimeLimit: {max_episode_steps: 500}
    - rl_zoo3.wrappers.HistoryWrapper: {horizon: 5}
  train_freq: [1, "episode"]
  gradient_steps: -1
"""
    config, rows = imported("zoo", write(tmp_path, "sac.yml", text), env="Track-v0")
    assert (config.env.max_episode_steps, config.algorithm.updates_per_step) == (500, 1.0)  # type: ignore[attr-defined]
    assert "HistoryWrapper; wrap the environment" in rows["env_wrapper"].note
    assert "not after episodes" in rows["train_freq"].note


def test_zoo_td3_and_a2c(tmp_path: Path) -> None:
    text = "HalfCheetahBulletEnv-v0: {noise_type: normal, noise_std: 0.2, gradient_steps: 1000, train_freq: 1000, learning_rate: 1e-3}"
    config, _ = imported("zoo", write(tmp_path, "td3.yml", text), env="HalfCheetahBulletEnv-v0")
    td3: Any = config.algorithm
    assert (config.env.id, td3.exploration_noise, td3.updates_per_step) == ("pybullet:HalfCheetahBulletEnv-v0", 0.2, 1.0)
    assert config.policy.hidden == [400, 300]
    text = "LunarLanderContinuous-v2: {n_envs: 4, n_steps: 8, use_rms_prop: false, learning_rate: lin_7e-4, env_kwargs: {gravity: -5}}"
    config, _ = imported("zoo", write(tmp_path, "a2c.yml", text), env="LunarLanderContinuous-v2")
    a2c: Any = config.algorithm
    assert (config.env.id, config.env.kwargs) == ("LunarLander-v3", {"continuous": True, "gravity": -5})
    assert (a2c.n_envs, a2c.rollout_length, a2c.optimizer, a2c.lr.start) == (4, 8, "adam", 7e-4)


def test_aesrl(tmp_path: Path) -> None:
    options = {
        "algorithm": "AES-RL",
        "env_name": "Swimmer-v2",
        "hidden": [256, 256],
        "lr": 0.0003,
        "batch_size": 256,
        "expl_noise": 0.2,
        "aesrl_mean_update": "baseline-absolute",
        "aesrl_mean_update_param": -48,
        "aesrl_var_update": "fixed",
        "aesrl_fixed_var_n": 20,
        "aesrl_rl_ratio": 0.1,
        "num_actor_worker": 5,
        "num_critic_worker": 1,
    }
    config, rows = imported("aesrl", write(tmp_path, "aesrl.json", json.dumps(options)))
    aes: Any = config.algorithm
    assert (config.env.id, aes.name, config.executor.workers, config.stop.learning_steps) == ("Swimmer-v5", "aes-rl", 6, 1_000_000)
    assert (aes.strategy.mean_rule, aes.strategy.scale, aes.strategy.variance_rule, aes.strategy.memory) == (
        "baseline-absolute",
        -48,
        "fixed",
        20,
    )
    assert (aes.strategy.variance, aes.strategy.variance_floor, aes.rl_ratio, aes.rl_gain) == (1e-3, 1e-5, 0.1, 50)
    assert (aes.learner.actor_lr, aes.learner.critic_lr, aes.learner.batch_size) == (3e-4, 3e-4, 256)
    assert (config.policy.hidden, config.policy.activation) == ([256, 256], "tanh")
    assert (aes.learner.critic.hidden, aes.learner.critic.activation) == ([256, 256], "leaky-relu")
    assert "only TD3 reads it" in rows["expl_noise"].note


@pytest.mark.parametrize("name", ALGORITHMS)
def test_aesrl_every_algorithm_loads(name: str, tmp_path: Path) -> None:
    population = {"population_size": 10} if name in ("CEM-RL", "P-CEM-RL", "ACEM-RL") else {}
    individuals = {"cemrl_rl_population": 5} if name in ("CEM-RL", "P-CEM-RL") else {}
    ratio = {"aesrl_rl_ratio": 0.5} if name in ("AES-RL", "ACEM-RL", "(1+1)-ES") else {}
    options = {"algorithm": name, "aesrl_mean_update_param": 2000, **population, **individuals, **ratio}
    config, rows = imported("aesrl", write(tmp_path, "x.json", json.dumps(options)))
    found: Any = config.algorithm
    assert found.name == ALGORITHMS[name]
    assert config.env.id == "HalfCheetah-v5"
    if name == "ACEM-RL":
        assert (found.strategy.window, found.strategy.noise_tau) == (10, 0.9)
    if individuals:
        assert (found.strategy.population, found.rl_individuals, found.learner.batch_size) == (10, 5, 100)
    if name == "TD3":
        assert (found.exploration_noise, found.policy_delay, found.start_steps, config.stop.env_steps) == (0.1, 2, 10_000, 1_000_000)
    assert set(DEFAULTS) <= set(rules_for(ALGORITHMS[name]))
    assert set(options) <= set(rows)


ASAC = """
default:
  base_config: {env_type: GYM, env_name: Pendulum-v1, n_envs: 10, max_step: 2000, name: "pendulum_{time}", max_step_each_iter: 200}
  replay_config: {capacity: 100000}
  sac_config:
    nn: nn_vanilla
    n_step: 3
    learning_rate: 0.001
    use_normalization: true
    use_rnd: true
    rnd_n_sample: 20
    curiosity_strength: 5
    tua: 0.1
redq:
  inherited: wide
  sac_config: {ensemble_q_num: 10}
wide:
  sac_config: {ensemble_q_num: 5, batch_size: 512, use_auto_alpha: false, init_log_alpha: -1.0}
loop: {inherited: [loop]}
"""


def test_asac(tmp_path: Path) -> None:
    config, rows = imported("asac", write(tmp_path, "config.yaml", ASAC))
    sac: Any = config.algorithm
    assert (config.env.id, config.env.max_episode_steps, sac.name, sac.n_envs) == ("Pendulum-v1", 200, "sac", 10)
    assert sac.updates_per_step == pytest.approx(0.1)
    assert config.stop.env_steps == 20_000  # 2000 updates, one for each step of ten environments
    assert sac.buffer_size == 65_536  # the power of two below 100,000
    assert (sac.n_step, sac.actor_lr, sac.critic_lr, sac.alpha_lr, sac.batch_size, sac.start_steps) == (3, 1e-3, 1e-3, 1e-3, 256, 256)
    assert sac.init_alpha == pytest.approx(math.exp(-2.3))
    assert (config.policy.normalize_obs, config.policy.obs_clip, config.policy.hidden) == (True, 5.0, [64, 64, 64])
    assert (sac.rnd.kind, sac.rnd.n_samples, sac.target) == ("action", 20, "vtrace")
    assert (sac.prioritized.alpha, sac.prioritized.beta_start, sac.prioritized.beta_updates) == (0.9, 0.4, 600)  # 0.001 for each draw
    assert sac.clip_epsilon is None
    assert "no effect without sac_config.curiosity" in rows["sac_config.curiosity_strength"].note
    assert "Did you mean 'sac_config.tau'?" in rows["sac_config.tua"].note
    assert rows["sac_config.clip_epsilon"].origin == "default"  # on by default there, and missing here


def test_asac_sequences_and_losses(tmp_path: Path) -> None:
    text = """
sac_config: {seq_encoder: RNN, burn_in_step: 8, n_step: 4, v_lambda: 0.9, siamese: ATC, siamese_use_q: true, siamese_use_adaptive: true,
  use_prediction: true, transition_kl: 0.5, curiosity: FORWARD, curiosity_strength: 2, v_rho: 2.0}
"""
    config, rows = imported("asac", write(tmp_path, "config.yaml", text), env="Pendulum-v1")
    sac: Any = config.algorithm
    assert (config.policy.memory.kind, sac.burn_in, sac.burn_in_gradient, sac.sequence) == ("gru", 8, True, 1)
    assert config.env.previous_action
    assert (sac.target, sac.trace_lambda, sac.n_step) == ("vtrace", 0.9, 4)
    assert (sac.siamese.kind, sac.siamese.contrastive_q, sac.siamese.adaptive) == ("atc", True, True)
    assert (sac.prediction.transition_kl, sac.curiosity.kind, sac.curiosity.strength) == (0.5, "forward", 2)
    assert rows["sac_config.v_rho"].note == "importance weights are clipped at 1"


def test_asac_noise_priorities_and_choices(tmp_path: Path) -> None:
    text = """
base_config: {n_envs: 5}
replay_config: {alpha: 0.6, beta: 0.5, beta_increment_per_sampling: 0, td_error_min: 0.001}
sac_config: {action_noise: [0.1, 0.4], n_step: 3, v_lambda: 0.9, use_add_with_td: true, clip_epsilon: 0.3}
"""
    config, rows = imported("asac", write(tmp_path, "config.yaml", text), env="Pendulum-v1")
    sac: Any = config.algorithm
    assert (sac.action_noise, sac.exploration_spread, sac.target) == (0.1, 4, "nstep")
    assert "changes the probabilities" in rows["sac_config.use_n_step_is"].note
    priorities = sac.prioritized
    assert (priorities.alpha, priorities.beta_start, priorities.beta_end, priorities.epsilon) == (0.6, 0.5, 0.5, 0.001)
    assert (priorities.initial, sac.clip_epsilon) == ("td-error", 0.3)

    text = "{base_config: {noise_increasing_rate: 0.05}, sac_config: {use_priority: false}}"
    config, _ = imported("asac", write(tmp_path, "config.yaml", text), env="Pendulum-v1")
    sac = config.algorithm
    assert (sac.action_noise, sac.exploration_spread, sac.prioritized) == (0.05, 2, None)

    text = "sac_config: {discrete_dqn_like: true, discrete_dqn_epsilon: 0.1, n_step: 2}"
    config, _ = imported("asac", write(tmp_path, "config.yaml", text), env="CartPole-v1")
    sac = config.algorithm
    assert (sac.discrete_dqn_like, sac.discrete_dqn_epsilon, sac.target) == (True, 0.1, "nstep")


def test_asac_entropy_targets_are_those_of_the_actions(tmp_path: Path) -> None:
    """A negative one is for numbers; no policy over choices has it, and its temperature would fall to 0."""
    path = write(
        tmp_path, "config.yaml", "sac_config: {target_alpha: 3, clip_epsilon: 0.2, action_noise: [0.1, 0.1], discrete_dqn_like: true}"
    )
    config, rows = imported("asac", path, env="Pendulum-v1")
    sac: Any = config.algorithm
    assert (sac.target_entropy, sac.clip_epsilon, sac.action_noise, sac.discrete_dqn_like) == (-3, 0.2, 0.1, False)
    assert "there are none" in rows["sac_config.discrete_dqn_like"].note
    path = write(tmp_path, "config.yaml", "sac_config: {target_alpha: 3, clip_epsilon: 0.2, action_noise: [0.1, 0.1]}")
    config, rows = imported("asac", path, env="CartPole-v1")
    sac = config.algorithm
    assert (sac.target_entropy, sac.clip_epsilon, sac.action_noise) == ("auto", None, 0)
    assert "between 0 and the log of their number" in rows["sac_config.target_alpha"].note
    config, rows = imported("asac", path, env="unity:builds/Roller.x86_64")
    assert config.algorithm.target_entropy == "auto"  # type: ignore[attr-defined]
    assert "if all are continuous, set algorithm.target_entropy=-3" in rows["sac_config.target_alpha"].note


@pytest.mark.parametrize("text", ["siamese: BYOL", "siamese_use_q: true", "use_prediction: true"])
def test_asac_losses_without_an_encoder_are_left_out(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, "config.yaml", f"sac_config: {{{text}}}")
    config, rows = imported("asac", path, env="Pendulum-v1")
    assert not config.algorithm.trains_on_windows(config.policy)  # type: ignore[attr-defined]
    assert "policy.encoders={SENSOR: mlp}" in rows[f"sac_config.{text.partition(':')[0]}"].note


@pytest.mark.parametrize("path", ["builds/Roller.x86_64", f"{{{sys.platform}: builds/Roller.x86_64, amiga: other}}"])
def test_asac_unity(path: str, tmp_path: Path) -> None:
    text = f"""
base_config: {{env_type: UNITY, env_name: Roller, unity_args: {{build_path: {path}, port: 5010, no_graphics: false, force_vulkan: true}}}}
reset_config: {{force_reset: true}}
"""
    config, rows = imported("asac", write(tmp_path, "config.yaml", text))
    assert config.env.id == "unity:builds/Roller.x86_64"
    assert config.env.kwargs == {"port": 5010, "no_graphics": False, "parameters": {"force_reset": 1.0}}
    assert rows["base_config.unity_args"].note == "force_vulkan: no counterpart"


def test_asac_sections_inherit(tmp_path: Path) -> None:
    path = write(tmp_path, "config.yaml", ASAC)
    config, _ = imported("asac", path, section="redq", env="Pendulum-v1")
    sac: Any = config.algorithm
    assert (sac.n_critics, sac.target_subset, sac.batch_size, sac.n_step) == (10, 2, 512, 3)
    assert sac.alpha == pytest.approx(math.exp(-1.0))
    with pytest.raises(ConfigError, match="loop -> loop"):
        import_config("asac", path, section="loop")


@pytest.mark.parametrize(
    ("kind", "name", "text", "choice", "message"),
    [
        ("asac", "c.yaml", "base_config: {env_type: UNITY}", {}, "a build of Unity is env.id=unity:PATH"),
        ("asac", "c.yaml", ASAC, {"section": "wid"}, "Did you mean 'wide'"),
        ("asac", "c.yaml", "sac_config: {init_log_alpha: [1]}", {"env": "Pendulum-v1"}, "sac_config.init_log_alpha"),
        ("asac", "c.yaml", "sac_config: {gamma: high}", {"env": "Pendulum-v1"}, "algorithm.gamma"),
        ("asac", "c.yaml", "seven", {}, "expected a config of Advanced-Soft-Actor-Critic"),
        ("asac", "c.yaml", "a: 1", {}, "expected the sections base_config"),
        ("aesrl", "c.json", "{", {}, "is not JSON"),
        ("aesrl", "c.json", '{"algorithm": "AESRL"}', {}, "Did you mean 'AES-RL'"),
        ("aesrl", "c.json", '{"aesrl_rl_ratio": 0.5}', {"section": "x"}, "takes no --section"),
        ("zoo", "ppo.yml", HALFCHEETAH_PPO, {}, "--env is needed"),
        ("zoo", "ppo.yml", HALFCHEETAH_PPO, {"env": "HalfCheetah-v5"}, "Did you mean 'HalfCheetah-v4'"),
        ("zoo", "tqc.yml", HALFCHEETAH_PPO, {"env": "HalfCheetah-v4"}, "no counterpart of the Zoo's algorithm 'tqc'"),
        ("zoo", "ppo.yml", "A: {policy_kwargs: \"__import__('os')\"}", {"env": "A"}, "is not a literal"),
        ("zoo", "ppo.yml", "A: {learning_rate: fast}", {"env": "A"}, "key 'learning_rate'"),
        ("zoo", "ppo.yml", "A: {n_steps: !!python/object/apply:os.getcwd []}", {"env": "A"}, "is not YAML"),
        ("sb3", "ppo.yml", "", {}, "no importer 'sb3'"),
    ],
)
def test_mistakes_are_explained(kind: str, name: str, text: str, choice: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        import_config(kind, write(tmp_path, name, text), **choice)


def test_literals() -> None:
    assert parse_literal("dict(a=-1.5, b=[dict(pi=[64, 64])], c=nn.ReLU, d=None, e=(1, True), f='x')") == {
        "a": -1.5,
        "b": [{"pi": [64, 64]}],
        "c": "nn.ReLU",
        "d": None,
        "e": [1, True],
        "f": "x",
    }
    assert parse_literal("{'norm_obs': False}") == {"norm_obs": False}


@pytest.mark.parametrize(
    "text", ["f(1)", "dict(**x)", "[x for x in y]", "a()[0].b", "1 +", "lambda: 0", "(" * 5000, "1" * 20_000, "{**a}", "-'a'"]
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected numbers"):
        parse_literal(text)


@pytest.mark.parametrize(
    ("n_envs", "rollout_length", "keys"),
    [
        (1, 50, {}),
        (1, 1000, {}),
        (8, 1000, {"run.checkpoint_every": 4}),  # 3 x 4 x 8000 <= 100,000
        (64, 1000, {"run.checkpoint_every": 1, "algorithm.checkpoint_slack": 192_000}),
    ],
)
def test_checkpoints_fit_the_replay_buffer(n_envs: int, rollout_length: int, keys: dict[str, int]) -> None:
    assert checkpoints_for(n_envs, rollout_length) == keys
    fields = {"env.id": "Pendulum-v1", "algorithm.name": "sac", "algorithm.n_envs": n_envs, "algorithm.rollout_length": rollout_length}
    load_config(overrides=[f"{key}={value}" for key, value in (fields | keys).items()])


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.just({"a": [1]}),
    st.just(date(2020, 1, 1)),
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_any_values_give_a_config_or_one_clear_message(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["asac", "aesrl", *zoo.RULES]))
    names = {"asac": list(asac.RULES), "aesrl": list(rules_for("aes-rl"))}.get(kind) or list(zoo.RULES[kind])
    values = data.draw(st.dictionaries(st.sampled_from(names), JUNK, max_size=4))
    if kind == "aesrl":
        values |= {"algorithm": data.draw(st.sampled_from(list(ALGORITHMS)))}
        text = json.dumps(values, default=str)
    elif kind == "asac":
        tree: dict[str, Any] = {}
        for name, value in values.items():
            section, _, key = name.partition(".")
            tree[section] = {**(tree.get(section) or {}), key: value} if key else value
        text = yaml.safe_dump(tree)
    else:
        text = yaml.safe_dump({"Pendulum-v1": values})
    path = write(tmp_path, f"{kind}.yml", text)
    try:
        found = import_config(kind if kind in ("asac", "aesrl") else "zoo", path, env="Pendulum-v1")
    except ConfigError as error:
        assert str(path) in str(error)
    else:
        json.dumps([row.as_dict() for row in found.rows])
        written = write(tmp_path, "written.yaml", render_config(found, "zoo", path))
        load_config(files=[written])


FEATURES: dict[str, list[Any]] = {
    "n_step": [1, 3],
    "seq_encoder": [None, "RNN", "ATTN"],
    "burn_in_step": [0, 2],
    "target_alpha": [None, 2.0],
    "clip_epsilon": [0.2, -1],
    "discrete_dqn_like": [False, True],
    "siamese": [None, "ATC", "BYOL"],
    "siamese_use_q": [False, True],
    "siamese_use_adaptive": [False, True],
    "use_prediction": [False, True],
    "use_extra_data": [False, True],
    "curiosity": [None, "FORWARD", "INVERSE"],
    "use_rnd": [False, True],
    "use_priority": [False, True],
    "use_add_with_td": [False, True],
    "use_n_step_is": [False, True],
    "use_auto_alpha": [False, True],
    "action_noise": [None, [0.1, 0.1], [0.1, 0.4]],
    "ensemble_q_num": [2, 3],
}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.sampled_from(["Pendulum-v1", "CartPole-v1", "tests.toys.delayed:Dart"]),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FEATURES.items()}),
)
def test_any_features_of_asac_give_a_config_that_can_be_built(tmp_path: Path, env: str, values: dict[str, Any]) -> None:
    found = import_config("asac", write(tmp_path, "asac.yaml", yaml.safe_dump({"sac_config": values})), env=env)
    written = write(tmp_path, "written.yaml", render_config(found, "asac", tmp_path))
    build(load_config(files=[written], overrides=["algorithm.buffer_size=64", "algorithm.critic.hidden=[4]", "policy.hidden=[4]"]))


def test_the_command_writes_a_config_and_says_what_became_of_each_key(tmp_path: Path) -> None:
    path, out = write(tmp_path, "ppo.yml", HALFCHEETAH_PPO), tmp_path / "out.yaml"
    done = in_process("import", "zoo", path, "--env", "HalfCheetah-v4")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["algorithm"]["epochs"] == 20
    assert "algorithm.rollout_length=512" in done.stderr
    done = in_process("import", "zoo", path, "--env", "HalfCheetah-v4", "--out", out, "--json")
    found = json.loads(done.stdout)
    assert found["config"] == yaml.safe_load(out.read_text())
    (row,) = [row for row in found["keys"] if row["key"] == "n_steps"]
    assert row == {"key": "n_steps", "value": 512, "origin": "file", "became": {"algorithm.rollout_length": 512}, "note": ""}
    again = in_process("import", "zoo", path, "--env", "HalfCheetah-v4", "--out", out)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    missing = in_process("import", "zoo", tmp_path / "none.yml", "--env", "A")
    assert missing.returncode == 2
    assert "cannot read" in missing.stderr
