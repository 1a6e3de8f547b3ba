"""One member whose hyper-parameters change from round to round as it was written down: a schedule that PBT found, replayed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baldwin.ops.ranges import Value
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import Member
from baldwin.populations.population import CONTINUE, START, Plan, Population


class ScheduleConfig(PopulationConfig):
    """One member, with the hyper-parameters of each round written down (baldwin lineage DIR --schedule FILE)."""

    name: Literal["schedule"] = "schedule"
    members: Literal[1] = 1
    rounds: list[dict[str, Value]] = Field(min_length=1, description="Config keys and values of each round; the last ones stay")


class Schedule(Population):
    """One member whose hyper-parameters follow a schedule of an earlier run."""

    _config: ScheduleConfig

    def __init__(self, config: ScheduleConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        keys = {key for values in config.rounds for key in values}
        used = {
            key: {"choice": [v for n, v in enumerate(c) if v not in c[:n]]}
            for key in keys
            for c in [[r[key] for r in config.rounds if key in r]]
        }
        config.model_copy(update={"search": used}).check_search(context.sections)
        self.members = [Member(0, self.member_seed(0), config.rounds[0])]

    def _plan(self) -> Plan | None:
        if self._open:
            return None
        member, number = self.members[0], self._planned
        values = self._config.rounds[min(number, len(self._config.rounds) - 1)]
        return Plan(
            0,
            member.seed,
            values,
            CONTINUE if number else START,
            parents=[0] if number else [],
            state_sha256=member.state_sha256,
            before=member.hyperparameters,
            rounds=member.rounds,
            line_steps=member.line_steps,
        )

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if child.state_sha256:
            self.members = [child]


register_population(PopulationEntry(ScheduleConfig, Schedule, "arXiv 1711.09846"))
