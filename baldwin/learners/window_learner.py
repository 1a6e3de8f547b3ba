"""Learning from windows of steps: memory, targets over several steps, and an encoder that actor and critics share.

A window has burn-in steps, which only bring the memory up to date, then the steps that are trained on, then those that their
targets look ahead to. Encoder and memory turn observations into features; the learner behind them (SAC, TD3, DQN) knows only
features, as if they were observations, one step at a time:

    windows ── encoder, memory ── features ── targets ── update of the learner ── gradient of the features ── encoder
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.learners.auxiliary import Window
from baldwin.learners.curiosity import make_curiosity
from baldwin.learners.prediction import Prediction
from baldwin.learners.replay_learner import TD_ERROR, LearnerConfig, ReplayLearner, TensorBatch, TransitionLearner
from baldwin.learners.rnd import RND, make_rnd
from baldwin.learners.siamese import make_siamese
from baldwin.learners.window_config import WindowConfig
from baldwin.networks import EncoderConfig, Features, MemoryConfig, Obs, PolicyConfig, Representation, StackedNetwork
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec, describe_observations
from baldwin.ops import seeds
from baldwin.ops.priorities import sequence_error
from baldwin.ops.representation import gated_sum
from baldwin.ops.traces import n_step_targets, rescale, retrace_targets, unscale, vtrace_targets
from baldwin.replay import MEMORY, PrioritizedConfig, PrioritizedSampler, ReplayBuffer
from baldwin.rollout.novelty import Novelty
from baldwin.types import Metrics, State

WINDOWS_PER_SAMPLE = 8  # batches that are sampled in one call
ENCODER_SEED = 1  # apart from those of the networks behind it


class TensorWindow(NamedTuple):
    """A batch of windows as tensors; observations are normalised."""

    obs: Obs  # [B, T + 1, ...]
    action: Tensor  # [B, T, ...]
    reward: Tensor  # [B, T]
    discount: Tensor  # [B, T], gamma, or 0 after a termination
    valid: Tensor  # [B, T]
    log_prob: Tensor  # [B, T], or empty
    memory: Tensor  # [B, S]
    indices: NDArray[np.int64]  # [B]
    rows: NDArray[np.int64]  # [B, T]
    weights: Tensor | None  # [B]


@dataclass(slots=True)
class Seen:
    """What an encoder makes of a window from the end of the burn-in on."""

    encoder: Representation
    output: Tensor  # [B, T + 1, F], with the graph of its computation
    features: Tensor  # the same as a leaf, at which gradients arrive

    def take_gradient(self) -> Tensor:
        """The gradient of the encoder's parameters, by what arrived at the features, and at the parameters themselves, since the last call."""
        params = self.encoder.params
        if self.features.grad is not None:
            self.output.backward(self.features.grad, retain_graph=True)  # type: ignore[no-untyped-call]
        gradient = torch.zeros_like(params) if params.grad is None else params.grad
        self.features.grad = params.grad = None
        return gradient


class WindowLearner(ReplayLearner):
    """An encoder with memory, and a learner of its features."""

    config: LearnerConfig

    def __init__(self, policy: PolicyConfig, config: Any, *, obs: ObservationSpec, n_actions: int, discrete: bool, seed: int) -> None:
        """`config`: of an off-policy algorithm."""
        super().__init__(policy, config, obs=obs, seed=seed)
        self.config = config
        self._options = cast("WindowConfig", config)
        features = Features(policy, obs)
        self.state_size = features.state_size
        self._sequence, self._burn_in = self._options.sequence_for(policy), self._options.burn_in
        prioritized: PrioritizedConfig = config.prioritized or PrioritizedConfig()
        self._eta = prioritized.eta
        self.encoder = self._make_encoder(features, seed)
        self.learner: TransitionLearner = config.make_learner(
            head_of(policy), obs=feature_spec(features.n_outputs, obs), n_actions=n_actions, discrete=discrete, seed=seed
        )
        options = self._options
        separate = not options.shared_encoder and "actor" in self.learner.networks()
        self.actor_encoder = self._make_encoder(features, seeds.mix(seed, ENCODER_SEED)) if separate else self.encoder
        self.learner._generator = self._generator  # one stream of random numbers
        self._check(options, obs, separate)
        own = features.n_outputs, n_actions, self.learner.branches, seed, self.device
        bonuses = {"curiosity": make_curiosity(options.curiosity, *own), "rnd": make_rnd(options.rnd, *own)}
        self._bonuses = {name: bonus for name, bonus in bonuses.items() if bonus}
        encode = None if self.state_size else self.encoder.encode
        self._siamese = make_siamese(options.siamese, features.n_outputs, encode, self._q_of_numbers, seed, self.device)
        hidden = [name for name, encoder in policy.encoders.items() if encoder.kind == "none" and name in obs.vectors]
        self._prediction = (
            Prediction(options.prediction, obs, features.n_outputs, n_actions, seed, self.device, hidden) if options.prediction else None
        )
        encoders = (self.encoder, self.actor_encoder) if separate else (self.encoder,)
        self.learner.networks()["critic"].followers = (*encoders, *(n for loss in self._siamese.values() for n in loss.networks().values()))

    def _check(self, options: WindowConfig, obs: ObservationSpec, separate: bool) -> None:
        """Refuse options that this policy, or these actions, cannot have."""
        if not self.encoder.is_trained and (options.prediction or options.siamese.kind != "none" or options.siamese.contrastive_q):
            raise ConfigError(
                "algorithm.siamese and algorithm.prediction train an encoder, and this policy has none: its vectors are seen as they are. "
                "Set policy.encoders={SENSOR: mlp} or policy.memory.kind=gru"
            )
        if options.rnd.kind == "action" and isinstance(obs.action_space, spaces.Dict | spaces.Tuple | spaces.MultiDiscrete):
            raise ConfigError(
                "algorithm.rnd=action chooses among actions of one kind, and these have several parts. Use algorithm.rnd=reward"
            )
        if options.rnd.kind == "action" and separate and self.encoder.is_trained:
            raise ConfigError(
                "algorithm.rnd=action knows what the critics see, and actors need the same encoder. Set algorithm.shared_encoder=true"
            )
        if options.siamese.kind == "atc" and options.siamese.steps > self._sequence + self.config.n_step - 1:
            raise ConfigError(
                f"algorithm.siamese.steps={options.siamese.steps} is more than the {self._sequence + self.config.n_step - 1} steps of a window "
                "(sequence + n_step - 1). Set fewer, or a longer algorithm.sequence"
            )

    def _make_encoder(self, features: Features, seed: int) -> Representation:
        return Representation(features, features.init(seeds.mix(seed, ENCODER_SEED)), self._options.encoder_lr, self.device)

    def networks(self) -> dict[str, StackedNetwork]:
        """Those of the learner, the encoders that have parameters, and those of bonuses and auxiliary losses."""
        found = self.main_networks()
        for part in self._parts().values():
            found |= part.networks()
        return found

    def main_networks(self) -> dict[str, StackedNetwork]:
        """Those of the learner, and the encoders that have parameters."""
        encoders = {"encoder": self.encoder} | ({"actor_encoder": self.actor_encoder} if self.actor_encoder is not self.encoder else {})
        return self.learner.networks() | {name: encoder for name, encoder in encoders.items() if encoder.is_trained}

    def reset_optimizer(self) -> None:
        """Set the moments of all optimisers to zero, those of the learner's own included."""
        super().reset_optimizer()
        self.learner.reset_optimizer()

    def _parts(self) -> dict[str, Any]:
        """Bonuses and losses that have networks of their own."""
        parts = self._bonuses | self._siamese | ({"prediction": self._prediction} if self._prediction else {})
        return {name: part for name, part in parts.items() if part.networks()}

    def train(self, sampler: ReplayBuffer | PrioritizedSampler, k: int) -> Metrics:  # type: ignore[override]
        """k updates, a batch of windows each; the means of what they report."""
        if not self._options.refresh:
            return self._run_updates(sampler, k, self.update)
        replay = sampler.replay if isinstance(sampler, PrioritizedSampler) else sampler

        def update(window: TensorWindow) -> dict[str, Tensor]:
            report = self.update(window)
            self._refresh(replay, window)
            return report

        return self._run_updates(sampler, k, update)

    @torch.no_grad()
    def _refresh(self, replay: ReplayBuffer, window: TensorWindow) -> None:
        """Replace the stored memory of a window's steps, but its first, by what the actor's encoder makes of them now."""
        _, states = self.actor_encoder.unroll(window.obs, window.memory, after(window.valid, 0))
        found = window.valid.cpu().numpy().copy()
        found[:, 1:] &= found[:, :-1]  # the first one's memory is what the others follow from
        found[:, 0] = False
        replay.replace(MEMORY, window.rows[found], states[:, :-2].cpu().numpy()[found])

    def update(self, window: TensorWindow) -> dict[str, Tensor]:
        """One update of the learner on the trained steps of the windows, and one of the encoders."""
        critics = self._see(self.encoder, window)
        actor = critics if self.actor_encoder is self.encoder else self._see(self.actor_encoder, window)
        slow = self._see_slowly(self.encoder, window)
        given = self._for_parts(window, critics, slow)
        target = self._targets(window, actor, slow, given)
        rows = window.valid[:, self._burn_in : self._burn_in + self._sequence].flatten().nonzero().squeeze(1)  # steps that are there
        batch = self._transitions(window, critics, actor, target, rows)
        report = self.learner.update(batch)
        self.updates = self.learner.updates
        report |= self._train_encoders(critics, actor, given)
        for bonus in self._bonuses.values():
            report |= bonus.update(given)
        means = {name: value.float().mean() for name, value in report.items() if name != TD_ERROR}  # batches differ in size
        errors = {TD_ERROR: self._sequence_errors(report[TD_ERROR], rows, len(window.reward))} if TD_ERROR in report else {}
        return means | errors

    def _train_encoders(self, critics: Seen, actor: Seen, given: Window) -> dict[str, Tensor]:
        """One step of the encoders down the losses of critics (and actor), and of the auxiliary losses; what these report."""
        report: dict[str, Tensor] = {}
        if actor is not critics and actor.features.grad is not None:  # the actor may wait for its turn
            actor.encoder.descend(actor.take_gradient())
        if not critics.encoder.is_trained:
            return report
        main = total = critics.take_gradient()
        for name, loss, adaptive, networks in self._auxiliary_losses(given):
            for network in networks:
                network.params.grad = None
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call] # others share a part of its graph
            gradient = critics.take_gradient()
            total = total + (gated_sum(main, gradient) - main if adaptive else gradient)
            for network in networks:
                network.descend()
            report[f"{name}_loss"] = loss.detach()
        critics.encoder.descend(total)
        return report

    def _auxiliary_losses(self, given: Window) -> Iterator[tuple[str, Tensor, bool, list[StackedNetwork]]]:
        """Name, loss, whether its gradient is gated, and the networks besides the encoder that it trains."""
        for name, loss in self._siamese.items():
            networks = list(loss.networks().values()) or [self.learner.networks()["critic"]]
            yield name, loss.loss(given, self._generator), self._options.siamese.adaptive, networks
        if self._prediction:
            for name, value in self._prediction.losses(given).items():
                yield name, value, self._prediction.adaptive, [self._prediction.networks()[name]]

    def _for_parts(self, window: TensorWindow, critics: Seen, slow: Tensor) -> Window:
        """The steps after the burn-in, as bonuses and auxiliary losses take them."""
        first = self._burn_in
        numbers = self.learner.action_numbers(window.action[:, first:])
        return Window(
            from_step(window.obs, first),
            critics.features,
            slow,
            numbers,
            self.learner.branches,
            window.reward[:, first:],
            window.discount[:, first:] == 0,
            window.valid[:, first:],
        )

    def _q_of_numbers(self, features: Tensor, action: Tensor, target: bool) -> Tensor:
        """Values [N, M] by the critics, of actions as parts have them."""
        return self.learner.critic_values({VECTOR: features}, self.learner.stored_action(action), target=target)

    def _see(self, encoder: Representation, window: TensorWindow) -> Seen:
        """Features of a window after the burn-in."""
        first = self._burn_in
        with torch.set_grad_enabled(self._options.burn_in_gradient):
            state = self._burned_in(encoder, window, target=False)
        output, _ = encoder.unroll(from_step(window.obs, first), state, after(window.valid, first))
        return Seen(encoder, output, output.detach().requires_grad_(encoder.is_trained))

    @torch.no_grad()
    def _see_slowly(self, encoder: Representation, window: TensorWindow) -> Tensor:
        """Features of the observations by the slow copy of the encoder."""
        first = self._burn_in
        state = self._burned_in(encoder, window, target=True)
        return encoder.unroll(from_step(window.obs, first), state, after(window.valid, first), target=True)[0]

    def _burned_in(self, encoder: Representation, window: TensorWindow, target: bool) -> Tensor:
        """The memory [B, S] after the burn-in."""
        if not self._burn_in:
            return window.memory
        ahead = {key: x[:, : self._burn_in] for key, x in window.obs.items()}
        return encoder.unroll(ahead, window.memory, window.valid[:, : self._burn_in], target=target)[1][:, -1]

    @torch.no_grad()
    def _targets(self, window: TensorWindow, actor: Seen, slow: Tensor, given: Window) -> Tensor:
        """y [B, L] of the trained steps, with the bonuses."""
        options, first, length = self._options, self._burn_in, self._sequence
        acting = actor.features.detach()
        if self.learner.acts_by_target:
            acting = slow if actor.encoder is self.encoder else self._see_slowly(actor.encoder, window)
        obs, action = from_step(window.obs, first), window.action[:, first:]
        padded = torch.cat((action, torch.zeros_like(action[:, :1])), 1)  # nothing was done after the last step
        of_actions = options.target != "nstep"
        found = self.learner.target_values(_rows(slow, obs), _rows(acting, obs), padded.flatten(0, 1), of_actions=of_actions)
        value = found.value.view(slow.shape[:2])
        action_value, log_prob = ((x.view(slow.shape[:2])[:, :-1] if of_actions else x) for x in (found.action_value, found.log_prob))
        if options.rescale_values:
            value, action_value = unscale(value), unscale(action_value)
        bonus = sum(bonus.bonus(given) for name, bonus in self._bonuses.items() if name != "rnd" or options.rnd.kind == "reward")
        steps = window.reward[:, first:] + bonus, window.discount[:, first:], value
        going, n = window.valid[:, first:], self.config.n_step
        if options.target == "nstep":
            y = n_step_targets(*steps, going, n)
        else:
            ratio = (log_prob - window.log_prob[:, first:]).clamp(max=0).exp()
            if options.target == "retrace":
                y = retrace_targets(*steps, action_value, ratio, going, n, options.trace_lambda)
            else:
                y = vtrace_targets(*steps, ratio, going, n, options.trace_lambda)
        return (rescale(y) if options.rescale_values else y)[:, :length]

    def _transitions(self, window: TensorWindow, critics: Seen, actor: Seen, target: Tensor, rows: Tensor) -> TensorBatch:
        """The trained steps that are there, as the learner takes them."""
        first, last = self._burn_in, self._burn_in + self._sequence
        obs = {key: x[:, first:last] for key, x in window.obs.items()}
        seen = _rows(critics.features[:, : self._sequence], obs, rows)
        by_actor = _rows(actor.features[:, : self._sequence], obs, rows)
        if actor is critics and not self._options.actor_trains_encoder:
            by_actor = {key: x.detach() for key, x in by_actor.items()}
        weights = None if window.weights is None else window.weights.repeat_interleave(self._sequence)[rows]
        action, reward = (x[:, first:last].flatten(0, 1)[rows] for x in (window.action, window.reward))
        y = target.flatten()[rows]
        indices = None if window.weights is None else rows.cpu().numpy()
        return TensorBatch(seen, action, reward, seen, torch.zeros_like(y), indices, weights, y, by_actor)

    def _sequence_errors(self, errors: Tensor, rows: Tensor, count: int) -> Tensor:
        """One TD error [B] for each window, from those of its steps."""
        each, there = np.zeros(count * self._sequence), np.zeros(count * self._sequence, np.bool_)
        each[rows.cpu().numpy()], there[rows.cpu().numpy()] = errors.cpu().numpy(), True
        shape = count, self._sequence
        return torch.from_numpy(sequence_error(each.reshape(shape), there.reshape(shape), self._eta))

    def _sample_batches(self, sampler: Any, k: int, rows: int) -> Iterator[TensorWindow]:
        """k batches of windows; several are sampled in one call, unless each depends on the update before it."""
        config = self.config
        one_by_one = self._has_images or isinstance(sampler, PrioritizedSampler) or self._options.refresh
        at_once = 1 if one_by_one else WINDOWS_PER_SAMPLE
        for first in range(0, k, at_once):
            count = min(at_once, k - first)
            windows = sampler.sample_windows(count, config.batch_size, self._burn_in, self._sequence + config.n_step - 1)
            obs = self._prepare(windows.obs)
            action, reward, terminated, valid, log_prob, memory = (
                torch.from_numpy(np.ascontiguousarray(a)).to(self.device)
                for a in (windows.action, windows.reward, windows.terminated, windows.valid, windows.log_prob, windows.memory)
            )
            frames = 1.0 if windows.elapsed is None else torch.from_numpy(windows.elapsed).to(self.device)
            discount = config.gamma**frames * (~terminated).float()
            for n in range(count):
                yield TensorWindow(
                    {key: x[n] for key, x in obs.items()},
                    action[n],
                    reward[n],
                    discount[n],
                    valid[n],
                    log_prob[n],
                    memory[n],
                    windows.indices[n],
                    windows.rows[n],
                    None if windows.weights is None else torch.from_numpy(windows.weights[n]).to(self.device),
                )

    def actor_vectors(self) -> NDArray[np.float32]:
        """The greedy policy's parameters [1, D]: encoder, memory, and what is behind them."""
        return np.concatenate([self.actor_encoder.vectors(), self.learner.actor_vectors()], 1)

    def acting_vector(self, number: int) -> NDArray[np.float32]:
        """The parameters [D] that collect segment `number`."""
        return np.concatenate([self.actor_encoder.vectors()[0], self.learner.acting_vector(number)])

    def novelty(self) -> Novelty | None:
        """What chooses among several draws of the policy, if anything does."""
        rnd = self._bonuses.get("rnd")
        return rnd.novelty(self._options.rnd.n_samples) if isinstance(rnd, RND) and self._options.rnd.kind == "action" else None

    def set_actor(self, vectors: NDArray[np.float32]) -> None:
        """Replace the actor, with the encoder that it sees by, by this policy [D]."""
        row = np.atleast_2d(vectors)
        size = self.actor_encoder.params.shape[1]
        self.learner.set_actor(row[:, size:])
        self.actor_encoder.reset(row[:, :size])

    @torch.no_grad()
    def q_values(self, obs: Observation, action: NDArray[Any] | None = None, actor_obs: Observation | None = None) -> NDArray[np.float32]:
        """Values [B] of first observations of episodes [B, ...], and of these actions or the greedy ones."""
        x = {key: value[:, None] for key, value in self._prepare(obs).items()}
        state = torch.zeros(len(next(iter(x.values()))), self.state_size, device=self.device)
        seen, by_actor = (
            {key: value.cpu().numpy() for key, value in _rows(encoder.unroll(x, state)[0], x).items()}
            for encoder in (self.encoder, self.actor_encoder)
        )
        q = self.learner.q_values(seen, action, by_actor)
        return unscale(torch.from_numpy(q)).numpy() if self._options.rescale_values else q

    def state_dict(self) -> State:
        """The learner, the encoders, and counters."""
        encoders = {"encoder": self.encoder.state_dict(), "actor_encoder": self.actor_encoder.state_dict()}
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {"learner": self.learner.state_dict(), "calls": self._calls} | encoders | ({"parts": parts} if parts else {})

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.learner.load_state_dict(state["learner"])
        self.updates, self._calls = self.learner.updates, int(state["calls"])
        for name in {"encoder", "encoder" if self.actor_encoder is self.encoder else "actor_encoder"}:
            getattr(self, name).load_state_dict(state[name])
        for name, part in self._parts().items():
            part.load_state_dict(state["parts"][name])


def feature_spec(size: int, obs: ObservationSpec) -> ObservationSpec:
    """Features as if they were what the environment shows, with its mask of legal actions."""
    spec = describe_observations(spaces.Box(-np.inf, np.inf, (size,), np.float32), "features")
    return replace(spec, mask=obs.mask, action_space=obs.action_space)


def head_of(policy: PolicyConfig) -> PolicyConfig:
    """What is behind encoders and memory; features are not normalised."""
    return policy.model_copy(
        update={"encoders": {}, "images": EncoderConfig(), "memory": MemoryConfig(), "network": None, "normalize_obs": False}
    )


def from_step(obs: Obs, first: int) -> Obs:
    """Observations [B, T, ...] from this step on."""
    return {key: x[:, first:] for key, x in obs.items()}


def after(valid: Tensor, first: int) -> Tensor:
    """Which observations from this step on [B, T + 1] are followed by a step: not the last one."""
    return torch.cat((valid[:, first:], torch.zeros_like(valid[:, :1])), 1)


def _rows(features: Tensor, obs: Obs, rows: Tensor | None = None) -> Obs:
    """Features [B, T, F], and masks of legal actions, below each other; of these rows only."""
    found = {VECTOR: features} | ({ACTION_MASK: obs[ACTION_MASK]} if ACTION_MASK in obs else {})
    return {key: x.flatten(0, 1) if rows is None else x.flatten(0, 1)[rows] for key, x in found.items()}
