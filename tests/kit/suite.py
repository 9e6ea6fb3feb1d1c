"""The conformance suite for pytest: pytest --pyargs kvledger.tests.kit.suite --kv-backend my_adapter:make

One search, then one test a rule: a rule that is not declared or not seen is skipped and says so.
"""

from __future__ import annotations

import pytest

from kvledger.spec.rules import RULES
from kvledger.spec.world import WrongInput
from kvledger.tests.kit.check import Report, check, make_arguments, wanting
from kvledger.tests.kit.verdict import BROKEN, DEVIATES, NOT_DECLARED, UNREACHED, UNSEEN


@pytest.fixture(scope="session")
def kv_report(request: pytest.FixtureRequest) -> Report:
    """The verdict on the backend, from one search."""
    option = request.config.getoption
    try:
        return check(option("--kv-backend"), make_arguments(option("--kv-profile"), option("--kv-seed")))
    except WrongInput as error:
        wrong = str(error)
    pytest.exit(wrong, returncode=2)  # no test can say anything: one line, not an error for each


def test_no_rule_is_broken(kv_report: Report) -> None:
    """The search found no counterexample; the failure screen says which, otherwise."""
    if kv_report.outcome.finding is not None:
        pytest.fail(kv_report.text, pytrace=False)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: f"{rule.id}-{rule.name}")
def test_rule(kv_report: Report, rule: object) -> None:
    """Each rule holds, and could have been broken often enough for that to mean something."""
    verdict = next(each for each in kv_report.verdicts if each.rule is rule)
    if verdict.word == NOT_DECLARED:
        pytest.skip(f"not declared: needs {', '.join(verdict.rule.needs)}")
    if verdict.word == UNSEEN:
        pytest.skip(f"unseen: {wanting(verdict.rule)}")
    if kv_report.outcome.finding is not None and verdict.word != BROKEN:
        pytest.skip("the search ended at another rule")
    if verdict.word == DEVIATES:
        pytest.skip(f"not kept {kv_report.outcome.undone[verdict.rule.id]} times, which no one is blamed for")
    if verdict.word == BROKEN:
        pytest.fail(f"{verdict.rule.title}: BROKEN, as test_no_rule_is_broken shows", pytrace=False)
    if verdict.word == UNREACHED:
        pytest.fail(f"{verdict.rule.title}: UNREACHED, armed {verdict.armed} times", pytrace=False)
