"""Learning from windows: memory, targets over several steps, and what trains the encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.errors import ConfigError
from baldwin.learners import DQNConfig, SACConfig, TD3Config
from baldwin.learners.buffers import replay_columns, window_columns
from baldwin.learners.dqn import DQN
from baldwin.learners.window_learner import TensorWindow, WindowLearner
from baldwin.networks import make_network
from baldwin.networks.representation import Representation
from baldwin.observations import VECTOR, ObservationSpec, describe_observations, vector_spec
from baldwin.ops import seeds
from baldwin.replay import PrioritizedConfig, PrioritizedSampler, ReplayBuffer
from baldwin.types import Arrays
from tests.learners.tools import policy

OBS, ACTIONS = 3, 2
SPEC = vector_spec(OBS)
GRU = {"memory": {"kind": "gru", "size": 4}}


def learner(
    config: type[Any] = SACConfig, seed: int = 1, chosen: dict[str, Any] | None = None, obs: Any = None, **settings: Any
) -> WindowLearner:
    settings = {"batch_size": 6, "threads": 1, "sequence": 3} | settings
    spec = SPEC if obs is None else obs
    if config is not DQNConfig:
        settings |= {"critic": {"hidden": [8]}}
    head = {"head": "gaussian"} if config is SACConfig else {}
    made = config(**settings)
    return WindowLearner(
        policy(**({"hidden": [8]} | head | (GRU if chosen is None else chosen))),
        made,
        obs=spec,
        n_actions=ACTIONS,
        discrete=config is DQNConfig,
        seed=seed,
    )


def replay(of: WindowLearner, *, discrete: bool = False, episodes: int = 8) -> ReplayBuffer:
    """Episodes of 1 to 8 steps, with the memory that the policy had."""
    rng = np.random.default_rng(5)
    empty = np.empty(0, np.int64) if discrete else np.empty((0, ACTIONS), np.float32)
    buffer = ReplayBuffer(replay_columns(SPEC, empty) | window_columns(of.state_size, True), 200, seed=7)
    for number in range(episodes):
        length = number + 1
        obs = rng.standard_normal((length + 1, OBS)).astype(np.float32)
        states = memories(of, obs)
        over = np.arange(length) == length - 1
        rows = {
            "obs/" + VECTOR: obs[:-1],
            "next_obs/" + VECTOR: obs[1:],
            "action": rng.integers(0, ACTIONS, length) if discrete else rng.uniform(-0.9, 0.9, (length, ACTIONS)).astype(np.float32),
            "reward": rng.standard_normal(length).astype(np.float32),
            "terminated": over & (number % 2 == 0),
            "truncated": over & (number % 2 == 1),
            "log_prob": rng.uniform(-2, 0, length).astype(np.float32),
        }
        buffer.add(rows | ({"memory": states} if of.state_size else {}))
    return buffer


@torch.no_grad()
def memories(of: WindowLearner, obs: np.ndarray) -> np.ndarray:
    """The memory before each step but the last, as an acting policy has it."""
    state = torch.zeros(1, of.state_size)
    _, states = of.actor_encoder.unroll({VECTOR: torch.from_numpy(obs)[None]}, state)
    return states[0, : len(obs) - 1].numpy()


def first_window(of: WindowLearner, sampler: Any) -> TensorWindow:
    return next(of._sample_batches(sampler, 1, 1))


@pytest.mark.parametrize("kind", ["lstm", "gru", "attention"])
@pytest.mark.parametrize("burn_in", [0, 1, 4])
def test_features_are_those_of_the_acting_policy(kind: str, burn_in: int) -> None:
    """From stored memory through the burn-in, each step's features are what a full unroll of the episode gives."""
    own = learner(chosen={"memory": {"kind": kind, "size": 4, "window": 3, "heads": 2}}, burn_in=burn_in)
    buffer = replay(own)
    window = first_window(own, buffer)
    seen = own._see(own.encoder, window).features
    network = make_network(own._policy_config, SPEC, 2 * ACTIONS)
    bound = network.bind(torch.from_numpy(own.actor_vectors()))
    data = buffer.read(0, buffer.total)
    ends = np.flatnonzero(data["terminated"] | data["truncated"])
    for row, index in enumerate(window.indices.tolist()):
        begin = int(ends[ends < index].max(initial=-1)) + 1
        state = torch.zeros(1, 1, own.state_size)
        for at in range(begin, index + 1):
            out, state = bound({VECTOR: torch.from_numpy(data["obs/" + VECTOR][at])[None, None]}, state)
        head = own.learner.actor({VECTOR: seen[row, :1]})[0]  # type: ignore[attr-defined]
        torch.testing.assert_close(head, out[0])


LSTM, ATTENTION = {"memory": {"kind": "lstm", "size": 4}}, {"memory": {"kind": "attention", "size": 4, "window": 3, "heads": 2}}
PARTS: dict[str, Any] = {"curiosity": "icm", "siamese": "atc", "prediction": True}


@pytest.mark.parametrize(
    ("config", "chosen", "options"),
    [
        (SACConfig, GRU, {"target": "retrace", **PARTS}),
        (SACConfig, LSTM, {"target": "vtrace", "rnd": "reward", "siamese": "byol", "shared_encoder": False}),
        (TD3Config, ATTENTION, {"prioritized": {"eta": 0.5}, **PARTS}),
        (DQNConfig, LSTM, {"target": "retrace", "prioritized": {}, "rescale_values": True, **PARTS}),
    ],
)
def test_padding_is_never_read(config: type[Any], chosen: dict[str, Any], options: dict[str, Any]) -> None:
    """Whatever lies where no step is, observations ahead of an episode and after its end, too: the update and the errors are the same."""
    found = []
    for garbage in (0, 1):
        own = learner(config, chosen=chosen, burn_in=2, n_step=2, **options)
        buffer = replay(own, discrete=config is DQNConfig)
        sampler = PrioritizedSampler(buffer, PrioritizedConfig(), seed=1) if "prioritized" in options else buffer
        window = first_window(own, sampler)
        missing = ~window.valid
        seen = torch.nn.functional.pad(window.valid, (0, 1)) | torch.nn.functional.pad(window.valid, (1, 0))
        assert (~seen)[:, :2].any()
        assert (~seen)[:, -2:].any()
        wrong = torch.full_like(window.action, garbage)
        changed = window._replace(
            obs={VECTOR: torch.where(seen[..., None], window.obs[VECTOR], 3.0 * garbage)},
            reward=torch.where(missing, 3.0 * garbage, window.reward),
            action=torch.where(missing.view(*missing.shape, *([1] * (wrong.ndim - 2))), wrong, window.action),
            log_prob=torch.where(missing, 3.0 * garbage, window.log_prob),
        )
        own._generator.manual_seed(1)
        report = own.update(changed)
        errors = report.get("td_error", torch.zeros(0)).numpy()
        found.append(np.concatenate([*(n.vectors().ravel() for n in own.networks().values()), errors]))
    np.testing.assert_array_equal(*found)


def test_one_step_targets_equal_those_of_transitions() -> None:
    """Retrace over one step is Q-learning: an update on windows of one step is that on transitions."""
    config = DQNConfig(batch_size=6, threads=1, target_update_interval=2, tau=0.5)
    own = learner(DQNConfig, chosen={}, target="retrace", sequence=1, target_update_interval=2, tau=0.5)
    plain = DQN(policy(hidden=[8]), config, obs=SPEC, n_actions=ACTIONS, seed=1)
    assert not own.encoder.is_trained
    buffer = replay(own, discrete=True)
    plain_buffer = replay(own, discrete=True)
    for _ in range(5):
        own.train(buffer, 1)
        plain.train(plain_buffer, 1)
    np.testing.assert_allclose(own.actor_vectors(), plain.actor_vectors(), atol=1e-6)


OPTIONS: list[dict[str, Any]] = [
    {"target": "retrace"},
    {"target": "vtrace"},
    {"target": "retrace", "trace_lambda": 0.5},
    {"sequence": 2},
    {"burn_in": 2},
    {"burn_in": 2, "burn_in_gradient": True},
    {"refresh": True},
    {"shared_encoder": False},
    {"actor_trains_encoder": True},
    {"encoder_lr": 1e-2},
    {"n_critics": 4, "target_subset": 2},
    {"clip_epsilon": 1e-3},
    {"curiosity": "icm"},
    {"curiosity": "forward"},
    {"curiosity": "inverse"},
    {"rnd": "reward"},
    {"siamese": "atc"},
    {"siamese": "byol"},
    {"siamese": {"contrastive_q": True}},
    {"prediction": True},
    {"prediction": {"adaptive": False}},
    {"noisy": True},
    {"rnd": {"kind": "reward", "input": "state"}},
    {"siamese": {"kind": "byol", "adaptive": True}},
    {"prioritized": {}},
    {"prioritized": {"eta": 0.1}},
    {"prioritized": {"beta_start": 1.0}},
    {"prioritized": {"alpha": 0.1}},
    {"siamese": {"kind": "atc", "steps": 2}},
    {"n_step": 3},
]


def fits(config: type[Any], options: dict[str, Any]) -> bool:
    """TD3 has no probabilities, and two critics; DQN has one network, which is its actor."""
    unknown = {
        SACConfig: (),
        TD3Config: ("target", "n_critics"),
        DQNConfig: ("n_critics", "clip_epsilon", "shared_encoder", "actor_trains_encoder"),
    }
    return not set(options) & set(unknown[config])


def trained(own: WindowLearner, buffer: ReplayBuffer, updates: int = 4) -> bytes:
    """The acting policy's parameters after some updates."""
    prioritized = own.config.prioritized  # type: ignore[attr-defined]
    own.train(PrioritizedSampler(buffer, prioritized, seed=1) if prioritized else buffer, updates)
    return own.actor_vectors().tobytes()


@pytest.mark.parametrize("config", [SACConfig, TD3Config, DQNConfig])
def test_every_option_changes_the_bits(config: type[Any]) -> None:
    more = [] if config is SACConfig else [{"rescale_values": True}]
    options = [{}, *(each for each in OPTIONS + more if fits(config, each))]
    found = []
    for each in options:
        own = learner(config, **({"n_step": 2} | each))
        found.append(trained(own, replay(own, discrete=config is DQNConfig)))
    assert len(options) > 20
    assert len(set(found)) == len(found)


def test_augmentations_change_the_bits() -> None:
    """Of vectors by noise; of images by shifts and crops: no two of these see the same views."""
    encoders = {"encoders": {"obs": {"kind": "mlp", "hidden": [4]}}}
    found = []
    for noise in (0.1, 0.2, 0.0):
        own = learner(chosen=encoders, siamese={"kind": "byol", "noise": noise})
        found.append(trained(own, replay(own)))
    camera = describe_observations(spaces.Box(0, 255, (1, 12, 12), np.uint8), "a test", action_space=spaces.Box(-1, 1, (ACTIONS,)))
    small = {"images": {"conv": "strided", "hidden": [4]}}
    for images, pixels in (("shift", 1), ("shift", 3), ("crop", 1), ("none", 1)):
        own = learner(chosen=small, obs=camera, siamese={"kind": "byol", "images": images, "pixels": pixels})
        found.append(trained(own, frames(camera)))
    assert len(set(found)) == len(found)


def frames(camera: ObservationSpec) -> ReplayBuffer:
    """An episode of 20 images."""
    rng, (key,) = np.random.default_rng(5), [sensor.key for sensor in camera.images]
    buffer = ReplayBuffer(replay_columns(camera, np.empty((0, ACTIONS), np.float32)) | window_columns(0, False), 50, seed=7)
    images = rng.integers(0, 256, (21, 1, 12, 12)).astype(np.uint8)
    rows = {"obs/" + key: images[:-1], "next_obs/" + key: images[1:], "action": rng.uniform(-0.9, 0.9, (20, ACTIONS)).astype(np.float32)}
    flags = {"reward": rng.standard_normal(20).astype(np.float32), "terminated": np.arange(20) == 19, "truncated": np.zeros(20, bool)}
    buffer.add(rows | flags)
    return buffer


def test_noisy_layers_act_with_noise_of_their_own_behind_the_encoder() -> None:
    """Each segment with other noise, what is exported without; the encoder has none. Learned spreads move."""
    own = learner(noisy=True)
    plain, first, again, second = own.actor_vectors()[0], own.acting_vector(1), own.acting_vector(1), own.acting_vector(2)
    encoder = own.encoder.params.shape[1]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[:encoder], plain[:encoder])
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, plain)
    half = own.learner.actor_vectors().shape[1]
    before = own.learner.networks()["actor"].vectors()[:, half:]
    own.train(replay(own), 2)
    assert not np.array_equal(own.learner.networks()["actor"].vectors()[:, half:], before)


@pytest.mark.parametrize("kind", ["gru", "attention"])
def test_stored_states_become_those_of_the_network_as_it_is_now(kind: str) -> None:
    """By windows over whole episodes, every step's; a first step remembers nothing, before and after."""
    chosen = {"memory": {"kind": kind, "size": 4, "window": 3, "heads": 2}}
    own, plain = (learner(chosen=chosen, burn_in=8, sequence=8, batch_size=64, refresh=on) for on in (True, False))
    buffer, kept = replay(own), replay(plain)
    own.train(buffer, 3)
    plain.train(kept, 3)
    data, before = buffer.read(0, buffer.total), kept.read(0, kept.total)
    for begin, end in spans(data):
        obs = np.concatenate([data["obs/" + VECTOR][begin:end], data["next_obs/" + VECTOR][end - 1 : end]])
        np.testing.assert_allclose(data["memory"][begin:end], memories(own, obs), atol=1e-6)
        assert end == begin + 1 or not np.array_equal(before["memory"][begin:end], data["memory"][begin:end])
    np.testing.assert_array_equal(before["memory"], replay(learner(chosen=chosen)).read(0, kept.total)["memory"])


def spans(data: Arrays) -> list[tuple[int, int]]:
    ends = np.flatnonzero(data["terminated"] | data["truncated"]) + 1
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))


@pytest.mark.parametrize("options", [{}, {"burn_in": 1, "shared_encoder": False, "rnd": "reward", "siamese": "byol", "prediction": True}])
def test_goes_on_from_a_state(options: dict[str, Any]) -> None:
    own, other = learner(**options), learner(seed=2, **options)
    buffer = replay(own)
    own.train(buffer, 3)
    state = own.state_dict()
    position = buffer.state_dict()
    own.train(buffer, 3)
    buffer.load_state_dict(position)
    other._seed = own._seed
    other.load_state_dict(state)
    other.train(buffer, 3)
    np.testing.assert_array_equal(own.actor_vectors(), other.actor_vectors())
    assert own.updates == other.updates == 6


@pytest.mark.parametrize("asked", [False, True])
def test_the_actor_trains_a_shared_encoder_only_if_asked(asked: bool) -> None:
    """One update with an actor's step, and one without."""
    found = []
    for delay in (1, 100):
        own = learner(actor_trains_encoder=asked, policy_delay=delay)
        own.update(first_window(own, replay(own)))
        found.append(own.encoder.vectors())
    assert np.array_equal(*found) != asked


def test_encoders_of_their_own_are_trained_by_their_own_losses() -> None:
    own = learner(shared_encoder=False, policy_delay=100)
    before = own.encoder.vectors(), own.actor_encoder.vectors()
    assert not np.array_equal(*before)
    own.update(first_window(own, replay(own)))
    assert not np.array_equal(own.encoder.vectors(), before[0])
    np.testing.assert_array_equal(own.actor_encoder.vectors(), before[1])


def test_the_error_of_a_sequence_by_hand() -> None:
    """Half the largest and half the mean of the steps that are there: 1 and 3 of three, and 2 alone."""
    own = learner(prioritized={"eta": 0.5})
    found = own._sequence_errors(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0, 1, 3]), 2)
    assert found.tolist() == [2.5, 2.0]


def test_priorities_are_those_of_sequences() -> None:
    """Each window's, by the critics and targets of the update, belongs to the step that was drawn; the others keep theirs."""
    settings: dict[str, Any] = {"alpha": 0.5, "eta": 0.7, "epsilon": 0.01}
    own, twin = (learner(prioritized=settings, n_step=2) for _ in range(2))
    sampler, same = (PrioritizedSampler(replay(own), PrioritizedConfig(**settings), seed=1) for _ in range(2))
    own.train(sampler, 1)
    window = first_window(twin, same)
    twin._generator.manual_seed(seeds.mix(twin._seed, seeds.Stream.LEARN, 0))
    seen, slow = twin._see(twin.encoder, window), twin._see_slowly(twin.encoder, window)
    y = twin._targets(window, seen, slow, twin._for_parts(window, seen, slow))
    expected = np.ones(sampler.replay.total)
    for row, index in enumerate(window.indices.tolist()):
        steps = window.valid[row, :3]
        q = twin.learner.critic_values({VECTOR: seen.features[row, :3][steps]}, window.action[row, :3][steps])
        errors = (q - y[row][steps]).detach().abs().mean(0)
        expected[index] = (0.7 * float(errors.max()) + 0.3 * float(errors.mean()) + 0.01) ** 0.5
    np.testing.assert_allclose(sampler.state_dict()["priorities"], expected, rtol=1e-5)
    assert (expected != 1).sum() > 3


def test_bonuses_reach_the_targets_once_and_leave_rewards_alone() -> None:
    own, plain = learner(rnd={"kind": "reward", "strength": 2.0}), learner()
    window = first_window(own, replay(own))
    reward = window.reward.clone()
    y = []
    for each in (own, plain):
        each._generator.manual_seed(3)
        seen, slow = each._see(each.encoder, window), each._see_slowly(each.encoder, window)
        given = each._for_parts(window, seen, slow)
        y.append(each._targets(window, seen, slow, given))
    bonus = own._bonuses["rnd"].bonus(own._for_parts(window, seen, slow))
    torch.testing.assert_close((y[0] - y[1])[window.valid[:, :3]], bonus[:, :3][window.valid[:, :3]])
    torch.testing.assert_close(window.reward, reward)


def test_memory_is_held_where_no_step_is() -> None:
    own = learner()
    encoder: Representation = own.encoder
    obs, state = {VECTOR: torch.randn(2, 3, OBS)}, torch.randn(2, 4)
    _, states = encoder.unroll(obs, state, torch.tensor([[False, True, True], [True, False, False]]))
    torch.testing.assert_close(states[0, 1], state[0])
    torch.testing.assert_close(states[1, 1], states[1, 3])
    assert not torch.equal(states[0, 1], states[0, 2])


def test_values_are_unscaled_again() -> None:
    own = learner(DQNConfig, rescale_values=True)
    q = own.learner.q_values({VECTOR: np.zeros((1, 4), np.float32)})
    assert own.q_values({VECTOR: np.zeros((1, OBS), np.float32)}).shape == q.shape == (1,)


@pytest.mark.parametrize("config", [SACConfig, TD3Config, DQNConfig])
def test_every_learner_trains_on_windows(config: type[Any]) -> None:
    own = learner(config, n_step=2)
    before = own.actor_vectors()
    metrics = own.train(replay(own, discrete=config is DQNConfig), 3)
    assert np.isfinite(list(metrics.values())).all()
    assert not np.array_equal(own.actor_vectors(), before)


def test_an_encoder_is_needed_where_one_is_trained() -> None:
    with pytest.raises(ConfigError, match=r"this policy has none.*policy\.encoders"):
        learner(chosen={}, siamese="atc")


def test_weights_of_a_population_leave_the_random_network_alone() -> None:
    own = learner(rnd="reward", siamese="byol", prediction=True)
    assert set(own.main_networks()) == {"critic", "actor", "encoder"}
    assert set(own.networks()) > set(own.main_networks())


def test_slow_projections_follow_with_the_slow_critics() -> None:
    own = learner(DQNConfig, siamese="byol", target_update_interval=3, tau=1.0)
    projection = own.networks()["siamese_projection"]
    buffer = replay(own, discrete=True)
    before = projection.target.clone()
    own.train(buffer, 2)
    assert torch.equal(projection.target, before)
    own.train(buffer, 1)
    assert not torch.equal(projection.target, before)


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (SACConfig, {"siamese": {"kind": "atc", "steps": 9}}, "more than the 3 steps of a window"),
        (SACConfig, {"rnd": "action", "shared_encoder": False}, "shared_encoder=true"),
    ],
)
def test_what_does_not_go_together_is_refused(config: type[Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        learner(config, **settings)


def test_an_encoder_of_the_actor_rests_with_the_actor() -> None:
    """TD3 trains the actor every other time; in between not even Adam's momentum moves its encoder."""
    own = learner(TD3Config, shared_encoder=False, policy_delay=2)
    window = first_window(own, replay(own))
    own.update(window)
    own.update(window)
    trained = own.actor_encoder.vectors()
    own.update(window)
    np.testing.assert_array_equal(own.actor_encoder.vectors(), trained)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["algorithm.name=sac", "algorithm.trace_lambda=0.5"], "trace_lambda has no effect with algorithm.target=nstep"),
        (["algorithm.name=dqn", "algorithm.prioritized={eta: 0.5}"], "prioritized.eta is for windows of steps"),
        (["algorithm.name=sac", "algorithm.encoder_lr=1e-3"], "encoder_lr is for learning from windows of steps"),
        (["algorithm.name=td3", "algorithm.shared_encoder=false"], "shared_encoder is for learning from windows of steps"),
        (["algorithm.name=sac", "algorithm.actor_trains_encoder=true"], "actor_trains_encoder is for learning from windows"),
        (["algorithm.name=sac", "algorithm.exploration_spread=4"], "exploration_spread multiplies noise .* there are none"),
        (["algorithm.name=td3", "algorithm.noisy=true", "algorithm.exploration_spread=4"], "exploration_spread multiplies noise"),
        (["algorithm.name=td3", "algorithm.noisy=true", "algorithm.exploration_noise=0.3"], "exploration_noise has no effect"),
        (["algorithm.name=td3", "algorithm.noisy=true", "algorithm.rnd=action"], "several draws, which are all alike"),
        (["algorithm.name=sac", "algorithm.discrete_dqn_like=true", "algorithm.policy_delay=2"], "Leave policy_delay out"),
        (["algorithm.name=sac", "algorithm.refresh=true"], "refresh replaces stored states of a policy's memory"),
        (["algorithm.name=td3", "algorithm.ensemble=5"], "ensemble is a key of sac"),
        (["algorithm.name=dqn", "algorithm.ensemble=5"], "ensemble is a key of sac"),
        (["algorithm.name=sac", "algorithm.ensemble=5", "algorithm.n_critics=4"], "two names of the same number"),
    ],
)
def test_options_without_effect_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, [], ["env.id=Pendulum-v1", *settings])


def test_a_clip_of_continuous_critics_is_refused_for_choices() -> None:
    with pytest.raises(ConfigError, match=r"clip_epsilon is for continuous actions"):
        SACConfig(clip_epsilon=0.2).make_learner(policy(), obs=SPEC, n_actions=2, discrete=True, seed=1)


def test_ensemble_is_another_name_of_the_number_of_critics() -> None:
    """Also for the learner of a hybrid; a saved config has the one name."""
    config = load_config(None, [], ["env.id=Pendulum-v1", "algorithm.name=sac", "algorithm.ensemble=5"])
    assert config.algorithm.n_critics == 5  # type: ignore[union-attr]
    assert "ensemble" not in config.model_dump()["algorithm"]
    hybrid = load_config(None, [], ["env.id=Pendulum-v1", "algorithm.name=aes-rl", "algorithm.learner={name: sac, ensemble: 4}"])
    assert hybrid.algorithm.learner.n_critics == 4  # type: ignore[union-attr]
