"""Runs in RLlib's own venv: Ray Tune's PBT over RLlib's PPO with our settings. Prints the seconds of the whole search."""

import argparse
import json
import logging
import os
import tempfile
import time

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")  # a game of Pong is longer than the first rounds: there is no return yet

import gymnasium
import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.schedulers import PopulationBasedTraining

VECTOR_PONG = "baldwin:VectorPong-v0"


def make_vector_pong(_config: dict[str, object]) -> gymnasium.Env:
    """The world as Gymnasium has it; this repository must be on PYTHONPATH."""
    import baldwin.envs  # noqa: F401 - it registers the world

    return gymnasium.make("VectorPong-v0")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("env", nargs="?", default="CartPole-v1")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cpus", type=int, default=2)
    args = parser.parse_args()
    if args.env == VECTOR_PONG:
        make_vector_pong({})  # fails now if it cannot be made, and not over and over in workers
        tune.register_env(VECTOR_PONG, make_vector_pong)
    ray.init(num_cpus=args.cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    config = (
        PPOConfig()
        .environment(args.env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8, rollout_fragment_length=256, batch_mode="truncate_episodes")
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=2048,
            minibatch_size=256,
            num_epochs=10,
            lr=3e-4,
            gamma=0.98,
            lambda_=0.95,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            use_kl_loss=False,
            grad_clip=0.5,
            grad_clip_by="global_norm",
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False))
        .debugging(seed=1, log_level="ERROR")
    )
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        require_attrs=False,
        hyperparam_mutations={"lr": tune.loguniform(1e-5, 1e-2)},
    )
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        tuner = tune.Tuner(
            PPO,
            param_space=config,
            tune_config=tune.TuneConfig(
                num_samples=args.members, metric="env_runners/episode_return_mean", mode="max", scheduler=scheduler, reuse_actors=False
            ),
            run_config=tune.RunConfig(stop={"training_iteration": args.rounds}, storage_path=folder, verbose=0),
        )
        results = tuner.fit()
        seconds = time.perf_counter() - begun
    done = [r.metrics["training_iteration"] for r in results if r.metrics]
    print(json.dumps({"seconds": seconds, "rounds": int(sum(done)), "errors": len(results.errors)}))
    ray.shutdown()


if __name__ == "__main__":
    main()
