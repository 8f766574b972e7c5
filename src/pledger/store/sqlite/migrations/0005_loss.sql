-- Runs in doubt: they were in motion when the ledger lost its newest commits, and may have gone on in those.
--
-- compatible-from: 1

-- No step writes here, so that none pays for the foreign key.
CREATE TABLE pledger_loss (
    run_key INTEGER PRIMARY KEY REFERENCES pledger_run ON DELETE CASCADE,
    last_event INTEGER NOT NULL,
    declared_ms INTEGER NOT NULL
) STRICT;
