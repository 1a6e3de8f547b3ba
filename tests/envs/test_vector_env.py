from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env, choose_backend, list_envs, make_render_env, make_vector_env
from baldwin.envs.envpool import RESETS_ONLY, ids, make_pool
from baldwin.errors import EnvironmentFailure, MissingExtra

SEEDS = np.array([5, 5, 9, 9], np.int64)
IDS = np.arange(4, dtype=np.int32)
BOTH = ["gymnasium", "envpool"]
ROBOTS = ["HalfCheetah-v5", "Swimmer-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "InvertedPendulum-v5"]


def envs_of(name: str, backend: str, width: int = 4):  # type: ignore[no-untyped-def]
    config = EnvConfig(id=name, backend=backend)
    env_spec = check_env(config)
    return make_vector_env(config, env_spec, width), env_spec


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5"])
def test_equal_seeds_start_equal_and_others_do_not(name: str, backend: str) -> None:
    envs, _ = envs_of(name, backend)
    envs.open(SEEDS, 0)
    first, second = envs.reset(IDS)["vector"], envs.reset(IDS)["vector"]
    assert (first[0] == first[1]).all()
    assert (first[0] != first[2]).any()
    assert (first[0] != second[0]).any()


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5"])
def test_a_job_starts_alike_on_a_fresh_and_on_a_used_worker(name: str, backend: str) -> None:
    used, env_spec = envs_of(name, backend)
    used.open(SEEDS, 0)
    used.reset(IDS)
    for _ in range(3):  # too few to end an episode: a finished lane is never stepped
        used.step(np.stack([env_spec.action_space.sample() for _ in IDS]), IDS)
    used.open(SEEDS, 3)
    fresh, _ = envs_of(name, backend)
    fresh.open(SEEDS, 3)
    np.testing.assert_equal(used.reset(IDS), fresh.reset(IDS))


@pytest.mark.parametrize("backend", BOTH)
def test_an_earlier_job_after_a_later_one_starts_as_it_did(backend: str) -> None:
    envs, _ = envs_of("Hopper-v5", backend)
    envs.open(SEEDS, 2)
    first = envs.reset(IDS)
    envs.open(SEEDS, 7)
    envs.reset(IDS)
    envs.open(SEEDS, 2)
    np.testing.assert_equal(envs.reset(IDS), first)


def test_gymnasium_lanes_are_a_plain_loop_step_by_step() -> None:
    envs, env_spec = envs_of("Hopper-v5", "gymnasium")
    envs.open(SEEDS, 4)
    obs = envs.reset(IDS)["vector"]
    seed = int(np.random.SeedSequence((9, 4)).generate_state(1)[0] >> 1)
    env = gym.make("Hopper-v5")
    plain, _ = env.reset(seed=seed)
    assert (obs[2] == plain).all()
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.uniform(-1, 1, (4, *env_spec.action_space.shape)).astype(np.float32)  # type: ignore[misc]
        steps = envs.step(actions, IDS)
        plain, reward, terminated, truncated, _ = env.step(actions[2])
        assert (steps.obs["vector"][2] == plain).all()
        assert (steps.reward[2], steps.terminated[2], steps.truncated[2]) == (reward, terminated, truncated)
        if terminated:
            return
    raise AssertionError("expected a fall within 100 random steps")


def test_envpool_lanes_are_a_plain_loop_step_by_step() -> None:
    envs, env_spec = envs_of("Hopper-v5", "envpool")
    envs.open(SEEDS, 2)
    obs = envs.reset(IDS)["vector"]
    pool = make_pool(EnvConfig(id="Hopper-v5"), np.array([9]))
    for _ in range(3):
        plain, _ = pool.reset()
    assert (obs[2] == plain[0]).all()
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.uniform(-1, 1, (4, *env_spec.action_space.shape))  # type: ignore[misc]
        steps = envs.step(actions, IDS)
        plain, reward, terminated, truncated, _ = pool.step(actions[2:3])
        assert (steps.obs["vector"][2] == plain[0]).all()
        assert (steps.reward[2], steps.terminated[2], steps.truncated[2]) == (reward[0], terminated[0], truncated[0])
        if terminated[0]:
            return
    raise AssertionError("expected a fall within 100 random steps")


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        *((name, {}) for name in ROBOTS),
        ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.7, "frame_skip": 3}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 0.3, "healthy_state_range": (-3.0, 3.0)}),
        ("Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1, "main_body": "front_left_leg"}),
    ],
)
def test_mujoco_lanes_are_gymnasium_lanes_to_the_last_bit(name: str, kwargs: dict[str, object]) -> None:
    pair = []
    for backend in ("gymnasium", "mujoco"):
        config = EnvConfig(id=name, backend=backend, kwargs=kwargs)
        env_spec = check_env(config)
        pair.append(make_vector_env(config, env_spec, 4))
        pair[-1].open(SEEDS, 1)
    np.testing.assert_equal(pair[0].reset(IDS), pair[1].reset(IDS))
    rng = np.random.default_rng(0)
    for number in range(500):
        ids = IDS if number % 3 else IDS[1:3]
        size = 1.0 if number < 100 else 0.0  # in the end it lies still, where small differences of a solver show
        actions = rng.uniform(-size, size, (len(ids), *env_spec.action_space.shape)).astype(np.float32)  # type: ignore[misc]
        plain, fast = (envs.step(actions, ids) for envs in pair)
        np.testing.assert_equal(fast, plain)
        over = ids[plain.terminated]
        if len(over):
            np.testing.assert_equal(pair[0].reset(over), pair[1].reset(over))


def test_a_robot_that_breaks_is_reported_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    envs, env_spec = envs_of("Hopper-v5", "mujoco")
    actions = np.zeros((4, *env_spec.action_space.shape), np.float32)  # type: ignore[misc]
    envs.open(SEEDS, 0)
    start = envs.reset(IDS)
    victim, whole = envs._simulators[2].data, envs._mj_step

    def brittle(model: object, data: object, skip: int) -> None:
        if data is victim:
            raise RuntimeError("a joint came off")
        whole(model, data, skip)

    monkeypatch.setattr(envs, "_mj_step", brittle)
    steps = envs.step(actions, IDS)
    assert list(steps.terminated) == [False, False, True, False]
    assert np.isnan(steps.obs["vector"][2]).all()
    assert "a joint came off" in envs.failures.pop(2)
    envs.open(SEEDS, 0)
    np.testing.assert_equal(envs.reset(IDS), start)  # on a new robot
    assert not envs.step(actions, IDS).terminated.any()


def test_a_lane_that_cannot_begin_leaves_the_others_exact() -> None:
    pair = [envs_of("Hopper-v5", backend)[0] for backend in ("gymnasium", "mujoco")]
    actions = np.full((4, 3), 0.1, np.float32)
    for envs in pair:
        envs.open(SEEDS, 0)
        envs.reset(IDS)
        envs._envs[1].unwrapped.reset_model = lambda: 1 / 0
        envs.reset(IDS[1:2])
        assert "ZeroDivisionError" in envs.failures[1]
    for _ in range(3):
        plain, fast = (envs.step(actions, IDS) for envs in pair)
        assert np.array_equal(plain.obs["vector"], fast.obs["vector"], equal_nan=True)
        assert (plain.reward == fast.reward).all()
        plain, fast = (envs.step(actions[2:], IDS[2:]) for envs in pair)
        assert (plain.reward == fast.reward).all()


def test_an_id_with_wrappers_of_its_own_is_left_to_gymnasium() -> None:
    from gymnasium.wrappers import RescaleAction

    wrapper = RescaleAction.wrapper_spec(min_action=-1.0, max_action=1.0)
    gym.register("WrappedHopper-v0", "gymnasium.envs.mujoco.hopper_v5:HopperEnv", additional_wrappers=(wrapper,))
    try:
        assert choose_backend(EnvConfig(id="WrappedHopper-v0")) == "gymnasium"
    finally:
        del gym.registry["WrappedHopper-v0"]


def test_without_islands_the_physics_is_the_same_to_ten_digits() -> None:
    seen, flags = [], []
    for islands in (True, False):
        config = EnvConfig(id="HalfCheetah-v5", backend="mujoco", islands=islands)
        envs = make_vector_env(config, check_env(config), 1)
        envs.open(np.zeros(1, np.int64), 0)
        rows, one = [envs.reset(np.zeros(1, np.int32))["vector"]], np.zeros(1, np.int32)
        rows += [envs.step(np.zeros((1, 6), np.float32), one).obs["vector"] for _ in range(300)]
        seen.append(np.concatenate(rows))
        flags.append(envs._robot.model.opt.disableflags)  # type: ignore[attr-defined]
        envs.close()
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-9)
    assert flags[0] == 0 != flags[1]


def test_the_mujoco_backend_names_the_robots_it_knows() -> None:
    with pytest.raises(EnvironmentFailure, match=r"does not serve 'Humanoid-v5'; it knows Ant-v5, .*Walker2d-v5"):
        check_env(EnvConfig(id="Humanoid-v5", backend="mujoco"))


def test_both_backends_simulate_the_same_world() -> None:
    # the same state and actions: EnvPool's start is written into Gymnasium's simulator
    pool = make_pool(EnvConfig(id="HalfCheetah-v5", kwargs={"exclude_current_positions_from_observation": False}), np.array([3]))
    obs, _ = pool.reset()
    env = gym.make("HalfCheetah-v5", exclude_current_positions_from_observation=False).unwrapped
    env.reset(seed=0)
    env.set_state(obs[0, :9], obs[0, 9:])  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, (1, 6))
        obs, reward, *_ = pool.step(action)
        plain, plain_reward, *_ = env.step(action[0])
        assert obs[0] == pytest.approx(plain, abs=1e-3)
        assert reward[0] == pytest.approx(plain_reward, abs=1e-2)


def test_a_finished_lane_shows_its_last_observation_not_a_reset() -> None:
    for backend in BOTH:
        envs, _ = envs_of("CartPole-v1", backend)
        envs.open(SEEDS, 0)
        envs.reset(IDS)
        for _ in range(50):
            steps = envs.step(np.ones(4, np.int64), IDS)
            if steps.terminated[0]:
                break
        assert abs(steps.obs["vector"][0][2]) > 0.2  # the pole is down; a reset would show it upright


class Announcing(gym.Env[np.ndarray, Any]):
    """Says how it ended in words of its own."""

    observation_space, action_space = gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, dict[str, object]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return np.ones(1, np.float32), 0.0, True, False, {"result": {"score": 0.5} if action else "1-0"}


def test_a_result_that_is_no_mapping_is_left_alone() -> None:
    envs: Any = envs_of("tests.envs.test_vector_env:Announcing", "gymnasium")[0]
    envs.open(SEEDS, 0)
    envs.reset(IDS)
    envs.step(np.array([0, 1, 0, 1]), IDS)
    assert [dict(envs.result(n)) for n in IDS] == [{}, {"score": 0.5}, {}, {"score": 0.5}]
    assert not envs.failures


def test_a_subset_of_lanes_can_be_stepped() -> None:
    for backend in BOTH:
        envs, _ = envs_of("CartPole-v1", backend)
        envs.open(SEEDS, 0)
        start = envs.reset(IDS)
        some = np.array([1, 3], np.int32)
        assert envs.step(np.zeros(2, np.int64), some).obs["vector"].shape == (2, 4)
        envs.open(SEEDS, 0)
        np.testing.assert_equal(envs.reset(IDS), start)


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "Ant-v5", "Swimmer-v5", "InvertedPendulum-v5"])
def test_starts_of_carried_pools_do_not_depend_on_what_was_played(name: str) -> None:
    assert ids()[name] in RESETS_ONLY
    played, idle = (make_pool(EnvConfig(id=name), np.array([3])) for _ in range(2))
    for _ in range(3):
        assert (played.reset()[0] == idle.reset()[0]).all()
        for _ in range(4):
            played.step(np.stack([np.zeros_like(played.action_space.sample())]))  # too little to end an episode


def test_auto_takes_the_fastest_that_has_the_id() -> None:
    assert choose_backend(EnvConfig(id="HalfCheetah-v5")) == "mujoco"
    assert choose_backend(EnvConfig(id="Humanoid-v5")) == "envpool"
    assert choose_backend(EnvConfig(id="tests.toys.worlds:Chase")) == "gymnasium"
    assert choose_backend(EnvConfig(id="LunarLander-v3")) == "gymnasium"  # EnvPool cannot seed its second episode on a lane
    assert {("CartPole-v1", "classic-control"), ("Acrobot-v1", "envpool")} <= set(list_envs())


@pytest.mark.parametrize("name", ["tests.toys.worlds:Chase", "tests.toys.worlds:BaldwinChase-v0", "BaldwinChase-v0"])
def test_own_environments_by_class_by_module_and_by_id(name: str) -> None:
    import tests.toys.worlds  # noqa: F401 - the bare id needs the registration

    env_spec = check_env(EnvConfig(id=name))
    assert env_spec.obs.vector_size == 4
    assert env_spec.max_episode_steps == (None if name.endswith("Chase") else 10)


def test_dict_observations_are_flattened() -> None:
    assert check_env(EnvConfig(id="tests.toys.worlds:Choices")).obs.vector_size == 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id": "CartPol-v1"}, "Did you mean 'CartPole-v1'"),
        ({"id": "CartPol-v1", "backend": "envpool"}, "EnvPool has no environment.*Did you mean 'CartPole-v1'"),
        ({"id": "no.such.module:Env"}, "cannot import"),
        ({"id": "tests.toys.worlds:Chas"}, "Did you mean 'Chase'"),
        ({"id": "CartPole-v1", "kwargs": {"wheels": 4}, "backend": "gymnasium"}, "Check env.kwargs"),
        ({"id": "CartPole-v1", "kwargs": {"wheels": 4}}, "Check env.kwargs"),
        ({"id": "tests.toys.worlds:Broken", "kwargs": {"how": "raise", "always": True}}, "the wheel came off"),
        (
            {"id": "tests.toys.worlds:Broken", "kwargs": {"how": "shape", "always": True}},
            r"expected an observation of shape \(4,\).*got \(3,\)",
        ),
        ({"id": "tests.toys.worlds:Broken", "kwargs": {"how": "nan", "always": True}}, "not finite"),
    ],
)
def test_what_cannot_work_is_said_before_a_run(config: dict[str, object], message: str) -> None:
    with pytest.raises(EnvironmentFailure, match=message):
        check_env(EnvConfig(**config))  # type: ignore[arg-type]


def test_a_missing_extra_prints_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'baldwin-rl\[envpool\]'"):
        make_pool(EnvConfig(id="CartPole-v1"), np.zeros(1, np.int64))


def test_films_follow_the_robot() -> None:
    env = make_render_env(EnvConfig(id="HalfCheetah-v5"))
    assert env.unwrapped.mujoco_renderer.camera_id >= 0  # type: ignore[attr-defined]
    env.close()
