"""A connection to Unity: the official package, with a server that listens on this machine only, keeps its deadlines and can be closed.

In ML-Agents, Python is the server and Unity the client: each of Unity's calls brings what happened, and its reply is the next command.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import socket
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from baldwin.envs.unity_messages import import_mlagents
from baldwin.errors import EnvironmentFailure, MissingExtra, clean_text, describe_exception, missing_extra

PACKAGE_COMMAND = "pip install --no-deps --ignore-requires-python mlagents-envs==1.1.0"
LOOPBACK = "127.0.0.1"  # Unity connects to localhost, and nobody has to prove who they are
PORTS = 64  # that are tried from the first one on: all copies of all workers of one machine
OK, QUIT = 200, 400  # status of a message
POLL_SECONDS = 0.1  # between two looks at the process
SECONDS_TO_QUIT = 5.0


def import_unity(name: str, purpose: str) -> Any:
    """A module of the official package.

    Raises:
        MissingExtra: it or one of its requirements is not installed.
    """
    try:
        return import_mlagents(name)
    except ModuleNotFoundError as error:
        command = missing_extra("unity", purpose)
        raise MissingExtra(f"{command} && {PACKAGE_COMMAND}  ({error})") from error


def is_free(port: int) -> bool:
    """Whether nobody listens at a port of this machine. Asked first, because gRPC prints an error for one that is taken."""
    with socket.socket() as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was closed a moment ago is free
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class DaemonThreads(Executor):
    """A thread for each call, which does not keep the interpreter from ending while it waits for a reply."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function in a new thread."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


class UnityServer:
    """Where one Unity process calls. It has the methods that `UnityEnvironment` needs of its communicator."""

    def __init__(self, ports: Sequence[int], timeout: float) -> None:
        """Listen at the first of the ports that is free; `timeout`: seconds to wait for each of Unity's calls.

        Raises:
            EnvironmentFailure: none is free.
        """
        import grpc

        messages = import_mlagents("communicator_objects.unity_message_pb2")
        self._message = messages.UnityMessageProto
        self._timeout, self._open = timeout, True
        self._calls: queue.Queue[Any] = queue.Queue()
        self._replies: queue.Queue[Any] = queue.Queue()
        exchange = grpc.unary_unary_rpc_method_handler(self._exchange, self._message.FromString, self._message.SerializeToString)
        handlers = grpc.method_handlers_generic_handler("communicator_objects.UnityToExternalProto", {"Exchange": exchange})
        for port in filter(is_free, ports):
            unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
            self._server = grpc.server(DaemonThreads(), [handlers], options=[("grpc.so_reuseport", 0), *unlimited])
            try:
                self.port: int = self._server.add_insecure_port(f"{LOOPBACK}:{port}")
            except RuntimeError:
                continue
            if self.port:
                self._server.start()
                return
        raise EnvironmentFailure(f"no port is free for Unity: tried {ports[0]} to {ports[-1]}. Choose others with env.kwargs={{port: ...}}")

    def initialize(self, inputs: Any, poll: Callable[[], None] | None = None) -> Any:
        """Answer Unity's first call, which says what there is, with our side of the greeting; the call after it asks for a command."""
        greeting = self._next_call(poll).unity_output
        self._reply(OK, inputs)
        self._next_call(poll)
        return greeting

    def exchange(self, inputs: Any, poll: Callable[[], None] | None = None) -> Any:
        """Send a command and wait for what came of it; None if Unity ends the connection."""
        self._reply(OK, inputs)
        call = self._next_call(poll)
        return call.unity_output if call.header.status == OK else None

    def close(self) -> None:
        """Tell Unity to quit, and free the port. A second time it does nothing."""
        if self._open:
            self._open = False
            self._reply(QUIT)
            self._server.stop(grace=1.0).wait()

    def _exchange(self, request: Any, context: Any) -> Any:
        self._calls.put(request)
        return self._replies.get()

    def _reply(self, status: int, inputs: Any = None) -> None:
        message = self._message()
        message.header.status = status
        if inputs is not None:
            message.unity_input.CopyFrom(inputs)
        self._replies.put(message)

    def _next_call(self, poll: Callable[[], None] | None) -> Any:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._calls.get(timeout=POLL_SECONDS)
            if poll:
                poll()  # raises if the process has ended
        raise EnvironmentFailure(
            f"Unity did not answer for {self._timeout:g} s. Expected a build or an editor with ML-Agents whose agents have Behavior Type Default; "
            "without a screen, env.kwargs={no_graphics: true}; for a slow start, a longer env.kwargs={timeout: ...}"
        )


def open_connection(target: str | None, ports: Sequence[int], timeout: float, channels: Sequence[Any], **options: Any) -> Any:
    """A UnityEnvironment that is connected; `target`: the path of a build, or None to wait for the editor.

    Each of its behaviours has in `pictures` the numbers of those sensors that come as PNG.

    Raises:
        MissingExtra: the official package is not installed.
        EnvironmentFailure: there is no such build, it ends or does not answer, or it speaks another version of the protocol.
    """
    name = "editor" if target is None else target
    base = import_unity("environment", f"environment 'unity:{name}'").UnityEnvironment
    server = UnityServer(ports, timeout)

    class Connection(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.pictures: dict[str, set[int]] = {}
            file_name = None if target is None else str(Path(target).absolute())
            try:
                super().__init__(file_name, base_port=server.port, timeout_wait=timeout, side_channels=list(channels), **options)
            except BaseException:
                self._close(0)
                raise

        def _get_communicator(self, *_: Any) -> UnityServer:
            return server

        def _update_behavior_specs(self, output: Any) -> None:
            super()._update_behavior_specs(output)
            for behaviour, agents in output.rl_output.agentInfos.items():
                if behaviour in self._env_specs and behaviour not in self.pictures and agents.value:
                    sensors = agents.value[0].observations
                    self.pictures[behaviour] = {n for n, sensor in enumerate(sensors) if sensor.compression_type}

        def _close(self, timeout: float | None = None) -> None:
            atexit.unregister(self._close)  # it would keep every connection that ever was
            process = self._process
            super()._close(SECONDS_TO_QUIT if timeout is None else timeout)  # kills a build that does not quit
            if process is not None:
                process.wait()

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of distutils, with which it compares versions
            return Connection()
    except EnvironmentFailure:
        raise
    except Exception as error:
        raise EnvironmentFailure(describe_failure(name, error)) from error


def describe_failure(name: str, error: BaseException) -> str:
    """What went wrong between us and Unity, and what to do."""
    text = str(error) if isinstance(error, EnvironmentFailure) else describe_exception(error)
    if type(error).__name__ == "UnityCommunicatorStoppedException":
        text = "Unity ended the connection; in the editor, Play was stopped"
    if "does not match any environments" in text:
        return f"there is no Unity build at {clean_text(name, 200)}: expected the path of an executable that Unity built, or unity:editor"
    if "permissions" in text:
        return f"the Unity build {clean_text(name, 200)} cannot be started: it is not executable. Run: chmod +x on it"
    return f"unity:{clean_text(name, 200)}: {text}"
