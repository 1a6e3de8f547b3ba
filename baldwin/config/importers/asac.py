"""Configs of Advanced-Soft-Actor-Critic (github.com/BlueFisher/Advanced-Soft-Actor-Critic), as its README of 2023 lists them.

A file has sections such as base_config and sac_config, or a `default` and further named configs of such sections, which may inherit from
each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from pydantic import ValidationError

from baldwin.config.importers.env_ids import current_env
from baldwin.config.importers.rules import NOTHING_LOST, Converted, Imported, Rule, Settings, absent, apply_rules, number, same, whole
from baldwin.config.importers.steps import checkpoints_for
from baldwin.config.merge import Tree, merge, plain_tree
from baldwin.config.preset import folder_name
from baldwin.envs import EnvConfig, EnvSpec, check_env
from baldwin.errors import BaldwinError, ConfigError, pick

BASE, NETWORKS, REPLAY, SAC = "base_config", "nn_config", "replay_config", "sac_config"
ENV_TYPES = ("GYM", "DM_CONTROL")
SECTIONS = (BASE, "net_config", "reset_config", NETWORKS, REPLAY, SAC, "ma_config", "oc_config")

DEFAULTS: dict[str, Any] = {
    "base_config.env_type": "UNITY",
    "base_config.env_name": "env_name",
    "base_config.n_envs": 1,
    "replay_config.capacity": 524_288,
    "sac_config.nn": "nn",
    "sac_config.use_priority": True,
    "replay_config.alpha": 0.9,
    "replay_config.beta": 0.4,
    "replay_config.beta_increment_per_sampling": 0.001,
    "replay_config.td_error_min": 0.01,
    "replay_config.td_error_max": 1.0,
    "base_config.noise_max": 0.1,
    "sac_config.use_n_step_is": True,
    "sac_config.ensemble_q_num": 2,
    "sac_config.ensemble_q_sample": 2,
    "sac_config.n_step": 1,
    "sac_config.batch_size": 256,
    "sac_config.tau": 0.005,
    "sac_config.init_log_alpha": -2.3,
    "sac_config.use_auto_alpha": True,
    "sac_config.learning_rate": 0.0003,
    "sac_config.gamma": 0.99,
    "sac_config.clip_epsilon": 0.2,
    "sac_config.use_extra_data": True,
    "sac_config.use_normalization": False,
}
"""Defaults of ASAC, over which its files are merged. Defaults that mean nothing here are left out."""
ON_BY_DEFAULT = ("sac_config.use_priority", "sac_config.use_n_step_is", "sac_config.clip_epsilon")

UNITY = "a build of Unity is env.id=unity:PATH, its settings are env.kwargs"
UNITY_KEYS = {
    "port": "port",
    "no_graphics": "no_graphics",
    "time_scale": "time_scale",
    "quality_level": "quality",
    "width": "width",
    "height": "height",
}
"""Keys of unity_args by what they are called here."""
PRIORITIES = "part of algorithm.prioritized"
UNCLIPPED = "TD errors are clipped there; here they are not"
CLIPPED = "algorithm.clip_epsilon is left out: with it, Q moves by tau x epsilon per update at most"
NORMALIZED = "bonuses are divided by their running standard deviation here"
EVOLVER = "baldwin evolve -m population.name=evolver has settings of its own"
TRANSPORT = "has no counterpart: executors move data themselves"
OFFLINE = "offline data is not there yet"
FOR_NUMBERS = "it is for continuous actions"
NO_ENCODER = "it trains an encoder, and vectors have none here: set policy.encoders={SENSOR: mlp}, or policy.memory.kind=gru, and this"
WORLD = "what the environment is like"
"""A setting that no file has: the EnvSpec, or None."""


def import_asac(config: Mapping[str, Any], section: str | None = None, env: str | None = None) -> Imported:
    """Convert one config of a file, by default its `default`; `env` replaces its environment.

    Raises:
        ConfigError: there is no such config, or its environment cannot be used here.
    """
    tree = choose_config(config, section)
    given: dict[str, Any] = {}
    for name, settings in tree.items():
        if name in (BASE, REPLAY, SAC) and isinstance(settings, Mapping):
            given |= {f"{name}.{key}": value for key, value in settings.items()}
        else:
            given[name] = settings
    kind = given.get("base_config.env_type", DEFAULTS["base_config.env_type"])
    if env is None and kind not in ENV_TYPES and not (kind == "UNITY" and build_path(given)):
        raise ConfigError(f"env_type {kind}: {UNITY}. Give the environment, as in --env unity:PATH or --env Pendulum-v1")
    rules = RULES | {"sac_config.clip_epsilon": _own_clip if "sac_config.clip_epsilon" in given else _clip}
    options = {"env": env} if env else {}
    defaults = DEFAULTS | {WORLD: describe_world(DEFAULTS | given | options)}
    return apply_rules(rules, given, defaults, options, ON_BY_DEFAULT, algorithm={"name": "sac"})


def describe_world(settings: Settings) -> EnvSpec | None:
    """The environment, if it can be made: not a build of Unity, which is a program, nor code that the file and not the user names."""
    keys = {"env.id": settings["env"]} if "env" in settings else _env_name(settings["base_config.env_name"], settings)[0]
    found, *module = str(keys["env.id"]).split(":")
    if found == "unity" or (module and "env" not in settings and found not in ("dmc", "pybullet")):
        return None
    kwargs = keys.get("env.kwargs", {}) | _env_args(settings.get("base_config.env_args"), settings)[0].get("env.kwargs", {})
    try:
        return check_env(EnvConfig(id=keys["env.id"], kwargs=kwargs))
    except (BaldwinError, ValidationError):
        return None


def _actions(settings: Settings) -> str:
    """What kind of actions there are: numbers, choices, both, or unknown."""
    world: EnvSpec | None = settings[WORLD]
    if world is None:
        return "unknown"
    kinds = {spaces.Box: "numbers", spaces.Discrete: "choices"}
    return kinds.get(type(world.action_space), "both")


def _is_dqn_like(settings: Settings) -> bool:
    return bool(settings.get("sac_config.discrete_dqn_like")) and _actions(settings) != "numbers"


def _has_encoder(settings: Settings) -> bool:
    """Whether there is something that representation losses can train."""
    world: EnvSpec | None = settings[WORLD]
    return bool(settings.get("sac_config.seq_encoder") or (world and world.obs.images))


def build_path(settings: Settings) -> str | None:
    """The path of Unity's build, if the file has one: that of this system, or any."""
    arguments = settings.get("base_config.unity_args")
    found = arguments.get("build_path") if isinstance(arguments, Mapping) else None
    if isinstance(found, Mapping):
        found = found.get(sys.platform) or next((path for path in found.values() if path), None)
    return str(found) if found else None


def choose_config(config: Mapping[str, Any], section: str | None) -> Tree:
    """One config of a file: `default`, with a named one over it, and under that those which it inherits from.

    Raises:
        ConfigError: there is none of that name, or it inherits from itself.
    """
    if any(name in SECTIONS for name in config):
        if section is not None:
            raise ConfigError(f"the file is one config without names: leave --section {section} out")
        return dict(config)
    named = {name: dict(tree) for name, tree in config.items() if isinstance(tree, Mapping)}
    if not named:
        raise ConfigError(
            f"expected the sections {BASE}, {SAC}, or configs by name that have them; got {', '.join(map(str, config)) or 'nothing'}"
        )
    return merge(named.get("default", {}), _inherited(named, section or "default", ()))


def _inherited(named: Mapping[str, Tree], name: str, heirs: tuple[str, ...]) -> Tree:
    if name in heirs:
        raise ConfigError(f"config {name!r} inherits from itself: {' -> '.join((*heirs, name))}")
    own = dict(pick(named, name, "config in the file"))
    parents = own.pop("inherited", None) or []
    tree: Tree = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        tree = merge(tree, _inherited(named, str(parent), (*heirs, name)))
    return merge(tree, own)


def _env_name(value: Any, settings: Settings) -> Converted:
    if "env" in settings:
        return {}, "replaced by --env"
    if settings["base_config.env_type"] == "UNITY":
        return {
            "env.id": f"unity:{build_path(settings)}"
        }, "the build; its scene is chosen by its own arguments, env.kwargs={arguments: [...]}"
    if settings["base_config.env_type"] == "DM_CONTROL":
        return {"env.id": f"dmc:{str(value).replace('/', '-')}"}, ""
    return current_env(str(value))


def _env_args(value: Any, settings: Settings) -> Converted:
    if value is None or isinstance(value, Mapping):
        return ({"env.kwargs": dict(value)} if value else {}), ""
    return {}, "a text cannot be translated: write env.kwargs={name: value}"


def _unity_args(value: Any, settings: Settings) -> Converted:
    if not value or settings["base_config.env_type"] != "UNITY" or "env" in settings:
        return {}, NOTHING_LOST if not value else "has no effect without a scene of Unity"
    keys = {f"env.kwargs.{own}": value[name] for name, own in UNITY_KEYS.items() if value.get(name) is not None}
    rest = [name for name in value if name not in UNITY_KEYS and name != "build_path"]
    return keys, f"{', '.join(map(str, rest))}: no counterpart" if rest else ""


def _reset_config(value: Any, settings: Settings) -> Converted:
    if not value or settings["base_config.env_type"] != "UNITY" or "env" in settings:
        return {}, NOTHING_LOST if not value else "has no effect without a scene of Unity"
    return {"env.kwargs.parameters": {str(name): float(x) for name, x in value.items()}}, ""


def _name(value: Any, settings: Settings) -> Converted:
    if "{" in str(value):
        return {}, "placeholders are not needed: every run gets a directory of its own"
    name = folder_name(str(value))
    return ({"run.name": name}, "") if plain_tree(name) == name else ({}, "a number is no name")


def _envs(value: Any, settings: Settings) -> Converted:
    count = whole(value)
    keys = {"algorithm.n_envs": count, "algorithm.updates_per_step": 1 / count}
    return keys | checkpoints_for(count), "there is one update for each step of all environments"


def _max_step(value: Any, settings: Settings) -> Converted:
    if whole(value) <= 0:
        return {}, "no limit there; the default of stop.env_steps holds"
    return {"stop.env_steps": whole(value) * whole(settings["base_config.n_envs"])}, "it counts updates there, environment steps here"


def _max_episode(value: Any, settings: Settings) -> Converted:
    return ({"env.max_episode_steps": whole(value)}, "") if whole(value) > 0 else ({}, "no limit but the environment's own")


def _capacity(value: Any, settings: Settings) -> Converted:
    return {"algorithm.buffer_size": 2 ** int(math.log2(number(value)))}, "the power of two below it, as there"


def _networks(value: Any, settings: Settings) -> Converted:
    keys = {"policy.hidden": [64, 64, 64], "algorithm.critic.hidden": [64, 64, 64]}
    return keys, "its Python file is not read; these are the sizes of the heads that ASAC has by default"


def _batch(value: Any, settings: Settings) -> Converted:
    keys = dict.fromkeys(("algorithm.batch_size", "algorithm.start_steps"), whole(value))
    return keys, "learning begins there as soon as a batch is stored, without random actions; here those steps are random"


def _log_alpha(value: Any, settings: Settings) -> Converted:
    alpha = math.exp(number(value))
    return {"algorithm.init_alpha" if settings["sac_config.use_auto_alpha"] else "algorithm.alpha": alpha}, "its exponential"


def _auto_alpha(value: Any, settings: Settings) -> Converted:
    return ({"algorithm.alpha": "auto"}, "") if value else ({}, "algorithm.alpha is the exponential of init_log_alpha")


def _target_entropy(value: Any, settings: Settings) -> Converted:
    if value is None:
        return {}, "minus the number of actions, as here"
    if _actions(settings) == "numbers":
        return {"algorithm.target_entropy": -number(value)}, "its negative"
    if _actions(settings) == "unknown":
        return {}, f"the actions are not known: if all are continuous, set algorithm.target_entropy={-number(value):g}"
    return {}, "choices have an entropy between 0 and the log of their number, never its negative: set algorithm.target_entropy_scale"


def _discrete_target(value: Any, settings: Settings) -> Converted:
    return {"algorithm.target_entropy_scale": number(value)}, "a fraction of the largest entropy"


def _normalization(value: Any, settings: Settings) -> Converted:
    return {"policy.normalize_obs": bool(value)} | ({"policy.obs_clip": 5.0} if value else {}), "vectors only" if value else ""


def _own_clip(value: Any, settings: Settings) -> Converted:
    if number(value) <= 0:
        return {}, NOTHING_LOST
    if _is_dqn_like(settings) or _actions(settings) in ("choices", "both"):
        return {}, FOR_NUMBERS
    return {"algorithm.clip_epsilon": value}, "for continuous actions alone; Q moves by tau x epsilon per update at most"


def _clip(value: Any, settings: Settings) -> Converted:
    return {}, NOTHING_LOST if number(value) <= 0 else CLIPPED


def _corrected(value: Any, settings: Settings) -> Converted:
    if not value or whole(settings["sac_config.n_step"]) == 1:
        return {}, NOTHING_LOST if not value else "one step needs no correction"
    if _is_dqn_like(settings):
        return {}, "choices without a policy have no probabilities to correct by"
    if _noise(settings):
        return {}, "noise on actions changes the probabilities that it would correct by"
    return {"algorithm.target": "vtrace"}, "of the next state; there, the first step is weighted, too, which pulls Q towards V"


def _is_corrected(settings: Settings) -> bool:
    corrects = settings["sac_config.use_n_step_is"] and whole(settings["sac_config.n_step"]) > 1
    return bool(corrects and not _is_dqn_like(settings) and not _noise(settings))


def _noise(settings: Settings) -> tuple[float, float] | None:
    """Noise on the actions of the first and of the last environment, if there is any."""
    if _is_dqn_like(settings) or _actions(settings) in ("choices", "both"):
        return None
    if own := settings.get("sac_config.action_noise"):
        least, most = (number(x) for x in own)
    else:  # of actor n: n times the rate
        least = number(settings.get("base_config.noise_increasing_rate") or 0)
        most = number(settings["base_config.noise_max"])
    return (least or most, most) if most > 0 and (own or least) else None


def _action_noise(value: Any, settings: Settings) -> Converted:
    found = _noise(settings)
    if not value or found is None:
        return {}, NOTHING_LOST if not value else FOR_NUMBERS
    return _noise_keys(found), "in geometric steps from environment to environment, even ones there"


def _noise_rate(value: Any, settings: Settings) -> Converted:
    found = _noise(settings)
    if not value or settings.get("sac_config.action_noise") or found is None:
        return {}, NOTHING_LOST if not value else FOR_NUMBERS if found is None else "replaced by sac_config.action_noise"
    return _noise_keys(found), "from the rate to noise_max in geometric steps; there actor n has n times the rate"


def _noise_keys(noise: tuple[float, float]) -> dict[str, Any]:
    least, most = noise
    return {"algorithm.action_noise": least} | ({"algorithm.exploration_spread": most / least} if most != least else {})


def _priority(value: Any, settings: Settings) -> Converted:
    if not value:
        return {}, NOTHING_LOST
    start, step = number(settings["replay_config.beta"]), number(settings["replay_config.beta_increment_per_sampling"])
    found = {"alpha": settings["replay_config.alpha"], "beta_start": start, "epsilon": settings["replay_config.td_error_min"]}
    found |= {"beta_end": start} if step == 0 or start >= 1 else {"beta_updates": math.ceil(round((1 - start) / step, 6))}
    if settings.get("sac_config.use_add_with_td") and not _has_windows(settings):
        found["initial"] = "td-error"
    return {f"algorithm.prioritized.{key}": x for key, x in found.items()}, UNCLIPPED


def _add_with_td(value: Any, settings: Settings) -> Converted:
    if not value or not settings["sac_config.use_priority"]:
        return {}, NOTHING_LOST if not value else "has no effect without sac_config.use_priority"
    return {}, "not where sequences are learned from: new ones have the largest priority" if _has_windows(settings) else PRIORITIES


def _has_windows(settings: Settings) -> bool:
    """Whether it learns from sequences."""
    parts = ["seq_encoder", "curiosity", "use_rnd", *(("siamese", "siamese_use_q", "use_prediction") if _has_encoder(settings) else ())]
    return _is_corrected(settings) or any(settings.get(f"sac_config.{part}") for part in parts)


def _lambda(value: Any, settings: Settings) -> Converted:
    return ({"algorithm.trace_lambda": number(value)}, "") if _is_corrected(settings) else ({}, NOTHING_LOST)


def _clip_weights(value: Any, settings: Settings) -> Converted:
    return {}, NOTHING_LOST if number(value) == 1 else "importance weights are clipped at 1"


def _sequence_encoder(value: Any, settings: Settings) -> Converted:
    if value is None:
        return {}, NOTHING_LOST
    kind = {"RNN": "gru", "ATTN": "attention"}[str(value)]
    keys = {"policy.memory.kind": kind, "algorithm.sequence": 1, "env.previous_action": True}
    return keys, "its sizes are in a Python file that is not read; it sees the action before, as there"


def _burn_in(value: Any, settings: Settings) -> Converted:
    if not settings.get("sac_config.seq_encoder"):
        return {}, NOTHING_LOST if value == 0 else "has no effect without sac_config.seq_encoder"
    if whole(value) == 0:
        return {}, NOTHING_LOST
    return {"algorithm.burn_in": whole(value), "algorithm.burn_in_gradient": True}, "gradients flow through it there"


def _siamese(value: Any, settings: Settings) -> Converted:
    if value is None:
        return {}, NOTHING_LOST
    return ({"algorithm.siamese.kind": str(value).lower()}, "") if _has_encoder(settings) else ({}, NO_ENCODER)


def _siamese_q(value: Any, settings: Settings) -> Converted:
    keys = {"algorithm.siamese.contrastive_q": True} | ({} if settings.get("sac_config.siamese") else {"algorithm.siamese.kind": "none"})
    if not value:
        return {}, NOTHING_LOST
    return (keys, "") if _has_encoder(settings) else ({}, NO_ENCODER)


def _adaptive(value: Any, settings: Settings) -> Converted:
    if not value:
        return {}, NOTHING_LOST
    used = settings.get("sac_config.siamese") and _has_encoder(settings)
    return ({"algorithm.siamese.adaptive": True}, "") if used else ({}, "has no effect without algorithm.siamese")


def _prediction(value: Any, settings: Settings) -> Converted:
    if not value:
        return {}, NOTHING_LOST
    if not _has_encoder(settings):
        return {}, NO_ENCODER
    kl = settings.get("sac_config.transition_kl", 0.8)
    keys = {"algorithm.prediction.transition_kl": number(kl), "algorithm.prediction.extra": bool(settings["sac_config.use_extra_data"])}
    return keys, ""


def _curiosity(value: Any, settings: Settings) -> Converted:
    return ({"algorithm.curiosity.kind": str(value).lower()}, NORMALIZED) if value is not None else ({}, NOTHING_LOST)


def _dqn_like(value: Any, settings: Settings) -> Converted:
    if not value:
        return {}, NOTHING_LOST
    return ({"algorithm.discrete_dqn_like": True}, "") if _is_dqn_like(settings) else ({}, "it is for choices, and there are none")


def _dqn_epsilon(value: Any, settings: Settings) -> Converted:
    if not _is_dqn_like(settings):
        return {}, "has no effect without sac_config.discrete_dqn_like"
    return {"algorithm.discrete_dqn_epsilon": number(value)}, ""


def _strength(value: Any, settings: Settings) -> Converted:
    if not settings.get("sac_config.curiosity"):
        return {}, "has no effect without sac_config.curiosity"
    return {"algorithm.curiosity.strength": number(value)}, NORMALIZED


def _rnd(value: Any, settings: Settings) -> Converted:
    if not value:
        return {}, NOTHING_LOST
    if _actions(settings) == "both":
        return {}, "it chooses among actions of one kind, and these have several parts: set algorithm.rnd=reward"
    return {"algorithm.rnd.kind": "action", "algorithm.rnd.n_samples": whole(settings.get("sac_config.rnd_n_sample", 10))}, ""


RULES: dict[str, Rule] = {
    "env": same("env.id"),
    "base_config.env_type": absent("part of env.id"),
    "base_config.env_name": _env_name,
    "base_config.env_args": _env_args,
    "base_config.unity_args": _unity_args,
    "base_config.name": _name,
    "base_config.n_envs": _envs,
    "base_config.max_iter": absent("episodes are not counted: set stop.env_steps", off=(-1,)),
    "base_config.max_step": _max_step,
    "base_config.max_step_each_iter": _max_episode,
    "base_config.reset_on_iteration": absent("an environment is reset when its own episode ends"),
    "base_config.hit_reward": absent("successes are not counted", off=(None,)),
    "base_config.obs_preprocessor": absent("wrap the environment instead, in a class of your own", off=(None,)),
    "base_config.offline_env_config": absent(OFFLINE, off=(None,)),
    "base_config.update_sac_bak_per_step": absent("evaluations use the newest policy"),
    "base_config.evolver_enabled": absent(EVOLVER, off=(False,)),
    "base_config.evolver_cem_length": absent(EVOLVER, needs="base_config.evolver_enabled"),
    "base_config.evolver_cem_best": absent(EVOLVER, needs="base_config.evolver_enabled"),
    "base_config.evolver_cem_min_length": absent(EVOLVER, needs="base_config.evolver_enabled"),
    "base_config.evolver_cem_time": absent(EVOLVER, needs="base_config.evolver_enabled"),
    "base_config.evolver_remove_worst": absent(EVOLVER, needs="base_config.evolver_enabled"),
    "base_config.max_actors_each_learner": absent("executor.workers is the number of workers", off=(-1,)),
    "base_config.noise_increasing_rate": _noise_rate,
    "base_config.noise_max": absent("part of algorithm.exploration_spread", needs="base_config.noise_increasing_rate"),
    "base_config.max_episode_length": absent("segments have algorithm.rollout_length steps"),
    "base_config.episode_queue_size": absent(TRANSPORT),
    "base_config.episode_sender_process_num": absent(TRANSPORT),
    "base_config.batch_queue_size": absent(TRANSPORT),
    "base_config.batch_generator_process_num": absent(TRANSPORT),
    "net_config": absent(TRANSPORT, off=(None,)),
    "reset_config": _reset_config,
    "nn_config": absent("arguments of a Python file that is not read", off=(None, {}, {"rep": None, "policy": None})),
    "ma_config": absent("every player has the same settings", off=(None,)),
    "oc_config": absent("options are not there yet", off=(None,)),
    "replay_config.capacity": _capacity,
    "replay_config.alpha": absent(PRIORITIES, off=(0, 0.0), needs="sac_config.use_priority"),
    "replay_config.beta": absent(PRIORITIES, needs="sac_config.use_priority"),
    "replay_config.beta_increment_per_sampling": absent(PRIORITIES, needs="sac_config.use_priority"),
    "replay_config.td_error_min": absent(PRIORITIES, needs="sac_config.use_priority"),
    "replay_config.td_error_max": absent(UNCLIPPED, needs="sac_config.use_priority"),
    "sac_config.nn": _networks,
    "sac_config.seed": same("run.seed"),
    "sac_config.write_summary_per_step": absent("algorithm.steps_per_epoch keeps its default"),
    "sac_config.save_model_per_step": absent("run.checkpoint_every keeps its default"),
    "sac_config.use_replay_buffer": absent("sac always has one", off=(True,)),
    "sac_config.use_priority": _priority,
    "sac_config.ensemble_q_num": same("algorithm.n_critics"),
    "sac_config.ensemble_q_sample": same("algorithm.target_subset"),
    "sac_config.burn_in_step": _burn_in,
    "sac_config.n_step": same("algorithm.n_step"),
    "sac_config.seq_encoder": _sequence_encoder,
    "sac_config.batch_size": _batch,
    "sac_config.tau": same("algorithm.tau"),
    "sac_config.update_target_per_step": absent("targets move with every update", off=(1,)),
    "sac_config.init_log_alpha": _log_alpha,
    "sac_config.use_auto_alpha": _auto_alpha,
    "sac_config.target_alpha": _target_entropy,
    "sac_config.target_d_alpha": _discrete_target,
    "sac_config.target_c_alpha": absent("the target is minus the number of actions", off=(1.0,)),
    "sac_config.d_policy_entropy_penalty": absent("has no counterpart", off=(0, 0.0)),
    "sac_config.learning_rate": same("algorithm.actor_lr", "algorithm.critic_lr", "algorithm.alpha_lr"),
    "sac_config.gamma": same("algorithm.gamma"),
    "sac_config.v_lambda": _lambda,
    "sac_config.v_rho": _clip_weights,
    "sac_config.v_c": _clip_weights,
    "sac_config.use_n_step_is": _corrected,
    "sac_config.clip_epsilon": _clip,
    "sac_config.discrete_dqn_like": _dqn_like,
    "sac_config.discrete_dqn_epsilon": _dqn_epsilon,
    "sac_config.siamese": _siamese,
    "sac_config.siamese_use_q": _siamese_q,
    "sac_config.siamese_use_adaptive": _adaptive,
    "sac_config.use_prediction": _prediction,
    "sac_config.transition_kl": absent("part of algorithm.prediction", needs="sac_config.use_prediction"),
    "sac_config.use_extra_data": absent(
        "part of algorithm.prediction: hide a sensor from the policy by policy.encoders={SENSOR: none}", needs="sac_config.use_prediction"
    ),
    "sac_config.curiosity": _curiosity,
    "sac_config.curiosity_strength": _strength,
    "sac_config.use_rnd": _rnd,
    "sac_config.rnd_n_sample": absent("part of algorithm.rnd", needs="sac_config.use_rnd"),
    "sac_config.use_normalization": _normalization,
    "sac_config.use_add_with_td": _add_with_td,
    "sac_config.action_noise": _action_noise,
    "sac_config.offline_loss": absent(OFFLINE, off=(False,)),
    "sac_config.random_params": absent("write ranges in place of values, and use baldwin sweep or evolve", off=(None,)),
}
