"""Entries of RL Baselines3 Zoo (github.com/DLR-RM/rl-baselines3-zoo): one file per algorithm, one entry per environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baldwin.config.importers.env_ids import NO_FRAMESKIP, current_env
from baldwin.config.importers.literals import parse_literal
from baldwin.config.importers.rules import Converted, Imported, Rule, Settings, absent, apply_rules, number, same, whole
from baldwin.config.importers.steps import checkpoints_for
from baldwin.errors import ConfigError, pick

ON_POLICY, OFF_POLICY = ("ppo", "a2c"), ("sac", "td3", "dqn")
ATARI = "atari"
LINEAR = "lin_"
SDE = "noise that depends on the state is not there: it is drawn anew at every step"

_REPLAY = {"buffer_size": 1_000_000, "learning_starts": 100, "train_freq": 1, "gradient_steps": 1}
_GRADIENT = {"gamma": 0.99, "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5}
DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {"learning_rate": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "gae_lambda": 0.95, "clip_range": 0.2, **_GRADIENT},
    "a2c": {"learning_rate": 7e-4, "n_steps": 5, "gae_lambda": 1.0, "use_rms_prop": True, "rms_prop_eps": 1e-5, **_GRADIENT},
    "sac": {"learning_rate": 3e-4, "batch_size": 256, "gamma": 0.99, "tau": 0.005, "ent_coef": "auto", **_REPLAY},
    "td3": {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99, "tau": 0.005, "noise_type": None, "policy_delay": 2, **_REPLAY},
    "dqn": {
        "learning_rate": 1e-4,
        "batch_size": 32,
        "gamma": 0.99,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.05,
        "target_update_interval": 10_000,
        **_REPLAY,
        "train_freq": 4,
    },
}
"""Defaults of Stable-Baselines3 that differ from those here, or that decide what other keys mean. The defaults of the Zoo are added to them."""
ZOO_DEFAULTS = {"n_envs": 1, "n_timesteps": 1_000_000, "normalize": False, "policy": "MlpPolicy", "policy_kwargs": {}}
HIDDEN = {"ppo": [64, 64], "a2c": [64, 64], "sac": [256, 256], "td3": [400, 300], "dqn": [64, 64]}
"""Layers of Stable-Baselines3's policies where policy_kwargs has no net_arch."""
ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "SELU": "selu", "LeakyReLU": "leaky-relu"}


def import_zoo(file: Mapping[str, Any], algorithm: str, env: str | None) -> Imported:
    """Convert the entry of an environment.

    Raises:
        ConfigError: the algorithm has no counterpart, there is no such entry, or a value is not what its key takes.
    """
    rules = pick(RULES, algorithm, "counterpart of the Zoo's algorithm")
    if env is None:
        raise ConfigError(f"--env is needed, to choose an entry of the file: {', '.join(map(str, file))}")
    entries = {str(name): entry for name, entry in file.items() if isinstance(entry, Mapping)}
    name = ATARI if ATARI in entries and NO_FRAMESKIP.fullmatch(env) else env
    given = dict(pick(entries, name, "entry in the file"))
    return apply_rules(rules, given, ZOO_DEFAULTS | DEFAULTS[algorithm], {"env": env, "algo": algorithm})


def schedule(value: Any, settings: Settings) -> Any:
    """A number, or `lin_X`: from X to 0 within the whole training."""
    if isinstance(value, str) and value.startswith(LINEAR):
        start = float(value.removeprefix(LINEAR))
        return {"kind": "linear", "start": start, "end": 0.0, "env_steps": whole(settings["n_timesteps"])}
    return number(float(value) if isinstance(value, str) else value)


def _scheduled(key: str) -> Rule:
    return lambda value, settings: ({key: schedule(value, settings)}, "")


def _constant(*keys: str) -> Rule:
    """A rule that sets these keys to the value, or to the start of its schedule; for algorithms without schedules."""

    def convert(value: Any, settings: Settings) -> Converted:
        found = schedule(value, settings)
        if isinstance(found, dict):
            return dict.fromkeys(keys, found["start"]), "it stays as it is at the start: there is no schedule for it"
        return dict.fromkeys(keys, found), ""

    return convert


def _env(value: Any, settings: Settings) -> Converted:
    keys, note = current_env(str(value))
    kwargs = keys.pop("env.kwargs", {})
    return keys | ({"env.kwargs": kwargs} if kwargs else {}), note


def _policy(value: Any, settings: Settings) -> Converted:
    return ({"policy.network": "nature"}, "") if value == "CnnPolicy" else ({}, "the sensors decide")


def _on_policy_envs(value: Any, settings: Settings) -> Converted:
    count = whole(value)
    return {"algorithm.n_envs": count} | ({"algorithm.block": count} if count < 4 else {}), ""


def _normalize(value: Any, settings: Settings) -> Converted:
    chosen = parse_literal(value) if isinstance(value, str) else value
    options = dict(chosen) if isinstance(chosen, Mapping) else {"norm_obs": bool(chosen), "norm_reward": bool(chosen)}
    obs, reward = options.get("norm_obs", True), options.get("norm_reward", True)
    keys: dict[str, Any] = {"policy.normalize_obs": obs}
    if obs:
        keys |= {"policy.obs_clip": options.get("clip_obs", 10.0), "policy.obs_std_floor": 1e-4}
    if settings["algo"] in ON_POLICY:
        return keys | {"algorithm.normalize_reward": reward, "algorithm.reward_clip": options.get("clip_reward", 10.0)}, ""
    return keys, "rewards are not normalised by learners with a replay buffer" if reward else ""


def _wrappers(value: Any, settings: Settings) -> Converted:
    """Wrappers of Atari games and time limits; each is a name, or a map from its name to its arguments."""
    keys: dict[str, Any] = {}
    others = []
    for wrapper in value if isinstance(value, list) else [value] if value else []:
        name, options = next(iter(wrapper.items())) if isinstance(wrapper, Mapping) else (str(wrapper), {})
        kind = name.rpartition(".")[2]
        if kind == "AtariWrapper":
            keys |= {"env.atari.clip_reward": True, "env.atari.end_on_life_loss": True}
        elif kind == "TimeLimit":
            keys["env.max_episode_steps"] = whole(options["max_episode_steps"])
        else:
            others.append(name)
    return keys, f"not there: {', '.join(others)}; wrap the environment in a class of your own" if others else ""


def _frame_stack(value: Any, settings: Settings) -> Converted:
    return {"env.atari.stack" if NO_FRAMESKIP.fullmatch(settings["env"]) else "env.frame_stack": whole(value)}, ""


def _train_freq(value: Any, settings: Settings) -> Converted:
    n_envs, steps = whole(settings["n_envs"]), _steps_between_updates(value)
    updates = whole(settings["gradient_steps"])
    ratio = {"algorithm.updates_per_step": 1.0 if updates < 0 else updates / ((steps or 1) * n_envs)}
    if steps is None:
        note = "updates come after a fixed number of steps, not after episodes"
        return (ratio, note) if updates < 0 else (checkpoints_for(n_envs), f"{note}; algorithm.updates_per_step keeps its default")
    return {"algorithm.rollout_length": steps} | ratio | checkpoints_for(
        n_envs, steps
    ), "updates_per_step is gradient_steps / train_freq / n_envs"


def _steps_between_updates(value: Any) -> int | None:
    """None where it is an episode."""
    if isinstance(value, list):
        count, unit = value
        return None if unit == "episode" else whole(count)
    return whole(value)


def _entropy(value: Any, settings: Settings) -> Converted:
    if isinstance(value, str):
        word, _, start = value.partition("_")
        if word != "auto":
            raise ValueError("expected a number, auto, or auto_ and a number")
        return {"algorithm.alpha": "auto"} | ({"algorithm.init_alpha": float(start)} if start else {}), ""
    return {"algorithm.alpha": number(value)}, ""


def _noise_type(value: Any, settings: Settings) -> Converted:
    if value is None:
        return {"algorithm.exploration_noise": 0.0}, ""
    std = number(settings.get("noise_std", 0.0))
    return {
        "algorithm.exploration_noise": std
    }, "" if value == "normal" else f"{value} noise is not there: independent noise of the same size"


def _exploration(value: Any, settings: Settings) -> Converted:
    return {"algorithm.epsilon_steps": max(1, round(number(value) * number(settings["n_timesteps"])))}, "times n_timesteps"


def _target_interval(value: Any, settings: Settings) -> Converted:
    steps = _steps_between_updates(settings["train_freq"]) or 1
    segment, updates = steps * whole(settings["n_envs"]), whole(settings["gradient_steps"])
    per_step = 1.0 if updates < 0 else updates / segment
    interval = max(1, round(max(whole(value), segment) * per_step))
    return {"algorithm.target_update_interval": interval, "algorithm.double": False}, "counted in updates here, in steps there"


def _rms_prop(value: Any, settings: Settings) -> Converted:
    return {"algorithm.optimizer": "rmsprop" if value else "adam"}, ""


def _policy_kwargs(value: Any, settings: Settings) -> Converted:
    """Layers, activation and initial noise; what else there is goes into the remark."""
    options = parse_literal(value) if isinstance(value, str) else dict(value)
    if not isinstance(options, dict):
        raise ValueError("expected dict(...)")
    name = settings["algo"]
    critic = name != "dqn"
    keys: dict[str, Any] = {}
    if settings["policy"] != "CnnPolicy" or "net_arch" in options:
        actor, values = _layers(options.pop("net_arch", HIDDEN[name]), name)
        keys = {"policy.hidden": actor} | ({"algorithm.critic.hidden": values} if critic else {})
    remarks = []
    if "activation_fn" in options:
        activation = str(options.pop("activation_fn")).rpartition(".")[2]
        if activation in ACTIVATIONS:
            keys |= dict.fromkeys(("policy.activation", *(["algorithm.critic.activation"] if critic else [])), ACTIVATIONS[activation])
        else:
            remarks.append(f"activation {activation} is not there")
    if name in ON_POLICY:
        if "log_std_init" in options:
            keys["algorithm.log_std_init"] = options.pop("log_std_init")
            remarks.append("log_std_init is in units of half the action range here")
        init = "orthogonal" if options.pop("ortho_init", True) else "torch"
        keys |= {"policy.init": init, "algorithm.critic.init": init}
    if name == "sac" and "n_critics" in options:
        keys["algorithm.n_critics"] = options.pop("n_critics")
    remarks += [f"{', '.join(options)}: not there"] if options else []
    return keys, "; ".join(remarks)


def _layers(arch: Any, name: str) -> tuple[list[int], list[int]]:
    """Hidden layers of the policy and of the critic."""
    if isinstance(arch, list) and arch and isinstance(arch[-1], dict):  # older files: [shared layers, dict(pi=, vf=)]
        shared, own = arch[:-1], arch[-1]
        if shared:
            raise ValueError("layers that policy and values share are not there")
        arch = own
    if isinstance(arch, dict):
        return list(arch.get("pi", [])), list(arch.get("qf" if name in OFF_POLICY else "vf", []))
    return list(arch), list(arch)


_ANY: dict[str, Rule] = {
    "env": _env,
    "algo": same("algorithm.name"),
    "n_timesteps": lambda value, settings: ({"stop.env_steps": whole(value)}, ""),
    "policy": _policy,
    "normalize": _normalize,
    "policy_kwargs": _policy_kwargs,
    "gamma": same("algorithm.gamma"),
    "batch_size": same("algorithm.batch_size"),
    "env_wrapper": _wrappers,
    "vec_env_wrapper": absent("wrappers of vector environments are not there", off=(None,)),
    "frame_stack": _frame_stack,
    "env_kwargs": same("env.kwargs"),
    "seed": same("run.seed"),
    "use_sde": absent(SDE, off=(False,)),
    "use_sde_at_warmup": absent(SDE, off=(False,)),
    "sde_sample_freq": absent(SDE, off=(-1,)),
    "callback": absent("callbacks are Python code that is not read", off=(None,)),
    "monitor_kwargs": absent("episodes are always recorded"),
    "device": absent("algorithm.device keeps its default", off=("auto", "cpu")),
    "verbose": absent("see baldwin train --quiet"),
    "tensorboard_log": absent("TensorBoard files are always written"),
}
_ON_POLICY: dict[str, Rule] = _ANY | {
    "n_envs": _on_policy_envs,
    "learning_rate": _scheduled("algorithm.lr"),
    "n_steps": same("algorithm.rollout_length"),
    "gae_lambda": same("algorithm.gae_lambda"),
    "ent_coef": same("algorithm.entropy_coef"),
    "vf_coef": same("algorithm.value_coef"),
    "max_grad_norm": same("algorithm.max_grad_norm"),
    "normalize_advantage": same("algorithm.normalize_advantage"),
}
_OFF_POLICY: dict[str, Rule] = _ANY | {
    "n_envs": same("algorithm.n_envs"),
    "buffer_size": same("algorithm.buffer_size"),
    "learning_starts": same("algorithm.start_steps"),
    "train_freq": _train_freq,
    "gradient_steps": absent("see train_freq"),
    "tau": same("algorithm.tau"),
    "n_steps": same("algorithm.n_step"),
    "replay_buffer_class": absent("hindsight replay and other buffers are not there", off=(None,)),
    "replay_buffer_kwargs": absent("hindsight replay and other buffers are not there", off=(None, {})),
    "optimize_memory_usage": absent("frames are always stored once"),
}
RULES: dict[str, dict[str, Rule]] = {
    "ppo": _ON_POLICY
    | {
        "n_epochs": same("algorithm.epochs"),
        "clip_range": _scheduled("algorithm.clip_range"),
        "clip_range_vf": same("algorithm.value_clip_range"),
        "target_kl": same("algorithm.target_kl"),
    },
    "a2c": _ON_POLICY | {"use_rms_prop": _rms_prop, "rms_prop_eps": same("algorithm.eps")},
    "sac": _OFF_POLICY
    | {
        "learning_rate": _constant("algorithm.actor_lr", "algorithm.critic_lr", "algorithm.alpha_lr"),
        "ent_coef": _entropy,
        "target_entropy": same("algorithm.target_entropy"),
        "target_update_interval": absent("targets move with every update", off=(1,)),
    },
    "td3": _OFF_POLICY
    | {
        "learning_rate": _constant("algorithm.actor_lr", "algorithm.critic_lr"),
        "noise_type": _noise_type,
        "noise_std": absent("part of algorithm.exploration_noise"),
        "noise_std_final": absent("the noise does not change"),
        "policy_delay": same("algorithm.policy_delay"),
        "target_policy_noise": same("algorithm.target_noise"),
        "target_noise_clip": same("algorithm.target_noise_clip"),
    },
    "dqn": _OFF_POLICY
    | {
        "learning_rate": _constant("algorithm.lr"),
        "exploration_fraction": _exploration,
        "exploration_initial_eps": same("algorithm.epsilon_start"),
        "exploration_final_eps": same("algorithm.epsilon_end"),
        "target_update_interval": _target_interval,
        "max_grad_norm": same("algorithm.max_grad_norm"),
    },
}
"""What each key becomes, by algorithm."""
