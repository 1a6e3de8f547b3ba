"""What is trained on windows of steps instead of single transitions: targets over several steps, and policies with memory."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.config_base import ConfigModel
from baldwin.learners.curiosity import CuriosityConfig
from baldwin.learners.prediction import PredictionSwitch
from baldwin.learners.rnd import RNDConfig
from baldwin.learners.siamese import SiameseConfig
from baldwin.networks import PolicyConfig

SEQUENCE_WITH_MEMORY = 16


class WindowConfig(ConfigModel):
    """Windows of steps: `burn_in` steps ahead of a sampled one, `sequence` steps that are trained on, and `n_step` for their targets."""

    off_policy_targets: ClassVar[bool] = True  # the policy has the probabilities that corrected targets need
    rescalable: ClassVar[bool] = True  # values can be rescaled

    target: Literal["nstep", "retrace", "vtrace"] = Field(
        "nstep",
        description="Over n_step steps: uncorrected; Retrace; V-trace of the next state. The last two correct for what the policy would not do now",
    )
    trace_lambda: float = Field(1.0, ge=0, le=1, description="retrace, vtrace: how much later steps count")
    sequence: PositiveInt | Literal["auto"] = Field(
        "auto",
        description=f"Steps of a window that are trained on; auto: {SEQUENCE_WITH_MEMORY} of a policy with memory, else 1",
    )
    burn_in: int = Field(0, ge=0, description="Steps before those that only bring the memory up to date")
    burn_in_gradient: bool = Field(False, description="Whether gradients flow back into these steps")
    refresh: bool = Field(
        False, description="After an update, the memory that the new network has in its windows replaces what is stored in the replay"
    )
    rescale_values: bool = Field(False, description="Critics learn sign(x) (sqrt(|x| + 1) - 1) + 0.001 x of the returns, as in R2D2")
    shared_encoder: bool = Field(True, description="On windows: actor and critics see by one encoder and memory, which the critics train")
    actor_trains_encoder: bool = Field(False, description="The actor trains a shared encoder, too")
    curiosity: CuriosityConfig = CuriosityConfig()
    rnd: RNDConfig = RNDConfig()
    siamese: SiameseConfig = SiameseConfig()
    prediction: PredictionSwitch = Field(
        None, description="Train the encoder to predict features, rewards and observations: true, or other values than the defaults"
    )
    encoder_lr: PositiveFloat = Field(3e-4, description="On windows: learning rate of encoder and memory")

    def sequence_for(self, policy: PolicyConfig) -> int:
        """Steps of a window that are trained on."""
        return (SEQUENCE_WITH_MEMORY if policy.has_memory else 1) if self.sequence == "auto" else self.sequence

    def trains_on_windows(self, policy: PolicyConfig) -> bool:
        """Whether anything asks for more than transitions."""
        bonus = self.curiosity.kind != "none" or self.rnd.kind != "none"
        shapes_features = self.siamese.kind != "none" or self.siamese.contrastive_q or self.prediction is not None
        windows = policy.has_memory or self.target != "nstep" or self.sequence_for(policy) > 1
        return windows or self.rescale_values or bonus or shapes_features

    def check_windows(self, name: str, policy: PolicyConfig) -> None:
        """Refuse what does not go together.

        Raises:
            ValueError: with what to change.
        """
        if self.burn_in and not policy.has_memory:
            raise ValueError(
                f"algorithm.burn_in={self.burn_in} brings a policy's memory up to date, and this policy has none. "
                "Set policy.memory.kind=lstm, or leave burn_in out"
            )
        if self.refresh and not policy.has_memory:
            raise ValueError(
                "algorithm.refresh replaces stored states of a policy's memory, and this policy has none. "
                "Set policy.memory.kind=lstm, or leave refresh out"
            )
        if self.target != "nstep" and not self.off_policy_targets:
            raise ValueError(
                f"algorithm.target={self.target} needs the probabilities of actions; the policy of {name} is deterministic. Use target=nstep, or sac"
            )
        if self.target == "nstep" and self.is_changed("trace_lambda"):
            raise ValueError(
                "algorithm.trace_lambda has no effect with algorithm.target=nstep. Set target=retrace or vtrace, or leave it out"
            )
        for key in ("encoder_lr", "shared_encoder", "actor_trains_encoder"):
            if self.is_changed(key) and not self.trains_on_windows(policy):
                raise ValueError(
                    f"algorithm.{key} is for learning from windows of steps, which nothing here asks for. "
                    "Set policy.memory.kind=gru or algorithm.sequence=8, or leave it out"
                )
        if self.rescale_values and not self.rescalable:
            raise ValueError(f"algorithm.rescale_values: the entropy bonus of {name} is on the scale of rewards. Use it with dqn or td3")
        if self.burn_in_gradient and not self.burn_in:
            raise ValueError("algorithm.burn_in_gradient has no effect without algorithm.burn_in. Set both, or neither")
        if self.actor_trains_encoder and not self.shared_encoder:
            raise ValueError(
                "algorithm.actor_trains_encoder is for a shared encoder: one of its own is always trained by the actor. Leave it out"
            )
        critic = getattr(self, "critic", None)
        if self.trains_on_windows(policy) and critic is not None and (critic.images is not None or critic.encoders is not None):
            raise ValueError(
                "algorithm.critic.images and critic.encoders: on windows of steps, critics see by the policy's encoders. Leave them out"
            )
        if self.trains_on_windows(policy) and policy.kind != "mlp":
            raise ValueError(
                f"policy.kind={policy.kind} is one network, of which critics cannot share the encoder. "
                "Use modules for policy.encoders and policy.memory instead"
            )
