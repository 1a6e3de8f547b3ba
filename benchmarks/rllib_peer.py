"""Runs in RLlib's own venv: PPO of the new API stack with our settings. Prints steps/s of the whole loop; of several players, their decisions/s."""

import argparse
import importlib
import json
import logging
import time

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env


def make_game(name: str, **kwargs: int) -> ParallelPettingZooEnv:
    return ParallelPettingZooEnv(importlib.import_module(name).parallel_env(**kwargs))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("env", nargs="?", default="CartPole-v1")
    parser.add_argument("--players", type=int, default=1, help="with more, env is a parallel game of PettingZoo for so many, by one policy")
    parser.add_argument("--cycles", type=int, default=25, help="steps of a game of several players")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runners", type=int, default=0, help="processes that play; 0: the learner's own")
    parser.add_argument("--n-envs", type=int, default=8, help="of all runners together")
    parser.add_argument("--n-steps", type=int, default=32, help="steps of each environment in a rollout")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 64])
    parser.add_argument("--warm-up", type=int, default=3, help="iterations before the clock starts")
    parser.add_argument("--report-every", type=float, default=0.0, help="seconds of an iteration: several rollouts in each, less reporting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="of the learner")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    ray.init(num_cpus=max(2, args.runners + 1), include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    if args.players > 1:
        register_env(args.env, lambda _: make_game(args.env, N=args.players, max_cycles=args.cycles))
    config = (
        PPOConfig()
        .environment(args.env)
        .env_runners(
            num_env_runners=args.runners,
            num_envs_per_env_runner=args.n_envs // max(1, args.runners),
            rollout_fragment_length=args.n_steps,
            batch_mode="truncate_episodes",
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=args.n_envs * args.n_steps,
            minibatch_size=args.batch,
            num_epochs=args.epochs,
            lr=3e-4,
            gamma=0.98,
            lambda_=0.8,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            vf_loss_coeff=0.5,
            entropy_coeff=0.0,
            use_kl_loss=False,
            grad_clip=0.5,
            grad_clip_by="global_norm",
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=args.hidden, fcnet_activation="tanh", vf_share_layers=False))
        .reporting(min_time_s_per_iteration=args.report_every or None)
        .debugging(seed=args.seed, log_level="ERROR")
    )
    if args.players > 1:
        config = config.multi_agent(policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared")
    algorithm = config.build_algo()

    def sampled() -> int:
        return args.players * int(algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"])

    for _ in range(args.warm_up):
        first = sampled()
    begun, cpu_begun, now, last = time.perf_counter(), time.process_time(), 0.0, first
    while now < args.seconds:
        last = sampled()
        now = time.perf_counter() - begun
    cpu = time.process_time() - cpu_begun  # of this process alone
    print(json.dumps({"steps_per_second": (last - first) / now, "steps_per_cpu_second": (last - first) / cpu}))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
