"""What test_record_sglang.py asks of the real engine, run by its own interpreter: it records runs into a folder, and
prints one JSON object of what it saw meanwhile."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any
from unittest import mock

from kvledger.spec.world import WrongInput
from kvledger.tests.record import live_sglang
from kvledger.tests.record.live_sglang import CHUNK, PAGE, PAGES, ROWS, Server
from kvledger.tests.record.sglang import Tape, record

# isort: split
import torch
from sglang.srt.managers import schedule_batch
from sglang.srt.managers.io_struct import OpenSessionReqInput
from sglang.srt.managers.schedule_policy import PrefillAdder
from sglang.srt.mem_cache import allocation, common
from sglang.srt.mem_cache.allocation_sizing import page_aligned_decode_alloc_lens
from sglang.srt.mem_cache.base_prefix_cache import CacheRequestOutcome, EvictParams

ACTIONS = 400


def clean(file: str) -> Any:
    """A whole run; and that everything is as it was afterwards."""
    names = [(allocation, "alloc_for_extend"), (schedule_batch, "release_kv_cache"), (common, "release_kv_cache"),
             (live_sglang, "checkpoint_kv_cache")]  # fmt: skip
    server = Server(1)
    before = [getattr(*name) for name in names]
    with record(file, server.tree):
        during = [getattr(*name) for name in names]
        server.serve(ACTIONS)
    after = [getattr(*name) for name in names]
    return {
        "watched": all(new is not old for new, old in zip(during, before, strict=True)),
        "restored": after == before and not {"lock", "evict"} & vars(server.tree).keys(),
        "drained": [server.rows.available_size() == ROWS, server.tree.protected_size()],
    }


def freed_by_hand(file: str) -> Any:
    """A page that a request gave back when it finished is given back once more, behind that call."""
    server, ended = Server(1), list[str]()
    end = server.end

    def twice(req: Any) -> None:
        last = req.kv.kv_committed_len - 1
        row = server.rows.req_to_token[req.kv.req_pool_idx].clone()
        end(req)
        ended.append(req.rid)
        if len(ended) == 7:
            server.slots.free(row[last : last + 1])

    with mock.patch.object(server, "end", twice), record(file, server.tree):
        server.serve(ACTIONS)
    return ended[6]


def freed_in_a_group(file: str) -> Any:
    """In an open group of frees the allocator counts each page once, and so does the recorder."""
    server = Server(1)
    end = server.end

    def grouped(req: Any) -> None:
        server.slots.free_group_begin()
        end(req)
        server.slots.free_group_end()

    with mock.patch.object(server, "end", grouped), record(file, server.tree):
        server.serve(ACTIONS)
    return None


def drafts(file: str) -> Any:
    """Slots are reserved, some drafts accepted, the rest given back at the end."""
    server = Server(1)
    with record(file, server.tree):
        req = server.request("r", [1] * 40)
        server.waiting.append(req)
        server.start()
        server.prefill(req)
        for accepted in (3, 1, 4):
            [now], [most], _ = page_aligned_decode_alloc_lens([req], reserve=8, page_size=PAGE)
            batch, then = server.batch([req], [now]), torch.tensor([most])
            allocation.alloc_for_spec_decode(
                server.tree, server.rows, reqs=[req], batch=batch, num_needed_tokens=most - now,
                req_pool_indices=batch.req_pool_indices, cur_kv_lens=batch.seq_lens, cur_kv_lens_cpu=batch.seq_lens,
                nxt_kv_lens=then, nxt_kv_lens_cpu=then,
            )  # fmt: skip
            req.kv.kv_committed_len += accepted
            req.output_ids.extend([7] * accepted)
        server.decoding = [req]
        server.end(req)
    return None


def dropped(file: str) -> Any:
    """A turn that was matched, and so borrows its session's record, leaves the queue; then the session is closed."""
    server = Server(1)
    with record(file, server.tree):
        server.arrived = 4
        server.arrive()
        while "r6" not in [req.rid for req in server.waiting]:
            server.round()
        turn = server.waiting.popleft()
        turn.init_next_round_input(server.tree)
        server.tree.finish(turn.cache_request_handle, CacheRequestOutcome.ABORT)
        turn.session.abort_req()
        server.tree.release_session(turn.session.session_id)
    return turn.rid


def flushed(file: str) -> Any:
    """The scheduler's flush: tree, rows, slots."""
    server = Server(1)
    with record(file, server.tree):
        server.serve(60)
        server.tree.reset()
        server.rows.clear()
        server.slots.clear()
        server.serve(server.actions + 60)
    return None


def short_of_memory(file: str) -> Any:
    """An allocation that nobody asked room for fails: a refusal, and the engine's own error."""
    server = Server(1)
    with record(file, server.tree):
        server.slots.alloc(server.slots.available_size() - CHUNK)
        req = server.request("r", list(range(4 * CHUNK)))
        server.waiting.append(req)
        with mock.patch.object(server.slots, "check_decode_capacity", lambda **_: True), \
             mock.patch.object(live_sglang, "CHUNK", 4 * CHUNK):  # fmt: skip
            server.start()
            try:
                server.prefill(req)
            except RuntimeError as error:
                return str(error).splitlines()[0]
    return None


def alone(server: Server, rid: str, tokens: list[int], **fields: Any) -> Any:
    """A request that nobody runs beside, prefilled, with one token decoded."""
    req = server.request(rid, tokens)
    for name, value in fields.items():
        setattr(req, name, value)
    server.waiting.append(req)
    server.start()
    server.round()
    return req


def scheduler_admits(file: str) -> Any:
    """By SGLang's own PrefillAdder, which holds a lock while it reckons and takes the lasting one meanwhile."""
    server = Server(1)
    with record(file, server.tree):
        req = server.request("r", [1] * 40)
        req.init_next_round_input(server.tree)
        adder = PrefillAdder(PAGE, server.tree, server.slots, server.batch([], []), 0.5, 1 << 14, 1 << 14)
        adder.add_one_req(req, False, None)
        server.prefilling.append(req)
        server.round()
        server.end(req)
    return None


def bigram_keys(file: str) -> Any:
    """As EAGLE has them: two requests of one prompt, which ends with a page."""
    server = Server(1, is_eagle=True)
    with record(file, server.tree):
        for rid in "ab":
            server.end(alone(server, rid, [1, 2, 3, 4] * 12))
    return None


def session_that_keeps_nothing(file: str) -> Any:
    """Only streaming sessions keep a record; the requests of any other one are plain."""
    server = Server(1)
    with record(file, server.tree):
        server.sessions.open(OpenSessionReqInput(capacity_of_str_len=0, session_id="t", streaming=False))
        for rid in "ab":
            req = alone(server, rid, [1] * 40, session=server.sessions.get("t"))
            req.session = None  # or the loop takes it for a conversation
            server.end(req)
    return None


def log_probabilities(file: str) -> Any:
    """Asked for from the prompt's end on, they bound what a later start may find."""
    server = Server(1)
    with record(file, server.tree), mock.patch.object(server, "sample", lambda req: req.output_ids.append(7)):
        first, second = (alone(server, rid, [1] * 32, return_logprob=True, logprob_start_len=32) for rid in "ab")
        for _ in range(18):
            server.decode()
        server.end(first)
        server.decoding.clear()
        server.retract(second)
        server.round()
        server.end(second)
    return None


def given_up(file: str) -> Any:
    """A request that ran and was retracted is admitted again, and waits once more: lock and pages are gone."""
    server = Server(1)
    with record(file, server.tree):
        req = alone(server, "r", [1] * 40)
        server.decoding.clear()
        server.retract(req)
        req.init_next_round_input(server.tree)
        server.tree.unlock(server.tree.lock(req.last_node))
        server.tree.evict(EvictParams(num_tokens=PAGES * PAGE))
    return server.tree.evictable_size() + server.tree.protected_size()


def another_server(file: str) -> Any:
    """It lives in the process, and is not recorded."""
    server = Server(1)
    with record(file, server.tree):
        Server(5).serve(30)
        server.end(alone(server, "r", [1] * 40))
    return None


def slot_freed_twice_in_a_group(file: str) -> Any:
    """At page size 1 the allocator counts nothing once: its free list has the slot twice."""
    server = Server(1, page=1)
    with record(file, server.tree):
        req = alone(server, "r", [1] * 40)
        row = server.rows.req_to_token[req.kv.req_pool_idx].clone()
        server.slots.free_group_begin()
        server.decoding.clear()
        server.retract(req)
        server.slots.free(row[40:41])
        server.slots.free_group_end()
    return len(server.slots.free_pages) - len(set(server.slots.free_pages.tolist()))


def other_error(file: str) -> Any:
    """Not every error is a refusal: this one ends the recording, and is the caller's."""
    server, said = Server(1), io.StringIO()
    with redirect_stderr(said), record(file, server.tree):
        alone(server, "r", [1] * 40)
        try:
            with mock.patch.object(server.slots, "alloc_decode", side_effect=RuntimeError("no device")):
                server.decode()
        except RuntimeError as error:
            return [str(error), said.getvalue()]
    return None


def kept_by_a_late_importer(file: str) -> Any:
    """Who imports a function while it is watched has the wrapper for good; it does nothing then."""
    server, said = Server(1), io.StringIO()
    with redirect_stderr(said):
        with record(file, server.tree):
            kept = common.release_kv_cache
            req = alone(server, "r", [1] * 40)
        kept(req, server.tree, checkpoint=False)
    return [said.getvalue(), req.kv.holds_kv]


def stumbles(file: str) -> Any:
    """Something goes wrong in the recorder: it ends with a line, and the engine serves on."""
    server, said = Server(1), io.StringIO()
    with redirect_stderr(said), record(file, server.tree):
        server.serve(60)
        with mock.patch.object(Tape, "add", side_effect=KeyError("lost")):
            server.serve(server.actions + 60)
    return [said.getvalue(), server.rows.available_size() == ROWS]


def refuses(file: str) -> Any:
    """Pools in use, and pools of another kind, are not recorded."""
    used, strange = Server(1), Server(1)
    used.rows.alloc_rows(1)
    strange.tree.token_to_kv_pool_allocator = mock.Mock()
    said = list[str]()
    for server in (used, strange):
        try:
            with record(file, server.tree):
                said.append("recorded")
        except WrongInput as wrong:
            said.append(str(wrong))
    return [*said, Path(file).exists()]


QUESTIONS: tuple[Callable[[str], Any], ...] = (
    clean, freed_by_hand, freed_in_a_group, drafts, dropped, flushed, short_of_memory, scheduler_admits, bigram_keys,
    session_that_keeps_nothing, log_probabilities, given_up, another_server, slot_freed_twice_in_a_group, other_error,
    kept_by_a_late_importer, stumbles, refuses,
)  # fmt: skip

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(json.dumps({each.__name__: each(str(folder / f"{each.__name__}.jsonl")) for each in QUESTIONS}))
