"""Writes a made-up trace in the Mooncake format, for whoever has no recorded one. One seed, one file.

Its shape is that of the Mooncake conversation trace: every prompt starts with one block of system prompt; of 100
requests about 70 share nothing else, 22 continue an earlier one (all its full blocks, then its answer and a new
question), 6 fork off inside an earlier prompt, and 2 are sent again as they were. Half of the prompts are longer
than 7,000 tokens, one in a hundred longer than 90,000.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, islice
from random import Random

from kvledger.spec.whole_file import write_whole
from kvledger.spec.world import WrongInput
from kvledger.tests.replay.mooncake import BLOCK, Recorded

RECENT = 200  # how far back a request looks for the one that it continues, forks off or repeats
LONGEST = 126_000  # tokens of a prompt; a conversation that would grow beyond starts anew
TICK, PER_TICK = 3_000, 9  # ms between arrivals, and how many requests arrive together


def write(path: str, requests: int, seed: int) -> None:
    """Writes so many requests, all or none. Raises WrongInput rather than touch a file that exists."""
    if requests < 1:
        raise WrongInput(f"{requests} requests: expected a whole number >= 1")
    try:
        write_whole(path, (json.dumps(line._asdict()) + "\n" for line in islice(lines(seed), requests)), new=True)
    except FileExistsError:
        raise WrongInput(f"{path}: this file exists, expected a new name to write to") from None
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}, expected a name that can be written") from None


def lines(seed: int) -> Iterator[Recorded]:
    """Requests without end."""
    random, fresh, recent = Random(seed), count(1), list[Recorded]()
    for number in count():
        length, ids = _prompt(random, recent)
        ids = ids + [next(fresh) for _ in range(-(-length // BLOCK) - len(ids))]
        line = Recorded(number // PER_TICK * TICK, length, _answer(random), ids)
        recent = [*recent[-RECENT + 1 :], line]
        yield line


def _prompt(random: Random, recent: list[Recorded]) -> tuple[int, list[int]]:
    """The length of the next prompt and the ids that it shares with earlier ones."""
    chance = random.random()
    if recent and chance < 0.30:
        earlier = random.choice(recent)
        full = earlier.input_length // BLOCK
        if chance < 0.22:
            length = earlier.input_length + earlier.output_length + _length(random, 60, 2.5)
            if length <= LONGEST:
                return length, earlier.hash_ids[:full]
        elif chance < 0.28:
            if full > 2:
                shared = random.randrange(2, full)
                return min(LONGEST, shared * BLOCK + _length(random, 2_000, 1.0)), earlier.hash_ids[:shared]
        else:
            return earlier.input_length, earlier.hash_ids
    return min(LONGEST, BLOCK + _length(random, 6_500, 1.15)), [0]


def _length(random: Random, median: int, spread: float) -> int:
    """A length with a long tail. spread: of its natural logarithm."""
    return 1 + int(median * random.lognormvariate(0, spread))


def _answer(random: Random) -> int:
    return min(2_000, max(1, round(random.gauss(350, 190))))
