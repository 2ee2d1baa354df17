"""The driver's side of a pass on workers: one task a worker, help for those that are slow, and the root of the tree.

Each worker is given its groups as one task (engines.part), and all tasks travel in one message, so that the scheduler's
work grows with the workers and not with the groups. Workers that have nothing left to do are given groups that others
have not begun. The groups of a lost worker are given to another one by Dask, and from there to all that are idle.

What a task has added is lost with its worker. So in a long pass tasks are ended and renewed every HAND_OVER_SECONDS:
they leave the groups that are not begun, but for the next one, to new tasks of the same workers, and the driver fetches
and keeps the subtrees that they have added.
A task that was lost with four workers is cut in two: where workers die every few seconds, only short tasks end. A
single group is tried MOST_TRIES times, because Dask counts a worker also for tasks that only waited there, and all
tasks wait with the first worker that comes after all were lost. Then workers join the subtrees of all tasks, until one
is left. Groups that are in none of the subtrees are added last: a worker gave them away, and its answer was lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Partial, combine_partials
from streamsvm.engines.part import DONE_ROWS, Addition, Part, Pass, add_part, give_away, join_parts, leave_groups
from streamsvm.engines.patience import MOST_TRIES, Patience
from streamsvm.engines.protocol import Costs
from streamsvm.engines.shares import Slot
from streamsvm.engines.subtrees import MOST_STOLEN, Subtree, find_gaps, join_subtrees
from streamsvm.requests import Scan

if TYPE_CHECKING:
    from distributed import Future

SHORTEST_PAUSE, LONGEST_PAUSE, PAUSE_SHARE = 0.2, 1.0, 0.125  # seconds between two looks at who is idle; of the pass
HAND_OVER_SECONDS = 15.0  # between two times at which all tasks hand over what they have added, if totals are small
MOST_ASKED = 16  # workers that are asked for groups at a time
ASKED_SECONDS = 2.0  # until a worker that is asked for groups is left alone for the rest of the pass


@dataclass
class PassOnWorkers:
    """A pass under way.

    name: unlike that of any other pass. send: returns the source and its groups, as a result on the workers, and the
    pass, also as a result if it is large. fan_in: how many tasks' totals one task joins at most. most_handed: how many
    subtrees that tasks have handed over are kept here, at most; none if totals are large.
    """

    name: str
    source: RowSource
    groups: Sequence[range]
    scan: Scan
    send: Callable[[], tuple[Future, Pass | Future]]
    patience: Patience
    costs: Costs
    fan_in: int
    most_handed: int
    _futures: dict[str, Future] = field(default_factory=dict)
    _ranges: dict[str, tuple[range, ...]] = field(default_factory=dict)  # by task: its groups
    _owners: dict[str, str] = field(default_factory=dict)  # by task: the worker whose groups these are, if it is one's
    _kept: dict[str, tuple[range, ...]] = field(default_factory=dict)  # by worker: all of its groups
    _handed: list[Subtree] = field(default_factory=list)  # the subtrees that tasks have handed over
    _stolen: Counter[str] = field(default_factory=Counter)  # by worker: how often it took groups from others
    _tries: Counter[range] = field(default_factory=Counter)  # by group: how often it was lost with four workers
    _sent: tuple[Future, Pass | Future] = field(init=False)
    _sends: int = 1  # how often both were sent
    _joins: int = 0  # how often workers were asked to join what was found
    _mute: set[str] = field(default_factory=set)  # workers that did not answer
    _told_rows: int = 0

    def carry_out(self, shares: Mapping[Slot, Sequence[range]]) -> Partial:
        """Return the totals of all groups. Raises what a task raises, and ConnectionError if the scheduler is lost."""
        self._sent = self.send()
        for (address, _), ranges in shares.items():
            self._kept[address] = (*self._kept.get(address, ()), *ranges)
        try:
            parts = [(address, self._make_part(ranges, address)) for (address, _), ranges in shares.items() if ranges]
            self._submit(parts or self._free([range(len(self.groups))]))
            while True:
                self._await_parts()
                found = self._join()
                gaps = find_gaps(found, len(self.groups))
                if not gaps:
                    self.costs.note_rows(self.source.n_rows - self._told_rows)
                    return found[0].partial
                self._submit(self._free(gaps))
        finally:  # after a failure or Ctrl-C the tasks of the others end early
            for future in self._futures.values():
                future.release()

    def _make_part(self, ranges: Sequence[range], owner: str = "") -> Part:
        starts, by_row = self.source.chunk_starts, []
        for one in ranges:
            rows = slice(starts[self.groups[one[0]][0]], starts[self.groups[one[-1]][-1] + 1])
            by_row.append(tuple(vector[rows] for vector in self.scan.by_row))
        return Part(tuple(ranges), tuple(by_row), owner, self._kept.get(owner, ()))

    def _free(self, ranges: Sequence[range]) -> list[tuple[str, Part]]:
        """Return a part for each range, for a worker that the scheduler chooses."""
        return [("", self._make_part([one])) for one in ranges]

    def _submit(self, parts: Sequence[tuple[str, Part]]) -> None:
        """Send tasks to the scheduler in one message: each for a worker, and for another one if that one is lost."""
        if not parts:
            return
        graph: dict[str, Any] = {}
        where: dict[str, list[str]] = {}
        for address, part in parts:
            key = f"streamsvm-part-{self.name}-{len(self._ranges)}"
            graph[key], where[key] = (add_part, *self._sent, part), [address]
            self._ranges[key], self._owners[key] = part.ranges, part.owner
        is_free = parts[0][0] == ""
        with dask.annotate(**({} if is_free else {"workers": where.get, "allow_other_workers": True})):
            self._futures.update(zip(graph, self.patience.client.get(graph, list(graph), sync=False), strict=True))

    def _await_parts(self) -> None:
        """Return when all tasks are done, with the help of those workers that are idle meanwhile."""
        began = handed = time.monotonic()
        while pending := self._list_pending():
            now = time.monotonic()
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, PAUSE_SHARE * (now - began)))
            if not self.patience.wait(list(pending.values()), pause):
                self._report(self.patience.look_again())
                has_room = now - began >= HAND_OVER_SECONDS and self._fetch()
                if has_room and now - handed >= HAND_OVER_SECONDS:
                    self._submit(self._renew(pending))
                    handed = now
                self._submit([(thief, self._make_part([one])) for thief, one in self._steal(pending)])

    def _list_pending(self) -> dict[str, Future]:
        """Return the tasks that are not done. Raises the error of a task; one that was lost too often is cut in two."""
        for key in [key for key, future in self._futures.items() if future.status == "error"]:
            self._send_again()
            again = _cut(self._ranges[key], self._tries) if self.patience.was_lost(self._futures[key]) else []
            if not again:
                self.patience.result(self._futures[key])
            self._futures.pop(key).release()
            self._submit(self._free(again))
        return {key: future for key, future in self._futures.items() if future.status == "pending"}

    def _send_again(self) -> None:
        """Send the source and the pass anew if a task that holds one of them was lost, MOST_TRIES times at most."""
        from distributed import Future

        held = [one for one in self._sent if isinstance(one, Future)]
        if any(one.status == "error" and self.patience.was_lost(one) for one in held) and self._sends < MOST_TRIES:
            self._sends, self._sent = self._sends + 1, self.send()

    def _report(self, workers: Mapping[str, Any] | None) -> None:
        """Report the rows that were added since the last report, as far as the heartbeats of workers tell of them."""
        done = [about["metrics"].get(DONE_ROWS, {}).get(self.name, 0) for about in (workers or {}).values()]
        more = min(sum(done), self.source.n_rows) - self._told_rows
        if more > 0:
            self.costs.note_rows(more)
            self._told_rows += more

    def _steal(self, pending: Mapping[str, Future]) -> list[tuple[str, range]]:
        """Return groups that workers give away, each with the address of an idle worker that adds them instead."""
        client, threads = self.patience.client, self.patience.threads
        running: dict[str, list[str]] = self.patience.ask(self.patience.scheduler.processing, workers=None) or {}
        idle = [
            address
            for address, keys in running.items()
            for _ in range(threads.get(address, 0) - len(keys))
            if self._stolen[address] < MOST_STOLEN * threads[address]
        ]
        slow = [
            address for address, keys in running.items() if address not in self._mute and pending.keys() & set(keys)
        ]
        asked = slow[: min(len(idle), MOST_ASKED)]
        if not asked:
            return []
        question = partial(client.run, give_away, self.name, len(self.groups), workers=asked, on_error="ignore")
        answers: dict[str, range | None] = self.patience.ask(question, seconds=ASKED_SECONDS) or {}
        self._mute.update(set(asked) - answers.keys())
        found = list(zip(idle, [groups for groups in answers.values() if groups], strict=False))
        self._stolen.update(address for address, _ in found)
        return found

    def _fetch(self) -> bool:
        """Fetch the subtrees of tasks that are done; return whether there is room for more of them.

        Subtrees that were lost with their worker meanwhile are added anew by Dask, and are fetched later.
        """
        for key, future in list(self._futures.items()):
            if future.status != "finished":
                continue
            if len(self._handed) >= self.most_handed:
                return False
            fetched = self.patience.ask(self.patience.client.gather, [future], errors="skip")
            if fetched is None:
                return False
            if fetched:
                self._handed = self._join_here(fetched[0])
                self._futures.pop(key).release()
        return len(self._handed) < self.most_handed

    def _renew(self, pending: Mapping[str, Future]) -> list[tuple[str, Part]]:
        """Have tasks end after the group that they add and the next one; return parts of the groups that they leave."""
        question = partial(self.patience.client.run, leave_groups, self.name, on_error="ignore")
        answers: dict[str, dict[str, list[int]]] = self.patience.ask(question, seconds=ASKED_SECONDS) or {}
        new = []
        for address, tasks in answers.items():
            for key in tasks.keys() & pending.keys():
                mine = {k for one in self._ranges[key] for k in one}
                left = mine.intersection(tasks[key])
                if left:
                    self._ranges[key] = _find_ranges(mine - left)
                    new.append((address, self._make_part(_find_ranges(left), self._owners[key])))
        return new

    def _join_here(self, more: Sequence[Subtree]) -> list[Subtree]:
        """Return the fewest subtrees that make up those that were handed over and some more."""
        combine = partial(combine_partials, scan=self._bare_scan())
        return join_subtrees([*self._handed, *more], len(self.groups), combine)

    def _bare_scan(self) -> Scan:
        """Return the scan without arrays, with which totals are added."""
        return replace(self.scan, shared=(), by_row=(), states=(), held=None, apart=None, among=None, rest=None)

    def _join(self) -> list[Subtree]:
        """Return the fewest subtrees that all tasks have found, which workers have joined, some parts at a time.

        A join that is lost is tried again as any other task is.
        """
        if not self._futures:
            return self._handed
        found: list[Subtree]
        if len(self._futures) == 1:  # it stays, since its part may be joined with others later
            (only,) = self._futures.values()
            found = self.patience.result(only)
        else:
            found = next(self.patience.results([self._submit_join]))
        return self._join_here(found) if self._handed else found

    def _submit_join(self) -> Future:
        """Have workers join what the tasks have found, and return the task whose result is all of it."""
        self._joins += 1
        addition = Addition(self.name, self._bare_scan())
        keys = sorted(self._futures, key=lambda key: self._ranges[key][0].start)
        parts: list[Any] = [self._futures[key] for key in keys]
        graph: dict[str, Any] = {}
        while len(parts) > 1:
            together = [parts[at : at + self.fan_in] for at in range(0, len(parts), self.fan_in)]
            name = f"streamsvm-join-{self.name}-{self._joins}"
            parts = [f"{name}-{len(graph) + k}" for k in range(len(together))]
            graph |= {
                k: (join_parts, addition, len(self.groups), some) for k, some in zip(parts, together, strict=True)
            }
        joined: Future = self.patience.client.get(graph, parts[0], sync=False)
        return joined


def _cut(ranges: Sequence[range], tries: Counter[range]) -> list[range]:
    """Return what is tried in place of a task that was lost: several ranges one by one, or one range in two halves.

    A single group is tried again, unless it was tried MOST_TRIES times, which `tries` counts.
    """
    if len(ranges) > 1:
        return list(ranges)
    (one,) = ranges
    if len(one) > 1:
        return [one[: len(one) // 2], one[len(one) // 2 :]]
    tries[one] += 1
    return [one] if tries[one] < MOST_TRIES else []


def _find_ranges(groups: Set[int]) -> tuple[range, ...]:
    """Return the ranges that the numbers of groups make up, in order."""
    ordered = np.array(sorted(groups))
    parts = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    return tuple(range(int(part[0]), int(part[-1]) + 1) for part in parts)
