"""Which trials wait for devices, which hold some, and the commands that take them from the one to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastune import messages as m
from elastune.allocate.base import Target
from elastune.control.answer import Answer
from elastune.control.displace import Move, displace
from elastune.control.fleet import Fleet
from elastune.control.party import Line, Party
from elastune.control.pool import Pool
from elastune.control.state import Trial
from elastune.errors import SpecError
from elastune.messages import Slot
from elastune.spec import Width, share_of, to_width


class Schedule:
    """A trial holds its slots from its start until it is known to have left them."""

    def __init__(self, parties: Sequence[Party], trials: Mapping[str, Trial], fleet: Fleet, answer: Answer) -> None:
        self._trials, self._fleet, self._answer = trials, fleet, answer
        self.waiting = Line(parties)
        self.widths: dict[str, Width] = {}
        """Of the trials that hold slots: what they have, or were last told to take."""
        self._moves: dict[str, Move] = {}
        """Those that make room for others, until the last of them has happened."""

    def queue(self, trial: Trial) -> None:
        trial.party.waiting[trial.id] = None

    def requeue(self, trial: Trial) -> None:
        """The run is not over: it goes on when it is its turn again."""
        trial.status = "paused" if trial.checkpoints else "waiting"
        self._answer.decisions.append(m.StatusChanged(trial.id, trial.status))
        self.queue(trial)

    def follow(self, target: Target) -> None:
        """Pause who shall run no longer, make narrower, move off machines that are given up, make wider, and start whom
        there is a place for. Where there would be one if others moved, they do.
        """
        changes = []
        for trial_id, width in self.widths.items():
            wanted = target.widths.get(trial_id)
            if wanted is None:
                self.pause(self._trials[trial_id], None)
            elif wanted != width and (wanted := _checked(self._trials[trial_id], wanted)) != width:
                changes.append((1 if wanted > width else -1, -wanted, trial_id))
        for trial_id in (trial_id for pool in self._fleet.pools.values() for trial_id in pool.to_leave):
            if target.widths.get(trial_id) == self.widths[trial_id]:
                changes.append((0, -self.widths[trial_id], trial_id))
        without: dict[str, Width] = {}
        for _, negative, trial_id in sorted(changes, key=lambda change: change[:2]):  # the widest first
            if not self.resize(self._trials[trial_id], -negative):
                without[trial_id] = -negative
        starting = [trial_id for trial_id in target.widths if trial_id not in self.widths]
        for trial_id in starting:
            trial = self._trials[trial_id]
            width = _checked(trial, target.widths[trial_id])
            trial.pool = target.pools.get(trial_id, 0)
            if not self.start(trial, width):
                without[trial_id] = width
        if without or self._moves:
            self._make_room(without, starting)

    def _make_room(self, without: dict[str, Width], starting: list[str]) -> None:
        """Move others together for those that have no place. Nobody else is displaced until that has happened: then
        they find their place themselves.
        """
        if not self._carry_on():
            started = [trial_id for trial_id in starting if trial_id not in without]
            for number in sorted({self._trials[trial_id].pool for trial_id in without}):
                wanted, ours = self._in_pool(number, without), self._in_pool(number, self.widths)
                self._moves |= displace(wanted, ours, self._trials, self._fleet.pools[number].free, started)
            self._carry_on()

    def _carry_on(self) -> bool:
        """Tell those to move whose new place is free by now. Says whether anybody is on the way; if not, the rest is
        dropped: who is in the way will not go.
        """
        for trial_id, (before, after) in list(self._moves.items()):
            trial = self._trials[trial_id]
            if trial.leaving or trial.slots != before or trial.next_slots not in ((), after):
                del self._moves[trial_id]
            elif not trial.next_slots and self._pool(trial).move(trial_id, before, after):
                trial.next_slots = after
                self._tell_to_move(trial, after)
        if not any(self._trials[trial_id].next_slots for trial_id in self._moves):
            self._moves = {}
        return bool(self._moves)

    def sharing(self, trial: Trial) -> int:
        """How many trials are on its device."""
        return self._pool(trial).free.trials_on(trial.slots[0]) if trial.width < 1 else 1

    def mates(self, trial: Trial) -> list[str]:
        """The trials on its device, with itself."""
        slot = trial.slots[0]
        if trial.width >= 1:
            return [trial.id]
        others = self._fleet.nodes[slot.node].trials
        return sorted(
            t for t in others if any((slot.node, slot.device) == (s.node, s.device) for s in self._trials[t].slots)
        )

    def places(self, pool: int, target: Target) -> tuple[dict[str, Width], dict[str, tuple[Slot, ...]]]:
        """Of the trials that hold slots and shall go on: what they are to have, and where they are or will be."""
        ours = [self._trials[trial_id] for trial_id in self._in_pool(pool, self.widths)]
        staying = [trial for trial in ours if trial.id in target.widths and not trial.leaving]
        wanted = {trial.id: _checked(trial, target.widths[trial.id]) for trial in staying}
        return wanted, {trial.id: trial.next_slots or trial.slots for trial in staying}

    def start(self, trial: Trial, width: Width) -> bool:
        """Says whether there is a place."""
        slots = self._pool(trial).take(trial.id, width)
        if slots is None:
            return False
        del trial.party.waiting[trial.id]
        trial.party.running += 1
        self.widths[trial.id] = trial.width = width
        trial.slots = slots
        trial.status, trial.leaving = "running", False
        trial.attempt += 1
        trial.began_s, trial.reported_s = self._answer.at_s, None
        checkpoint = trial.checkpoints[-1] if trial.checkpoints else None
        trial.midway = checkpoint is not None and checkpoint.midway
        self._answer.commands.append(
            m.StartTrial(
                id=self._answer.number(),
                trial=trial.id,
                attempt=trial.attempt,
                lineage=trial.lineage,
                config=trial.config,
                iteration=checkpoint.iteration if checkpoint else 0,
                checkpoint=checkpoint,
                until_iteration=trial.run.until,
                final=trial.run.final,
                slots=trial.slots,
                share=float(share_of(width)),
                until_s=trial.run.until_s,
            )
        )
        return True

    def resize(self, trial: Trial, width: Width) -> bool:
        """Told once: until it has happened, and while the trial leaves, its width stays what it is. Says whether there
        is a place.
        """
        if trial.leaving or trial.next_slots:
            return True
        slots = self._pool(trial).resize(trial.id, trial.slots, width)
        if slots is None:
            return False
        trial.next_slots = slots
        self.widths[trial.id] = width
        self._tell_to_move(trial, slots)
        return True

    def resized(self, trial: Trial, slots: tuple[Slot, ...]) -> None:
        """The trial is where it was told to go; what it held before and needs no longer is free."""
        if slots == trial.next_slots:
            self.charge(trial)
            before, trial.slots, trial.next_slots = trial.slots, slots, ()
            trial.width = self.widths[trial.id]
            trial.began_s, trial.reported_s = self._answer.at_s, None
            self._pool(trial).settle(trial.id, slots, trial.width, before)

    def stay(self, trial: Trial) -> None:
        """Where the trial was told to go there is no place any more."""
        given_up, trial.next_slots = trial.next_slots, ()
        self.widths[trial.id] = trial.width
        self._pool(trial).settle(trial.id, trial.slots, trial.width, given_up)
        self._tell_to_move(trial, trial.slots)

    def _tell_to_move(self, trial: Trial, slots: tuple[Slot, ...]) -> None:
        share = float(share_of(self.widths[trial.id]))
        self._answer.order(m.ResizeTrial, trial.id, trial.attempt, slots, share)

    def pause(self, trial: Trial, within_s: float | None) -> None:
        """Said again where it was said before without a limit: now there is one."""
        if not trial.leaving or within_s is not None:
            trial.leaving = True
            self._answer.order(m.PauseTrial, trial.id, trial.attempt, within_s)

    def stop(self, trial: Trial, within_s: float) -> None:
        """Neither wait nor run any more."""
        trial.party.waiting.pop(trial.id, None)
        if trial.slots:
            trial.leaving = True
            self._answer.order(m.StopTrial, trial.id, trial.attempt, within_s)

    def charge(self, trial: Trial, sharing: int | None = None) -> None:
        """To its experiment: what it has had of devices since it was last heard of, with so many on its device, or as
        many as there are. What went with its driver has had none since the last turn of that.
        """
        until_s = self._answer.before_s if self._answer.resuming else self._answer.at_s
        devices = float(trial.width) if trial.width >= 1 else 1 / (sharing or self.sharing(trial))
        trial.party.used_s += devices * (until_s - trial.since_s)

    def left(self, trial: Trial) -> None:
        self.charge(trial)
        self._pool(trial).give(trial.id, dict.fromkeys(trial.slots + trial.next_slots))
        del self.widths[trial.id]
        trial.party.running -= 1
        trial.slots = trial.next_slots = ()

    def _in_pool(self, number: int, widths: Mapping[str, Width]) -> dict[str, Width]:
        return {trial_id: width for trial_id, width in widths.items() if self._trials[trial_id].pool == number}

    def _pool(self, trial: Trial) -> Pool:
        return self._fleet.pools[trial.pool]


def _checked(trial: Trial, width: Width) -> Width:
    asked = trial.run.width
    if asked is not None and width != asked:
        raise SpecError(
            f"trial {trial.id}: the algorithm asks for a width of {asked} (Run.width), and the allocator gives it "
            f"{width}: take an allocator that goes by View.width, or ask for none"
        )
    return width if width == 1 else to_width(f"the allocator's width of {trial.id}", width)
