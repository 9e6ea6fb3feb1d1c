"""vLLM 0.33.0's own Scheduler under the law, which decides by itself who runs.

A scheduler takes no orders, so it is no backend. It is given a program, requests that arrive and turns that pass, and
what it does to its KVCacheManager in a turn is told to the monitor as actions and answers once the turn is over. What
counts is what the model was given: a chunk that the scheduler takes back within the turn, since it retracts that
request for one of higher priority, was never computed and is no extend. Pages of such a chunk that are cached when the
turn is over were published by the retraction: so its answer says, and CACHE-3 forbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from kvledger.spec.actions import Abort, Action, Decode, Extend, Finish, Flush, Retract, Submit
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import pages_for
from kvledger.spec.rules import Broken
from kvledger.spec.trace import Step
from kvledger.spec.world import PageId, ReqId, Slot, World
from kvledger.tests.engines import vllm
from kvledger.tests.kit.lockstep import Finding

from vllm.sampling_params import SamplingParams  # isort: skip  (after the stubs)
from vllm.utils.hashing import sha256  # isort: skip
from vllm.v1.core.kv_cache_utils import get_request_block_hasher  # isort: skip
from vllm.v1.core.sched.scheduler import Scheduler  # isort: skip
from vllm.v1.outputs import ModelRunnerOutput  # isort: skip
from vllm.v1.request import Request, RequestStatus  # isort: skip

T = TypeVar("T")


class Arrive(NamedTuple):
    """A request comes: its prompt, how many tokens it may sample, and its priority (0 goes before 1)."""

    req: ReqId
    tokens: tuple[int, ...]
    outputs: int
    priority: int


class Turn(NamedTuple):
    """The scheduler schedules, the model computes, the scheduler learns what was sampled."""


Move: TypeAlias = Arrive | Turn | Abort | Flush


class Setting(NamedTuple):
    """A world, and how the scheduler is set. chunk: most prompt tokens of one request in a turn; budget: of all."""

    world: World
    policy: str
    chunk: int
    budget: int


class Taken(NamedTuple):
    """A call of allocate_slots. row: the slots of [0, upto); handed: new pages; cached: what it published: pages with
    their keys, by position."""

    act: Extend | Decode
    reply: Reply | Refused
    row: list[Slot]
    handed: list[PageId]
    cached: dict[PageId, vllm.Key]

    @property
    def req(self) -> ReqId:
        """Whose call it was."""
        return self.act.batch[0][0]


class Given(NamedTuple):
    """A call of free. computed: tokens with KV by then."""

    req: ReqId
    computed: int
    evicted: set[PageId]
    freed: Freed


class Watch:
    """One scheduler under judgement. steps: what the monitor was told so far. trusting: a prompt's chunk that was taken
    back counts as computed, as it does for the scheduler: then it is content that shows who reads it."""

    def __init__(self, setting: Setting, trusting: bool) -> None:
        self.trusting = trusting
        self.scheduler = scheduler(setting)
        manager = self.scheduler.kv_cache_manager
        self.seen = vllm.Seen(manager, self.scheduler.requests)
        self.hasher = get_request_block_hasher(setting.world.page_size, sha256)
        self.monitor = Monitor(setting.world)
        self.content: dict[Slot, int] = {}  # what the model wrote: a tag of the law's a slot
        self.steps: list[Step] = []
        self.calls: list[Taken | Given] = []
        manager.allocate_slots = partial(self.allocate_slots, manager.allocate_slots)
        manager.free = partial(self.free, manager.free)

    def do(self, move: Move) -> None:
        """Let it happen, and judge it. Raises Finding."""
        match move:
            case Arrive(req, tokens, outputs, priority):
                params = SamplingParams(max_tokens=outputs)
                came = {"arrival_time": len(self.steps), "priority": priority}
                self.scheduler.add_request(Request(req, [*tokens], params, None, block_hasher=self.hasher, **came))
                self.tell(Submit(req, tokens, 0), Reply())
            case Turn():
                self.turn()
            case Abort(req) if req in self.scheduler.requests:
                self.scheduler.finish_requests(req, RequestStatus.FINISHED_ABORTED)
                for _, _, evicted, freed in self.called():
                    self.tell(move, Reply(evicted=evicted, freed=freed))
            case Flush():
                before, done = self.seen.books(), self.scheduler.reset_prefix_cache()
                evicted, freed = self.seen.gone(before)
                self.tell(move, Reply(evicted=evicted, freed=freed) if done else Refused(None, evicted, freed))
        self.look()

    def turn(self) -> None:
        """One step of the engine."""
        out = self.scheduler.schedule()
        scheduled = self.called()
        reqs = list(out.num_scheduled_tokens)
        requests = [self.scheduler.requests[req] for req in reqs]
        sampled = [[sample(each)] if each.num_computed_tokens == each.num_tokens else [] for each in requests]
        places = {req: at for at, req in enumerate(reqs)}
        self.scheduler.update_from_output(out, ModelRunnerOutput(reqs, places, sampled))
        ended = self.called()
        for act, reply, row in self.what_counts(scheduled):
            self.tell(act, reply)
            if row and isinstance(reply, Reply):
                self.compute(act.batch[0][0], row, len(row) - len(reply.slots[0]))
        for req, computed, evicted, freed in ended:
            self.tell(Finish(req, computed, False), Reply(evicted=evicted, freed=freed))

    def what_counts(self, calls: Sequence[Taken | Given]) -> Iterator[tuple[Any, Reply | Refused, list[Slot]]]:
        """The calls of a turn as actions, with the row where there is one. A grant that is taken back within the turn
        is told with the retraction: who was handed one of its pages since has evicted nothing."""
        undone: dict[ReqId, Taken] = {}
        uncomputed: set[PageId] = set()
        for at, call in enumerate(calls):
            later = calls[at + 1 :]
            if isinstance(call, Taken) and isinstance(call.reply, Reply):
                taken_back = any(isinstance(other, Given) and other.req == call.req for other in later)
                if taken_back and self.trusting and call.act.batch[0][-1] is None:
                    yield call.act, call.reply, []
                elif taken_back:
                    undone[call.req] = call
                    uncomputed |= call.cached.keys()
                else:
                    yield call.act, replace(call.reply, evicted=set(call.reply.evicted) - uncomputed), call.row
                    uncomputed -= set(call.handed)
            elif isinstance(call, Taken):
                if not undone:  # or it is refused for what the law does not know
                    yield call.act, call.reply, []
            else:
                yield Retract(call.req), self.retracted(call, undone.pop(call.req, None), later), []

    def retracted(self, given: Given, undone: Taken | None, later: Sequence[Taken | Given]) -> Reply:
        """What became of a request that was retracted, and of what it had been granted in the same turn."""
        if undone is None:
            return Reply(evicted=given.evicted, freed=given.freed)
        reply, cached = cast(Reply, undone.reply), self.seen.books().cached
        taken = {page for call in later if isinstance(call, Taken) for page in call.handed}
        left = [page for page, key in undone.cached.items() if cached.get(page) == key and page not in taken]
        before = reply.published[given.req] - len(undone.cached) * self.seen.size
        published = {given.req: before + len(left) * self.seen.size} if left else {}
        back = {*given.freed.pages, *undone.cached} - {*left, *undone.handed}
        return Reply(published=published, evicted={*reply.evicted, *given.evicted}, freed=Freed(tuple(sorted(back))))

    def compute(self, req: ReqId, row: list[Slot], start: int) -> None:
        """The model reads [0, start) of a row and writes the rest."""
        tags = self.monitor.ledger.requests[req].trail[start : len(row)]
        self.content.update(zip(row[start:], tags, strict=True))
        read = [self.content.get(slot, 0) for slot in row]
        self.steps[-1] = self.steps[-1]._replace(read={req: read})
        self.judge(partial(self.monitor.read, req, read))

    def tell(self, act: Action, reply: Reply | Refused) -> None:
        """One action and its answer."""
        self.steps.append(Step(act, reply))
        self.answer = self.judge(partial(self.monitor.step, act, reply))

    def look(self) -> None:
        """Compare the books, between two turns."""
        if not self.steps:
            return
        view = self.seen.view()
        self.steps[-1] = self.steps[-1]._replace(view=view)
        self.judge(partial(self.monitor.compare, view, self.steps[-1].act, self.answer))

    def judge(self, call: Callable[[], T]) -> T:
        """Whatever breaks is a finding of the last action told."""
        try:
            return call()
        except Broken as broken:
            raise Finding(broken.rule, len(self.steps), broken.facts) from None

    # ---- what the scheduler asks of its KVCacheManager, noted down and passed on

    def allocate_slots(
        self, call: Callable[..., Any], request: Any, new: int, num_new_computed_tokens: int = 0, **more: Any
    ) -> Any:
        req, before, size = request.request_id, self.seen.books(), self.seen.size
        starts = req not in self.seen.rows.req_to_blocks
        start = request.num_computed_tokens + num_new_computed_tokens
        upto, end = start + new, request.num_tokens
        token = sample(request) if upto == end else None
        act = Extend(((req, upto, token),)) if starts or upto - start > 1 or upto < end else Decode(((req, token),))
        granted = call(request, new, num_new_computed_tokens=num_new_computed_tokens, **more)
        row, slots = self.seen.row(req), self.seen.slots(req)[:upto]
        handed = row[pages_for(start, size) :]
        evicted, freed = self.seen.gone(before, handed)
        reply: Reply | Refused = Refused("pages", evicted, freed)
        if granted is not None:
            matched = [slots[:start]] if starts else []
            reply = Reply((), matched, [slots[start:]], self.seen.published(req), evicted, freed)
        now = self.seen.books().cached
        new_keys = {page: now[page] for page in row if page in now and (page in handed or page not in before.cached)}
        self.calls.append(Taken(act, reply, slots, handed, new_keys))
        return granted

    def free(self, call: Callable[..., None], request: Any) -> None:
        before = self.seen.books()
        call(request)
        self.calls.append(Given(request.request_id, vllm.committed(request), *self.seen.gone(before)))

    def called(self) -> list[Any]:
        """The calls since this was asked last."""
        calls, self.calls = self.calls, []
        return calls


def sample(request: Any) -> int:
    """The token that the model samples next: the same for all, so that duplicates form."""
    return int(request.num_tokens) % 2


def scheduler(setting: Setting) -> Any:
    """vLLM's Scheduler. The configuration is what it looks at; whatever could keep pages back is off."""
    world, size = setting.world, setting.world.page_size
    scheduling = SimpleNamespace(
        policy=setting.policy,
        max_num_seqs=world.rows,
        max_num_active_seqs=None,
        max_num_batched_tokens=setting.budget,
        max_num_scheduled_tokens=None,
        max_num_partial_prefills=1,
        long_prefill_token_threshold=setting.chunk,
        long_prefill_token_threshold_adaptive=False,
        enable_chunked_prefill=True,
        prefill_schedule_interval=1,
        scheduler_reserve_full_isl=False,
        watermark=0.0,
        async_scheduling=False,
    )
    cache = SimpleNamespace(
        num_gpu_blocks=world.pages + 1,
        block_size=size,
        enable_prefix_caching=True,
        mamba_cache_mode="none",
        enable_mamba_shared_prefix_checkpoint=False,
    )
    parallel = SimpleNamespace(
        decode_context_parallel_size=1,
        prefill_context_parallel_size=1,
        pipeline_parallel_size=1,
        data_parallel_index=0,
        data_parallel_size=1,
    )
    model = SimpleNamespace(
        max_model_len=world.context_len,
        runner_type="generate",
        uses_mrope=False,
        is_encoder_decoder=False,
        is_diffusion=False,
        supports_multimodal_inputs=False,
        return_sampling_mask=False,
    )
    config = SimpleNamespace(
        scheduler_config=scheduling,
        cache_config=cache,
        parallel_config=parallel,
        model_config=model,
        observability_config=SimpleNamespace(
            per_request_spec_decode_metrics=None, kv_cache_metrics=False, enable_mfu_metrics=False
        ),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=SimpleNamespace(enabled=False),
        lora_config=None,
        kv_events_config=None,
        kv_transfer_config=None,
        ec_transfer_config=None,
        speculative_config=None,
        is_mm_encoder_only=False,
        max_concurrent_batches=1,
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
        use_v2_model_runner=False,
        max_in_flight_tokens=setting.budget,
    )
    structured = SimpleNamespace(should_advance=lambda request: False, accept_tokens=lambda *_, **__: True)
    return Scheduler(config, vllm.pool_of(world), structured, block_size=size, hash_block_size=size)
