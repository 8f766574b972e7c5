"""What people do to a ledger as a whole, one module for each subject: built on the client."""
