"""A stand-in for a Unity build: a process that calls the Python side with ML-Agents' own messages over a real socket.

    unity_player.py --mlagents-port N [--game meeting|reach|once] [--fault KIND] ...

Like Unity, it says first what behaviours there are, then asks for commands; an agent that begins another episode gets a new number; an
agent that is done and its successor are told of in the same message. What comes over the side channels it sends back as statistics.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import struct
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

MESSAGES = Path(__file__).parents[2] / "baldwin" / "envs" / "unity_messages.py"
ENGINE = uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
PARAMETERS = uuid.UUID("534c891e-810f-11ea-a9d0-822485860400")
STATS = uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
ENGINE_SETTINGS = ("screen", "quality", "time_scale", "target_frame_rate", "capture_frame_rate")
STEP, RESET = 0, 1
OK, QUIT = 200, 400
WRONG_ACTIONS = 3  # exit code


def load_messages() -> Any:
    """By path, because importing Baldwin takes seconds."""
    spec = importlib.util.spec_from_file_location("unity_messages", MESSAGES)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Agent:
    """An episode of an agent."""

    def __init__(self, number: int, slot: int, begins: int, ends: int, cut: bool, x: float) -> None:
        self.number, self.slot, self.begins, self.ends, self.cut, self.x = number, slot, begins, ends, cut, x
        self.reward = 0.0


class Game:
    """Rules that a test can work out by hand. `behaviours`: (sizes of the continuous action, branches), by name."""

    behaviours: ClassVar[dict[str, tuple[int, tuple[int, ...]]]]

    def __init__(self) -> None:
        self.frame, self.episodes = 0, 0
        self.agents: dict[str, list[Agent]] = {}

    def begin(self, seed: float) -> None:
        self.frame, self.agents = 0, {name: [] for name in self.behaviours}
        self.seed = seed
        self.arrive()

    def new(self, name: str, slot: int, length: int, cut: bool) -> None:
        self.episodes += 1
        self.agents[name].append(Agent(self.episodes, slot, self.frame, self.frame + length, cut, self.seed % 100 / 100))

    def known(self) -> list[str]:
        """Behaviours that have had agents."""
        return [name for name in self.behaviours if self.agents[name]]

    def advance(self) -> dict[str, list[Agent]]:
        """A frame; who is gone."""
        self.frame += 1
        gone = {name: [a for a in agents if self.frame >= a.ends] for name, agents in self.agents.items()}
        for name, agents in gone.items():
            self.agents[name] = [a for a in self.agents[name] if a not in agents]
            for agent in agents:
                self.follow(name, agent)
        self.arrive()
        return gone

    def arrive(self) -> None:
        """Agents that come in this frame."""

    def follow(self, name: str, agent: Agent) -> None:
        """The next episode of an agent that is gone."""

    def decides(self, name: str, agent: Agent) -> bool:
        return True

    def mask(self, name: str) -> list[bool]:
        return []

    def group_reward(self, name: str) -> float:
        return 0.0

    def take(self, name: str, agent: Agent, continuous: list[float], discrete: list[int]) -> None:
        raise NotImplementedError

    def see(self, name: str, agent: Agent) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        """Sensors: name, shape, and numbers or a colour."""
        raise NotImplementedError


class Meeting(Game):
    """Movers that come and go, a caller who decides in every second frame, and a latecomer of a behaviour of its own.

    Movers 0 and 1 are there at first, 2 comes in frame 2. They stay for 4 frames, 6 (then they are cut short) and 4, and begin again.
    """

    behaviours: ClassVar = {"Mover?team=0": (2, (3, 2)), "Caller?team=1": (0, (4,)), "Latecomer?team=0": (1, ())}

    def arrive(self) -> None:
        for slot, frame in enumerate([0, 0, 2]):
            if self.frame == frame:
                self.new("Mover?team=0", slot, 6 if slot == 1 else 4, slot == 1)
        if self.frame == 0:
            self.new("Caller?team=1", 0, 21, True)
        if self.frame == 3:
            self.new("Latecomer?team=0", 0, 1000, True)

    def follow(self, name: str, agent: Agent) -> None:
        self.new(name, agent.slot, agent.ends - agent.begins, agent.cut)

    def decides(self, name: str, agent: Agent) -> bool:
        return name != "Caller?team=1" or self.frame % 2 == 0

    def mask(self, name: str) -> list[bool]:
        return [False, False, self.frame % 2 == 1, False, False] if name == "Mover?team=0" else []

    def group_reward(self, name: str) -> float:
        return 0.25 if name == "Mover?team=0" else 0.0

    def take(self, name: str, agent: Agent, continuous: list[float], discrete: list[int]) -> None:
        if name == "Mover?team=0":
            if any(self.mask(name)[:3][choice] for choice in discrete[:1]):
                sys.exit(WRONG_ACTIONS)
            agent.x += 0.125 * continuous[0]
            agent.reward += continuous[1] + discrete[0] - 0.5 * discrete[1]
        elif name == "Caller?team=1":
            agent.reward += discrete[0]

    def see(self, name: str, agent: Agent) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        if name == "Mover?team=0":
            yield "camera", (3, 6, 8), (10 * self.frame, 100 + agent.slot, 255)
            yield "position", (3,), (agent.x, self.frame, agent.slot)
        else:
            yield "signal", (2,), (self.frame, agent.slot)


class Reach(Game):
    """One agent on a line, which has ten frames to reach the middle."""

    behaviours: ClassVar = {"Reacher?team=0": (1, ())}

    def arrive(self) -> None:
        if self.frame == 0:
            self.new("Reacher?team=0", 0, 10, True)

    def follow(self, name: str, agent: Agent) -> None:
        self.new(name, 0, 10, True)

    def take(self, name: str, agent: Agent, continuous: list[float], discrete: list[int]) -> None:
        agent.x += 0.2 * continuous[0]
        agent.reward -= abs(agent.x)

    def see(self, name: str, agent: Agent) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        yield "", (1,), (agent.x,)
        yield "", (2, 1), (self.frame / 10, 1.0)


class Once(Reach):
    """The same, and nobody comes after it."""

    def follow(self, name: str, agent: Agent) -> None:
        pass


def png(shape: tuple[int, ...], colour: tuple[int, ...]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (shape[2], shape[1]), colour).save(file, "PNG")
    return file.getvalue()


class Player:
    """Speaks for a game."""

    def __init__(self, game: Game, options: argparse.Namespace) -> None:
        self.game, self.options = game, options
        self.pb = load_messages()
        self.message = self.pb.import_mlagents("communicator_objects.unity_message_pb2").UnityMessageProto
        self.told: set[str] = set()  # behaviours
        self.acting: dict[str, list[Agent]] = {}
        self.echo: list[tuple[str, float]] = []
        self.seed = 0.0
        self.frames = 0

    def run(self) -> None:
        import grpc

        grpc_module = self.pb.import_mlagents("communicator_objects.unity_to_external_pb2_grpc")
        exchange = grpc_module.UnityToExternalProtoStub(grpc.insecure_channel(f"localhost:{self.options.port}")).Exchange
        self.game.begin(0.0)
        greeting = exchange(self.state({}), wait_for_ready=True)
        self.echo.append(("args/nographics", float(self.options.nographics)))
        self.echo.append(("init/seed", greeting.unity_input.rl_initialization_input.seed))
        self.echo.append(("init/areas", greeting.unity_input.rl_initialization_input.num_areas))
        out = self.message()
        out.header.status = OK
        while True:
            command = exchange(out)
            if command.header.status == QUIT:
                return
            self.fault()
            out = self.obey(command.unity_input.rl_input)
            out.header.status = QUIT if self.options.fault == "stop" and self.frames > 5 else OK

    def fault(self) -> None:
        self.frames += 1
        if self.options.fault == "crash" and self.frames > 5:
            sys.exit(7)
        if self.options.fault == "hang" and self.frames > 5:
            time.sleep(600)

    def obey(self, rl_input: Any) -> Any:
        self.listen(rl_input.side_channel)
        if rl_input.command == RESET:
            self.game.begin(self.seed)
            return self.state({})
        for name, agents in self.acting.items():
            actions = rl_input.agent_actions[name].value
            if len(actions) != len(agents):
                sys.exit(WRONG_ACTIONS)
            for agent, action in zip(agents, actions, strict=True):
                size, branches = self.game.behaviours[name]
                if (len(action.continuous_actions), len(action.discrete_actions)) != (size, len(branches)):
                    sys.exit(WRONG_ACTIONS)
                self.game.take(name, agent, list(action.continuous_actions), list(action.discrete_actions))
        return self.state(self.game.advance())

    def state(self, gone: dict[str, list[Agent]]) -> Any:
        out = self.message()
        out.header.status = OK
        first = not self.told
        for name in self.game.known():
            if name not in self.told:
                self.told.add(name)
                self.describe(out.unity_output.rl_initialization_output, name, first)
        rl_output = out.unity_output.rl_output
        self.acting = {}
        for name, agents in self.game.agents.items():
            for agent in gone.get(name, []):
                self.tell(rl_output, name, agent, True)
            deciding = [agent for agent in agents if self.game.decides(name, agent)]
            for agent in reversed(deciding):  # Unity gives no order
                self.tell(rl_output, name, agent, False)
            if deciding:
                self.acting[name] = deciding[::-1]
        rl_output.side_channel = b"".join(pack(name, value) for name, value in self.echo)
        self.echo = []
        return out

    def describe(self, init: Any, name: str, first: bool) -> None:
        if first:
            init.name, init.package_version = "stand-in", "3.0.0"
            init.communication_version = "2.0.0" if self.options.fault == "version" else "1.5.0"
            init.capabilities.baseRLCapabilities = True
        size, branches = self.game.behaviours[name]
        brain = init.brain_parameters.add()
        brain.brain_name, brain.is_training = name, True
        brain.action_spec.num_continuous_actions = size
        brain.action_spec.num_discrete_actions = len(branches)
        brain.action_spec.discrete_branch_sizes.extend(branches)

    def tell(self, rl_output: Any, name: str, agent: Agent, done: bool) -> None:
        info = rl_output.agentInfos[name].value.add()
        info.id, info.done, info.max_step_reached = agent.number, done, done and agent.cut
        info.reward, info.group_reward = agent.reward, self.game.group_reward(name)
        agent.reward = 0.0
        info.action_mask.extend([] if done else self.game.mask(name))
        for sensor, shape, content in self.game.see(name, agent):
            seen = info.observations.add()
            seen.name = sensor
            seen.shape.extend(shape)
            if len(shape) == 3:
                seen.compression_type = 1
                seen.compressed_data = png(shape, content)
            else:
                seen.float_data.data.extend(content)

    def listen(self, data: bytes) -> None:
        """Side channels: engine settings and environment parameters."""
        at = 0
        while at < len(data):
            channel, (size,) = uuid.UUID(bytes_le=data[at : at + 16]), struct.unpack_from("<i", data, at + 16)
            message, at = data[at + 20 : at + 20 + size], at + 20 + size
            if channel == ENGINE:
                (kind,) = struct.unpack_from("<i", message)
                values = struct.unpack_from({0: "<ii", 2: "<f"}.get(kind, "<i"), message, 4)
                self.echo += [(f"engine/{ENGINE_SETTINGS[kind]}", float(value)) for value in values]
            elif channel == PARAMETERS:
                (length,) = struct.unpack_from("<i", message)
                name = message[4 : 4 + length].decode()
                kind, value = struct.unpack_from("<if", message, 4 + length)
                self.echo.append((f"parameters/{name}", value))
                self.seed = value if name == "episode_seed" else self.seed


def pack(name: str, value: float) -> bytes:
    message = struct.pack("<i", len(name)) + name.encode() + struct.pack("<fi", value, 1)
    return bytes(STATS.bytes_le) + struct.pack("<i", len(message)) + message


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", dest="port", type=int, required=True)
    parser.add_argument("--game", default="meeting")
    parser.add_argument("--fault", default="")
    parser.add_argument("-nographics", action="store_true")
    parser.add_argument("-batchmode", action="store_true")
    options = parser.parse_args()
    if options.fault == "exit":
        sys.exit(5)
    if options.fault == "silent":
        time.sleep(600)
    Player({"meeting": Meeting, "reach": Reach, "once": Once}[options.game](), options).run()


if __name__ == "__main__":
    main()
