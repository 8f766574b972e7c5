"""Runs workflow code against its history: inputs in, commands out.

Pure: no I/O, no clock, no randomness of its own; `loop`, `context` and `replay` are separate modules, `machine` puts
them together. The engine drives a machine through `Machine` alone.
"""
