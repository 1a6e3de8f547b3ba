"""A Ray cluster: joining or starting one, and its status."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import sys
from typing import Any

from baldwin.errors import UserError, missing_extra
from baldwin.executors.config import ExecutorConfig
from baldwin.ops.threads import cores

NAMESPACE = "baldwin"
STATUS_ACTOR = "baldwin-status-"

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # there is no accelerator to hide from a worker
    "RAY_DEDUP_LOGS_SKIP_REGEX": "worker died or was killed",  # a paragraph each; we have a line for it
}
LOCAL_SETTINGS = {
    "RAY_AUTH_MODE": "token",  # from Ray 2.52 on; older ones do not look at it
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on any system: listen on the loopback interface only
}


class StatusActor:
    """An actor that `baldwin cluster status` asks about this run's workers; it ends with the run."""

    def __init__(self) -> None:
        self._status: dict[str, Any] = {}

    def write(self, status: dict[str, Any]) -> None:
        """Replace the status that `baldwin cluster status` prints."""
        self._status = status

    def read(self) -> dict[str, Any]:
        """The status that was written last, as JSON."""
        return self._status


def connect(config: ExecutorConfig) -> bool:
    """Join the cluster at `executor.address`, or start a local Ray; True if there was none in this process before.

    Raises:
        MissingExtra: Ray is not installed.
        UserError: there is no cluster at that address, or Ray refuses what it was given.
    """
    if importlib.util.find_spec("ray") is None:
        raise missing_extra("ray", "executor 'ray'")
    if "://" in config.address:
        raise UserError(f"executor.address={config.address}: expected local, auto or host:port. Run Baldwin on a machine of the cluster.")
    local = config.address == "local"
    for name, value in (SETTINGS | LOCAL_SETTINGS if local else SETTINGS).items():
        if "ray" not in sys.modules:  # it reads these when it is imported
            os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    if config.runtime_env:
        options["runtime_env"] = config.runtime_env
    try:
        if local:
            with contextlib.suppress(AttributeError):  # the loopback interface also where Ray was imported before
                ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
            count = config.workers if isinstance(config.workers, int) else 0
            ray.init(address="local", num_cpus=max(count, cores()), include_dashboard=False, **options)
        else:
            _check_reachable(config.address)
            ray.init(address=config.address, **options)
    except OSError as error:
        raise UserError(
            f"cannot join a Ray cluster at {config.address}: {reason(error)} "
            "Make one with: ray start --head; executor.address=local starts Ray on this machine for a run."
        ) from error
    except Exception as error:
        ray.shutdown()
        raise UserError(f"Ray does not start with executor.address={config.address}: {reason(error)}") from error
    return True


def _check_reachable(address: str) -> None:
    """Fail at once where nobody listens: Ray itself would try for minutes, for `auto` also where a dead cluster left its address."""
    if address == "auto":
        from ray._private.services import canonicalize_bootstrap_address

        address = canonicalize_bootstrap_address("auto") or ""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def cluster_state(address: str) -> dict[str, Any]:
    """The nodes of a cluster, and the status of the runs that use it."""
    started = connect(ExecutorConfig(name="ray", address=address))
    import ray

    try:
        nodes = [
            {"node": n["NodeManagerAddress"], "alive": n["Alive"], "cpus": n["Resources"].get("CPU", 0.0), "id": n["NodeID"]}
            for n in ray.nodes()
        ]
        actors = [a["name"] for a in ray.util.list_named_actors(all_namespaces=True) if a["name"].startswith(STATUS_ACTOR)]
        runs = []
        for name in sorted(actors):
            with contextlib.suppress(Exception):  # a run that ended this moment
                runs.append(ray.get(ray.get_actor(name, namespace=NAMESPACE).read.remote(), timeout=10))
        free = ray.available_resources().get("CPU", 0.0)
        return {"nodes": nodes, "cpus": ray.cluster_resources().get("CPU", 0.0), "cpus_free": free, "runs": runs}
    finally:
        if started:
            ray.shutdown()


def reason(error: BaseException) -> str:
    """The line of one of Ray's long messages that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = getattr(error, "cause", None)
    if cause is not None:
        return f"{type(cause).__name__}: {cause}"
    if not lines:
        return type(error).__name__
    return lines[-1 if getattr(error, "actor_init_failed", False) else 0]
