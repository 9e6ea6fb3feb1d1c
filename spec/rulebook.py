"""kvledger rules: the rules, printed."""

from __future__ import annotations

import argparse
import textwrap

from kvledger.spec.rules import RULES, Rule
from kvledger.spec.world import WrongInput


def find(word: str) -> Rule:
    """The rule with this id or name. Raises WrongInput with the near ones otherwise."""
    for rule in RULES.values():
        if word.lower() in (rule.id.lower(), rule.name):
            return rule
    near = [rule.title for rule in RULES.values() if word.lower().split("-")[0] in rule.title.lower()]
    raise WrongInput(f"rule {word!r}: expected an id or a name, such as {', '.join(near[:4] or ['ROW-1 one-holder'])}")


HELP = """examples:
  kvledger rules                 every rule, one line each
  kvledger rules one-holder      one rule: sentence, evidence, source
  kvledger rules ROW-1           the same, by id
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `kvledger rules`."""
    parser.add_argument("rule", nargs="*", help="id or name of a rule")


def run(args: argparse.Namespace) -> int:
    """Print all rules, or the ones named."""
    if not args.rule:
        for rule in RULES.values():
            lead = f"{rule.title:36}" if rule.must else f"{rule.title + ' (SHOULD)':36}"
            print(textwrap.fill(rule.sentence, 100, initial_indent=lead, subsequent_indent=" " * 36))
        print("\nA MUST, unless it says SHOULD: that is counted, and nobody is blamed. kvledger rules NAME says more.")
        return 0
    for rule in map(find, args.rule):
        print(f"{rule.title}   ({'MUST' if rule.must else 'SHOULD'}, owed by the {rule.owed_by.lower()})")
        for label, text in (
            ("sentence", rule.sentence),
            ("source", rule.source),
            ("shown by", ", ".join(word.lower() for word in rule.shown_by)),
            ("needs", ", ".join(rule.needs) or "nothing: every backend owes it"),
            ("implied by", ", ".join(RULES[other].title for other in rule.implied_by) or "no other rule"),
        ):
            print(textwrap.fill(text, 100, initial_indent=f"  {label:11}", subsequent_indent=" " * 13))
    return 0
