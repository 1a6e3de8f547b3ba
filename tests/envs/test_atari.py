"""Atari games: what the options do, on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baldwin.config import load_config
from baldwin.envs import EnvConfig, VectorEnv, check_env, choose_backend, make_vector_env
from baldwin.envs.atari import AtariConfig
from baldwin.errors import ConfigError, EnvironmentFailure

pytest.importorskip("ale_py")
ONE = np.zeros(1, np.int32)


def game(name: str = "Pong", backend: str = "gymnasium", width: int = 1, **atari: Any) -> VectorEnv:
    config = EnvConfig(id=f"ALE/{name}-v5", backend=backend, atari=atari)  # type: ignore[arg-type]
    return make_vector_env(config, check_env(config), width)


def play(env: VectorEnv, steps: int, seed: int = 1, episode: int = 0) -> tuple[list[Any], list[float], list[bool]]:
    """Observations, rewards and ends under fixed actions."""
    rng = np.random.default_rng(7)
    env.open(np.array([seed]), episode)
    seen, rewards, ends = [env.reset(ONE)], [], []
    for _ in range(steps):
        obs, reward, terminated, *_ = env.step(rng.integers(0, 4, 1), ONE)
        seen.append(obs)
        rewards.append(float(reward[0]))
        ends.append(bool(terminated[0]))
    return seen, rewards, ends


def test_pictures_and_memory_have_the_shapes_that_were_asked_for() -> None:
    for atari, shape in (
        ({}, (1, 84, 84)),
        ({"size": 42}, (1, 42, 42)),
        ({"size": [40, 32], "grey": False}, (3, 40, 32)),
        ({"size": None}, (1, 210, 160)),
        ({"size": None, "crop": [34, 194]}, (1, 160, 160)),
    ):
        assert check_env(EnvConfig(id="ALE/Pong-v5", atari=atari)).obs.images[0].shape == shape  # type: ignore[arg-type]
    spec = check_env(EnvConfig(id="ALE/Pong-v5", atari={"ram": True})).obs  # type: ignore[arg-type]
    assert spec.vector_size == 128
    assert not spec.images


def test_deepmind_preprocessing_is_the_default_for_ale_ids() -> None:
    config = EnvConfig(id="ALE/Pong-v5")
    assert config.atari is not None
    assert check_env(config).obs.frames == 4
    assert choose_backend(config) == "gymnasium"
    assert EnvConfig(id="ALE/Pong-v5", kwargs={"obs_type": "ram"}).atari is None  # whoever sets ALE's own arguments gets ALE itself


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_every_episode_is_a_function_of_its_seed_and_actions(backend: str) -> None:
    first, again = (play(game(backend=backend, sticky=0.25), 60) for _ in range(2))
    np.testing.assert_equal(first, again)
    other = play(game(backend=backend, sticky=0.25), 60, seed=2)
    assert any(not np.array_equal(a["obs"], b["obs"]) for a, b in zip(first[0], other[0], strict=True))


@pytest.mark.parametrize("name", ["Pong", "Breakout", "Qbert", "Tetris", "BeamRider"])
@pytest.mark.parametrize("noop_max", [0, 30])
def test_a_used_game_begins_as_a_fresh_one(name: str, noop_max: int) -> None:
    used = game(name, sticky=0.25, noop_max=noop_max)
    play(used, 40)
    np.testing.assert_equal(play(used, 30, episode=3), play(game(name, sticky=0.25, noop_max=noop_max), 30, episode=3))


def test_without_extras_it_is_ale_itself() -> None:
    """Frame by frame the same RAM and rewards as ALE's own Gymnasium environment."""
    import gymnasium as gym

    theirs = gym.make("ALE/Breakout-v5", obs_type="ram", frameskip=4, repeat_action_probability=0.0)
    theirs.reset(seed=1)
    ours = game("Breakout", ram=True, noop_max=0)
    ours.open(np.array([5]), 0)
    ours.reset(ONE)
    rng = np.random.default_rng(0)
    for _ in range(300):
        action = int(rng.integers(4))
        ram, reward, terminated, _, _ = theirs.step(action)
        step = ours.step(np.array([action]), ONE)
        np.testing.assert_array_equal(step.obs["vector"][0], ram)
        assert (step.reward[0], step.terminated[0]) == (reward, terminated)


def test_a_cropped_picture_is_a_part_of_the_whole() -> None:
    whole, cropped = game(size=None), game(size=None, crop=[34, 194])
    for env in (whole, cropped):
        env.open(np.zeros(1, np.int64), 0)
    (key,) = (sensor.key for sensor in check_env(EnvConfig(id="ALE/Pong-v5")).obs.images)
    first = np.zeros(1, np.int32)
    np.testing.assert_array_equal(whole.reset(first)[key][..., 34:194, :], cropped.reset(first)[key])


def test_without_a_crop_the_whole_of_a_taller_screen_is_shown() -> None:
    assert AtariConfig().rows == slice(None)  # Air Raid has 250 rows
    assert AtariConfig(crop=[34, 194]).rows == slice(34, 194)


def test_frame_skip_and_the_maximum_of_two_frames() -> None:
    single = game(frame_skip=1, max_frames=False, noop_max=0, size=None)
    skipping = game(frame_skip=4, noop_max=0, size=None)
    plain = game(frame_skip=4, max_frames=False, noop_max=0, size=None)
    for env in (single, skipping, plain):
        env.open(np.array([1]), 0)
        env.reset(ONE)
    for action in (2, 3, 2, 0, 3):
        frames = [single.step(np.array([action]), ONE).obs["obs"] for _ in range(4)]
        np.testing.assert_array_equal(skipping.step(np.array([action]), ONE).obs["obs"], np.maximum(frames[2], frames[3]))
        np.testing.assert_array_equal(plain.step(np.array([action]), ONE).obs["obs"], frames[3])


def test_sticky_actions_change_what_happens() -> None:
    sticky, exact = play(game(sticky=0.5, noop_max=0), 40), play(game(noop_max=0), 40)
    assert any(not np.array_equal(a["obs"], b["obs"]) for a, b in zip(sticky[0], exact[0], strict=True))


def test_no_ops_vary_the_start() -> None:
    def starts(noop_max: int) -> set[bytes]:
        env = game(noop_max=noop_max, ram=True)
        env.open(np.array([1]), 0)
        return {env.reset(ONE)["vector"].tobytes() for _ in range(6)}

    assert len(starts(0)) == 1
    assert len(starts(30)) > 3


def test_a_lost_life_and_clipped_rewards_are_for_training_only() -> None:
    training = EnvConfig(id="ALE/Breakout-v5", atari={"end_on_life_loss": True, "clip_reward": True})  # type: ignore[arg-type]
    scoring = training.for_evaluation()
    assert scoring.atari is not None
    assert not scoring.atari.end_on_life_loss
    assert not scoring.atari.clip_reward
    lengths = []
    for config in (training, scoring):
        env = make_vector_env(config, check_env(config), 1)
        env.open(np.array([1]), 0)
        env.reset(ONE)
        over, steps = False, 0
        while not over and steps < 600:
            over, steps = bool(env.step(np.array([1]), ONE).terminated[0]), steps + 1
        lengths.append(steps)
    assert lengths[0] < lengths[1]  # one life against five
    rewards = []
    for clip in (True, False):
        env = game("Qbert", clip_reward=clip)
        rewards.append(max(play(env, 200)[1]))
    assert rewards[0] == 1.0
    assert rewards[1] == 25.0  # the game's own


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env.atari.*frame_skp.*Did you mean 'frame_skip'"):
        load_config(None, [], ["env.id=ALE/Pong-v5", "algorithm.name=es", "env.atari.frame_skp=3"])
    with pytest.raises(ConfigError, match="each at least 5 pixels"):
        load_config(None, [], ["env.id=ALE/Pong-v5", "algorithm.name=es", "env.atari.size=2"])
    with pytest.raises(ConfigError, match=r"expected \[top, bottom\] within 0 and 210"):
        load_config(None, [], ["env.id=ALE/Pong-v5", "algorithm.name=es", "env.atari.crop=[194, 34]"])
    for unknown in ({"ram": True}, {"crop": [34, 194]}):
        with pytest.raises(EnvironmentFailure, match="EnvPool shows neither RAM nor"):
            game(backend="envpool", **unknown)
    with pytest.raises(EnvironmentFailure, match=r"no environment 'ALE/Pang-v5'.*Did you mean 'ALE/Pong-v5'"):
        game("Pang")
    with pytest.raises(ConfigError, match=r"set env\.atari\.stack"):
        load_config(None, [], ["env.id=ALE/Pong-v5", "algorithm.name=es", "env.frame_stack=3"])
    with pytest.raises(ConfigError, match="atari is for games of ALE"):
        load_config(None, [], ["env.id=tests.toys.sensors:Catch", "algorithm.name=es", "env.atari.stack=3"])


def test_ale_as_it_is() -> None:
    spec = check_env(EnvConfig(id="ALE/Seaquest-v5", kwargs={"obs_type": "grayscale"}))
    assert spec.obs.images[0].shape == (1, 210, 160)
