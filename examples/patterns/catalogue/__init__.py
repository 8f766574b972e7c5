"""The 43 control-flow patterns of the Workflow Patterns catalogue, each as a workflow that runs.

    python -m examples.patterns.catalogue

docs/patterns.md quotes them.
"""
