"""Which parts and configurations workers died over, and how those are tried again."""

from dataclasses import dataclass, field, replace

from fastsim.sweeps.runner.dispatch import Event
from fastsim.sweeps.worker import Task

KILLS_UNTIL_ALONE = 2
"""After so many deaths over one part its configurations run one at a time."""
KILLS_UNTIL_ERROR = 3
"""A configuration that killed so many workers, alone, becomes a row of status `error`."""
DEATHS_WITHOUT_PROGRESS = 12
"""So many deaths in a row without a part or a configuration getting done end the sweep."""


@dataclass
class DeathCounter:
    """The deaths of one sweep: by part, by configuration, and in a row."""

    by_part: dict[int, int] = field(default_factory=dict)
    by_configuration: dict[int, int] = field(default_factory=dict)
    in_a_row: int = 0

    @property
    def too_many(self) -> bool:
        """Whether workers die whatever they do."""
        return self.in_a_row > DEATHS_WITHOUT_PROGRESS

    def progress(self) -> None:
        """A part or a configuration got done."""
        self.in_a_row = 0

    def after_death(self, event: Event) -> Task | None:
        """Count a death; how what the worker was doing is tried again, so that what kills is found and then skipped."""
        self.in_a_row += 1
        task: Task | None = event.task
        if task is None or self.too_many:
            return None
        part = task.part.index
        self.by_part[part] = self.by_part.get(part, 0) + 1
        skip = task.skip
        if event.at is not None:
            kills = self.by_configuration[event.at] = self.by_configuration.get(event.at, 0) + 1
            if kills >= KILLS_UNTIL_ERROR:
                skip |= {event.at}
                self.in_a_row = 0
        return replace(task, alone=self.by_part[part] >= KILLS_UNTIL_ALONE, skip=skip)
