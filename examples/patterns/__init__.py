"""Shapes that processes come in, a file each: read it, run it, take it. README.md has the list."""
