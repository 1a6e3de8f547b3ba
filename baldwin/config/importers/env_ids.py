"""Ids of environments that Gym had and Gymnasium does not have, or has in another package."""

from __future__ import annotations

import re

from baldwin.config.importers.rules import Converted

OLD_MUJOCO = re.compile(
    r"(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|InvertedPendulum|Pusher|Reacher|Swimmer|Walker2d)-v[1-3]"
)
NEW_VERSIONS = {
    "LunarLander-v2": ("LunarLander-v3", {}),
    "LunarLanderContinuous-v2": ("LunarLander-v3", {"continuous": True}),
    "LunarLanderContinuous-v3": ("LunarLander-v3", {"continuous": True}),
    "Pendulum-v0": ("Pendulum-v1", {}),
    "CarRacing-v0": ("CarRacing-v3", {}),
    "CarRacing-v2": ("CarRacing-v3", {}),
    "BipedalWalker-v2": ("BipedalWalker-v3", {}),
    "BipedalWalkerHardcore-v2": ("BipedalWalkerHardcore-v3", {}),
}
NO_FRAMESKIP = re.compile(r"(\w+?)NoFrameskip-v\d+")


def current_env(env_id: str) -> Converted:
    """The environment of today that an id names, as keys of `env`, and what differs."""
    if OLD_MUJOCO.fullmatch(env_id):
        return {"env.id": re.sub(r"\d+$", "5", env_id)}, "Gymnasium has no older version that it can run; scores of versions differ"
    if env_id in NEW_VERSIONS:
        new, kwargs = NEW_VERSIONS[env_id]
        return {"env.id": new} | ({"env.kwargs": kwargs} if kwargs else {}), "the version that Gymnasium has"
    if "BulletEnv-" in env_id or "BulletDuckEnv-" in env_id:
        return {"env.id": f"pybullet:{env_id}"}, ""
    if game := NO_FRAMESKIP.fullmatch(env_id):
        return {"env.id": f"ALE/{game[1]}-v5"}, "frames are skipped by env.atari"
    return {"env.id": env_id}, ""
