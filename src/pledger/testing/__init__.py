"""Testing, for users and for Pledger itself: what is here runs the production engine.

Simulation   many workers and clients on a virtual clock, with faults, everything drawn from a seed
Faults       what goes wrong in it, and how often
outside      the outside world that simulated activities act on
replay       a recorded history against the code as it is now
"""

from pledger.testing.faults import Faults
from pledger.testing.invariants import Invariant
from pledger.testing.journal import Caller
from pledger.testing.replaying import replay
from pledger.testing.simulation import Simulation, SimulationFailedError
from pledger.testing.world import World, outside

__all__ = ["Caller", "Faults", "Invariant", "Simulation", "SimulationFailedError", "World", "outside", "replay"]
