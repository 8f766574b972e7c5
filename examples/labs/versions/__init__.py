"""The workflow of lab 3 as it was, and two ways to add a step to it. All three are called `fulfil` in the ledger."""
