"""Many matches on one event loop, for callers without coroutines: who has to decide, their actions, what came of them.

The worlds wait for their players: between two calls nothing moves, and the order of everything is a function of the actions. A match in
which a tick or a controller raises, that ends without telling its players, in which nothing comes any more, or that cannot be ended, fails
by itself; the others go on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Controller, Match, Seat, Step, World
from baldwin.envs.vector_env import DEADLINE, EnvSpec, StepResult
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception
from baldwin.observations import Observation

T = TypeVar("T")

MAX_DECISIONS = 10_000  # of the others in turn, while a player gets none: then the match is given up
CANCEL_TRIES = 10  # within the deadline: a coroutine may hold on to one cancellation while it cleans up
QUIET_PASSES = 4  # of the event loop from an action to the turns that it calls for: act, tick, step, the end of act


class Turn(NamedTuple):
    """A player of a match."""

    match: int
    player: str


class _Running(NamedTuple):
    match: Match
    controllers: dict[str, Controller]
    ticks: list[asyncio.Task[None]]
    turns: dict[str, asyncio.Task[Step] | Seat]  # of players that wait for the world; a seat is asked for its step without a task

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        return [*self.ticks, *(turn for turn in self.turns.values() if not isinstance(turn, Seat))]


class Matches:
    """Matches by number. `failures` tells why a match failed, until its number begins another."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self._running: dict[int, _Running] = {}
        self._loop = process_loop()
        self._deadline = deadline
        self.failures: dict[int, str] = {}
        self.waiting: list[Turn] = []  # who has to decide, the longest waiting first

    def begin(self, number: int, world: World, seed: int, players: Sequence[str]) -> None:
        """Begin a match that these players control; `act` tells when somebody has to decide.

        Raises:
            EnvironmentFailure: the world cannot begin it, or the one before could not be ended.
        """
        self.leave(number)
        self.failures.pop(number, None)
        try:
            match = world.reset(seed, players)
            controllers = {controller.player: controller for controller in match.controllers}
            coroutines = list(match.ticks)
        except EnvironmentFailure:
            raise
        except Exception as error:
            raise EnvironmentFailure(f"the match did not begin: {describe_exception(error)}") from error
        ticks = [self._loop.create_task(_awaited(tick)) for tick in coroutines]
        turns = {name: self._turn_of(controller) for name, controller in controllers.items()}
        self._running[number] = _Running(match, controllers, ticks, turns)
        if set(controllers) != set(players):
            self.leave(number)
            raise EnvironmentFailure(
                f"the match did not begin: expected controllers of {', '.join(players)}; got those of {', '.join(controllers) or 'nobody'}"
            )

    def controller(self, turn: Turn) -> Controller:
        """Whose observation shows what that player sees."""
        return self._running[turn.match].controllers[turn.player]

    def result(self, turn: Turn) -> Mapping[str, Any]:
        """What the world tells this player of the end.

        Raises:
            EnvironmentFailure: `result()` of its controller raised, or returned no mapping.
        """
        try:
            result: object = self.controller(turn).result()
        except EnvironmentFailure:
            raise
        except Exception as error:
            raise EnvironmentFailure(f"the match failed in result(): {describe_exception(error)}") from error
        if not isinstance(result, Mapping):
            got = clean_text(repr(result), 80)
            raise EnvironmentFailure(f"expected a mapping such as {{'score': 1.0}} from result() of player {turn.player!r}; got {got}")
        return result

    @property
    def going_on(self) -> bool:
        """Whether somebody has to decide, or something may still come."""
        return bool(self.waiting) or any(r.turns for n, r in self._running.items() if n not in self.failures)

    def act(self, actions: Mapping[Turn, Any], until: Sequence[Turn] = ()) -> dict[Turn, Step]:
        """Take decisions, and go on until somebody has to decide again; what came of earlier actions for players that have to, or for whom
        the match is over.

        `until`: players for whom something has to come, unless somebody else has to decide in their match first; default: anybody.

        Raises:
            EnvironmentFailure: it is not the turn of one of them.
        """
        waiting = set(self.waiting)
        for turn in actions:
            if turn not in waiting:
                names = ", ".join(t.player for t in self.waiting if t.match == turn.match) or "nobody"
                raise EnvironmentFailure(f"it is not the turn of player {turn.player!r}; to decide: {names}")
        self.waiting = [turn for turn in self.waiting if turn not in actions]
        for turn, action in actions.items():
            self._decide(turn, action)
        return self._run(self._advance(until))

    def _turn_of(self, controller: Controller) -> asyncio.Task[Step] | Seat:
        """The first turn of a player."""
        return controller if type(controller) is Seat else self._loop.create_task(_start(controller))

    def _decide(self, turn: Turn, action: Any) -> None:
        running = self._running[turn.match]
        controller = running.controllers[turn.player]
        if type(controller) is not Seat:
            running.turns[turn.player] = self._loop.create_task(_act(controller, action))
            return
        running.turns[turn.player] = controller
        try:
            controller.choose(action)
        except EnvironmentFailure as error:
            self._fail(turn.match, f"the match failed: {describe_exception(error)}")

    def leave(self, number: int) -> None:
        """Give up a match, whatever its state, and wait until all of it has ended.

        Raises:
            EnvironmentFailure: its close() failed, or a coroutine did not end when it was cancelled, so that it was closed by force.
        """
        running = self._running.pop(number, None)
        if running is None:
            return
        self.waiting = [turn for turn in self.waiting if turn.match != number]
        tasks = running.tasks
        unfinished = [task for task in tasks if not task.done()]
        stuck = self._run(_end(unfinished, self._deadline)) if unfinished else 0
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # whoever gives up a match asks no more why it failed
        try:
            running.match.close()
        except Exception as error:
            raise EnvironmentFailure(f"the match failed in close(): {describe_exception(error)}") from error
        if stuck:
            raise EnvironmentFailure(
                f"the match did not end: {stuck} of its coroutines went on for {self._deadline:g} s after they were cancelled. "
                "Let asyncio.CancelledError through"
            )

    def close(self) -> None:
        """Give up all of them.

        Raises:
            EnvironmentFailure: what the first of them raised that could not be given up in peace.
        """
        raise_first(partial(self.leave, number) for number in list(self._running))

    def __del__(self) -> None:
        """A Gymnasium environment that nobody closed leaves no task behind, either."""
        if self._running and not self._loop.is_closed() and not self._loop.is_running():
            with suppress(EnvironmentFailure):
                self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the event loop; what is no Exception, such as a deadline of the executor, is raised here and not in some match."""
        stray: list[BaseException] = []

        def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if isinstance(error, BaseException) and not isinstance(error, Exception):
                stray.append(error)
                loop.stop()

        self._loop.set_exception_handler(note)
        try:
            return self._loop.run_until_complete(work)
        except RuntimeError:
            if not stray:
                raise
            raise stray[0] from None

    async def _advance(self, until: Sequence[Turn]) -> dict[Turn, Step]:
        found: dict[Turn, Step] = {}
        while True:
            for _ in range(QUIET_PASSES):
                await asyncio.sleep(0)
            for number, running in self._running.items():
                if number not in self.failures:
                    self._look_at(number, running, found)
            late = self._late(until, found)
            if not late:
                return found
            awaited = {future for number in late for future in _awaited_in(self._running[number])}
            done, _ = await asyncio.wait(awaited, timeout=self._deadline, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                for number in late:
                    waiting = ", ".join(self._running[number].turns)
                    self._fail(number, f"{waiting} waited {self._deadline:g} s for a turn that did not come")

    def _late(self, until: Sequence[Turn], found: Mapping[Turn, Step]) -> list[int]:
        """Matches in which something has still to come."""
        decides = {turn.match for turn in self.waiting}
        if until:
            missing = {turn.match for turn in until if turn not in found}
            return sorted(n for n in missing if n not in self.failures and n not in decides and self._running[n].turns)
        if found or decides:
            return []
        return [n for n, running in self._running.items() if n not in self.failures and running.turns]

    def _look_at(self, number: int, running: _Running, found: dict[Turn, Step]) -> None:
        """Take what came in one match."""
        came: list[str] = []
        ended: list[asyncio.Task[Any]] = [tick for tick in running.ticks if tick.done()]
        for name, turn in running.turns.items():
            if isinstance(turn, Seat):
                if turn.steps.full:
                    came.append(name)
            elif turn.done():
                came.append(name)
                ended.append(turn)
        for task in ended:
            error = None if task.cancelled() else task.exception()
            if error and not isinstance(error, Exception):
                raise error
            if error or task.cancelled():
                return self._fail(number, f"the match failed: {describe_exception(error) if error else 'a task was cancelled'}")
        for name in came:
            turn = running.turns.pop(name)
            step = found[Turn(number, name)] = turn.steps.pop() if isinstance(turn, Seat) else turn.result()
            if not step.over:
                self.waiting.append(Turn(number, name))
        if (
            ended
            and running.turns
            and running.ticks
            and all(tick.done() for tick in running.ticks)
            and not any(t.match == number for t in self.waiting)
        ):
            self._fail(number, f"the match ended without telling {', '.join(running.turns)}")
        return None

    def _fail(self, number: int, why: str) -> None:
        self.failures[number] = why
        self.waiting = [turn for turn in self.waiting if turn.match != number]


def no_turn(player: str) -> str:
    """Why a match is given up in which only others decide."""
    return f"{player} got no turn while the others decided {MAX_DECISIONS:,} times"


def _awaited_in(running: _Running) -> list[asyncio.Future[Any]]:
    """What may still come in a match."""
    steps = [turn.steps.arrival() for turn in running.turns.values() if isinstance(turn, Seat)]
    return [*(task for task in running.tasks if not task.done()), *steps]


async def _awaited(tick: Any) -> None:
    await tick


async def _start(controller: Controller) -> Step:
    return _checked(controller, await controller.start())


async def _act(controller: Controller, action: Any) -> Step:
    return _checked(controller, await controller.act(action))


def _checked(controller: Controller, step: Any) -> Step:
    if not isinstance(step, Step):
        raise EnvironmentFailure(f"expected a Step from the controller of player {controller.player!r}; got {clean_text(repr(step), 80)}")
    return step


async def _end(tasks: Iterable[asyncio.Task[Any]], deadline: float) -> int:
    """Cancel tasks until all have ended; how many of them had to be ended by force."""
    pending = set(tasks)
    for _ in range(CANCEL_TRIES):
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=deadline / CANCEL_TRIES)
        if not pending:
            return 0
    for task in pending:
        with suppress(Exception):  # of one that holds on even so
            cast("Coroutine[Any, Any, Any]", task.get_coro()).close()
        task.cancel()
    await asyncio.wait(pending, timeout=deadline / CANCEL_TRIES)
    return len(pending)


_LOOPS: dict[tuple[int, int], asyncio.AbstractEventLoop] = {}


def process_loop() -> asyncio.AbstractEventLoop:
    """One event loop for all matches of a thread: each one holds three file descriptors. It is not inherited by a fork."""
    key = (os.getpid(), threading.get_ident())
    if key not in _LOOPS:
        _LOOPS[key] = asyncio.new_event_loop()
    return _LOOPS[key]


def close_worlds(matches: Matches, worlds: Sequence[World]) -> None:
    """Give up all matches, and close where they were played.

    Raises:
        EnvironmentFailure: a world cannot be closed.
    """
    raise_first([matches.close, *(partial(_close_world, world) for world in worlds)])


def pop_latencies(worlds: Iterable[World]) -> tuple[list[float], int]:
    """Those of live worlds together."""
    found = [world.pop_latencies() for world in worlds]
    return [second for seconds, _ in found for second in seconds], sum(replaced for _, replaced in found)


def _close_world(world: World) -> None:
    try:
        world.close()
    except Exception as error:
        raise EnvironmentFailure(f"a world failed in close(): {describe_exception(error)}") from error


def raise_first(steps: Iterable[Callable[[], None]]) -> None:
    """Take all steps, whichever of them fails.

    Raises:
        EnvironmentFailure: what the first one raised.
    """
    failures: list[EnvironmentFailure] = []
    for step in steps:
        try:
            step()
        except EnvironmentFailure as error:
            failures.append(error)
    if failures:
        raise failures[0]


def step_result(steps: Sequence[Step], obs: Observation, env_spec: EnvSpec, weights: NDArray[np.float32]) -> StepResult:
    """Steps of players side by side, as a vector environment returns them; `weights` of the components of the reward."""
    components = np.stack([step.reward for step in steps]).astype(np.float32) if env_spec.rewards else None
    return StepResult(
        obs,
        np.array([step.reward.sum() for step in steps]) if components is None else components @ weights,
        np.array([step.terminated for step in steps]),
        np.array([step.truncated for step in steps]),
        components,
        np.array([step.elapsed for step in steps], np.int32) if env_spec.has_elapsed else None,
    )
