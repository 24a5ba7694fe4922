"""A violation of a promise."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Violation:
    what: str
    events: tuple  # the events that contradict each other

    def __str__(self):
        return "\n".join([self.what, *(f"    {event}" for event in self.events)])
