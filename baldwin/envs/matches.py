"""Many matches on one event loop, for callers without coroutines: who has to decide, their actions, what came of them.

The worlds wait for their players: between two calls nothing moves, and the order of everything is a function of the actions. A match in
which a tick or a controller raises, that ends without telling its players, or in which nothing comes any more, fails by itself; the
others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from baldwin.envs.asynchronous import Controller, Match, Step, World
from baldwin.errors import EnvironmentFailure, describe_exception

DEADLINE = 60.0  # seconds until a world that does not answer is given up
QUIET_PASSES = 4  # of the event loop from an action to the turns that it calls for: act, tick, step, the end of act


class Turn(NamedTuple):
    """A player of a match."""

    match: int
    player: str


class _Running(NamedTuple):
    match: Match
    controllers: dict[str, Controller]
    ticks: list[asyncio.Task[None]]
    turns: dict[str, asyncio.Task[Step]]  # of players that wait for the world


class Matches:
    """Matches by number. `failures` tells why a match failed, until its number begins another."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self._loop = asyncio.new_event_loop()
        self._deadline = deadline
        self._running: dict[int, _Running] = {}
        self.failures: dict[int, str] = {}
        self.waiting: list[Turn] = []  # who has to decide, the longest waiting first

    def begin(self, number: int, world: World, seed: int, players: Sequence[str]) -> None:
        """Begin a match that these players control; `act` tells when somebody has to decide.

        Raises:
            EnvironmentFailure: the world cannot begin it.
        """
        self.leave(number)
        self.failures.pop(number, None)
        try:
            match = world.reset(seed, players)
        except EnvironmentFailure:
            raise
        except Exception as error:
            raise EnvironmentFailure(f"the match did not begin: {describe_exception(error)}") from error
        controllers = {controller.player: controller for controller in match.controllers}
        ticks = [self._loop.create_task(_awaited(tick)) for tick in match.ticks]
        turns = {name: self._loop.create_task(controller.start()) for name, controller in controllers.items()}
        self._running[number] = _Running(match, controllers, ticks, turns)

    def controller(self, turn: Turn) -> Controller:
        """Whose observation shows what that player sees."""
        return self._running[turn.match].controllers[turn.player]

    @property
    def going_on(self) -> bool:
        """Whether somebody has to decide, or something may still come."""
        return bool(self.waiting) or any(r.turns for n, r in self._running.items() if n not in self.failures)

    def act(self, actions: Mapping[Turn, Any]) -> dict[Turn, Step]:
        """Take decisions, and go on until somebody has to decide again; what came of earlier actions for players that have to, or for whom
        the match is over.

        Raises:
            EnvironmentFailure: it is not the turn of one of them.
        """
        for turn, action in actions.items():
            if turn not in self.waiting:
                names = ", ".join(t.player for t in self.waiting if t.match == turn.match) or "nobody"
                raise EnvironmentFailure(f"it is not the turn of player {turn.player!r}; to decide: {names}")
            running = self._running[turn.match]
            running.turns[turn.player] = self._loop.create_task(running.controllers[turn.player].act(action))
        self.waiting = [turn for turn in self.waiting if turn not in actions]
        return self._loop.run_until_complete(self._until_somebody_decides())

    def leave(self, number: int) -> None:
        """Give up a match, whatever its state, and wait until all of it has ended."""
        running = self._running.pop(number, None)
        if running is None:
            return
        self.waiting = [turn for turn in self.waiting if turn.match != number]
        tasks = [*running.ticks, *running.turns.values()]
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        running.match.close()

    def close(self) -> None:
        """Give up all of them."""
        for number in list(self._running):
            self.leave(number)
        self._loop.close()

    def __del__(self) -> None:
        """A Gymnasium environment that nobody closed leaves no task behind, either."""
        if not self._loop.is_closed() and not self._loop.is_running():
            self.close()

    async def _until_somebody_decides(self) -> dict[Turn, Step]:
        found: dict[Turn, Step] = {}
        while True:
            for _ in range(QUIET_PASSES):
                await asyncio.sleep(0)
            for number, running in self._running.items():
                if number not in self.failures:
                    self._look_at(number, running, found)
            open_turns = [task for n, r in self._running.items() if n not in self.failures for task in r.turns.values()]
            if found or self.waiting or not open_turns:
                return found
            ticks = [task for r in self._running.values() for task in r.ticks if not task.done()]
            done, _ = await asyncio.wait({*ticks, *open_turns}, timeout=self._deadline, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                for number, running in self._running.items():
                    if running.turns and number not in self.failures:
                        self._fail(number, f"{', '.join(running.turns)} waited {self._deadline:g} s for a turn that did not come")

    def _look_at(self, number: int, running: _Running, found: dict[Turn, Step]) -> None:
        """Take what came in one match."""
        for task in (*running.ticks, *running.turns.values()):
            if task.done() and (task.cancelled() or task.exception()):
                why = "a task was cancelled" if task.cancelled() else describe_exception(task.exception() or Exception())
                return self._fail(number, f"the match failed: {why}")
        for name in [name for name, turn in running.turns.items() if turn.done()]:
            step = found[Turn(number, name)] = running.turns.pop(name).result()
            if not step.over:
                self.waiting.append(Turn(number, name))
        if running.turns and all(task.done() for task in running.ticks) and not any(t.match == number for t in self.waiting):
            self._fail(number, f"the match ended without telling {', '.join(running.turns)}")
        return None

    def _fail(self, number: int, why: str) -> None:
        self.failures[number] = why
        self.waiting = [turn for turn in self.waiting if turn.match != number]


async def _awaited(tick: Any) -> None:
    await tick
