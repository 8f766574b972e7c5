"""What a process of an engine is asked to do, as one argument of its command line."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.rival import Place


@dataclass(frozen=True, slots=True)
class Request:
    """adapter: module with a class `Adapter`. task: a workload (W1 to W5, W7, W10 to W13); `begin` and `finish` of W6;
    `first` of W8; `serve` is the other process of W10; `steps` runs one workflow, for others to count what it does.
    sleep_s: of the sleepers of `begin`."""

    adapter: str
    task: str
    directory: str
    size: int = 1
    in_flight: int = 1
    sleep_s: float = 0.0
    ports: tuple[int, ...] = ()
    postgres: str | None = None
    postgres_pid: int | None = None
    variant: str = ""

    @classmethod
    def of(cls, adapter: str, task: str, place: Place) -> "Request":
        """For another process of the same engine in the same place."""
        return cls(
            adapter,
            task,
            str(place.directory),
            ports=place.ports,
            postgres=place.postgres,
            postgres_pid=place.postgres_pid,
            variant=place.variant,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Request":
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"ports": tuple(fields["ports"])})

    @property
    def place(self) -> Place:
        return Place(Path(self.directory), tuple(self.ports), self.postgres, self.postgres_pid, self.variant)
