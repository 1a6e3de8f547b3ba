"""Policy-gradient learners against plain implementations with torch's own modules, distributions and optimisers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from baldwin.errors import ConfigError, Diverged
from baldwin.learners import A2C, PPO, REINFORCE, A2CConfig, IMPALAConfig, PPOConfig, REINFORCEConfig
from baldwin.learners.actor_critic_loss import REPORTED
from baldwin.learners.experience import Experience, from_segment, join
from baldwin.learners.reward_scaler import RewardScaler
from baldwin.networks import ActionMap, PolicyConfig, make_network
from baldwin.observations import describe_observations, vector_spec
from baldwin.ops import seeds
from baldwin.ops.returns import gae, td_errors

OBS = 3
BOX, CHOICES = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)


def policy(**extra: Any) -> PolicyConfig:
    return PolicyConfig(**({"hidden": [8], "init": "orthogonal", "normalize_obs": False, "squash": "clip"} | extra))


def make(config: Any, space: Any = BOX, rewards: dict[str, float] | None = None, **extra: Any) -> Any:
    chosen = policy(**extra)
    actions = ActionMap(space, chosen.squash, chosen.head)
    return config.make_learner(chosen, obs=vector_spec(OBS), actions=actions, rewards=rewards or {"reward": 1.0}, seed=3)


def experience(space: Any = BOX, count: int = 4, steps: int = 8, components: int = 1, seed: int = 0, memory: int = 0) -> Experience:
    rng = np.random.default_rng(seed)
    columns = ActionMap(space, "clip", "deterministic").columns
    action = rng.integers(0, 4, (count, steps, 1)) if space is CHOICES else rng.normal(size=(count, steps, columns))
    terminated, cut = rng.random((count, steps)) < 0.1, rng.random((count, steps)) < 0.1
    ends = np.argwhere(terminated | cut)
    return Experience(
        obs={"vector": rng.normal(size=(count, steps, OBS)).astype(np.float32)},
        last_obs={"vector": rng.normal(size=(count, OBS)).astype(np.float32)},
        final_obs={"vector": rng.normal(size=(len(ends), OBS)).astype(np.float32)},
        final_at=ends,
        action=action.astype(np.float32),
        log_prob=rng.normal(-2, 0.1, (count, steps)).astype(np.float32),
        reward=rng.normal(size=(count, steps, components)).astype(np.float32),
        terminated=terminated,
        truncated=cut & ~terminated,
        elapsed=np.ones((count, steps), np.int32),
        valid=np.ones((count, steps), np.bool_),
        memory=np.zeros((count, memory), np.float32),
    )


def real_params(learner: Any) -> Tensor:
    """Policy, values and log standard deviations, without what pads the shorter output."""
    nets, params = learner.nets, learner.nets.params
    count = 0 if nets.log_std is None else len(nets.log_std)
    return torch.cat([params[nets.policy_rows], params[nets.value_rows], params[len(params) - count :]])


class Plain(nn.Module):
    """Policy and value as anyone would write them, with the learner's parameters."""

    def __init__(self, learner: Any, n_actions: int, spread: bool) -> None:
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(OBS, 8), nn.Tanh(), nn.Linear(8, n_actions))
        self.v = nn.Sequential(nn.Linear(OBS, 8), nn.Tanh(), nn.Linear(8, 1))
        self.log_std = nn.Parameter(torch.zeros(n_actions)) if spread else None
        self.order = [*self.pi.parameters(), *self.v.parameters(), *([self.log_std] if self.log_std is not None else [])]
        nn.utils.vector_to_parameters(real_params(learner), self.order)

    def dist(self, obs: Tensor) -> Any:
        return Normal(self.pi(obs), self.log_std.exp()) if self.log_std is not None else Categorical(logits=self.pi(obs))

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.dist(obs).log_prob(action).sum(-1) if self.log_std is not None else self.dist(obs).log_prob(action[:, 0])

    def entropy(self, obs: Tensor) -> Tensor:
        found = self.dist(obs).entropy()
        return found.sum(-1) if self.log_std is not None else found


def plain_targets(net: Plain, e: Experience, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        value = net.v(torch.from_numpy(e.obs["vector"])).numpy()
        following = np.concatenate([value[:, 1:], net.v(torch.from_numpy(e.last_obs["vector"])).numpy()[:, None]], 1)
        for (row, t), v in zip(e.final_at, net.v(torch.from_numpy(e.final_obs["vector"])).numpy(), strict=True):
            following[row, t] = v
    discount = np.where(e.terminated, 0, gamma)[..., None]
    advantage = gae(td_errors(e.reward, value, following, discount), discount, e.ended[..., None], lam)
    return torch.from_numpy(advantage.astype(np.float32)).view(-1), torch.from_numpy((advantage + value).astype(np.float32)).view(-1)


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
def test_two_ppo_updates_are_those_of_a_plain_implementation(space: Any) -> None:
    config = PPOConfig(critic={"hidden": [8], "activation": "tanh", "init": "orthogonal"}, batch_size=10, epochs=3, entropy_coef=0.01)  # type: ignore[arg-type]
    learner = make(config, space)
    assert isinstance(learner, PPO)
    net = Plain(learner, 2 if space is BOX else 4, space is BOX)
    adam = torch.optim.Adam(net.parameters(), lr=3e-4, eps=1e-5)
    for update in range(2):
        e = experience(space, seed=update)
        rng = torch.Generator().manual_seed(seeds.mix(3, seeds.Stream.LEARN, learner.updates))
        orders = [torch.randperm(32, generator=rng) for _ in range(3)]
        metrics = learner.update(e, 0)
        obs, action = torch.from_numpy(e.obs["vector"]).view(-1, OBS), torch.from_numpy(e.action).flatten(0, 1)
        old, (advantage, target) = torch.from_numpy(e.log_prob).view(-1), plain_targets(net, e, 0.99, 0.95)
        clipped = []
        for order in orders:
            for rows in order.split(10):
                a = (advantage[rows] - advantage[rows].mean()) / (advantage[rows].std() + 1e-8)
                ratio = (net.log_prob(obs[rows], action[rows]) - old[rows]).exp()
                clipped.append(((ratio - 1).abs() > 0.2).float().mean().item() * len(rows))
                loss = -torch.min(a * ratio, a * ratio.clamp(0.8, 1.2)).mean()
                loss = loss + 0.5 * (net.v(obs[rows])[:, 0] - target[rows]).square().mean() - 0.01 * net.entropy(obs[rows]).mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                adam.step()
        found = nn.utils.parameters_to_vector(net.order).detach()
        torch.testing.assert_close(real_params(learner), found, rtol=1e-4, atol=2e-6)
        assert metrics["clip_fraction"] == pytest.approx(sum(clipped) / (3 * len(obs)), abs=1e-6)
    assert learner.updates == 2 * 3 * 4


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
def test_an_a2c_update_is_that_of_a_plain_implementation(space: Any) -> None:
    config = A2CConfig(critic={"hidden": [8], "activation": "tanh", "init": "orthogonal"}, entropy_coef=0.01)  # type: ignore[arg-type]
    learner = make(config, space)
    assert isinstance(learner, A2C)
    net = Plain(learner, 2 if space is BOX else 4, space is BOX)
    rms = torch.optim.RMSprop(net.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)
    for update in range(2):
        e = experience(space, seed=update)
        learner.update(e, 0)
        obs, action = torch.from_numpy(e.obs["vector"]).view(-1, OBS), torch.from_numpy(e.action).flatten(0, 1)
        advantage, target = plain_targets(net, e, 0.99, 1.0)
        loss = -(advantage * net.log_prob(obs, action)).mean() + 0.5 * (net.v(obs)[:, 0] - target).square().mean()
        loss = loss - 0.01 * net.entropy(obs).mean()
        rms.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        rms.step()
        torch.testing.assert_close(real_params(learner), nn.utils.parameters_to_vector(net.order).detach(), rtol=1e-4, atol=2e-6)


def test_reinforce_by_hand() -> None:
    """One state, two actions, rewards 1 and 0, no baseline, no normalisation: the gradient of -(1 log p_0) / 2 is (p - onehot) / 2."""
    config = REINFORCEConfig(baseline=False, normalize_returns=False, max_grad_norm=None, gamma=0.5)
    learner = make(config, spaces.Discrete(2), hidden=[])
    assert isinstance(learner, REINFORCE)
    assert learner.nets.params.shape == (3 * 2 + 2,)  # no value function
    learner.nets.set_params(np.zeros(8, np.float32))
    zero, ends = np.zeros((1, 2, OBS), np.float32), np.array([[False, True]])
    e = Experience(
        obs={"vector": zero}, last_obs={"vector": zero[:, 0]}, final_obs={"vector": zero[:, 0]}, final_at=np.array([[0, 1]]),
        action=np.array([[[0.0], [1.0]]], np.float32), log_prob=np.zeros((1, 2), np.float32), reward=np.array([[[1.0], [2.0]]], np.float32),
        terminated=ends, truncated=~ends & False, elapsed=np.ones((1, 2), np.int32), valid=ends | True, memory=np.zeros((1, 0), np.float32),
    )  # fmt: skip
    steps = learner.steps(e, np.array([[[1 + 0.5 * 2], [2.0]]]), np.zeros((1, 2, 1)), np.zeros((1, 2, 1)))
    gradient = learner._optimizer.gradient(learner.loss(steps)[0])
    # returns 2 and 2: -(2 (onehot_0 - p) + 2 (onehot_1 - p)) / 2 = 0 for p = 1/2; with returns 2 and 1 it is not
    torch.testing.assert_close(gradient[-2:], torch.zeros(2))
    found = learner.update(e, 0)
    assert found["policy_loss"] == pytest.approx(2 * np.log(2), rel=1e-5)


def test_impala_on_policy_is_the_n_step_policy_gradient() -> None:
    """With the log-probabilities of now, V-trace's weights are 1."""
    learner = make(IMPALAConfig(critic={"hidden": [8], "activation": "tanh", "init": "orthogonal"}))  # type: ignore[arg-type]
    e = experience()
    now = learner.evaluate(learner.steps(e, e.reward, e.reward, e.reward)).log_prob.detach().view(4, 8).numpy()
    e = Experience(**({name: getattr(e, name) for name in e.__slots__} | {"log_prob": now}))
    rho = learner.ratios(e)
    np.testing.assert_allclose(rho, 1.0, rtol=1e-5)
    net = Plain(learner, 2, True)
    advantage, target = plain_targets(net, e, 0.99, 1.0)
    steps = learner.estimate(e, rho)
    torch.testing.assert_close(steps.target[:, 0], target, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(steps.advantage, advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_back_propagation_through_time_resets_where_episodes_begin(kind: str) -> None:
    """Against torch's own cell, run step by step, with its state set to zero after every end."""
    learner = make(PPOConfig(), memory={"kind": kind, "size": 5}, hidden=[])
    size = learner.nets.state_size
    e = experience(memory=size)
    e = Experience(
        **(
            {name: getattr(e, name) for name in e.__slots__}
            | {"memory": np.random.default_rng(1).normal(size=(4, size)).astype(np.float32)}
        )
    )
    cell: Any = nn.LSTMCell(OBS, 5) if kind == "lstm" else nn.GRUCell(OBS, 5)
    head = nn.Linear(5, 3)  # two means and the value
    order = [cell.weight_ih, cell.bias_ih, cell.weight_hh, cell.bias_hh, *head.parameters()]
    nn.utils.vector_to_parameters(learner.nets.params[:-2].clone(), order)
    begins, obs, rows = torch.from_numpy(e.begins), torch.from_numpy(e.obs["vector"]), []
    for n in range(4):
        state: Any = torch.from_numpy(e.memory[n : n + 1])
        for t in range(8):
            state = state * (~begins[n, t]).float()
            if kind == "lstm":
                h, c = cell(obs[n : n + 1, t], state.chunk(2, -1))
                state = torch.cat((h, c), -1)
            else:
                h = state = cell(obs[n : n + 1, t], state)
            rows.append(head(h)[0])
    expected = torch.stack(rows).view(4, 8, 3)
    outputs, states = learner.nets.unroll({"vector": obs}, torch.from_numpy(e.memory), begins)
    torch.testing.assert_close(torch.cat((outputs.policy, outputs.values), -1), expected, rtol=1e-5, atol=1e-6)
    assert states.shape == (4, 8, size)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0))
    (expected * weights).sum().backward()
    found = learner._optimizer.gradient((torch.cat((outputs.policy, outputs.values), -1) * weights).sum())
    torch.testing.assert_close(found[:-2], torch.cat([p.grad.flatten() for p in order]), rtol=1e-4, atol=1e-5)


def test_padding_never_leaks() -> None:
    """Numbers in padded steps change nothing, with and without memory."""
    for extra in ({}, {"memory": {"kind": "lstm", "size": 4}, "hidden": []}):
        results = []
        for noise in (0.0, 7.0):
            learner = make(PPOConfig(batch_size=16, epochs=2), **extra)
            long, short = (
                experience(count=2, memory=learner.nets.state_size),
                experience(count=2, steps=5, seed=9, memory=learner.nets.state_size),
            )
            joined = join([long, short])
            assert joined.steps == 2 * 8 + 2 * 5
            padding = ~joined.valid
            joined.obs["vector"][padding] = noise
            joined.reward[padding] = noise
            joined.log_prob[padding] = noise
            learner.update(joined, 0)
            results.append(learner.nets.params.numpy().copy())
        np.testing.assert_array_equal(results[0], results[1])


def test_discount_of_a_step_is_gamma_to_its_frames() -> None:
    learner = make(PPOConfig(gamma=0.9))
    e = experience(count=1, steps=3)
    e.elapsed[:] = [[1, 2, 4]]
    e.terminated[:] = [[False, False, True]]
    np.testing.assert_allclose(learner.discounts(e)[0, :, 0], [0.9, 0.81, 0.0], rtol=1e-6)


def test_components_have_weights_discounts_and_values_of_their_own() -> None:
    config = PPOConfig(gammas={"late": 1.0}, gamma=0.5, gae_lambdas={"late": 1.0}, gae_lambda=0.0)
    learner = make(config, rewards={"soon": 2.0, "late": 0.1})
    e = experience(components=2)
    assert learner.discounts(e)[0, 0].tolist() == [0.5, 1.0]
    value, following = learner.values(e)
    assert value.shape == (4, 8, 2)
    steps = learner.estimate(e)
    delta = learner.deltas(e, value, following)
    late = gae(delta[..., 1:], learner.discounts(e)[..., 1:], e.ended[..., None], 1.0)
    np.testing.assert_allclose(steps.advantage.view(4, 8).numpy(), 2.0 * delta[..., 0] + 0.1 * late[..., 0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="no reward component 'sooner'"):
        make(PPOConfig(gammas={"sooner": 0.9}), rewards={"soon": 1.0, "late": 1.0})


def test_frames_are_stacked_as_the_worker_saw_them() -> None:
    """Newest frames 1, 2, then an episode that begins with 7, 8; before the first there was 0."""
    spec = describe_observations(spaces.Box(0, 255, (6, 6), np.uint8), "toy", frames=2)
    (key,) = spec.columns
    frames = np.array([1, 2, 7, 8], np.uint8)
    start = np.zeros((1, 2, 6, 6), np.uint8)
    start[0, 1] = 1
    arrays = {
        f"obs/{key}": np.broadcast_to(frames[None, :, None, None, None], (1, 4, 1, 6, 6)),
        f"start_obs/{key}": start,
        f"final_obs/{key}": np.zeros((1, 2, 6, 6), np.uint8),
        "action": np.zeros((1, 3, 1), np.float32),
        "log_prob": np.zeros((1, 3), np.float32),
        "reward": np.zeros((1, 3), np.float32),
        "terminated": np.array([[False, True, False]]),
        "truncated": np.zeros((1, 3), np.bool_),
    }
    e = from_segment(arrays, spec)
    assert e.obs[key][0, :, :, 0, 0].tolist() == [[0, 1], [1, 2], [7, 7]]
    assert e.last_obs[key][0, :, 0, 0].tolist() == [7, 8]


def test_the_policy_stops_where_it_has_moved_too_far() -> None:
    learner = make(PPOConfig(batch_size=32, epochs=50, lr=0.05, target_kl=0.01))
    e = experience()
    now = learner.evaluate(learner.steps(e, e.reward, e.reward, e.reward)).log_prob.detach().view(4, 8).numpy()
    learner.update(Experience(**({name: getattr(e, name) for name in e.__slots__} | {"log_prob": now})), 0)
    assert 1 <= learner.updates < 10


def test_values_may_share_the_policy_s_network() -> None:
    learner = make(PPOConfig(shared_critic=True), CHOICES)
    workers = learner.actor()["params"]
    network = learner.nets
    obs = {"vector": torch.randn(5, OBS)}
    alone = make_network(policy(), vector_spec(OBS), 4).bind(torch.from_numpy(workers)[None])
    torch.testing.assert_close(alone({"vector": obs["vector"][None]}, torch.empty(0))[0][0], network(obs).policy)
    assert network(obs).values.shape == (5, 1)


def test_a_loss_that_is_not_finite_is_refused() -> None:
    learner = make(PPOConfig())
    e = experience()
    e.reward[0, 0] = np.nan
    with pytest.raises(Diverged, match=r"Lower algorithm\.lr"):
        learner.update(e, 0)


def test_schedules_fall_with_environment_steps() -> None:
    config = PPOConfig(lr={"start": 1e-3, "env_steps": 100}, clip_range={"start": 0.2, "end": 0.1, "env_steps": 100})  # type: ignore[arg-type]
    learner = make(config)
    learner.update(experience(), 50)
    assert learner._optimizer.lr == pytest.approx(5e-4)
    before = learner.nets.params.clone()
    learner.update(experience(), 100)
    torch.testing.assert_close(learner.nets.params, before, rtol=0, atol=0)  # the step size is zero


def test_rewards_are_scaled_by_the_deviation_of_their_sums() -> None:
    """Weights 1 and 2, discount 1: rewards (1, 0), (0, 1), (1, 1) have the sums 1, 3, 6. An episode that is given up leaves nothing."""
    scaler = RewardScaler(1, 1.0, np.array([1.0, 2.0], np.float32))
    e = experience(count=1, steps=3, components=2)
    e.terminated[:], e.truncated[:] = False, False
    e.reward[:] = np.array([[[1, 0], [0, 1], [1, 1]]])
    np.testing.assert_allclose(scaler.scale(e, [0], 10.0).reward, e.reward / np.std([1, 3, 6]), rtol=1e-5)
    assert scaler.state_dict()["sums"].tolist() == [[6.0]]
    scaler.forget([0])
    assert not scaler.state_dict()["sums"].any()


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["gaussian", "choice"])
@pytest.mark.parametrize("config", [PPOConfig(entropy_coef=0.1, clip_range=0.05), PPOConfig(), A2CConfig(entropy_coef=0.1)])
@pytest.mark.parametrize("components", [1, 3])
def test_the_closed_form_is_what_autograd_computes(config: Any, space: Any, components: int) -> None:
    """The gradient for two perceptrons in NumPy, and that of the same loss by torch."""
    learner = make(config, space, {str(n): 1.0 + n for n in range(components)}, hidden=[64, 64])
    steps = learner.estimate(experience(space, components=components))
    assert learner.nets.pair is not None

    def gradient() -> Any:
        return learner.minibatch_gradient(steps, 0.05) if isinstance(learner, PPO) else learner.loss_gradient(steps)

    found, parts = gradient()
    learner.nets.pair = None
    expected, plain = gradient()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert found.abs().max() > 0.01
    for name in REPORTED:
        assert getattr(parts, name) == pytest.approx(getattr(plain, name), rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(parts.log_prob, plain.log_prob, rtol=1e-5, atol=1e-6)
