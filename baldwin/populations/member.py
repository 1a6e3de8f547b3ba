"""One member: an algorithm with hyper-parameters of its own. Its training is a job, a pure function of what the job holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.algorithm import AlgorithmConfig, BaseAlgorithm
from baldwin.envs import EnvConfig, check_env
from baldwin.errors import BaldwinError
from baldwin.executors.config import run_job
from baldwin.networks import PolicyConfig
from baldwin.opponents import GAMES as BLOCK_GAMES
from baldwin.opponents import Mixture, game_score
from baldwin.ops import seeds
from baldwin.ops.ranges import Value
from baldwin.ops.threads import one_numpy_thread, one_thread
from baldwin.parts import Sections
from baldwin.populations.states import CONTENT, StateFiles, pack_state, shared_state, state_hash, state_key, unpack_state
from baldwin.rollout import RESULT, RolloutSpec
from baldwin.types import Algorithm, Arrays, Outcome, State, Trial, Worker

RETURNS, STATE_HASH, STATE, SECONDS = "returns", "state_sha256", "state", "seconds"
EVALUATION_STEPS = "evaluation_steps"
WINS, GAMES = "opponent_wins", "opponent_games"
MATCHES = 4  # that of the seeds of a league's matches
SELECTION = 3  # the path of the seeds that members are compared on; held-out evaluations have others
MAX_WIDTH = 32  # environments of an evaluation
Hyperparameters = dict[str, Value]


def changed_sections(config: Any, values: Mapping[str, Value]) -> dict[str, Any]:
    """Of a config with the sections env, policy and algorithm those that these values of keys, such as `algorithm.lr`, change.

    Raises:
        ValidationError: a value is not allowed there.
    """
    changed: dict[str, Any] = {}
    for name in ("env", "policy", "algorithm"):
        section: EnvConfig | PolicyConfig | AlgorithmConfig = getattr(config, name)
        own = {tuple(key.split(".")[1:]): value for key, value in values.items() if key.split(".")[0] == name}
        if own:
            changed[name] = section.with_values(own)
    return changed


def with_hyperparameters(sections: Sections, values: Mapping[str, Value]) -> Sections:
    """The same with other values of these config keys.

    Raises:
        ValidationError: a value is not allowed there.
    """
    return replace(sections, **changed_sections(sections, values))


def where_played(keys: Iterable[str]) -> list[str]:
    """Of config keys those that decide in which environment and with which network a member plays.

    Weights of rewards do not: all members are compared by those of the run.
    """
    return [key for key in keys if key.startswith(("env.", "policy.")) and not key.startswith("env.reward_weights")]


@dataclass(frozen=True, slots=True)
class TrainMember:
    """Train a member for so many environment steps, at least, and evaluate it on the seeds that all members are compared on."""

    ticket: int
    member: int
    sections: Sections  # with the member's hyper-parameters
    seed: int  # of its learning
    steps: int
    evaluation_seed: int
    episodes: int
    evaluation_env: EnvConfig | None = None  # where members are compared: with the same weights of rewards for all; None: its own
    parent_sha256: str = ""  # the state that training begins from; "": from scratch
    leave_episodes: bool = False  # those that are open in the state stay behind: they are another member's, or another round's
    fresh_optimizer: bool = False
    fresh_normalizer: bool = False
    files: StateFiles | None = None  # where states are; None: the parent's was shared, and the new one travels with the outcome
    params: NDArray[np.float32] | None = None  # of the policy, in place of those of the state: made by crossover or mutation
    weights: NDArray[np.float32] | None = None  # the same of everything that is trained
    obs_moments: NDArray[np.float64] | None = None  # observation statistics that come with them
    opponent_policies: tuple[tuple[str, Arrays], ...] = ()  # of those in `sections.opponents` that are no script
    inherit_training: bool = True  # False: the state is that before the training (baldwinian)
    own_env: bool = False  # the environment is not the one that `sections` describe

    @property
    def kind(self) -> str:
        """The name of these jobs in the timeline: member."""
        return "member"

    @property
    def tickets(self) -> tuple[int, ...]:
        """Its ticket: such a job has one outcome."""
        return (self.ticket,)

    @property
    def stream(self) -> None:
        """None: the job may run on any worker."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The key of the parent's state, where workers cannot read the run's files."""
        return (state_key(self.parent_sha256),) if self.parent_sha256 and self.files is None else ()

    def run(self, worker: Worker) -> list[Outcome]:
        """Returns of the evaluation, what the environment told of its episodes, and the hash of the new state.

        On one thread, in learning too: the executor brings the cores, and sums over several threads would round as many ways.
        """
        with one_thread(), one_numpy_thread():
            return [self._run(worker)]

    def _run(self, worker: Worker) -> Outcome:
        begun = time.perf_counter()
        sections = replace(self.sections, env_spec=check_env(self.sections.env)) if self.own_env else self.sections
        algorithm, spec = sections.build(self.seed, opponent_policies=self.opponent_policies)
        own_worker = spec()  # one that no other member has used
        env = self.evaluation_env or sections.env
        judge = own_worker if env == sections.env else replace(spec, env=env)()
        try:
            before = self._restore(algorithm, worker)
            state = {} if self.inherit_training else _genome(algorithm)
            train_for(algorithm, own_worker, self.steps)
            policy = algorithm.policy_state()
            limit = sections.env_spec.max_episode_steps
            evaluation = evaluate_policy(judge, policy, self.evaluation_seed, self.episodes, limit)
            games: dict[str, NDArray[Any]] = {}
            match_steps = 0
            if self.sections.opponents:
                pool = algorithm.state_dict()["opponents"]["pool"]["members"]
                games, match_steps = play_matches(own_worker, policy, pool, self.evaluation_seed, self.episodes, limit)
        finally:
            for used in {id(w): w for w in (own_worker, judge)}.values():
                used.close()
        content = pack_state((state or _genome(algorithm)) | {"policy": dict(policy)})
        name = self.files.write(content) if self.files else state_hash(content)
        if self.files is None:
            worker.receive(shared_state(content))  # its next round may be here
        arrays = dict(evaluation.arrays) | {
            STATE_HASH: np.frombuffer(bytes.fromhex(name), np.uint8),
            SECONDS: np.array(time.perf_counter() - begun),
            EVALUATION_STEPS: np.array(evaluation.env_steps + match_steps),
            **games,
        }
        return Outcome(
            self.ticket,
            evaluation.fitness,
            env_steps=algorithm.env_steps - before[0],
            reason=evaluation.reason,
            arrays=arrays,
            derived={} if self.files else {STATE: np.frombuffer(content, np.uint8)},
            critic_steps=algorithm.gradient_steps - before[1],
        )

    def _restore(self, algorithm: Algorithm, worker: Worker) -> tuple[int, int]:
        """Continue from the parent's state; environment and gradient steps made before."""
        if self.parent_sha256:
            state = self._parent_state(worker)["algorithm"]
            if self.sections.opponents:  # the players of this round, not those of the last
                state["opponents"] = algorithm.state_dict()["opponents"]
            if self.fresh_normalizer:  # segments that were given out are still played with the statistics of before
                fresh = algorithm.state_dict()
                state |= {name: fresh[name] for name in ("obs_moments", "rewards") if name in fresh}
            algorithm.load_state_dict(state)
            algorithm.reissue()
        if isinstance(algorithm, BaseAlgorithm):
            if self.leave_episodes:
                algorithm.leave_episodes()
            if self.fresh_optimizer:
                algorithm.reset_optimizer()
            if self.params is not None:
                algorithm.set_policy_params(self.params)
            if self.obs_moments is not None:
                algorithm.set_obs_moments(self.obs_moments)
            if self.weights is not None:
                algorithm.set_weights(self.weights)
        return algorithm.env_steps, algorithm.gradient_steps

    def _parent_state(self, worker: Worker) -> State:
        if self.files:
            return self.files.load(self.parent_sha256)
        content = worker.shared(state_key(self.parent_sha256), 0)[CONTENT].tobytes()
        if state_hash(content) != self.parent_sha256:
            raise BaldwinError(f"the state of a member was damaged on its way: it does not have the hash {self.parent_sha256}")
        return unpack_state(content)


def _genome(algorithm: Algorithm) -> State:
    """What descendants go on from, and the parts of it that operators recombine."""
    found: State = {"algorithm": algorithm.state_dict(), "params": np.array(algorithm.policy_state()["params"])}
    if isinstance(algorithm, BaseAlgorithm):
        with contextlib.suppress(BaldwinError):  # a hybrid has none
            found["weights"] = algorithm.weights()
    return found


def play_matches(
    worker: Worker, policy: Arrays, members: Sequence[State], seed: int, count: int, max_steps: int | None
) -> tuple[dict[str, NDArray[Any]], int]:
    """What the greedy policy wins of so many games against each of the pool, and their environment steps."""
    own_seeds = seeds.seeds(count, seed, seeds.Stream.EVALUATE, MATCHES)
    params, moments = np.asarray(policy["params"], np.float32), np.asarray(policy["obs_moments"])
    trials = [Trial(n, 0, params) for n in range(count)]
    wins, played, steps = [], [], 0
    for member in members:
        only = Mixture(np.array([int(member["number"])]), np.ones(1))
        spec = RolloutSpec("train", 0, own_seeds, 0, max_steps=max_steps, obs_moments=moments, opponents=only)
        outcomes = worker.evaluate(trials, spec)
        steps += sum(outcome.env_steps for outcome in outcomes)
        games = np.asarray(outcomes[0].arrays[BLOCK_GAMES])
        wins.append(sum(game_score(*ended) for _, *ended in games.tolist()))
        played.append(float(len(games)))
    return {WINS: np.array(wins), GAMES: np.array(played)}, steps


def train_for(algorithm: Algorithm, worker: Worker, steps: int) -> None:
    """Train in this process until an update ends at least so many environment steps later: members change only between updates."""
    target = algorithm.env_steps + steps
    while algorithm.env_steps < target:
        metrics = None
        while metrics is None:
            for shared in algorithm.publish():
                worker.receive(shared)
            (job,) = algorithm.ask(1)
            metrics = algorithm.tell(run_job(job, worker))


def evaluate_policy(worker: Worker, policy: Arrays, seed: int, episodes: int, max_steps: int | None) -> Outcome:
    """The greedy policy on the seeds that members are compared on: mean return, each return, and each result of the environment."""
    width = min(episodes, MAX_WIDTH)
    own_seeds = seeds.seeds(width, seed, seeds.Stream.EVALUATE, SELECTION)
    params = np.asarray(policy["params"], np.float32)
    spec = RolloutSpec(
        "evaluate", 0, own_seeds, 0, max_steps=max_steps, obs_moments=np.asarray(policy["obs_moments"]), collect_results=True
    )
    played = worker.evaluate([Trial(n, 0, params) for n in range(episodes)], spec)
    returns = np.array([outcome.scalar for outcome in played])
    names = dict.fromkeys(name for outcome in played for name in outcome.arrays if name.startswith(RESULT))
    missing = np.full(1, np.nan)
    results = {name: np.concatenate([outcome.arrays.get(name, missing) for outcome in played]) for name in names}
    failed = next((outcome.reason for outcome in played if outcome.failed), "")
    return Outcome(0, float(returns.mean()), sum(o.env_steps for o in played), reason=failed, arrays={RETURNS: returns, **results})


@dataclass(slots=True)
class Member:
    """What is known of a member after its last evaluation."""

    id: int
    seed: int
    hyperparameters: Hyperparameters
    state_sha256: str = ""  # "": it has not been trained yet
    score: float = float("nan")
    returns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    results: dict[str, float] = field(default_factory=dict)  # means over episodes, by name; `return` among them
    line_steps: int = 0  # environment steps of its training, its ancestors' included
    rounds: int = 0  # of training, likewise

    def as_state(self) -> State:
        """All fields by name, as a checkpoint holds them."""
        return {
            "id": self.id,
            "seed": self.seed,
            "hyperparameters": dict(self.hyperparameters),
            "state_sha256": self.state_sha256,
            "score": self.score,
            "returns": self.returns,
            "results": dict(self.results),
            "line_steps": self.line_steps,
            "rounds": self.rounds,
        }

    @staticmethod
    def from_state(state: State) -> Member:
        """The inverse of `as_state`."""
        return Member(**state)
