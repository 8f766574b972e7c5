"""Programs that use Pledger as its users do. Each folder has a page of its own."""
