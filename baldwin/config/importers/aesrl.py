"""AES-RL's JSON files (github.com/KyunghyunLee/aes-rl): one flat object whose keys are the options of its train.py."""

from __future__ import annotations

from typing import Any

from baldwin.config.importers.env_ids import current_env
from baldwin.config.importers.rules import Converted, Imported, Rule, Settings, absent, apply_rules, same, whole
from baldwin.errors import pick

ALGORITHMS = {
    "TD3": "td3",
    "CEM-RL": "cem-rl",
    "P-CEM-RL": "p-cem-rl",
    "ACEM-RL": "acem-rl",
    "(1+1)-ES": "one-plus-one-rl",
    "AES-RL": "aes-rl",
}
GENERATIONAL, ASYNCHRONOUS = ("cem-rl", "p-cem-rl"), ("acem-rl", "one-plus-one-rl", "aes-rl")
HYBRIDS = GENERATIONAL + ASYNCHRONOUS

DEFAULTS: dict[str, Any] = {
    "algorithm": "AES-RL",
    "env_name": "HalfCheetah-v2",
    "max_timestep": 1_000_000,
    "seed": -1,
    "actor_network_scheme": "TD3",
    "actor_activation": "tanh",
    "critic_activation": "leaky_relu",
    "hidden": [400, 300],
    "lr": 0.001,
    "batch_size": 100,
    "expl_noise": 0.1,
    "policy_noise": 0.2,
    "noise_clip": 0.5,
    "discount": 0.99,
    "tau": 0.005,
    "update_freq": 2,
    "parallel_critic": False,
    "population_size": 0,
    "replay_size": 200_000,
    "initial_steps": 10_000,
    "sigma_init": 0.001,
    "aesrl_mean_update": "baseline-relative",
    "aesrl_mean_update_param": 0,
    "aesrl_var_update": "adaptive",
    "aesrl_fixed_var_n": 0,
    "aesrl_rl_ratio": 0,
    "aesrl_rl_k": 50,
    "aesrl_negative_ratio": 0,
    "aesrl_one_plus_one_success_rate": 0.2,
    "aesrl_one_plus_one_tau": 0.99,
    "aesrl_sigma_limit": 1e-5,
    "aesrl_critic_batch": 1000,
    "cemrl_damp_init": 1e-3,
    "cemrl_damp_limit": 1e-5,
    "cemrl_tau": 0.9,
    "cemrl_no_antithetic": False,
    "cemrl_rl_population": 0,
}
"""Defaults of AES-RL's train.py, over which its files are merged."""

INERT = "has no effect there either: only TD3 reads it"
RAY = "Ray is joined by executor.name=ray; see docs/cluster.md"


def import_aesrl(settings: Settings, env: str | None = None) -> Imported:
    """Convert a file of AES-RL; `env` replaces its environment.

    Raises:
        ConfigError: it names an algorithm that AES-RL does not have, or a value that is not what its key takes.
    """
    name = pick(ALGORITHMS, str(settings.get("algorithm", DEFAULTS["algorithm"])), "algorithm of AES-RL")
    return apply_rules(rules_for(name), settings, DEFAULTS, {"env_name": env} if env else {})


def rules_for(name: str) -> dict[str, Rule]:
    """What each key becomes for one algorithm, by its name here."""
    hybrid = name in HYBRIDS
    learner = "algorithm.learner" if hybrid else "algorithm"

    def only(names: tuple[str, ...], rule: Rule) -> Rule:
        return rule if name in names else absent(f"not used by {name}")

    def strategy(key: str, *names: str) -> Rule:
        return only(names, same(f"algorithm.strategy.{key}"))

    return {
        "algorithm": lambda value, settings: (
            {"algorithm.name": name},
            "algorithm.behaviour=faithful repeats the defects of the reference implementation, too" if hybrid else "",
        ),
        "env_name": lambda value, settings: current_env(str(value)),
        "max_timestep": same("stop.learning_steps" if hybrid else "stop.env_steps"),
        "seed": lambda value, settings: (
            ({}, "-1 draws one there; here it is run.seed=1") if int(value) < 0 else ({"run.seed": int(value)}, "")
        ),
        "actor_network_scheme": absent("there is one choice", off=("TD3",)),
        "actor_activation": lambda value, settings: ({"policy.activation": _dashed(value)}, ""),
        "critic_activation": lambda value, settings: ({f"{learner}.critic.activation": _dashed(value)}, ""),
        "hidden": same("policy.hidden", f"{learner}.critic.hidden"),
        "lr": same(f"{learner}.actor_lr", f"{learner}.critic_lr"),
        "batch_size": same(f"{learner}.batch_size"),
        "expl_noise": absent(INERT) if hybrid else same("algorithm.exploration_noise"),
        "policy_noise": same(f"{learner}.target_noise"),
        "noise_clip": same(f"{learner}.target_noise_clip"),
        "discount": same(f"{learner}.gamma"),
        "tau": same(f"{learner}.tau"),
        "update_freq": absent("has no effect there either: critics and actors are never updated together")
        if hybrid
        else same("algorithm.policy_delay"),
        "replay_size": same("algorithm.buffer_size"),
        "initial_steps": same("algorithm.start_steps"),
        "population_size": _population(name),
        "sigma_init": only(HYBRIDS, same("algorithm.strategy.variance")),
        "aesrl_mean_update": strategy("mean_rule", "aes-rl"),
        "aesrl_mean_update_param": only(("aes-rl",), _scale),
        "aesrl_var_update": strategy("variance_rule", "aes-rl"),
        "aesrl_fixed_var_n": only(("aes-rl",), _memory),
        "aesrl_rl_ratio": only(ASYNCHRONOUS, same("algorithm.rl_ratio")),
        "aesrl_rl_k": only(ASYNCHRONOUS, same("algorithm.rl_gain")),
        "aesrl_negative_ratio": strategy("negative", "aes-rl"),
        "aesrl_one_plus_one_success_rate": strategy("target_success", "one-plus-one-rl"),
        "aesrl_one_plus_one_tau": strategy("factor", "one-plus-one-rl"),
        "aesrl_sigma_limit": strategy("variance_floor", "aes-rl", "one-plus-one-rl"),
        "aesrl_critic_batch": only((*ASYNCHRONOUS, "p-cem-rl"), same("algorithm.critic_steps_per_job")),
        "cemrl_damp_init": strategy("noise_start", *GENERATIONAL, "acem-rl"),
        "cemrl_damp_limit": strategy("noise_end", *GENERATIONAL, "acem-rl"),
        "cemrl_tau": strategy("noise_tau", *GENERATIONAL, "acem-rl"),
        "cemrl_damp_tau": absent("has no effect there either: cemrl_tau is what is read"),
        "cemrl_no_antithetic": absent("generations are always drawn in mirrored pairs", off=(False,)),
        "cemrl_rl_population": only(GENERATIONAL, same("algorithm.rl_individuals")),
        "parallel_critic": only(
            ("p-cem-rl",), lambda value, settings: ({"algorithm.critic_schedule": "parallel" if value else "serial"}, "")
        ),
        "num_actor_worker": lambda value, settings: (
            {"executor.workers": whole(value) + whole(settings.get("num_critic_worker", 0))},
            "workers take any job, the critic's, too",
        ),
        "num_critic_worker": absent("counted in executor.workers, if num_actor_worker is there"),
        "debug": absent("use executor.name=inline", off=(False,)),
        "logdir": absent("use run.out or --out"),
        "ray_address": absent(RAY, off=(None, "")),
        "ray_port": absent(RAY, off=(None, "")),
        "redis_password": absent(RAY, off=(None, "")),
        "visualize": absent("has no effect there either: see baldwin render", off=(False,)),
        "config": absent("the path of another file", off=("",)),
    }


def _dashed(value: Any) -> str:
    return str(value).replace("_", "-")


def _population(name: str) -> Rule:
    if name in GENERATIONAL:
        return same("algorithm.strategy.population")
    return same("algorithm.strategy.window") if name == "acem-rl" else absent(f"{name} has no population", off=(0,))


def _scale(value: Any, settings: Settings) -> Converted:
    if value == 0 and settings["aesrl_mean_update"] != "baseline-absolute":
        return {"algorithm.strategy.scale": "auto"}, "0 is refused there; here auto follows the spread of the gains"
    return {"algorithm.strategy.scale": value}, ""


def _memory(value: Any, settings: Settings) -> Converted:
    if settings["aesrl_var_update"] == "fixed":
        return {"algorithm.strategy.memory": value}, ""
    return {}, "only read with aesrl_var_update=fixed"
