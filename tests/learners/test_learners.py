from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from baldwin.errors import ConfigError, Diverged
from baldwin.learners import TD3, Learner, SACUpdateConfig, TD3UpdateConfig, replay_columns
from baldwin.learners.sac import minimum
from baldwin.networks import PolicyConfig
from baldwin.observations import vector_spec
from baldwin.ops.moments import Moments
from baldwin.replay import ReplayBuffer
from baldwin.tree import join, split
from baldwin.types import flatten_tree, unflatten_tree
from tests.learners.tools import ACTIONS, LEARNERS, OBS, discrete, memory, policy, sac, td3

Make = Callable[..., Learner]


def every(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)(test)


def two_states(limit: bool) -> ReplayBuffer:
    """State 0 pays 1 and leads to state 1, which pays 2 and leads to itself; there the episode ends, by itself or by the clock."""
    obs = np.array([[0.0, 0, 0], [1, 0, 0]], np.float32)
    action, never = np.zeros((2, ACTIONS), np.float32), np.zeros(2, np.bool_)
    replay = ReplayBuffer(replay_columns(vector_spec(OBS), action[:0]), 4, seed=1)
    ends = np.array([False, True])
    replay.add(
        {
            "obs/vector": obs,
            "action": action,
            "reward": np.array([1, 2], np.float32),
            "next_obs/vector": obs[[1, 1]],
            "terminated": never if limit else ends,
            "truncated": ends if limit else never,
        }
    )
    return replay


@pytest.mark.parametrize("make", [td3, sac], ids=["td3", "sac"])
@pytest.mark.parametrize("limit", [False, True], ids=["termination", "time limit"])
def test_two_states_are_valued_exactly(make: Make, limit: bool) -> None:
    """V(1) = 2 after a termination; with gamma = 1/2, V(1) = 2 / (1 - 1/2) = 4 where only the clock ended it."""
    extra = {"alpha": 1e-8} if make is sac else {"target_noise": 0.0}
    learner = make(gamma=0.5, critic_lr=3e-3, tau=0.05, **extra)
    replay = two_states(limit)
    learner.set_actor(np.zeros_like(learner.actor_vectors()))  # always acts (0, 0): what the memory has
    if make is sac:
        narrow = learner.actor_vectors()
        narrow[0, -ACTIONS:] = -20.0
        learner.set_actor(narrow)
    learner.train_critic(replay, 3000)
    end = 4.0 if limit else 2.0
    found = learner.q_values({"vector": np.array([[0.0, 0, 0], [1, 0, 0]], np.float32)}, np.zeros((2, ACTIONS), np.float32))
    np.testing.assert_allclose(found, [1 + 0.5 * end, end], atol=0.02)


def test_discrete_values_count_the_entropy_exactly() -> None:
    """One state that leads to itself and pays 1 for either choice, under a policy of even odds."""
    learner = discrete(gamma=0.5, alpha=0.3, critic_lr=3e-3, tau=0.05)
    replay = ReplayBuffer(replay_columns(vector_spec(OBS), np.empty(0, np.int64)), 4, seed=1)
    obs = np.zeros((2, OBS), np.float32)
    never = np.zeros(2, np.bool_)
    replay.add(
        {
            "obs/vector": obs,
            "action": np.array([0, 1]),
            "reward": np.ones(2, np.float32),
            "next_obs/vector": obs,
            "terminated": never,
            "truncated": ~never,
        }
    )
    learner.set_actor(np.zeros_like(learner.actor_vectors()))
    learner.train_critic(replay, 3000)
    bonus = 0.3 * np.log(2)
    np.testing.assert_allclose(learner.q_values({"vector": obs}, np.array([0, 1])), 2 + bonus, atol=0.02)  # Q = 1 + (Q + bonus) / 2


@every
def test_state_is_a_round_trip(make: Make) -> None:
    straight, first, second = make(), make(), make(seed=2)
    replay, again = memory(straight), memory(straight)
    straight.train(replay, 3)
    straight.train(replay, 4)
    first.train(again, 3)
    tensors: dict[str, np.ndarray] = {}
    second._seed = 1
    second.load_state_dict(join(split(first.state_dict(), tensors), tensors))
    second.train(again, 4)
    np.testing.assert_array_equal(straight.actor_vectors(), second.actor_vectors())
    np.testing.assert_array_equal(straight.critic.vectors(), second.critic.vectors())
    assert straight.updates == second.updates == 7


@every
def test_an_actor_step_leaves_no_trace_in_the_critics(make: Make) -> None:
    learner = make()
    before, moved = learner.critic.vectors(), learner.actor_vectors()
    learner.train_actor(memory(learner), 1)
    assert learner.critic.params.grad is None
    np.testing.assert_array_equal(learner.critic.vectors(), before)
    assert not np.array_equal(learner.actor_vectors(), moved)


@every
def test_an_actor_step_needs_only_the_frozen_critics(make: Make) -> None:
    """A hybrid sends these to workers instead of all critics with targets and optimiser."""
    whole, light = make(), make(seed=2)
    whole.train(memory(whole), 5)
    light.load_frozen_critic(whole.frozen_critic(whole.critic_state()))
    fresh = make(seed=3)
    fresh.load_critic_state(unflatten_tree(flatten_tree(make().critic_state())))  # as a job carries it, before any step
    fresh.train_critic(memory(fresh), 1)
    start = whole.actor_vectors()
    for learner in (whole, light):
        learner.set_actor(start)
        learner._calls, learner._seed = 0, 1
        learner.train_actor(memory(learner), 3)
    np.testing.assert_array_equal(whole.actor_vectors(), light.actor_vectors())


@every
def test_critic_steps_leave_the_actor_alone_and_use_the_policy_they_are_given(make: Make) -> None:
    one, two = make(), make()
    replay = memory(one)
    start = one.actor_vectors()
    one.train_critic(replay, 5)
    two.train_critic(memory(two), 5, target_policy=-start[0])
    np.testing.assert_array_equal(one.actor_vectors(), start)
    assert not np.array_equal(one.critic.vectors(), two.critic.vectors())
    assert one.updates == 5


@pytest.mark.parametrize("make", [td3, sac], ids=["td3", "sac"])
def test_several_actors_in_one_update_move_as_each_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row meets its own part of a batch: give each single learner exactly that part."""
    learner = make(alpha=0.1) if make is sac else make()
    rng = np.random.default_rng(0)
    rows = learner.actor_vectors() + rng.normal(0, 0.1, (3, learner.actor_vectors().shape[1])).astype(np.float32)
    learner.set_actor(rows)
    batch = torch.from_numpy(rng.normal(size=(3, 16, OBS)).astype(np.float32))
    learner._generator.manual_seed(0)
    noise = torch.randn((3, 16, ACTIONS), generator=learner._generator)
    learner._generator.manual_seed(0)
    learner.update_actor({"vector": batch})
    for n in range(3):
        single = make(alpha=0.1) if make is sac else make()
        single.set_actor(rows[n])
        monkeypatch.setattr(torch, "randn", lambda shape, n=n, **_: noise[n : n + 1])
        single.update_actor({"vector": batch[n : n + 1]})
        monkeypatch.undo()
        np.testing.assert_allclose(learner.actor_vectors()[n], single.actor_vectors()[0], rtol=1e-4, atol=1e-6)


def test_a_kept_optimiser_differs_from_a_fresh_one() -> None:
    kept, fresh = td3(), td3()
    for learner, again in ((kept, False), (fresh, True)):
        replay = memory(learner)
        learner.train_actor(replay, 5)
        learner.train_actor(replay, 5, reset_optimizer=again)
    assert not np.array_equal(kept.actor_vectors(), fresh.actor_vectors())


def test_an_ensemble_takes_the_minimum_of_a_subset_and_climbs_the_mean() -> None:
    learner = sac(n_critics=5, target_subset=2)
    q = torch.arange(5.0)[:, None]
    assert learner._actor_q(q).item() == 2.0
    assert sac()._actor_q(q[3:]).item() == 3.0
    assert {minimum(q, learner._subset()).item() for _ in range(200)} == {0.0, 1.0, 2.0, 3.0}
    tied = torch.tensor([[3.0], [3.0]])
    assert sac()._actor_q(tied).item() == 3.0
    learner.train(memory(learner), 2)
    with pytest.raises(ValueError, match="expected target_subset <= n_critics"):
        SACUpdateConfig(n_critics=2, target_subset=3)


def constant_critics(learner: Learner) -> None:
    """Critic j is worth j everywhere."""
    rows = np.zeros_like(learner.critic.vectors())
    n_values = learner.branches[0] if learner.branches else 1
    rows[:, -n_values:] = np.arange(len(rows))[:, None]
    learner.critic.reset(rows)


@pytest.mark.parametrize("make", [sac, discrete], ids=["sac", "discrete-sac"])
def test_states_and_actions_are_valued_by_one_subset(make: Make) -> None:
    """V(x_t), V(x_t+1) and Q(x_t, a_t) of one update: else sums of differences would not telescope. The next update has another one."""
    learner, seen = make(n_critics=5, target_subset=2, alpha=1e-9), set()
    constant_critics(learner)
    obs = {"vector": torch.randn(4, OBS, generator=torch.Generator().manual_seed(1))}
    action = torch.zeros(4, dtype=torch.long) if learner.branches else torch.zeros(4, ACTIONS)
    for _ in range(50):
        found = learner.target_values(obs, obs, action, of_actions=True)
        torch.testing.assert_close(found.value, found.action_value)
        assert len(set(found.action_value.tolist())) == 1
        seen.add(found.action_value[0].item())
    assert seen == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize("target", [0.0, -2.0, math.log(2), 0.7, 1.0])
def test_a_target_entropy_that_no_choice_has_is_refused(target: float) -> None:
    """That of two actions is between 0 and log 2; Advanced SAC's -2 lets the temperature fall to 0."""
    with pytest.raises(ConfigError, match=r"less than log\(2\) = 0.693.*target_entropy_scale"):
        discrete(target_entropy=target)
    assert discrete(target_entropy=0.5)._target_entropy == 0.5


def test_normalisation_is_the_learners_and_the_memory_stays_raw() -> None:
    learner = td3()
    learner._policy_config = policy(normalize_obs=True)
    moments = Moments.of(np.array([[1.0, 2, 3], [3, 6, 9]]))
    learner.normalize(moments)
    batch = next(learner._sample_batches(memory(learner), 1, 1))
    raw = memory(learner).sample(1, 16).obs["vector"][0]
    expected = np.clip((raw - moments.mean) / moments.std(0.1), -5, 5)
    np.testing.assert_allclose(batch.obs["vector"].numpy(), expected, rtol=1e-5)


@every
def test_a_loss_that_is_not_a_number_stops_and_names_the_batch(make: Make) -> None:
    learner = make()
    replay = memory(learner)
    learner.train(replay, 4)
    replay._arrays["reward"][:] = np.inf
    with pytest.raises(Diverged, match=r"critic_loss is (inf|nan) in batch 1 of 3, drawn after 4 updates"):
        learner.train(replay, 3)


@every
def test_bfloat16_products_give_nearly_the_same_step(make: Make) -> None:
    exact, half = make(), make(precision="bfloat16")
    exact.train(memory(exact), 20)
    half.train(memory(half), 20)
    difference = np.abs(exact.critic.vectors() - half.critic.vectors()).max()
    assert 0 < difference < 0.01


def test_a_missing_gpu_is_said() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ConfigError, match="no usable GPU"):
        td3(device="cuda")
    assert TD3UpdateConfig(device="auto").resolved().device == "cpu"


def test_a_users_own_network_takes_the_step_that_a_perceptron_takes() -> None:
    own = PolicyConfig(module="tests.learners.tools:TwoLayers", normalize_obs=False)
    plain, users = td3(), TD3(own, td3().config, obs=vector_spec(OBS), n_actions=ACTIONS, seed=1)
    users.set_actor(plain.actor_vectors())
    for learner in (plain, users):
        learner.train(memory(learner), 6)
    np.testing.assert_allclose(users.actor_vectors(), plain.actor_vectors(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [sac, discrete], ids=["sac", "discrete-sac"])
def test_without_a_slow_actor_critics_ask_the_actor_as_it_is(make: Make) -> None:
    one, two = make(), make()
    for learner in (one, two):
        learner.train(memory(learner), 30)
    one.train_critic(memory(one), 5)
    two.train_critic(memory(two), 5, target_policy=two.actor_vectors()[0])
    np.testing.assert_array_equal(one.critic.vectors(), two.critic.vectors())


def test_a_target_policy_is_not_kept() -> None:
    learner = td3()
    before = learner.actor.target.clone()
    learner.train_critic(memory(learner), 2, target_policy=np.zeros_like(learner.actor_vectors()))
    assert torch.equal(learner.actor.target, before)


@every
def test_several_policies_share_a_batch_of_the_critics(make: Make) -> None:
    """Three that are one and the same give what the one gives; and several can be asked for values, but not trained jointly."""
    one, three = make(), make()
    rows = np.repeat(one.actor_vectors(), 3, 0)
    if make is sac:
        pytest.skip("its next actions are drawn in another shape")
    one.train_critic(memory(one), 4, one.actor_vectors()[0])
    three.set_actor(rows)
    three.train_critic(memory(three), 4, rows)
    np.testing.assert_allclose(one.critic.vectors(), three.critic.vectors(), rtol=1e-4, atol=1e-6)
    assert three.q_values({"vector": np.zeros((7, OBS), np.float32)}).shape == (7,)
    assert three.q_values({"vector": np.zeros((1, OBS), np.float32)}).shape == (1,)
    with pytest.raises(ConfigError, match="train updates one actor; there are 3"):
        three.train(memory(three), 1)


def test_an_actor_that_diverges_names_its_batch() -> None:
    learner = td3()
    replay = memory(learner)
    learner.train(replay, 2)
    replay._arrays["obs/vector"][:] = np.nan
    with pytest.raises(Diverged, match=r"actor_loss is nan in batch 1 of 3, drawn after 2 updates"):
        learner.train_actor(replay, 3)


@pytest.mark.parametrize("make", [td3, sac], ids=["td3", "sac"])
def test_critics_of_a_users_own_network_take_the_step_that_perceptrons_take(make: Make) -> None:
    plain, users = make(), make(critic={"module": "tests.learners.tools:TwoLayers"})
    users.critic.reset(plain.critic.vectors())
    for learner in (plain, users):
        learner.train(memory(learner), 6)
    np.testing.assert_allclose(users.critic.vectors(), plain.critic.vectors(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(users.actor_vectors(), plain.actor_vectors(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["td3", "sac", "discrete-sac"])
def test_noisy_layers_of_an_actor(kind: str) -> None:
    """Segments have noise of their own, evaluation has none; noise is learned, and new for targets, for the actor, and at every update."""
    learner, plain = LEARNERS[kind](noisy=True), LEARNERS[kind]()
    size = plain.actor.params.shape[1]
    assert learner.actor.params.shape == (1, 2 * size)
    np.testing.assert_array_equal(learner.actor_vectors(), plain.actor_vectors())
    first, again, other = (learner.acting_vector(n) for n in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, learner.actor_vectors()[0])
    np.testing.assert_array_equal(plain.acting_vector(3), plain.actor_vectors()[0])
    obs = {"vector": np.ones((1, OBS), np.float32)}
    sigma = learner.actor.vectors()[:, size:]
    learner.train(memory(learner), 6)
    assert not np.array_equal(learner.actor.vectors()[:, size:], sigma)
    np.testing.assert_array_equal(learner.q_values(obs), learner.q_values(obs))
    restored = LEARNERS[kind](noisy=True)
    restored.load_state_dict(learner.state_dict())
    for one in (learner, restored):
        one.train(memory(learner), 3)
    np.testing.assert_array_equal(restored.actor.vectors(), learner.actor.vectors())
    learner.set_actor(np.zeros(size, np.float32))
    assert not learner.actor_vectors().any()
    assert learner.acting_vector(0).any()


def test_noise_of_target_and_actor_differ() -> None:
    learner = td3(noisy=True, target_noise=0)
    drawn = []
    assert learner._noisy is not None
    draw = learner._noisy.draw_noise

    def remember(rng: np.random.Generator) -> None:
        draw(rng)
        assert learner._noisy is not None
        assert learner._noisy._noise is not None
        drawn.append(learner._noisy._noise.numpy().copy())

    learner._noisy.draw_noise = remember  # type: ignore[method-assign]
    learner.train(memory(learner), 2)  # target, target, actor
    assert len(drawn) == 3
    assert len({d.tobytes() for d in drawn}) == 3
