"""The proof that anyone can run again: `make prove`. What it shows is in docs/proof.md."""
