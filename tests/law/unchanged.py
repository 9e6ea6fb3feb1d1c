"""What may be changed in the law without changing it, each with the reason: for operators.py."""

from __future__ import annotations

GUARD = "a kernel is called for its guard alone, and in a lawful state that never accuses"
ZERO = "0 is no tag, and nobody asks what comes before it"
TAGS = "self._before: list[Tag] = [0]  # by tag: the tag one token earlier; 0 before a root"
BOUNDS = "is_free knows which pages there are"
FREE = "free = [page for page in range(1, ledger.world.pages + 1) if ledger.is_free(page) or page in gone | cut_off]"
ONE = "there is one member: the first is the last"
ADMIT = "edit.admit(act.req, answer.matched[0] if answer.matched else ())"
MATCH = "judge_matched(ledger, act.req, answer.matched[0])"
RESERVE = "edit.reserve(act.req, answer.pages[0], answer.reserved)"
NEVER = "an action that takes nothing is never refused: judge_refused has raised, which the type checker cannot know"
NOTHING = ("abort", "admit", "checkpoint", "close", "commit", "defer", "evict", "finish", "match_prefix", "retract",
           "submit")  # fmt: skip
# Mutant.key -> why that changes nothing
UNCHANGED: dict[tuple[str, str, str], str] = {
    ("ledger.Names.__init__", TAGS, "becomes self._before: list[Tag] = [1]"): ZERO,
    ("ledger.Names.__init__", TAGS, "becomes self._before: list[Tag] = [-1]"): ZERO,
    ("ledger.Names.known", "return None", "without return None"): "of an unknown prefix every longer one is unknown",
    ("edit.Edit.cut", "if upto > record.protected_len:", "becomes if upto >= record.protected_len:"):
        "a page that is cached is written to its end, and is cut there",
    ("edit.Edit.publish", "kernel.give_back(self.pages[own], cast(int, record.row))",
     "without kernel.give_back(self.pages[own], cast(int, record.row))"): GUARD,
    ("edit.Edit.release", "record_kernel.release(record, self.world.page_size)",
     "without record_kernel.release(record, self.world.page_size)"): GUARD,
    ("edit.Edit.evict", "kernel.evict(self.pages[page])", "without kernel.evict(self.pages[page])"): GUARD,
    ("edit.Edit._give_back", "kernel.give_back(self.pages[page], row)",
     "without kernel.give_back(self.pages[page], row)"): GUARD,
    **{(f"actions/{action}.judge", "return", "without return"): NEVER for action in NOTHING},
    ("actions/admit.effect", ADMIT, "becomes " + ADMIT.replace("[0]", "[-1]")): ONE,
    ("actions/match_prefix.judge", MATCH, "becomes " + MATCH.replace("[0]", "[-1]")): ONE,
    ("actions/reserve.effect", RESERVE, "becomes " + RESERVE.replace("[0]", "[-1]")): ONE,
    ("actions/taking.judge_rows", 'fits = not ledger.world.has("ROWS") or 1 <= row <= ledger.world.rows',
     "becomes fits = not ledger.world.has('ROWS') or 0 <= row <= ledger.world.rows"):
        "row 0 is refused two lines before",
    ("actions/every_answer.eviction_sets",
     "for size in [fewest] if least else range(max(1, fewest), len(pages) + 1):",
     "becomes for size in [fewest] if least else range(max(1, fewest), len(pages) + 2):"):
        "no set has more pages than there are",
    ("actions/every_answer.stayings",
     "if not ledger.may_publish(publisher.req, kind) or most <= first:",
     "becomes if not ledger.may_publish(publisher.req, kind) or most < first:"):
        "where there is no page to publish, the choices of what follows are one and empty, too",
    ("actions/every_answer.takings", FREE, "becomes " + FREE.replace("range(1,", "range(0,")): BOUNDS,
    ("actions/every_answer.takings", FREE, "becomes " + FREE.replace("+ 1)", "+ 2)")): BOUNDS,
}  # fmt: skip
