"""Order fulfilment: 830 real orders against outside systems that misbehave. Start with README.md and workflow.py."""
