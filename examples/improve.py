"""The gradient half alone, as evolution calls it: one shared critic improves five policies at once."""

import gymnasium as gym
import numpy as np

from baldwin.learners import TD3, TD3UpdateConfig, replay_columns
from baldwin.networks import PolicyConfig
from baldwin.observations import vector_spec
from baldwin.replay import ReplayBuffer


def collect(replay: ReplayBuffer, steps: int) -> None:
    """Random actions in Pendulum, remembered; actions are in units of half the range, [-1, 1]."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    last = -1
    for _ in range(steps):
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        seen, reward, terminated, truncated, _ = env.step(2 * action)
        row = {"obs/vector": obs, "action": action, "reward": reward, "next_obs/vector": seen}
        row |= {"terminated": terminated, "truncated": truncated}
        last = replay.add({name: np.asarray(value)[None] for name, value in row.items()}, after=last)
        obs, last = (env.reset()[0], -1) if terminated or truncated else (seen, last)


def main(steps: int = 5000, updates: int = 1000) -> tuple[float, float]:
    replay = ReplayBuffer(replay_columns(vector_spec(3), np.empty((0, 1), np.float32)), capacity=10_000, seed=0)
    collect(replay, steps)
    policy = PolicyConfig(hidden=[64, 64], activation="relu", init="torch", normalize_obs=False)
    learner = TD3(
        policy, TD3UpdateConfig(batch_size=128, threads=1, critic_lr=1e-3, actor_lr=1e-3), obs=vector_spec(3), n_actions=1, seed=0
    )
    learner.train_critic(replay, updates)
    spread = np.random.default_rng(1).normal(0, 0.3, (5, learner.actor_vectors().shape[1]))
    learner.set_actor(learner.actor_vectors() + spread.astype(np.float32))
    before = -learner.train_actor(replay, 20)["actor_loss"]
    learner.train_actor(replay, updates, reset_optimizer=False)
    after = -learner.train_actor(replay, 20, reset_optimizer=False)["actor_loss"]
    print(f"what the critic thinks of the five: {before:.1f} at first, {after:.1f} in the end")
    return before, after


if __name__ == "__main__":
    main()
