-- The outside world's own truth. Nothing in here is Pledger's: it stands for five companies' databases.
--
-- Effects are rows keyed by the idempotency key of whoever asked for them. Nothing forbids two of them for one order:
-- preventing that is the caller's business, and finding it is the reconciliation's.

CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- The warehouse. on_hand is what no reservation holds.
CREATE TABLE stock (
    product_id INTEGER PRIMARY KEY,
    opening    INTEGER NOT NULL CHECK (opening >= 0),
    on_hand    INTEGER NOT NULL CHECK (on_hand >= 0)
) STRICT;

CREATE TABLE reservations (
    key      TEXT PRIMARY KEY,
    order_id INTEGER NOT NULL,
    released INTEGER NOT NULL DEFAULT 0 CHECK (released IN (0, 1))
) STRICT;

CREATE TABLE reserved_units (
    key        TEXT NOT NULL REFERENCES reservations (key),
    product_id INTEGER NOT NULL REFERENCES stock (product_id),
    units      INTEGER NOT NULL CHECK (units > 0),
    PRIMARY KEY (key, product_id)
) STRICT;

-- The card processor. repeats counts the requests that came again and were answered with the first receipt.
CREATE TABLE charges (
    key          TEXT PRIMARY KEY,
    order_id     INTEGER NOT NULL,
    amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
    repeats      INTEGER NOT NULL DEFAULT 0,
    refunded     INTEGER NOT NULL DEFAULT 0 CHECK (refunded IN (0, 1))
) STRICT;

-- The couriers.
CREATE TABLE bookings (
    key       TEXT PRIMARY KEY,
    order_id  INTEGER NOT NULL,
    courier   TEXT NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0 CHECK (cancelled IN (0, 1))
) STRICT;

-- The dispatch board: what is booked waits here until it leaves the house, or until somebody takes it back.
-- A parcel leaves only once, and one that was taken back does not leave.
CREATE TABLE parcels (
    order_id INTEGER PRIMARY KEY,
    due_at   REAL,     -- seconds since 1970; NULL: the courier never turns up
    state    TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'dispatched', 'withdrawn')),
    told     INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1))  -- the shop has acknowledged that it has left
) STRICT;

CREATE TABLE no_shows (order_id INTEGER PRIMARY KEY) STRICT;

-- The post office: confirmations sent to customers.
CREATE TABLE letters (key TEXT PRIMARY KEY, order_id INTEGER NOT NULL) STRICT;

-- Every request, written before it is served. outcome NULL: whoever called was dead before the answer.
CREATE TABLE calls (
    call_id   INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    key       TEXT NOT NULL,
    attempt   INTEGER NOT NULL,  -- counted here, by the outside: 1 for the first request with this key
    outcome   TEXT,
    UNIQUE (operation, key, attempt)
) STRICT;
