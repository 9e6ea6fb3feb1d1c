"""The docstrings' `post:` lines, settled by CrossHair: over all paths, for all ints that `pre:` allows.

Only "confirmed over all paths" counts, of each post by itself. A timeout, an unmet precondition, a function without a
contract and a function that raises are failures; CrossHair's own exit code says 0 for three of these.
"""

from __future__ import annotations

import inspect
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it looks at all of typing
    # isort: off
    from crosshair.core_and_libs import AnalysisMessage, MessageType, analyze_function, run_checkables  # comes first
    from crosshair.options import AnalysisKind, AnalysisOptionSet
    # isort: on

from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec import page, record

Function = Callable[..., Any]
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # those that page arithmetic is settled for
WITHOUT_POSTS = ("lawful",)  # what the posts are written in
OPTIONS = AnalysisOptionSet(
    analysis_kind=[AnalysisKind.PEP316], report_all=True, per_condition_timeout=20.0, per_path_timeout=5.0
)


def functions(module: ModuleType) -> list[Function]:
    """Those that owe posts, in the order of the file."""
    own = [each for each in vars(module).values() if inspect.isfunction(each) and each.__module__ == module.__name__]
    return [each for each in own if each.__name__ not in WITHOUT_POSTS]


def posts(function: Function) -> list[int]:
    """The lines in its file where the function's posts stand."""
    lines, first = inspect.getsourcelines(function)
    return [number for number, line in enumerate(lines, first) if line.strip().startswith("post:")]


def sized(function: Function) -> bool:
    """Whether `pre:` allows each of SIZES, if there is a page size: posts that hold of fewer say less."""
    allowed = re.findall(r"^\s*pre:.* page_size in (\(.*?\))", function.__doc__ or "", re.MULTILINE)
    return allowed == [str(SIZES)] * ("page_size" in inspect.signature(function).parameters)


def analysed(function: Function) -> list[AnalysisMessage]:
    """What CrossHair says of each post, and of whatever else it met."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return list(run_checkables(analyze_function(function, OPTIONS)))


def confirmed(function: Function, said: Sequence[AnalysisMessage]) -> bool:
    """Whether there are posts, each was confirmed, and nothing else was said."""
    wanted = [(MessageType.CONFIRMED, line) for line in posts(function)]
    return bool(wanted) and [(message.state, message.line) for message in said] == wanted


def settle(progress: Progress, modules: Sequence[ModuleType] = (page, record)) -> Iterator[Verdict]:
    """One verdict a function."""
    for module in modules:
        for function in functions(module):
            name = f"posts: {module.__name__.rpartition('.')[2]}.{function.__name__}"
            progress(name)
            began = time.process_time()
            said = analysed(function)
            holds, count = confirmed(function, said) and sized(function), len(posts(function))
            plural = "" if count == 1 else "s"
            open_posts = [message for message in said if message.state is not MessageType.CONFIRMED]
            missing = ", ".join(message.state.name for message in open_posts) or "no post"
            if not sized(function):
                missing = f"pre: allows other page sizes than {SIZES}"
            yield Verdict(
                name,
                (function.__doc__ or "").partition("\n")[0].rstrip("."),
                f"confirmed over all paths ({count} post{plural})" if holds else f"not confirmed: {missing}",
                holds,
                time.process_time() - began,
                "\n".join(message.message for message in open_posts),
            )  # fmt: skip
