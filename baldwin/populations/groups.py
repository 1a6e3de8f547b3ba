"""One policy for each group of players, which may see and do other things than those of the other groups.

Every round each group trains by itself, while the players of the other groups are played by the policies that those had after the round
before, and players of no group, or of one that has no policy yet, by the world's script. So the rounds of all groups are jobs side by side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from baldwin.envs import EnvConfig, check_alike, check_env, list_players
from baldwin.errors import ConfigError, nearest
from baldwin.ops.statistics import return_stats
from baldwin.parts import Sections
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import Member, with_hyperparameters
from baldwin.populations.population import CONTINUE, START, Plan, Population
from baldwin.rollout import FrozenPlayers
from baldwin.types import Arrays, Individual, Metrics, Outcome, State

RESERVED = ("best", "front")  # which `--member` takes for something else
Groupings = dict[str, list[str]]
"""Names of players by group."""


class GroupsConfig(PopulationConfig):
    """One policy for each group of players, all of which learn side by side."""

    name: Literal["groups"] = "groups"
    members: Literal[1] = Field(1, description="There are as many members as groups")
    groups: Literal["each"] | Groupings = Field(
        "each",
        description="Players by group, as in {hunters: [adversary_0, adversary_1], prey: [agent_0]}: one policy plays all of a group, who see "
        "the same kind of thing. each: a policy of its own for every player. Who is in no group is played by the world's script. "
        "{prey: null} leaves out a group of a preset",
    )
    settings: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Keys of policy and algorithm that differ in a group, as in {prey: {algorithm.lr: 1e-3}}"
    )

    @field_validator("groups", mode="before")
    @classmethod
    def _without_groups_that_are_null(cls, value: Any) -> Any:
        return {name: players for name, players in value.items() if players is not None} if isinstance(value, dict) else value

    @field_validator("groups")
    @classmethod
    def _groups_have_names_and_players(cls, value: Literal["each"] | Groupings) -> Literal["each"] | Groupings:
        for name, players in value.items() if isinstance(value, dict) else ():
            if name in RESERVED or not name.isprintable() or not name.strip() or "/" in name:
                raise ValueError(f"expected a name without / other than {', '.join(RESERVED)} for a group; got {name!r}")
            if not players:
                raise ValueError(f"group {name!r} has no players: name some, or leave the group out")
        if not value:
            raise ValueError("expected at least one group, or each")
        return value


def resolve_groups(config: GroupsConfig, env: EnvConfig) -> Groupings:
    """The groups with `each` spelled out, checked against the players of the world.

    Raises:
        ConfigError: a player that is not there, or is in two groups; or a world of one player.
        EnvironmentFailure: the world cannot be made, or players of a group see or do different things.
    """
    players = {player.name: player for player in list_players(env)}
    if len(players) < 2:
        raise ConfigError(f"population.groups: environment {env.id!r} has one player: there is nothing to group")
    groups = {name: [name] for name in players} if config.groups == "each" else config.groups
    group_of: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if name not in players:
                there = f"there are: {', '.join(players)}.{nearest(name, players)}"
                raise ConfigError(f"population.groups: there is no player {name!r} for group {group!r}; {there}")
            if name in group_of:
                where = f"groups {group_of[name]!r} and {group!r}" if group_of[name] != group else f"group {group!r} twice"
                raise ConfigError(f"population.groups: player {name!r} is in {where}: a player has one policy")
            group_of[name] = group
        check_alike([players[name] for name in names], f"population.groups: {group}", "Put them into groups of their own")
    for group in config.settings:
        if group not in groups:
            raise ConfigError(f"population.settings: there is no group {group!r}; there are: {', '.join(groups)}.{nearest(group, groups)}")
    return groups


def group_sections(sections: Sections, config: GroupsConfig, group: str) -> Sections:
    """The sections of a run as a group has them: its players, what these see and do, and its own settings.

    Raises:
        ConfigError: a setting that is not allowed, or an algorithm that cannot play so many players.
        EnvironmentFailure: the environment cannot be used.
    """
    assert isinstance(config.groups, dict), "with_groups spells them out"
    settings = config.settings.get(group, {})
    for key in settings:
        if key.split(".")[0] not in ("policy", "algorithm"):
            raise ConfigError(f"population.settings.{group}: expected keys of policy and algorithm, such as algorithm.lr; got {key!r}")
    env = sections.env.model_copy(update={"players": config.groups[group]})
    env_spec = sections.env_spec if env == sections.env else check_env(env)
    try:
        found = with_hyperparameters(replace(sections, env=env, env_spec=env_spec), settings)
        found.algorithm.check(found.policy, generations_kept=1)
        found.check_players()
    except ValueError as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ConfigError(f"population.settings.{group}: {reason}; got {settings}") from error
    except ConfigError as error:
        raise ConfigError(f"group {group!r}: {error}") from error
    return found


class Groups(Population):
    """Member n is the policy of group n. A round is one of each; one waits for all. The run's own policy is that of the first group."""

    _config: GroupsConfig

    def __init__(self, config: GroupsConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.search:
            raise ConfigError(f"groups do not search hyper-parameters: give {', '.join(config.search)} one value each")
        self.names = list(config.groups)
        self._sections = [group_sections(context.sections, config, name) for name in self.names]
        self.members = [Member(n, self.member_seed(n), dict(config.settings.get(name, {}))) for n, name in enumerate(self.names)]
        self._ready = list(range(len(self.names)))
        self._policies: dict[int, tuple[str, Arrays]] = {}  # of each group: the state that it was read from, or its seed

    @property
    def waits_for_all(self) -> bool:
        """Always: in a round, everybody meets the policies of the round before."""
        return True

    @property
    def best(self) -> Member | None:
        """The first group, once it was trained: returns of different groups do not compare."""
        return self.members[0] if self.members[0].state_sha256 else None

    def policy_state(self) -> Arrays:
        """The greedy policy of the first group."""
        return self._policy(0)

    def policy_at_play(self, name: str) -> tuple[Sections, Arrays]:
        """What a group plays in and with whom, all by their policies of now, and its own policy."""
        number = self.names.index(name)
        return replace(self._sections[number], others=self._others_of(number)), self._policy(number)

    def _policy(self, number: int) -> Arrays:
        member, sections = self.members[number], self._sections[number]
        source = member.state_sha256 or str(member.seed)
        known, policy = self._policies.get(number, ("", {}))
        if known != source:
            if self.files and member.state_sha256:
                policy = self.files.load_part(member.state_sha256, "policy")
            else:
                policy = sections.build(member.seed, policy_only=True)[0].policy_state()
            self._policies[number] = (source, policy)
        return policy

    def _others_of(self, number: int) -> tuple[FrozenPlayers, ...]:
        trained = [n for n, member in enumerate(self.members) if n != number and member.state_sha256]
        return tuple(frozen_players(self._sections[n], self._policy(n)) for n in trained)

    def _all_planned(self) -> bool:
        return not self._ready

    def _plan(self) -> Plan | None:
        if not self._ready:
            return None
        member = self.members[self._ready.pop(0)]
        return Plan(
            member.id,
            member.seed,
            member.hyperparameters,
            CONTINUE if member.state_sha256 else START,
            parents=[member.id] if member.state_sha256 else [],
            state_sha256=member.state_sha256,
            before=member.hyperparameters,
            rounds=member.rounds,
            leave_episodes=bool(member.state_sha256),  # episodes with players of the round before stay behind
        )

    def _sections_of(self, plan: Plan) -> Sections:
        return replace(self._sections[plan.member], others=self._others_of(plan.member))

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if not child.state_sha256:  # it failed: it tries again with another seed, since the same would only do the same
            child.seed = self.member_seed(len(self.names) + self._finished)
            child.state_sha256, child.line_steps = plan.state_sha256, self.members[plan.member].line_steps
        self.members[plan.member] = child

    def _select(self) -> None:
        self._ready = list(range(len(self.names)))

    def _record(self, plan: Plan, child: Member, outcome: Outcome) -> Individual:
        return super()._record(plan, child, outcome) | {"group": self.names[plan.member]}

    def _more_metrics(self) -> Metrics:
        """Returns against the others of the round before: those of the first group, and the means of all."""
        first = self.members[0]
        own = return_stats(first.returns) | {"best": first.score} if np.isfinite(first.score) else {}
        return own | {f"return/{self.names[m.id]}": m.score for m in self.members if np.isfinite(m.score)}

    def state_dict(self) -> State:
        """And the names of the groups, none of which dominates another, and who waits for a worker."""
        return super().state_dict() | {"names": list(self.names), "front": list(range(len(self.names))), "ready": list(self._ready)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._ready = [int(n) for n in state["ready"]]


def frozen_players(sections: Sections, policy: Arrays) -> FrozenPlayers:
    """The players of a group as a policy of it plays them."""
    return FrozenPlayers(tuple(sections.env.players), sections.env_spec, sections.policy, policy)


register_population(PopulationEntry(GroupsConfig, Groups, "Tan 1993, ICML (independent learners)"))
