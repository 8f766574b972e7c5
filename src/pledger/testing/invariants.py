"""What must hold when a simulation is over: the ledger, the outside world and the clients' journals tell one story.

Each invariant takes the simulation and gives what is wrong, in words. What can be checked at every commit stands in
`audit`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pledger import errors
from pledger.client import History
from pledger.engine import blocks
from pledger.engine.loading import identity_of
from pledger.engine.port.filters import attribute_of
from pledger.engine.port.posts import notice_id
from pledger.history import chains, events, memos, payloads, transition
from pledger.history.sealing import is_sealed
from pledger.history.state import RunState, fold
from pledger.store.losses import JUMP
from pledger.testing.opening import plain_history
from pledger.testing.replaying import replay

if TYPE_CHECKING:
    from pledger.engine.port.records import Message, RunRow
    from pledger.following import StreamItem
    from pledger.history.transition import StoredTransition, Transition
    from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
    from pledger.store.memory import State
    from pledger.testing.audit import Auditor
    from pledger.testing.journal import Journal, Program
    from pledger.testing.records import Record
    from pledger.testing.simulation import Simulation
    from pledger.testing.world import World

Invariant: TypeAlias = "Callable[[Simulation], Sequence[str]]"


class Judged(Protocol):
    """What is over, and is looked at: a simulation, or whatever else has left a ledger and what was seen beside it.

    state: all that the ledger holds. world: what activities did outside. programs: what clients did, and were told.
    """

    @property
    def state(self) -> State: ...
    @property
    def auditor(self) -> Auditor: ...
    @property
    def world(self) -> World: ...
    @property
    def programs(self) -> Sequence[Program]: ...
    @property
    def workflows(self) -> Mapping[str, WorkflowDefinition]: ...
    @property
    def activities(self) -> Mapping[str, ActivityDefinition[Any, Any]]: ...


def every_start_gives_one_run(sim: Judged) -> list[str]:
    """However often a start was asked, died or was repeated: one run, and it is there."""
    found: list[str] = []
    for program in sim.programs:
        place = (program.namespace, program.workflow_id)
        sim.auditor.checks("one start, one run", "nothing acknowledged is lost")
        rows = [row for row in sim.state.runs.values() if (row.namespace, row.workflow_id) == place]
        runs = [row.run_id for row in rows]
        gone_on = {link.run_id for link in sim.state.resets.values()}
        if len({row.chain_id for row in rows} - gone_on) > 1 or len(set(runs)) < len(runs):
            found.append(f"one start, one run: {program.workflow_id} has {runs}")
        lost = set(program.journal.run_ids) - set(runs)
        if lost:
            found.append(f"nothing acknowledged is lost: {program.workflow_id} was started as {lost}, there is {runs}")
    return found


def _result(sim: Judged, row: RunRow) -> bytes | None:
    """Of a run that has one and can be read, as JSON."""
    transitions = _readable(sim, row)
    if transitions is None:
        result = sim.auditor.records.by_run[row.run_key].state.result
        return None if result is None or is_sealed(result) else result
    last = next(reversed(transitions), None)
    end = None if last is None else next(reversed(last.commands), None)
    return end.result if isinstance(end, events.CompleteRun) else None


def every_message_arrives_once(sim: Judged) -> list[str]:
    """An acknowledged signal is delivered once in a chain, waits, or is recorded as undelivered; in the order of its
    sender. A refused one is never delivered; a cancel has its verdict once the chain has ended."""
    found: list[str] = []
    for journal, row in _journals(sim):
        chain = [each for each in sim.state.runs.values() if each.chain_key == row.chain_key]
        # A reset goes on in a line of its own, which may be given again what the one before it had.
        lines = [_delivered(sim, each, found) for each in {each.chain_id: each for each in chain}.values()]
        delivered = set().union(*lines)
        inbox = {each.message_id: each.verdict for each in sim.state.inboxes[row.chain_key].values()}
        signals = [each.message_id for each in journal.signals]
        for message_id in signals:
            sim.auditor.checks("nothing acknowledged is lost")
            verdict = inbox.get(message_id, "unknown")
            if row.is_forgotten:
                sim.auditor.checks("what nobody took stays")
            if row.is_forgotten and verdict == "undelivered":
                found.append(f"what nobody took stays: signal {message_id} of {row.workflow_id}, which is forgotten")
            if (message_id in delivered) != (verdict == "delivered") or verdict == "unknown":
                found.append(f"nothing acknowledged is lost: signal {message_id} of {row.workflow_id} is {verdict}")
        # One that was on its way when a fail-over lost those before it comes before they are sent again.
        for messages in [] if journal.went_back else lines:
            sim.auditor.checks("messages arrive in their sender's order")
            arrived = [messages[each] for each in dict.fromkeys(signals) if each in messages]
            if arrived != sorted(arrived):
                found.append(f"messages arrive in their sender's order: {row.workflow_id} got {signals} at {arrived}")
        sim.auditor.checks(*["refused is refused"] * len(journal.refused))
        # A chain that a reset goes on with takes what its closed run has refused, when it is sent again.
        sent_again = signals if any(each.run_key in sim.state.resets for each in chain) else []
        refused = [each for each in journal.refused if each in delivered and each not in sent_again]
        found += [f"refused is refused: {each} of {row.workflow_id}" for each in refused]
        found += _cancels_without_verdict(sim, journal, chain)
    return found


def every_family_is_settled(sim: Judged) -> list[str]:
    """A run that is open has been told of the end of each of its children, or has it in its inbox; none is open whose
    parent has ended and that was not to outlive it, unless it is still to be seen to."""
    found: list[str] = []
    state, records = sim.state, sim.auditor.records.by_run
    last = {run.chain_key: run for run in state.runs.values()}
    for chain_key, link in state.links.items():
        parent, child = state.runs[link.parent_key], last[chain_key]
        if child.run_key not in records or parent.run_key not in records:
            continue
        sim.auditor.checks("every end of a child reaches its parent", "no child outlives its parent unasked")
        told = f"the end of {link.event_id}" in records[parent.run_key].notices
        if told and child.status == "running":
            found.append(
                f"every end of a child reaches its parent: {child.workflow_id} is open, its parent knows its end"
            )
        waits = any(each.message_id == notice_id(parent.run_id, link.event_id, "end") for each in _inbox(state, parent))
        if not (told or waits) and child.status != "running" and parent.status == "running":
            found.append(f"every end of a child reaches its parent: that of {child.workflow_id} has not")
        command = records[parent.run_key].children.get(link.event_id)
        if command is None:
            found.append(f"intent before effect: {child.workflow_id} is a child that nobody has asked for")
        elif parent.status != "running" and child.status == "running" and parent.run_key not in state.partings:
            asked = any(each.kind == "cancel" for each in state.inboxes[chain_key].values())
            policy = command.parent_close_policy
            if policy == "terminate" or (policy == "request_cancel" and not asked):
                found.append(f"no child outlives its parent unasked: {child.workflow_id} does, by {policy}")
    return found


def _inbox(state: State, run: RunRow) -> list[Message]:
    return list(state.inboxes[run.chain_key].values())


def _cancels_without_verdict(sim: Judged, journal: Journal, chain: Sequence[RunRow]) -> list[str]:
    """chain: its runs, the oldest first. The verdict is that of the last one, unless an earlier one's end gave it."""
    found: list[str] = []
    last = chain[-1]
    inbox = {each.message_id: each.verdict for each in sim.state.inboxes[last.chain_key].values()}
    verdicts = {"cancelled", *(f"too_late:{each.status}" for each in chain)}
    for _, request_id in journal.cancels:
        sim.auditor.checks("every cancel has its verdict")
        if last.status != "running" and not last.is_forgotten and inbox.get(request_id) not in verdicts:
            told = f"{request_id} of {last.workflow_id} has {inbox.get(request_id)}"
            found.append(f"every cancel has its verdict: {told}")
    return found


def every_update_is_done_once(sim: Judged) -> list[str]:
    """What a client was told of an update is recorded, and of one that was refused nothing is."""
    found: list[str] = []
    journals = [program.journal for program in sim.programs]
    asked = {
        run_id
        for each in journals
        for run_id, _ in (*each.updates_accepted, *each.updates_refused, *((one.run_id, "") for one in each.updates))
    }
    records = {row.run_id: _state(sim, row).updates for row in sim.state.runs.values() if row.run_id in asked}
    for journal in journals:
        told = [*journal.updates_accepted, *((each.run_id, each.update_id) for each in journal.updates)]
        sim.auditor.checks(*["nothing acknowledged is lost"] * len(told))
        found += [
            f"nothing acknowledged is lost: update {update_id} of {run_id}"
            for run_id, update_id in told
            if run_id in records and update_id not in records[run_id]
        ]
        for update in journal.updates:
            there = records.get(update.run_id, {}).get(update.update_id)
            result = None if there is None or there.completed is None else there.completed.result
            if there is not None and not (result is not None and is_sealed(result)):
                sim.auditor.checks("told is true")
                if result is None or payloads.decode(result) != update.value:
                    found.append(f"told is true: update {update.update_id} gave {result!r}, not {update.value!r}")
        sim.auditor.checks(*["refused is refused"] * len(journal.updates_refused))
        found += [
            f"refused is refused: update {update_id} of {run_id}"
            for run_id, update_id in journal.updates_refused
            if update_id in records.get(run_id, {})
        ]
    return found


def every_outcome_told_is_true(sim: Judged) -> list[str]:
    """Whatever a client was told of the end of a run is its recorded end, and the same for all who asked."""
    found: list[str] = []
    for journal, row in _journals(sim):
        for outcome in (each for each in journal.outcomes if each.run_id == row.run_id):
            sim.auditor.checks("told is true")
            if outcome.status == "damaged" and row.run_key in sim.auditor.damaged:
                continue
            if outcome.status == "forgotten" and row.run_key in sim.auditor.records.forgotten:
                continue
            if outcome.status != row.status:
                found.append(f"told is true: {row.workflow_id} is {row.status}, a client heard {outcome.status}")
            elif (result := _result(sim, row)) is not None:
                workflow = sim.workflows[row.workflow_type]
                recorded = workflow.signature.decode_result(result)
                if recorded != outcome.value:
                    found.append(f"told is true: {row.workflow_id} gave {recorded!r}, a client heard {outcome.value!r}")
        if row.run_id in journal.terminated and row.status != "terminated":
            found.append(f"told is true: {row.workflow_id} is {row.status}, a client heard that it was terminated")
    return found


def every_outcome_was_seen_outside(sim: Judged) -> list[str]:
    """A recorded result is what that attempt returned, or somebody gave from outside, and never more attempts are
    recorded than began."""
    found: list[str] = []
    offered = [each for program in sim.programs for each in program.journal.offered]
    for run_key, record in sim.auditor.records.by_run.items():
        # What a run has taken over was brought by attempts of one of those before it.
        before = list(_before(sim.state, run_key))
        for position, outcome in _outcomes(sim, run_key).items():
            places = [(run_id, position) for run_id in (record.run_id, *before)]
            activities = [sim.world.activities[each] for each in places if each in sim.world.activities]
            began = [each for activity in activities for each in activity.attempts]
            if not isinstance(outcome, events.ActivityCompleted) or is_sealed(outcome.result):
                continue
            sim.auditor.checks("results are true")
            seen = [each for each in began if each.number == outcome.attempt and each.returned]
            signature = sim.activities[activities[0].activity_type].signature if activities else None
            result = signature.decode_result(outcome.result) if signature else None
            if not seen and any((run_id, position, result) in offered for run_id in (record.run_id, *before)):
                continue  # from outside, by its token
            if result not in [each.result for each in seen] or (len(seen) > 1 and not before):
                found.append(f"results are true: {record.run_id} event {position}: {outcome} is not of {began}")
    return found


def every_completion_counts(sim: Judged) -> list[str]:
    """What was acknowledged to the holder of a token is the outcome of the activity, unless the run ended before it."""
    found: list[str] = []
    records = {record.run_id: record for record in sim.auditor.records.by_run.values()}
    for program in sim.programs:
        for run_id, event_id, result in program.journal.completed:
            record = records.get(run_id)
            outcome = None if record is None else _outcome(sim, record, event_id)
            if record is None or (outcome is None and record.state.status != "completed"):
                continue
            sim.auditor.checks("nothing acknowledged is lost")
            told = isinstance(outcome, events.ActivityCompleted) and payloads.decode(outcome.result) == result
            if not told:
                found.append(f"nothing acknowledged is lost: {result!r} for event {event_id}, which is {outcome}")
    return found


def every_reset_repeats_nothing(sim: Judged) -> list[str]:
    """What a reset run has taken over with its outcome it does not attempt; and its history begins as that of the run
    before, as long as that is kept."""
    found: list[str] = []
    for run_key, link in sim.state.resets.items():
        record = sim.auditor.records.by_run[run_key]
        row = sim.state.runs[run_key]
        if row.is_forgotten or all(each.base_run_id != link.base_run_id for each in record.state.resets):
            continue  # or nobody has taken it up
        history, base = sim.state.histories[run_key], sim.state.histories[link.base_key]
        kept = next(n for n, each in enumerate(history) if _takes_over(each, link.base_run_id))
        if base and history[:kept] != base[:kept]:
            found.append(f"a reset takes over what is there: {row.workflow_id} ({row.run_id})")
        for stored in history[:kept]:
            for event in transition.decode(stored.body).inputs:
                if isinstance(event, events.ActivityCompleted | events.ActivityFailed):
                    sim.auditor.checks("a reset repeats nothing")
                    if (row.run_id, event.scheduled_event_id) in sim.world.activities:
                        what = f"event {event.scheduled_event_id} of {row.workflow_id} ({row.run_id})"
                        found.append(f"a reset repeats nothing: {what} has its outcome and was attempted again")
    return found


def _before(state: State, run_key: int) -> Iterator[str]:
    """The runs that a run goes on from, the newest first."""
    while (link := state.resets.get(run_key)) is not None:
        yield link.base_run_id
        run_key = link.base_key


def _takes_over(stored: StoredTransition, base_run_id: str) -> bool:
    inputs = transition.decode(stored.body).inputs
    return any(isinstance(each, events.RunReset) and each.base_run_id == base_run_id for each in inputs)


def every_history_is_whole(sim: Judged) -> list[str]:
    """Row by row as the auditor saw it written, from the first event to the last: nothing was changed afterwards."""
    found: list[str] = []
    for run_key, row in sim.state.runs.items():
        if run_key in sim.auditor.damaged:
            continue  # see every_damage_is_found
        if row.is_forgotten:
            sim.auditor.checks("ids outlive retention", "retention takes all")
            if row.head != sim.auditor.records.by_run[run_key].head:
                found.append(f"ids outlive retention: {row.workflow_id} is remembered with another history")
            if sim.state.histories[run_key] and run_key not in sim.state.leftovers:
                found.append(f"retention takes all: a part of the history of {row.workflow_id} is left")
            continue
        sim.auditor.checks("facts are immutable")
        head, last = transition.CHAIN_START, 0
        for stored in sim.state.histories[run_key]:
            body = transition.decode(stored.body)
            head = transition.checksum(head, last + 1, stored.body)
            if stored.first_event_id != last + 1 or stored.checksum != head:
                found.append(f"facts are immutable: {row.workflow_id} at event {last + 1}")
            last += len(body.events())
        seen = sim.auditor.records.by_run[run_key]
        if (row.head, row.last_event) != (head, last) or (seen.head, seen.state.last_event) != (head, last):
            found.append(f"facts are immutable: {row.workflow_id} ends at {last}, its row says {row.last_event}")
    return found


def every_damage_is_found(sim: Judged) -> list[str]:
    """A run whose recorded rows changed is parked, with the first of them named; a closed one stays as it is, and says
    so when it is read. What has been written over since is whole again."""
    found: list[str] = []
    for run_key in sorted(sim.auditor.damaged):
        sim.auditor.checks("damage is found")
        row, seen = sim.state.runs[run_key], sim.auditor.records.by_run[run_key]
        head, last = transition.CHAIN_START, 0
        for stored in sim.state.histories[run_key]:
            head = transition.checksum(head, last + 1, stored.body)
            if head != stored.checksum:
                break
            last += len(transition.decode(stored.body).events())
        if head != seen.head and row.status == "running":
            reason = {} if row.blocked is None else blocks.read(row.blocked)
            # Parked already when an earlier row was damaged too, it goes on naming the one that was found.
            if reason.get("reason") != "corrupt" or reason.get("event_id", 0) <= last:
                found.append(f"damage is found: {row.workflow_id} is damaged at event {last + 1}, and not parked")
    return found


def every_history_replays(sim: Judged) -> list[str]:
    """The code, given the recorded inputs, asks for the recorded commands."""
    found: list[str] = []
    for row in sim.state.runs.values():
        if row.run_key in sim.auditor.damaged or row.is_forgotten:
            continue
        sim.auditor.checks("replay equals the record")
        try:
            replay(History(identity_of(row), _transitions(sim, row)), sim.workflows[row.workflow_type].target)
        except errors.PledgerError as error:
            found.append(f"replay equals the record: {error}")
    return found


def every_piece_is_used(sim: Judged) -> list[str]:
    """What a history refers to is there (`every_history_replays` reads it), and what no run refers to is not."""
    state = sim.state
    used = {name for names in state.piece_uses.values() for name in names}
    forgotten = [key for key in state.piece_uses if (row := state.runs.get(key)) is None or row.is_forgotten]
    sim.auditor.checks(*["pieces are kept as long as they are used"] * len(state.pieces))
    found = [f"pieces are kept as long as they are used: run {key} is forgotten" for key in forgotten]
    found += [
        f"pieces are kept as long as they are used: {name.hex()} by nobody" for name in state.pieces.keys() - used
    ]
    found += [f"pieces are kept as long as they are used: {name.hex()} is gone" for name in used - state.pieces.keys()]
    return found


def every_label_is_as_recorded(sim: Judged) -> list[str]:
    """What lists go by and show of a run, its search attributes and its memo, is what its history says."""
    found: list[str] = []
    for run_key, row in sim.state.runs.items():
        if row.is_forgotten or row.last_event == 0:
            continue
        sim.auditor.checks("labels and history agree")
        recorded = sim.auditor.records.by_run[run_key].state
        told = {name: attribute_of(each) for name, each in recorded.search_attributes.items()}
        if (kept := sim.state.attributes.get(run_key, {})) != told:
            found.append(f"labels and history agree: {row.workflow_id} has {kept} in its rows, {told} in its history")
        written = sim.state.memos.get(run_key)
        if (memo := memos.read(written)) != recorded.memo and not is_sealed(written or b""):
            found.append(f"labels and history agree: the memo of {row.workflow_id} is {memo}, not {recorded.memo}")
        if row.status == "running":
            found += _terms_disagree(sim, run_key, row, recorded)
    return found


def _terms_disagree(sim: Judged, run_key: int, row: RunRow, recorded: RunState) -> list[str]:
    """Who answers for an open run, by when it is to be over, and by when its phases are."""
    found: list[str] = []
    link = sim.state.resets.get(run_key)
    is_taken_up = link is None or any(each.base_run_id == link.base_run_id for each in recorded.resets)
    said = (recorded.owner, recorded.deadline_ms)
    if is_taken_up and (kept := sim.state.terms.get(run_key, (None, None))) != said:
        found.append(f"labels and history agree: {row.workflow_id} has {kept} in its row, {said} in its history")
    timed = {
        event_id: each.begun.deadline_ms
        for event_id, each in recorded.phases.items()
        if each.begun.deadline_ms is not None
    }
    told = {event_id: each.deadline_ms for event_id, each in sim.state.phases.get(run_key, {}).items()}
    if told != timed:
        found.append(f"labels and history agree: {row.workflow_id} is in {told} by its rows, {timed} by its history")
    return found


def every_stream_is_whole(sim: Judged) -> list[str]:
    """Positions follow each other, but over a declared loss; no attempt publishes once a later one has; and who follows
    has read what is there, in order, without a gap and nothing twice, however often it broke off; all of it, where it
    was told the end."""
    found: list[str] = []
    for chain_key, streams in sim.state.streams.items():
        for topic, stream in streams.items():
            positions = [value.position for _, value in stream.values]
            sim.auditor.checks(*["streams have no gap"] * len(positions))
            if any((later - earlier) % JUMP != 1 for earlier, later in itertools.pairwise(positions)):
                found.append(f"streams have no gap: {topic} of chain {chain_key} has the positions {positions}")
            latest: dict[tuple[str, int], int] = {}
            for _, value in stream.values:
                place = (value.run_id, value.event_id)
                if value.attempt < latest.get(place, 0):
                    found.append(f"attempts publish one after another: {topic} of chain {chain_key} has {value}")
                latest[place] = value.attempt
            sim.auditor.checks(*["attempts publish one after another"] * len(latest))
    for journal, row in _journals(sim):
        for topic, seen in journal.followed.items():
            found += _followed(sim, journal, row, topic, [each for each in seen if _is_of_chain(sim, row, each.run_id)])
    return found


def _is_of_chain(sim: Judged, row: RunRow, run_id: str) -> bool:
    return any(each.chain_key == row.chain_key for each in sim.state.runs.values() if each.run_id == run_id)


def _followed(sim: Judged, journal: Journal, row: RunRow, topic: str, seen: Sequence[StreamItem[Any]]) -> list[str]:
    stream = sim.state.streams.get(row.chain_key, {}).get(topic)
    if row.is_forgotten:
        return []
    sim.auditor.checks(*["followers read each value once"] * len(seen))
    there = [] if stream is None else [value for _, value in stream.values]
    if any(is_sealed(value.body) for value in there):
        return []
    known = [(value.position, value.run_id, payloads.decode(value.body)) for value in there]
    read = [(item.offset, item.run_id, item.value) for item in seen]
    ended = journal.followed_to_the_end.get(topic)
    is_last = ended is not None and all(each.base_run_id != ended for each in sim.state.resets.values())
    expected = known if is_last and row.status != "running" else known[: len(read)]
    if read == expected:
        return []
    return [f"followers read each value once: of {topic} of {row.workflow_id} there is {known}, one read {read}"]


def nothing_is_left(sim: Judged) -> list[str]:
    """A closed run leaves no work behind: no task, no wake-up, no waiting message; no session outlives its process."""
    state = sim.state
    closed = [row for row in state.runs.values() if row.status != "running"]
    sim.auditor.checks(*["nothing is left"] * len(closed))
    found = [f"nothing is left: tasks of {row.workflow_id}" for row in closed if state.tasks.get(row.run_key)]
    ended = [row for row in closed if row.status != "continued_as_new"]  # of the others the mailbox is in use
    found += [f"nothing is left: a message of {row.workflow_id}" for row in ended if state.waiting(row.chain_key)]
    found += [f"nothing is left: a wake-up of {row.workflow_id}" for row in closed if row.run_key in state.wakes]
    found += [f"nothing is left: {row.workflow_id} has an owner" for row in closed if row.owner is not None]
    return found


def _journals(sim: Judged) -> Iterator[tuple[Journal, RunRow]]:
    """Each program's journal with the newest run of the chain that it is about, if that was ever acknowledged."""
    newest = {row.chain_id: row for row in sim.state.runs.values()}
    for program in sim.programs:
        for run_id in dict.fromkeys(program.journal.run_ids):
            if run_id in newest:
                yield program.journal, newest[run_id]


def _delivered(sim: Judged, row: RunRow, found: list[str]) -> dict[str, tuple[int, int]]:
    """Where in its chain each message was delivered: (segment, event_id). found: takes what was delivered twice."""
    delivered: dict[str, tuple[int, int]] = {}
    for segment, record in _segments(sim, row):
        for message_id, event_id in record.messages.items():
            if message_id in delivered:
                found.append(f"messages are delivered once: {message_id} to {record.run_id}, and before")
            delivered[message_id] = segment, event_id
    return delivered


def _segments(sim: Judged, row: RunRow) -> Iterator[tuple[int, Record]]:
    """What the auditor saw of each run of a chain, by their numbers."""
    for record in sim.auditor.records.by_run.values():
        chain_id, segment = chains.place_of(record.run_id)
        if chain_id == row.chain_id:
            yield segment, record


def _transitions(sim: Judged, row: RunRow) -> tuple[Transition, ...]:
    return plain_history(sim.state, row, getattr(sim, "codecs", ()))


def _state(sim: Judged, row: RunRow) -> RunState:
    """As the auditor has it, with what is sealed in plain where it is still there."""
    seen = sim.auditor.records.by_run[row.run_key].state
    if not getattr(sim, "codecs", ()) or not seen.updates:
        return seen
    transitions = _readable(sim, row)
    return seen if transitions is None else fold(transitions, RunState())


def _outcome(sim: Judged, record: Record, event_id: int) -> events.ActivityCompleted | events.ActivityFailed | None:
    """The same of an activity's outcome."""
    seen = record.outcomes.get(event_id)
    if not (isinstance(seen, events.ActivityCompleted) and is_sealed(seen.result)):
        return seen
    row = next(row for row in sim.state.runs.values() if row.run_id == record.run_id)
    return _outcomes(sim, row.run_key).get(event_id, seen)


def _readable(sim: Judged, row: RunRow) -> tuple[Transition, ...] | None:
    """The history; None where it is gone, or damaged, which `every_history_replays` says."""
    if row.is_forgotten or row.run_key in sim.auditor.damaged:
        return None
    try:
        return _transitions(sim, row)
    except errors.StoreError:
        return None


def _outcomes(sim: Judged, run_key: int) -> dict[int, events.ActivityCompleted | events.ActivityFailed]:
    """Of its activities, in plain; as they were seen on their way where the history cannot be read any more."""
    row = sim.state.runs.get(run_key)
    if row is None or (transitions := _readable(sim, row)) is None:
        return sim.auditor.records.by_run[run_key].outcomes
    return {
        event.scheduled_event_id: event
        for each in transitions
        for event in each.inputs
        if isinstance(event, events.ActivityCompleted | events.ActivityFailed)
    }


def every_end_is_counted_once(sim: Judged) -> list[str]:
    """However often a run was taken over, or an answer was lost: its end is counted by the worker whose commit it was,
    or by nobody, where that worker died before it heard of it."""
    tally = sim.auditor.tally
    if tally.is_void:
        return []
    states = [each.state for each in sim.auditor.records.by_run.values()]
    ended: Counter[tuple[str, str]] = Counter((each.workflow_type, each.status) for each in states)
    found = []
    for (workflow_type, status), count in tally.ended.items():
        sim.auditor.checks("ends are counted once")
        # One that ended before it was begun has no start in its history, which would say of which type it was.
        if count > (there := ended[workflow_type, status] + ended["", status]):
            found.append(f"ends are counted once: {count} of {there} runs of {workflow_type} that are {status}")
    return found


ALL: Final[tuple[Callable[[Judged], Sequence[str]], ...]] = (
    every_start_gives_one_run,
    every_message_arrives_once,
    every_family_is_settled,
    every_update_is_done_once,
    every_outcome_told_is_true,
    every_outcome_was_seen_outside,
    every_completion_counts,
    every_reset_repeats_nothing,
    every_history_is_whole,
    every_damage_is_found,
    every_history_replays,
    every_piece_is_used,
    every_label_is_as_recorded,
    every_end_is_counted_once,
    every_stream_is_whole,
    nothing_is_left,
)
