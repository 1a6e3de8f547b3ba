"""Two updates of each learner against a plain implementation of the papers, written here with nn.Linear and torch.optim."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from baldwin.learners import Learner
from baldwin.ops import seeds
from tests.learners.tools import ACTIONS, OBS, discrete, memory, sac, td3


def network(vector: np.ndarray, inputs: int, outputs: int) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs))
    nn.utils.vector_to_parameters(torch.from_numpy(vector), net.parameters())
    return net


def flat(net: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy()


def batches(learner: Learner, k: int = 2) -> list[dict[str, Tensor]]:
    drawn = memory(learner).sample(k, 16)
    plain = drawn._replace(obs=drawn.obs["vector"], next_obs=drawn.next_obs["vector"])
    return [{name: torch.from_numpy(a[n]) for name, a in plain._asdict().items() if a is not None} for n in range(k)]


def random_numbers(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seeds.mix(seed, seeds.Stream.LEARN, 0))


def follow(target: nn.Module, online: nn.Module) -> None:
    with torch.no_grad():
        for t, o in zip(target.parameters(), online.parameters(), strict=True):
            t += 0.005 * (o - t)


def critics(learner: Learner, inputs: int, outputs: int) -> tuple[list[nn.Sequential], list[nn.Sequential], torch.optim.Adam]:
    nets = [network(row, inputs, outputs) for row in learner.critic.vectors()]
    return nets, copy.deepcopy(nets), torch.optim.Adam([p for net in nets for p in net.parameters()], 3e-4)


def step(adam: torch.optim.Optimizer, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_td3() -> None:
    learner, generator = td3(), random_numbers()
    actor = network(learner.actor_vectors()[0], OBS, ACTIONS)
    slow_actor, actor_adam = copy.deepcopy(actor), torch.optim.Adam(actor.parameters(), 3e-4)
    qs, slow_qs, adam = critics(learner, OBS + ACTIONS, 1)
    for n, b in enumerate(batches(learner), 1):
        with torch.no_grad():
            greedy = torch.tanh(slow_actor(b["next_obs"]))
            noise = (torch.randn(greedy.shape, generator=generator) * 0.2).clamp(-0.5, 0.5)
            inputs = torch.cat([b["next_obs"], (greedy + noise).clamp(-1, 1)], 1)
            y = b["reward"] + 0.99 * (~b["terminated"]) * torch.min(*(q(inputs) for q in slow_qs)).squeeze(1)
        seen = torch.cat([b["obs"], b["action"]], 1)
        step(adam, sum(nn.functional.mse_loss(q(seen).squeeze(1), y) for q in qs))
        if n == 2:
            step(actor_adam, -qs[0](torch.cat([b["obs"], torch.tanh(actor(b["obs"]))], 1)).mean())
            for t, o in ((slow_actor, actor), *zip(slow_qs, qs, strict=True)):
                follow(t, o)
    learner.train(memory(learner), 2)
    close(learner.critic.vectors(), [flat(q) for q in qs])
    close(learner.critic.target.numpy(), [flat(q) for q in slow_qs])
    close(learner.actor_vectors()[0], flat(actor))
    close(learner.actor.target.numpy()[0], flat(slow_actor))


def test_sac() -> None:
    learner, generator = sac(), random_numbers()
    actor = network(learner.actor_vectors()[0], OBS, 2 * ACTIONS)
    actor_adam = torch.optim.Adam(actor.parameters(), 3e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_adam = torch.optim.Adam([log_alpha], 3e-4)
    qs, slow_qs, adam = critics(learner, OBS + ACTIONS, 1)

    def sample(obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = actor(obs).chunk(2, 1)
        u = mean + log_std.exp() * torch.randn(mean.shape, generator=generator)
        log_prob = Normal(mean, log_std.exp()).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)
        return torch.tanh(u), log_prob.sum(1)

    for b in batches(learner):
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            action, log_prob = sample(b["next_obs"])
            inputs = torch.cat([b["next_obs"], action], 1)
            value = torch.min(*(q(inputs) for q in slow_qs)).squeeze(1) - alpha * log_prob
            y = b["reward"] + 0.99 * (~b["terminated"]) * value
        seen = torch.cat([b["obs"], b["action"]], 1)
        step(adam, sum(0.5 * nn.functional.mse_loss(q(seen).squeeze(1), y) for q in qs))
        action, log_prob = sample(b["obs"])
        inputs = torch.cat([b["obs"], action], 1)
        step(actor_adam, (alpha * log_prob - torch.min(*(q(inputs) for q in qs)).squeeze(1)).mean())
        step(alpha_adam, -(log_alpha * (log_prob.detach() - ACTIONS)).mean())
        for t, o in zip(slow_qs, qs, strict=True):
            follow(t, o)
    seen_metrics = learner.train(memory(learner), 2)
    close(learner.critic.vectors(), [flat(q) for q in qs])
    close(learner.critic.target.numpy(), [flat(q) for q in slow_qs])
    close(learner.actor_vectors()[0], flat(actor))
    close(learner.state_dict()["log_alpha"].item(), log_alpha.item())
    assert set(seen_metrics) >= {"critic_loss", "q_mean", "actor_loss", "entropy", "alpha", "critic_gradient_norm", "actor_gradient_norm"}


def test_discrete_sac() -> None:
    learner = discrete(target_entropy_scale=0.7)
    actor = network(learner.actor_vectors()[0], OBS, ACTIONS)
    actor_adam = torch.optim.Adam(actor.parameters(), 3e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_adam = torch.optim.Adam([log_alpha], 3e-4)
    qs, slow_qs, adam = critics(learner, OBS, ACTIONS)
    for b in batches(learner):
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            policy = Categorical(logits=actor(b["next_obs"]))
            smaller = torch.min(*(q(b["next_obs"]) for q in slow_qs))
            value = (policy.probs * smaller).sum(1) + alpha * policy.entropy()
            y = b["reward"] + 0.99 * (~b["terminated"]) * value
        chosen = b["action"][:, None]
        step(adam, sum(0.5 * nn.functional.mse_loss(q(b["obs"]).gather(1, chosen).squeeze(1), y) for q in qs))
        policy = Categorical(logits=actor(b["obs"]))
        with torch.no_grad():
            smaller = torch.min(*(q(b["obs"]) for q in qs))
        step(actor_adam, -((policy.probs * smaller).sum(1) + alpha * policy.entropy()).mean())
        step(alpha_adam, (log_alpha * (policy.entropy().detach().mean() - 0.7 * math.log(ACTIONS))).mean())
        for t, o in zip(slow_qs, qs, strict=True):
            follow(t, o)
    learner.train(memory(learner), 2)
    close(learner.critic.vectors(), [flat(q) for q in qs])
    close(learner.actor_vectors()[0], flat(actor))
    close(learner.state_dict()["log_alpha"].item(), log_alpha.item())
