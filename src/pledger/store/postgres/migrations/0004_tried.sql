-- Blocks remember every code that failed, so that two versions with one bug do not hand a run to each other for ever.
--
-- compatible-from: 1
--
-- tried_codes: the codes that have blocked the run at the event tried_event, newest last. They mean nothing once the run
-- has come further. Old code takes no notice of them.
ALTER TABLE pledger.run ADD COLUMN tried_event bigint, ADD COLUMN tried_codes text[] COLLATE "C";
