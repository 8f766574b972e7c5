"""One adapter for each engine, a class `Adapter` in a module of its own. They are imported where their engine is."""
