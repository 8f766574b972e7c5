-- Systems that activities depend on, and what is left of their retry budgets.
-- compatible-from: 1

-- state: JSON, as engine.port.circuit reads and writes it.
CREATE TABLE pledger.dependency (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
