"""From annotated Python values to JSON trees and back. `payloads.py` and `signature.py` are the doors.

    json_tree   JSON text <-> tree, its limits, and the paths that errors name
    codec       what a codec is, the envelope {"$type": ..., "value": ...}, and the words of a misfit
    scalars     values without parts: str, int, float, Decimal, datetime, UUID, enums ...
    containers  list, tuple, set, frozenset, dict
    untyped     positions without a usable annotation
    unions      A | B, Optional, Literal
    records     dataclasses, attrs classes, msgspec Structs, NamedTuples, TypedDicts
    models      pydantic models
    faithful    what a model loses in pydantic's JSON, and how it gets it back
    notes       how that is written, and what older versions make of it
    hints       annotation -> codec, once per annotation

Why not msgspec's own typed encoder: it writes by the run-time type and reads by the annotation, so that a tuple under
`Any`, a NaN, an int annotated as `str` or the zone of a datetime changes on its way and nobody is told. Here one codec
does both ways, checks while it writes, and leaves only the JSON text to msgspec.
"""
