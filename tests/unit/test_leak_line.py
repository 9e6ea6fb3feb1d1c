"""SGLang's leak line, of every generation, as it stands in its tracker: what is read, and what is said of it."""

from __future__ import annotations

import io
import re
from typing import NamedTuple

import pytest

from kvledger.spec.rules import RULES
from kvledger.tests.report.leak import suspects, told
from kvledger.tests.report.leak_causes import CAUSES
from kvledger.tests.report.leak_line import Sum, sums
from kvledger.tests.unit.written import GOOD, Bench


class Report(NamedTuple):
    """A line as it was reported. off: each pool that is in it. pages: what is said of the first that is off. rule, act:
    what the repair showed; "": nothing is known of one."""

    issue: str
    text: str
    off: dict[str, int]
    pages: str
    rule: str = ""
    act: str = ""


REPORTS = [
    # managers/scheduler.py: the two parts added up before they are printed
    Report("sglang#105", "UserWarning: Warning: available_size=35244, max_total_num_token=42308\n"
           "KV cache pool leak detected!", {"full": -7064}, ""),
    Report("sglang#6888 (page size 16)",
           "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=3189424, protected_size=0, "
           "self.max_total_num_tokens=3185200\nself.token_to_kv_pool_allocator.available_size()=2864304\n"
           "self.tree_cache.evictable_size()=325120\n\n\n[2025-06-06 01:56:27] Received sigquit from a child process.",
           {"full": 4224}, "264 pages of 16"),
    Report("Semi-PD#17", "/x/scheduler.py:1326: UserWarning: token_to_kv_pool_allocator memory leak detected! "
           "available_size=961586, protected_size=0, self.max_total_num_tokens=961593\n"
           "self.token_to_kv_pool_allocator.available_size()=961586\nself.tree_cache.evictable_size()=0\n\n"
           "  warnings.warn(msg)\n/x/scheduler.py:1336: UserWarning: req_to_token_pool memory leak detected!"
           "available_size=3756, total_size=3757\n\n  warnings.warn(msg)", {"full": -7, "rows": -1}, "7 pages of 1"),
    # repaired by sglang#11981: with overlap a retract freed less than the request had
    Report("sglang#11970", "`ValueError: token_to_kv_pool_allocator memory leak detected! "
           "self.max_total_num_tokens=270331, available_size=644, evictable_size=269628, protected_size=0\n`",
           {"full": -59}, "59 pages of 1", "PAGE-6", "retract"),
    # scheduler_runtime_checker_mixin.py; repaired by sglang#16067: a state was taken by a match, then admission said no
    Report("sglang#16067", "    raise ValueError(message)\n"
           "ValueError: token_to_kv_pool_allocator memory leak detected! "
           "full_available_size=6016, full_evictable_size=390685, self.token_to_kv_pool_allocator.size=396701, "
           "self.tree_cache.full_protected_size()=0\nmamba_available_size=315, mamba_evictable_size=138, "
           "self.req_to_token_pool.mamba_pool.size=454, self.tree_cache.mamba_protected_size()=0, "
           "leaked_full_pages=None, leaked_mamba_pages={191}\n\n[2026-01-12 10:57:43 TP3] Scheduler hit an exception",
           {"full": 0, "mamba": -1}, "", "ATOM-1", "extend"),
    # cut off as it stands there; repaired by sglang#22273: an aborted turn saved its own short record to the session
    Report("sglang#22273", "ValueError: token_to_kv_pool_allocator memory leak detected!\nsession_held=-1664",
           {"full": -1664}, "", "SES-4", "abort"),
    # invariant_checker.py; sglang#27586: an insertion frees, through a stale map, a slot that is somebody's by now
    Report("sglang#27789 (page size 256)",
           'assert not swa_leak, f"SWA Pool Mem Leak Detected! {swa_msg}"\nAssertionError: SWA Pool Mem Leak Detected! '
           "[swa] total=322816, available=2816, evictable=308992, protected=2560, session_held=0, uncached=8704",
           {"swa": 256}, "1 page of 256", "PAGE-6", "finish"),
    # sglang#36135: the page that was replaced in the map can not be found any more, and is never freed
    Report("sglang#36081", "ValueError: pool memory leak detected! [full] total=9116160, available=768, "
           "evictable=9115392, protected=0, session_held=0, uncached=0\n[swa] total=911616, available=235264, "
           "evictable=676096, protected=0, session_held=0, uncached=0\n[2026-08-23 09:11:04 TP6 EP6] Scheduler hit an "
           "exception", {"full": 0, "swa": -256}, "1 page of 256", "PAGE-2", "finish"),
]  # fmt: skip


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.issue)
def test_a_line_from_the_tracker(bench: Bench, report: Report) -> None:
    """How far each pool is off; in pages; and what the repair showed is among those told first, or is the first."""
    found = sums(report.text)
    assert {each.pool: each.off for each in found} == report.off
    code, out, err = bench.call("explain", report.text)
    assert (code, err) == (1, "") and report.pages in out
    judge_form(out)
    if report.rule:
        title = RULES[report.rule].title
        suspected = re.search(rf"^  {title} +(\w.*)$", out, re.MULTILINE)
        assert suspected is not None and report.act in suspected[1].split(", ")


def judge_form(out: str) -> None:
    """It fits a screen, says who, in words, and goes on with commands."""
    lines = out.splitlines()
    assert len(lines) <= 45 and all(len(line) <= 80 and line == line.rstrip() for line in lines), out
    assert "None" not in out and re.search(r"^next    kvledger check sglang ", out, re.MULTILINE)


# The same sum, 97 of 100, in the words of each generation.
GENERATIONS = {
    "0.5.3": "self.max_total_num_tokens=100, available_size=90, evictable_size=4, protected_size=3\n",
    "0.5.10": "self.max_total_num_tokens=100, available_size=90, evictable_size=4, protected_size=2, session_held=1\n",
    "0.5.10, window": "full_leaked=3, swa_leaked=0\nself.full_tokens_per_layer=100, full_available_size=90, "
                      "full_evictable_size=4, full_protected=2, session_held_full=1\nself.swa_tokens_per_layer=50, "
                      "swa_available_size=50, swa_evictable_size=0, swa_protected=0, session_held_swa=0\n",
    "0.5.10, busy": "Mem Leak Detected! total_tokens=97 vs self.max_total_num_tokens=100",
    "0.5.20, 0.5.23": "pool memory leak detected! [full] total=100, available=90, evictable=4, protected=2, "
                      "session_held=1, uncached=0",
    "0.5.23, sharded": "pool memory leak detected! [full] total=100, available=90, evictable=4, protected=2, "
                       "session_held=1, uncached=0, class_free_pages=[3, 4], unaligned_sharded_counts={'total': 100}, "
                       "page_size=16",
}  # fmt: skip


@pytest.mark.parametrize("text", GENERATIONS.values(), ids=GENERATIONS)
def test_each_generation_is_read(text: str) -> None:
    logged = f"[2026-11-30 18:50:32 TP0] Scheduler hit: {text}\nkilled, pid=17, tp_size=2"
    for line in (text, logged, logged.replace("\n", "\\n")):
        first, *others = sums(line)
        assert (first.pool, first.off, first.counted, first.total) == ("full", -3, 97, 100)
        assert all(each.off == 0 for each in others)


def test_what_no_pool_conserves_is_no_sum() -> None:
    """A window ring is not checked; the line of a busy step is a message without a total in 0.5.10."""
    assert sums("[swa] unified ring (leak-check skipped): available=1, evictable=2, total=30") == []
    assert sums("[Mem Check (BUSY)] available_size=1, evictable_size=2, protected_size=3, uncached_size=4") == []
    assert sums("max_total_num_tokens=270331, chunked_prefill_size=8192, context_len=40960") == []


def test_a_log_has_many_lines() -> None:
    """The total that the server prints at its start belongs to none; a message that comes again is another sum."""
    start = "max_total_num_tokens=100, page_size=16\n"
    lines = [f"[Mem Check (BUSY)] [full] total=100, available={free}, evictable=4\n" for free in (96, 96, 93, 90)]
    found = sums(start + "".join(lines))
    assert [each.off for each in found] == [0, 0, -3, -6] and {each.page_size for each in found} == {16}
    assert "The first of 2 that are off; the last is off by -6." in told(found)


def said(found: list[Sum]) -> str:
    """What is told, in one line."""
    return " ".join(told(found).split())


def line(**parts: int) -> str:
    """A line of 0.5.23, of a pool of 1,024."""
    numbers = {"available": 1024, "evictable": 0, "protected": 0, "session_held": 0, "uncached": 0} | parts
    return "[full] total=1024, " + ", ".join(f"{name}={value}" for name, value in numbers.items())


@pytest.mark.parametrize(
    ("text", "says", "first"),
    [
        # a record that is lent counts for the session and for the turn: sglang#22152, #22213
        (line(available=1000, session_held=24, uncached=24), "That is session_held once more", "CONS-1"),
        (line(available=960, session_held=32, uncached=64), "That is session_held once more", "CONS-1"),
        (line(available=1056, session_held=-64), "session_held is below 0: a session's record", "SES-4"),
        (line(available=1007), "1 page of 16, and 1 over. Not all of this is whole pages.", "REC-2"),
        (line(available=992), "32 too few: something is nobody's. 2 pages of 16.", "PAGE-6"),
        (line(available=992, protected=16), "a lock was left behind (LOCK-1 locks-counted)", "PAGE-6"),
    ],
)
def test_what_the_parts_say(text: str, says: str, first: str) -> None:
    found = sums(text, 16)
    assert says in said(found) and suspects(found)[0].rule == first


@pytest.mark.parametrize(
    "text",
    [line(available=992, protected=16, uncached=8), line(available=992, protected=8, session_held=8), line()],
)
def test_a_lock_while_somebody_may_read_is_none_left_behind(text: str) -> None:
    assert "LOCK-1" not in told(sums(text, 16))


def test_sessions_come_last_where_none_holds_kv() -> None:
    with_sessions, without = (suspects(sums(line(available=992 - held, session_held=held))) for held in (8, 0))
    assert [cause.rule for cause in with_sessions] == [cause.rule for cause in CAUSES["slots", -1]]
    assert with_sessions[3].rule == "SES-2" and {cause.rule[:3] for cause in without[-4:]} == {"SES"}


def test_how_many_pages_where_nobody_says_how_large_they_are() -> None:
    """The largest that divides all figures; no more is claimed than that."""
    assert "3 pages of 32, if pages are as large as these figures allow" in said(sums(line(available=928)))
    assert "3 pages of 1, or not of whole pages" in said(sums(line(available=1021)))


def test_two_pools_that_are_off_to_two_sides() -> None:
    out = said(sums(line(available=1025) + "\nreq_to_token_pool memory leak detected!available_size=3, total_size=4"))
    assert "too many slots: who can do that" in out and "too few rows: who can do that" in out


def test_a_state_is_no_part_of_a_page() -> None:
    out = said(sums("page_size=64 [mamba] total=10, available=9, evictable=0, protected=0, session_held=0, uncached=0"))
    assert "9, of 10 states 1 too few" in out.replace("uncached 0 = ", "") and "page" not in out.partition("The law")[0]
    assert suspects(sums("page_size=64 [mamba] total=10, available=9"))[0].rule == "PAGE-6"


def test_a_right_sum_is_said_to_be_right(bench: Bench) -> None:
    code, out, err = bench.call("explain", line())
    assert (code, err) == (0, "") and "of 1,024 slots\n        It is right." in out and "suspect" not in out
    assert "LOCK-1" not in out and "LOCK-1" in bench.call("explain", line(available=1008, protected=16))[1]


@pytest.mark.parametrize(
    "parts", ["available=110, evictable=0, protected=-10", "available=110, evictable=-10, protected=0"]
)
def test_a_right_sum_of_parts_that_nobody_can_have(bench: Bench, parts: str) -> None:
    code, out, err = bench.call("explain", f"pool memory leak detected! [full] total=100, {parts}, session_held=0")
    names = " and ".join(re.findall(r"(\w+)=(?:110|-10)", parts))
    assert (code, err) == (1, "") and f"It is right, but {names} cannot be so" in " ".join(out.split())


def test_the_total_of_a_decode_server() -> None:
    """It checks size + pre_alloc_size, and prints size."""
    rows = "req_to_token_pool memory leak detected!available_size={}, session_held=1, total_size=4"
    says = "A decode server (disaggregation) has pre-allocated rows"
    assert [says in said(sums(rows.format(free))) for free in (2, 3, 4)] == [False, True, True]


def test_standard_input(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    log = f"first \ud800\n{line(available=1008)}\nlast\n".encode(errors="surrogatepass")  # not all of it is text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log)))
    code, out, _ = bench.call("explain", "-", "--page-size", "8")
    assert code == 1 and "2 pages of 8." in out
    monkeypatch.setattr("sys.stdin", None)
    assert "'': expected a stored run" in bench.complaint("explain", "-")


def test_a_file_is_a_stored_run_whatever_its_name(bench: Bench) -> None:
    assert bench.call("explain", bench.file("total=1, available=2", GOOD))[0] == 0
    assert "none.json: cannot be read" in bench.complaint("explain", "none.json")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["it leaks"], "'it leaks': expected a stored run (.itf.json), or a line of SGLang's leak check, which has"),
        (["memory leak detected! available_size=3"], "expected a stored run (.itf.json), or a line of"),
        (["x" * 9000], "expected a stored run"),
        ([""], "'': expected a stored run"),
        ([line(), "--page-size", "0"], "--page-size 0: expected at least 1"),
        ([line(), "--pytest"], "expected a stored run (.itf.json)"),
        (["t.itf.json", "--page-size", "4"], "--page-size with t.itf.json: a stored run has its sizes"),
    ],
)
def test_what_is_neither(bench: Bench, words: list[str], says: str) -> None:
    bench.file("t.itf.json", GOOD)
    complaint = bench.complaint("explain", *words)
    assert says in complaint and len(complaint) < 250
