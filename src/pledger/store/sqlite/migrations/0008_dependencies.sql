-- Systems that activities depend on, and what is left of their retry budgets.
-- compatible-from: 1

-- state: JSON, as engine.port.circuit reads and writes it.
CREATE TABLE pledger_dependency (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;
