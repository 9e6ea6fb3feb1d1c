"""Watching somebody else's calls: a function or a method is wrapped where it stands, and put back when that is over.

What goes wrong in a watcher ends the watching and is told; the call that was meant is made, once, all the same. An
error of that call is its caller's, as ever; unless the watcher takes it for an answer, it ends the watching, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, TypeAlias

# called instead, with the call that was meant and its arguments
Around: TypeAlias = Callable[..., Any]


class Watch:
    """All that is watched at one time. failed: is told what went wrong in a watcher."""

    def __init__(self, failed: Callable[[BaseException], object]) -> None:
        self.failed, self.closed = failed, False
        self.until = ExitStack()

    def function(self, function: Callable[..., Any], around: Around) -> None:
        """In every module that has this function under its name: whoever imported it has a name of his own for it."""
        name, wrapped = function.__name__, self._wrapped(function, around)
        for module in list(sys.modules.values()):
            if vars(module).get(name) is function:
                setattr(module, name, wrapped)
                self.until.callback(setattr, module, name, function)

    def method(self, thing: object, name: str, around: Around) -> None:
        """Of this object only."""
        setattr(thing, name, self._wrapped(getattr(thing, name), around))
        self.until.callback(delattr, thing, name)

    def close(self) -> None:
        """Everything is as it was; who has kept a wrapper meanwhile calls through it."""
        self.closed = True
        self.until.close()

    def _wrapped(self, function: Callable[..., Any], around: Around) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.closed:
                return function(*args, **kwargs)
            made, raised = list[Any](), list[BaseException]()

            def meant(*args: Any, **kwargs: Any) -> Any:
                try:
                    made.append(function(*args, **kwargs))
                except BaseException as error:
                    raised.append(error)
                    raise
                return made[0]

            try:
                around(meant, *args, **kwargs)
            except BaseException as error:
                if not self.closed:  # else an inner call has ended it, with this very error
                    self.close()
                    self.failed(error)
            if raised:
                raise raised[0]
            return made[0] if made else function(*args, **kwargs)

        return call
