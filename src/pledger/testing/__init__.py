"""Testing, for users and for Pledger itself: what is here runs the production engine.

environment  the engine of one test, in virtual time; as a pytest fixture: pledger_env
Simulation   many workers and clients on a virtual clock, with faults, everything drawn from a seed
Faults       what goes wrong in it, and how often
outside      the outside world that simulated activities act on
replay       a recorded history against the code as it is now
"""

from pledger.testing.async_environment import AsyncEnvironment, EnvironmentFailedError
from pledger.testing.environment import Environment, TimeStandsStillError, environment
from pledger.testing.faults import Faults
from pledger.testing.invariants import Invariant
from pledger.testing.journal import Caller
from pledger.testing.replaying import replay
from pledger.testing.simulation import Simulation, SimulationFailedError
from pledger.testing.virtual_time import JumpingLoop
from pledger.testing.world import World, outside

__all__ = [
    "AsyncEnvironment",
    "Caller",
    "Environment",
    "EnvironmentFailedError",
    "Faults",
    "Invariant",
    "JumpingLoop",
    "Simulation",
    "SimulationFailedError",
    "TimeStandsStillError",
    "World",
    "environment",
    "outside",
    "replay",
]
