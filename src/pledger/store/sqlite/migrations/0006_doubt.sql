-- Runs that slept when the ledger lost its newest commits: a message that is lost too may have woken them in those.
--
-- compatible-from: 1
--
-- moved: whether the run was in motion. Old code takes every run that is there for one that was.
ALTER TABLE pledger_loss ADD COLUMN moved INTEGER NOT NULL DEFAULT 1 CHECK (moved IN (0, 1));
