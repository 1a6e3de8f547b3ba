"""What PPO's clipped surrogate costs in torch, for autograd, instead of in closed form: CPU time of whole updates, in turn in one process."""

from __future__ import annotations

import time

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from baldwin.learners import PPO, PPOConfig
from baldwin.learners.actor_critic_loss import Array, LossParts
from baldwin.learners.experience import Experience
from baldwin.learners.policy_gradient import PolicyGradientBatch
from baldwin.networks import ActionMap, PolicyConfig
from baldwin.observations import vector_spec
from benchmarks.tools import spread, table

OBS, COUNT, LENGTH, REPEATS = 17, 8, 256, 20


class Plain(PPO):
    """The surrogate as it is in the paper; networks, distribution and values are in closed form as ever."""

    def minibatch_gradient(self, steps: PolicyGradientBatch, clip: float) -> tuple[Tensor, LossParts]:
        def surrogate(log_prob: Array) -> tuple[float, Array]:
            x = torch.from_numpy(log_prob).requires_grad_()
            ratio = (x - steps.log_prob).exp()
            loss = -torch.min(ratio * steps.advantage, ratio.clamp(1 - clip, 1 + clip) * steps.advantage).mean()
            return loss.item(), torch.autograd.grad(loss, x)[0].numpy()

        return self.gradient(steps, surrogate)


def make(kind: type[PPO], space: spaces.Space, batch_size: int) -> PPO:
    policy = PolicyConfig(hidden=[64, 64], init="orthogonal", normalize_obs=False, squash="clip")
    actions, rewards = ActionMap(space, policy.squash, policy.head), {"reward": 1.0}
    return kind(policy, PPOConfig(batch_size=batch_size), obs=vector_spec(OBS), actions=actions, rewards=rewards, seed=1)


def experience(space: spaces.Space, learner: PPO) -> Experience:
    """Segments without an end, taken by the policy of now."""
    rng, shape = np.random.default_rng(0), (COUNT, LENGTH)
    action = rng.integers(0, 4, (*shape, 1)) if isinstance(space, spaces.Discrete) else rng.normal(size=(*shape, *space.shape))
    never = np.zeros(shape, np.bool_)
    arrays = {
        "obs": {"vector": rng.normal(size=(*shape, OBS)).astype(np.float32)},
        "last_obs": {"vector": rng.normal(size=(COUNT, OBS)).astype(np.float32)},
        "final_obs": {"vector": np.zeros((0, OBS), np.float32)},
        "final_at": np.zeros((0, 2), np.int64),
        "action": action.astype(np.float32),
        "reward": rng.normal(size=(*shape, 1)).astype(np.float32),
        **{"terminated": never, "truncated": never, "valid": ~never, "elapsed": np.ones(shape, np.int32), "memory": np.zeros((COUNT, 0))},
    }
    steps = learner.steps(Experience(log_prob=np.zeros(shape, np.float32), **arrays), *[arrays["reward"]] * 3)
    return Experience(log_prob=learner.evaluate(steps).log_prob.detach().numpy().reshape(shape), **arrays)


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for space in (spaces.Box(-1, 1, (6,), np.float32), spaces.Discrete(4)):
        for batch_size in (64, 256):
            learners = [make(kind, space, batch_size) for kind in (PPO, Plain)]
            taken = experience(space, learners[0])
            spent = np.empty((REPEATS, 2))
            for repeat in range(REPEATS):
                for n, learner in enumerate(learners):
                    start = time.process_time()
                    learner.update(taken, 0)
                    spent[repeat, n] = 1000 * (time.process_time() - start)
            best = [f"{x:.0f}" for x in spent.min(0)]
            rows.append([f"{type(space).__name__}, {batch_size}", *best, spread((spent[:, 1] / spent[:, 0]).tolist(), 2)])
    table(
        f"An update of {COUNT * LENGTH} steps, best of {REPEATS}",
        ["action, minibatch", "closed form, ms", "surrogate in torch, ms", "ratio"],
        rows,
    )


if __name__ == "__main__":
    main()
