"""Load a trained policy from its folder and act: network and observation statistics come together."""

import sys

import gymnasium as gym

from baldwin import load_policy


def main(folder: str, env_id: str = "CartPole-v1", episodes: int = 3) -> list[float]:
    policy, env, returns = load_policy(folder), gym.make(env_id), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    print(returns)
    return returns


if __name__ == "__main__":
    main(*sys.argv[1:])
