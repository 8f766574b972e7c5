-- Runs in doubt: they were in motion when the ledger lost its newest commits, and may have gone on in those.
--
-- compatible-from: 1

CREATE TABLE pledger.loss (
    run_key bigint PRIMARY KEY REFERENCES pledger.run ON DELETE CASCADE,
    last_event bigint NOT NULL,
    declared_ms bigint NOT NULL
);
