"""Policy-gradient learners against plain implementations with torch's own modules, distributions and optimisers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from baldwin.errors import ConfigError, Diverged
from baldwin.learners import PPO, A2CConfig, A3CConfig, IMPALAConfig, PPOConfig, REINFORCEConfig
from baldwin.learners.actor_critic_loss import REPORTED
from baldwin.learners.experience import Experience, from_segment, join
from baldwin.learners.reward_scaler import RewardScaler
from baldwin.networks import ActionMap, PolicyConfig, make_network
from baldwin.observations import describe_observations, vector_spec
from baldwin.ops import seeds
from baldwin.ops.returns import gae

OBS = 3
BOX, CHOICES = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)
CRITIC: Any = {"hidden": [8], "activation": "tanh", "init": "orthogonal"}


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

    def __init__(self, learner: Any, space: Any = BOX, has_values: bool = True) -> None:
        super().__init__()
        n_actions = 2 if space is BOX else 4
        self.pi = nn.Sequential(nn.Linear(OBS, 8), nn.Tanh(), nn.Linear(8, n_actions))
        self.v = nn.Sequential(nn.Linear(OBS, 8), nn.Tanh(), nn.Linear(8, 1)) if has_values else nn.Sequential()
        self.log_std = nn.Parameter(torch.zeros(n_actions)) if space is BOX else None
        self.order = [*self.pi.parameters(), *self.v.parameters(), *([self.log_std] if self.log_std is not None else [])]
        nn.utils.vector_to_parameters(real_params(learner), self.order)

    def dist(self, obs: Tensor) -> Any:
        return Normal(self.pi(obs), self.log_std.exp()) if self.log_std is not None else Categorical(logits=self.pi(obs))

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.dist(obs).log_prob(action).sum(-1) if self.log_std is not None else self.dist(obs).log_prob(action[:, 0])

    def entropy(self, obs: Tensor) -> Tensor:
        found = self.dist(obs).entropy()
        return found.sum(-1) if self.log_std is not None else found

    def step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
        """One step down the loss; the norm of its gradient."""
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.parameters(), 0.5)
        optimizer.step()
        return norm.item()

    def assert_equals(self, learner: Any) -> None:
        torch.testing.assert_close(real_params(learner), nn.utils.parameters_to_vector(self.order).detach(), rtol=1e-4, atol=2e-6)


def rows(e: Experience) -> tuple[Tensor, Tensor, Tensor]:
    """Observations, actions, and their log-probabilities when they were taken."""
    obs, action, log_prob = (torch.from_numpy(x) for x in (e.obs["vector"], e.action, e.log_prob))
    return obs.flatten(0, 1), action.flatten(0, 1), log_prob.flatten()


def row(x: Any) -> Tensor:
    return torch.from_numpy(np.asarray(x, np.float32)).flatten()


def plain_values(net: Plain, e: Experience) -> tuple[Any, Any]:
    """V(s_t) and V(s_{t+1}) [L, T]; where an episode ended, that of its last observation."""
    with torch.no_grad():
        value = net.v(torch.from_numpy(e.obs["vector"]))[..., 0].numpy()
        following = np.concatenate([value[:, 1:], net.v(torch.from_numpy(e.last_obs["vector"])).numpy()], 1)
        following[tuple(e.final_at.T)] = net.v(torch.from_numpy(e.final_obs["vector"]))[:, 0].numpy()
    return value, following


def plain_ratios(net: Plain, e: Experience) -> Any:
    obs, action, old = rows(e)
    return (net.log_prob(obs, action) - old).exp().detach().numpy().reshape(e.valid.shape)


def weighted_sums(x: Any, weight: Any, ended: Any) -> Any:
    """sum_k (prod_{i=t}^{t+k-1} weight_i) x_{t+k} to the end of t's episode, term by term."""
    found = np.zeros_like(x)
    for n, t in np.ndindex(*x.shape):
        product = 1.0
        for k in range(t, x.shape[1]):
            found[n, t] += product * x[n, k]
            if ended[n, k]:
                break
            product *= weight[n, k]
    return found


def plain_targets(net: Plain, e: Experience, gamma: float, lam: float, rho: Any = 1.0) -> tuple[Tensor, Tensor]:
    """Advantages and targets of GAE, or of GAE-V with these ratios."""
    value, following = plain_values(net, e)
    discount, rho = np.where(e.terminated, 0, gamma), np.minimum(rho, np.ones_like(value))
    next_rho = np.concatenate([rho[:, 1:], rho[:, :1]], 1)
    advantage = weighted_sums(e.reward[..., 0] + discount * following - value, gamma * lam * next_rho, e.ended)
    return row(advantage), row(value + rho * advantage)


def now(learner: Any, e: Experience) -> Experience:
    """The same steps, as if the policy of now had taken them."""
    log_prob = learner.evaluate(learner.steps(e, e.reward, e.reward, e.reward)).log_prob.detach().numpy()
    return replace(e, log_prob=log_prob.reshape(e.valid.shape))


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
@pytest.mark.parametrize(
    "extra",
    [{}, {"advantage": "gae-v"}, {"value_clip_range": 0.002}, {"target_kl": 0.01, "lr": 0.01}],
    ids=lambda x: "-".join(x) or "default",
)
def test_two_ppo_updates_are_those_of_a_plain_implementation(space: Any, extra: dict[str, Any]) -> None:
    """And what is reported is what Stable-Baselines3 logs: KL of the last epoch's minibatches, clip fraction and losses of all."""
    config = PPOConfig(critic=CRITIC, batch_size=10, epochs=3, entropy_coef=0.01, **extra)
    learner = make(config, space)
    net, taken, moved = Plain(learner, space), 0, []
    adam = torch.optim.Adam(net.parameters(), lr=extra.get("lr", 3e-4), eps=1e-5)
    for update in range(2):
        e = experience(space, seed=update)
        e = now(learner, e) if config.target_kl else e
        rng = torch.Generator().manual_seed(seeds.mix(3, seeds.Stream.LEARN, learner.updates))
        orders = [torch.randperm(32, generator=rng) for _ in range(3)]
        metrics = learner.update(e, 0)
        (obs, action, old), old_value = rows(e), row(plain_values(net, e)[0])
        advantage, target = plain_targets(net, e, 0.99, 0.95, plain_ratios(net, e) if config.advantage == "gae-v" else 1.0)
        logged: dict[str, list[float]] = {"policy_loss": [], "value_loss": [], "entropy": [], "clip_fraction": [], "gradient_norm": []}
        kl: dict[int, list[float]] = {}
        for epoch, some in [(epoch, some) for epoch, order in enumerate(orders) for some in order.split(10)]:
            a = (advantage[some] - advantage[some].mean()) / (advantage[some].std() + 1e-8)
            ratio, value = (net.log_prob(obs[some], action[some]) - old[some]).exp(), net.v(obs[some])[:, 0]
            if config.value_clip_range:
                moved += ((value - old_value[some]).abs() > config.value_clip_range).tolist()
                value = old_value[some] + (value - old_value[some]).clamp(-config.value_clip_range, config.value_clip_range)
            policy_loss, value_loss = -torch.min(a * ratio, a * ratio.clamp(0.8, 1.2)).mean(), (value - target[some]).square().mean()
            entropy = net.entropy(obs[some]).mean()
            for name, x in (("policy_loss", policy_loss), ("value_loss", value_loss), ("entropy", entropy)):
                logged[name].append(x.item())
            logged["clip_fraction"].append(((ratio - 1).abs() > 0.2).float().mean().item())
            kl.setdefault(epoch, []).append(((ratio - 1) - ratio.log()).mean().item())
            if config.target_kl and kl[epoch][-1] > 1.5 * config.target_kl:
                break
            logged["gradient_norm"].append(net.step(adam, policy_loss + 0.5 * value_loss - 0.01 * entropy))
            taken += 1
        net.assert_equals(learner)
        for name, each in logged.items():
            assert metrics[name] == pytest.approx(np.mean(each), rel=1e-4, abs=1e-6)
        last = kl[max(kl)]
        assert metrics["approx_kl"] == pytest.approx(np.mean(last), rel=1e-3, abs=1e-6)
        assert len(last) > 1  # also where it stopped
        assert metrics["explained_variance"] == pytest.approx(1 - (target - old_value).var().item() / target.var().item(), abs=1e-5)
    assert learner.updates == taken
    assert (taken < 2 * 3 * 4) == bool(config.target_kl)
    assert not moved or 0.1 < np.mean(moved) < 0.9


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
def test_an_a2c_update_is_that_of_a_plain_implementation(space: Any) -> None:
    learner = make(A2CConfig(critic=CRITIC, entropy_coef=0.01), space)
    net = Plain(learner, space)
    rms = torch.optim.RMSprop(net.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)
    for update in range(2):
        e = experience(space, seed=update)
        (obs, action, _), (advantage, target) = rows(e), plain_targets(net, e, 0.99, 1.0)
        loss = -(advantage * net.log_prob(obs, action)).mean() + 0.5 * (net.v(obs)[:, 0] - target).square().mean()
        norm = net.step(rms, loss - 0.01 * net.entropy(obs).mean())
        assert learner.update(e, 0)["gradient_norm"] == pytest.approx(norm, rel=1e-4)
        net.assert_equals(learner)


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
def test_a_gradient_of_a3c_computed_there_and_applied_here_is_an_update_of_a2c(space: Any) -> None:
    """Also where its norm is above the limit, and with an optimiser that remembers other gradients."""
    worker, learner, a2c = (
        make(A3CConfig(entropy_coef=0.01), space),
        make(A3CConfig(entropy_coef=0.01), space),
        make(A2CConfig(entropy_coef=0.01), space),
    )
    for update in range(3):
        e = experience(space, count=1, seed=update)
        worker.load_state_dict(learner.state_dict())
        gradient, found = worker.segment_gradient(e)
        found |= learner.apply(gradient, 0)
        expected = a2c.update(e, 0)
        assert expected["gradient_norm"] > 0.5
        assert found == pytest.approx(expected, rel=1e-6)
        np.testing.assert_array_equal(learner.nets.params, a2c.nets.params)


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
@pytest.mark.parametrize(("baseline", "normalize"), [(True, True), (True, False), (False, True), (False, False)])
def test_reinforce_against_autograd(baseline: bool, normalize: bool, space: Any) -> None:
    """Two episodes to their end, and one that a time limit cut: the baseline's value of its last observation takes the place of the rest."""
    learner = make(REINFORCEConfig(critic=CRITIC, baseline=baseline, normalize_returns=normalize, gamma=0.9, entropy_coef=0.01), space)
    net = Plain(learner, space, baseline)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
    for update in range(2):
        episodes, obs, action, value, returns = [], [], [], [], []
        for seed, length, cut in ((1, 4, False), (2, 7, True), (3, 2, False)):
            e = experience(space, count=1, steps=length, seed=3 * update + seed)
            last = np.arange(length)[None] == length - 1
            e = replace(e, terminated=last & (not cut), truncated=last & cut, final_at=np.argwhere(last), final_obs=e.last_obs)
            episodes.append(e)
            own, after = plain_values(net, e) if baseline else (np.zeros((1, length)), np.zeros((1, length)))
            total = after[0, -1] if cut else 0.0
            own_returns = [total := reward + 0.9 * total for reward in e.reward[0, ::-1, 0].tolist()][::-1]
            obs, action = [*obs, rows(e)[0]], [*action, rows(e)[1]]
            value, returns = [*value, row(own)], [*returns, row(own_returns)]
        x, b, target = torch.cat(obs), torch.cat(value), torch.cat(returns)
        advantage = target - b
        if normalize:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss, entropy = -(advantage * net.log_prob(x, torch.cat(action))).mean(), net.entropy(x).mean()
        expected = {"policy_loss": policy_loss.item(), "entropy": entropy.item()}
        loss = policy_loss - 0.01 * entropy
        if baseline:
            value_loss = (net.v(x)[:, 0] - target).square().mean()
            expected |= {"value_loss": value_loss.item(), "explained_variance": 1 - (target - b).var().item() / target.var().item()}
            loss = loss + 0.5 * value_loss
        expected["gradient_norm"] = net.step(adam, loss)
        assert learner.update(join(episodes), 0) == pytest.approx(expected, rel=1e-4, abs=1e-6)
        net.assert_equals(learner)


def plain_vtrace(net: Plain, e: Experience, rho: Any, rho_clip: float, c_clip: float) -> tuple[Tensor, Tensor]:
    """Equation 1 of IMPALA's paper, and the advantage of its policy gradient, for a discount of 0.99."""
    value, following = plain_values(net, e)
    discount, weight = np.where(e.terminated, 0, 0.99), np.minimum(rho, rho_clip)
    delta = weight * (e.reward[..., 0] + discount * following - value)
    v = value + weighted_sums(delta, 0.99 * np.minimum(rho, c_clip), e.ended)
    advantage = np.zeros_like(v)
    for n, t in np.ndindex(*v.shape):
        goes_on = t + 1 < v.shape[1] and not e.ended[n, t]
        advantage[n, t] = weight[n, t] * (e.reward[n, t, 0] + discount[n, t] * (v[n, t + 1] if goes_on else following[n, t]) - value[n, t])
    return row(advantage), row(v)


def test_impala_on_policy_is_the_n_step_policy_gradient() -> None:
    """With the log-probabilities of now, V-trace's weights are 1."""
    learner = make(IMPALAConfig(critic=CRITIC))
    e = now(learner, experience())
    rho = learner.ratios(e)
    np.testing.assert_allclose(rho, 1.0, rtol=1e-5)
    advantage, target = plain_targets(Plain(learner), e, 0.99, 1.0)
    steps = learner.estimate(e, rho)
    torch.testing.assert_close(steps.target[:, 0], target, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(steps.advantage, advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["box", "discrete"])
def test_impala_off_policy_updates_are_those_of_a_plain_implementation(space: Any) -> None:
    """Both bounds matter, and episodes end in the middle of segments, by themselves and by time limits."""
    learner = make(IMPALAConfig(critic=CRITIC, rho_clip=1.5, c_clip=0.7, max_grad_norm=0.5), space)
    net = Plain(learner, space)
    adam = torch.optim.Adam(net.parameters(), lr=6e-4, eps=1e-5)
    for update in range(2):
        e = experience(space, seed=update)
        assert e.truncated[:, 1:-1].any()
        assert e.terminated[:, 1:-1].any()
        e = replace(e, log_prob=now(learner, e).log_prob + np.random.default_rng(update).normal(0, 0.7, e.valid.shape).astype(np.float32))
        rho = plain_ratios(net, e)
        assert (rho > 1.5).any()
        assert (rho < 0.7).any()
        advantage, target = plain_vtrace(net, e, rho, 1.5, 0.7)
        steps = learner.estimate(e, learner.ratios(e))
        torch.testing.assert_close(steps.target[:, 0], target, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(steps.advantage, advantage, rtol=1e-4, atol=1e-5)
        metrics = learner.update(e, 0)
        obs, action, _ = rows(e)
        loss = -(advantage * net.log_prob(obs, action)).mean() + 0.5 * (net.v(obs)[:, 0] - target).square().mean()
        norm = net.step(adam, loss - 0.01 * net.entropy(obs).mean())
        assert (metrics["gradient_norm"], metrics["mean_rho"]) == pytest.approx((norm, rho.mean()), rel=1e-4)
        net.assert_equals(learner)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_back_propagation_through_time_resets_where_episodes_begin(kind: str) -> None:
    """Against torch's own cell, run step by step, with its state set to zero after every end."""
    learner = make(PPOConfig(), memory={"kind": kind, "size": 5}, hidden=[])
    size = learner.nets.state_size
    e = replace(experience(memory=size), memory=np.random.default_rng(1).normal(size=(4, size)).astype(np.float32))
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


def test_a_segment_without_a_whole_step_is_no_minibatch() -> None:
    """As players that take turns may leave it, with memory, one segment to a minibatch."""
    learner = make(PPOConfig(batch_size=8, epochs=2), memory={"kind": "gru", "size": 4}, hidden=[])
    long, none = (experience(count=2, seed=seed, memory=learner.nets.state_size) for seed in (0, 1))
    none = replace(none, valid=none.valid & False, terminated=none.valid & False, truncated=none.valid & False)
    none = replace(none, final_at=none.final_at[:0], final_obs={"vector": none.final_obs["vector"][:0]})
    assert np.isfinite(list(learner.update(join([none, long]), 0).values())).all()
    assert learner.updates == 2 * 2


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
