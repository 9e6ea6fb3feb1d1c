"""Engines with one expression changed, and the rule that a check must name: written down before the kit could see them.

Each was found by somebody who looked for a fault that the check missed. test_mutants.py runs the check on them.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`; a check of `backend` must end with one of these rules:
    a fault may break several, and the draw says which comes first."""

    backend: str
    file: str
    old: str
    new: str
    rules: str


REFERENCE, RELEASE = "reference/backend.py", "reference/release.py"
ALLOCATION, SESSIONS = "reference/allocation.py", "reference/sessions.py"
BLOCKS = "tests/engines/blocks.py"
# The edge of the row
EDGE = [
    Mutant("reference", REFERENCE, "min(len(req.tokens), self.world.context_len)",
           "min(len(req.tokens), self.world.context_len - 1)", "PAGE-5"),
    Mutant("reference", REFERENCE, "min(len(req.tokens), self.world.context_len)", "len(req.tokens)", "GUARD-1"),
    Mutant("reference", REFERENCE, "any(req.kv.kv_committed_len >= self.world.context_len for req in reqs)", "False",
           "GUARD-1 RAISES"),
    Mutant("reference", "reference/rows.py", "self.req_to_token[row][start : start + len(slots)] = slots",
           "full = start + len(slots) == len(self.req_to_token[row]); "
           "self.req_to_token[row][start : start + len(slots)] = [*slots[:-1], 0] if full and slots else slots",
           "TAB-2"),
    Mutant("blocks", BLOCKS, "min(len(request.tokens), self.context_len)",
           "min(len(request.tokens), self.context_len - 1)", "PAGE-5"),
    Mutant("blocks", BLOCKS, "min(len(request.tokens), self.context_len)", "len(request.tokens)", "GUARD-1"),
]  # fmt: skip
# One clause of a guard missing
GUARDS = [
    Mutant("reference", REFERENCE, "req is None or not req.publish or self.tree_cache.disable",
           "req is None or self.tree_cache.disable", "GUARD-1"),
    Mutant("reference", REFERENCE, "start <= self.tree_cache.page_floor(act.upto) and", "True and", "GUARD-1"),
    Mutant("reference", REFERENCE, "len(set(rids)) != len(rids) or not self.reqs", "not self.reqs", "GUARD-1"),
    Mutant("reference", REFERENCE, "not 0 <= act.keep <= req.kv", "not act.keep <= req.kv", "GUARD-1"),
    Mutant("reference", REFERENCE, "if not reqs or any(token is None for _, token in act.batch):",
           "if not reqs:", "GUARD-1"),
    Mutant("reference", REFERENCE, " or any(token is None for token in act.tokens):", ":", "GUARD-1"),
    Mutant("reference", REFERENCE, "act.n < 1 or self.tree_cache.evictable_size == 0", "act.n < 1", "GUARD-1"),
    Mutant("blocks", BLOCKS, "if (token is not None) != (upto == len(request.tokens)):",
           "if token is None and upto == len(request.tokens):", "GUARD-1"),
    Mutant("blocks", BLOCKS, " or None in act.tokens:", ":", "GUARD-1"),
]  # fmt: skip
# A guard that looks at the first member only, or at one wrong value of many
MEMBERS = [
    Mutant("reference", REFERENCE, "any(upto <= len(prefix) for", "any(upto == len(prefix) for", "GUARD-1 RAISES"),
    Mutant("reference", REFERENCE, "for prefix, (_, upto, _) in zip(prefixes, act.batch, strict=True)",
           "for prefix, (_, upto, _) in zip(prefixes[:1], act.batch[:1], strict=True)", "GUARD-1 RAISES"),
    Mutant("reference", REFERENCE, "for req, (_, upto, token) in zip(reqs, act.batch, strict=True):",
           "for req, (_, upto, token) in zip(reqs[:1], act.batch[:1], strict=True):", "GUARD-1"),
    Mutant("reference", REFERENCE, "any(not req.caught_up() or", "any(req is reqs[0] and not req.caught_up() or",
           "GUARD-1 RAISES"),
    Mutant("reference", REFERENCE, "any(token is None for _, token in act.batch)",
           "any(token is None for _, token in act.batch[:1])", "GUARD-1"),
]  # fmt: skip
# A fault that needs more pages than a small pool has
DEPTH = [
    Mutant("reference", RELEASE, "free(row[start:there])",
           "free(row[start : min(there, start + 3 * tree_cache.page_size)])", "PAGE-6"),
]  # fmt: skip
SHARED = "NS-1 CACHE-4 CACHE-5 PAGE-5 PAGE-6"
# What tells two values apart only if a third is there: namespaces, limits inside a page, pages of many slots, tokens
# that look alike. What is taken for one shows where it is matched (NS-1, CACHE-4), where it is published (CACHE-5), or
# where a wrong match passes the end of an extend, which is then refused without cause (PAGE-5).
WIDTH = [
    Mutant("reference", "reference/request.py", "self.extra_key)", "self.extra_key != 0)", SHARED),
    Mutant("blocks", BLOCKS, "self.intern(NO_PARENT, request.namespace)",
           "self.intern(NO_PARENT, request.namespace != 0)", SHARED),
    Mutant("reference", "reference/allocation.py", "min(length, req.match_limit)",
           "min(length, -(-req.match_limit // tree_cache.page_size) * tree_cache.page_size)", "CACHE-2 PAGE-5"),
    Mutant("blocks", BLOCKS, "min(limit, request.match_limit)",
           "min(limit, -(-request.match_limit // self.page_size) * self.page_size)", "CACHE-2 PAGE-5"),
    Mutant("reference", "reference/request.py", "tuple(self.tokens[:length])", "tuple(map(str, self.tokens[:length]))",
           "CACHE-4 CACHE-5 PAGE-5"),
    Mutant("blocks", BLOCKS, "tuple(request.tokens[index * self.page_size : (index + 1) * self.page_size])",
           "tuple(map(str, request.tokens[index * self.page_size : (index + 1) * self.page_size]))",
           "CACHE-4 CACHE-5 PAGE-5"),
    Mutant("reference", "reference/request.py", "self.extra_key)", "self.extra_key or None)", SHARED),
    Mutant("blocks", BLOCKS, "self.intern(NO_PARENT, request.namespace)",
           "self.intern(NO_PARENT, request.namespace or '')", SHARED),
    Mutant("reference", "reference/allocator.py", "slots[:: self.page_size]",
           "slots[:: 1 << self.page_size.bit_length() - 1]", "RAISES"),
    Mutant("reference", "reference/allocator.py", "slots[:: self.page_size]",
           "slots[:: min(self.page_size, 4)]", "RAISES"),
]  # fmt: skip
# How far slots are reserved, what is committed of them, and what is left behind
DRAFTS = [
    Mutant("reference", ALLOCATION, "max(kv.kv_allocated_len, length))", "length)", "DRAFT-1"),
    Mutant("reference", ALLOCATION, "tree_cache.page_ceil(kv.kv_committed_len + num_tokens)",
           "tree_cache.page_ceil(kv.kv_allocated_len + num_tokens)", "DRAFT-1 PAGE-5"),
    Mutant("reference", REFERENCE, "if committed > req.kv.kv_allocated_len:",
           "if committed > self.tree_cache.page_ceil(req.kv.kv_allocated_len):", "GUARD-1"),
    Mutant("reference", REFERENCE, "req.kv.kv_committed_len = committed",
           "req.kv.kv_committed_len = req.kv.kv_allocated_len", "REC-2"),
    Mutant("reference", REFERENCE, "any(not req.caught_up() or req.kv.over_allocated for req in reqs)",
           "any(not req.caught_up() for req in reqs)", "GUARD-1"),
    Mutant("reference", RELEASE, "free(row[tree_cache.page_ceil(length) : kv.kv_allocated_len])",
           "free(row[tree_cache.page_ceil(length) : kv.kv_committed_len])", "PAGE-6 SES-3 SES-4"),
]  # fmt: skip
# The record between two turns. A lock that stays behind shows when the record is given up: a close, an abort, a flush.
TURNS = [
    Mutant("reference", SESSIONS, "free_tail(self.kv, length, tree_cache)",
           "free_tail(self.kv, self.kv.kv_committed_len, tree_cache)", "PAGE-6"),
    Mutant("reference", SESSIONS, "length = min(self.kv.kv_committed_len, len(req.tokens) - 1)",
           "length = tree_cache.page_floor(min(self.kv.kv_committed_len, len(req.tokens) - 1))", "SES-2"),
    Mutant("reference", SESSIONS, "req.last_node, self.last_node = self.last_node, tree_cache.root_node", "pass",
           "SES-3 SES-4 EVICT-2"),
    Mutant("reference", SESSIONS, "self.last_node, req.last_node = req.last_node, tree_cache.root_node", "pass",
           "SES-3 SES-4 EVICT-2"),
    Mutant("reference", REFERENCE, "            if session.closing:\n",
           "            if session.closing and not session.kv.holds_kv:\n", "SES-3"),
    Mutant("reference", REFERENCE, "0 if req.kv.from_session else act.upto", "act.upto", "CACHE-3"),
    Mutant("reference", REFERENCE, "session.restore(self.reqs[rid], len(matches[rid].device_indices), self.tree_cache)",
           "pass", "TAG-1"),
    Mutant("reference", REFERENCE, "session.turn is not None or session.extra_key != act.namespace",
           "session.turn is not None", "GUARD-1"),
    Mutant("reference", REFERENCE, "length >= max(session.kv.cache_protected_len, 1)",
           "length >= session.kv.cache_protected_len", "GUARD-1"),
]  # fmt: skip
# The lock of an admission
ADMISSION = [
    Mutant("reference", REFERENCE, "if req is None or self.lender(req) is not None:", "if req is None:", "GUARD-1"),
    Mutant("reference", REFERENCE, "req.move_lock(req.match.last_node, self.tree_cache)", "pass", "LOCK-1"),
    Mutant("reference", REFERENCE,
           "req.match = None\n        req.move_lock(self.tree_cache.root_node, self.tree_cache)", "req.match = None",
           "LOCK-1"),
    Mutant("reference", REFERENCE, "                if req.match is None:\n", "                if True:\n", "ATOM-1"),
    Mutant("reference", REFERENCE, "req.kv.holds_kv or req.match is not None for req", "req.kv.holds_kv for req",
           "LOCK-2"),
]  # fmt: skip
MUTANTS = [*EDGE, *GUARDS, *MEMBERS, *DEPTH, *WIDTH, *DRAFTS, *TURNS, *ADMISSION]
