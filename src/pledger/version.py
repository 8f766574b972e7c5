"""The version of Pledger, in one place: packaging reads it here, and so does the identity of code."""

__version__ = "0.1.0"
