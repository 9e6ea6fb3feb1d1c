"""What is settled of the law, not sampled: for every size, or for every state of a small world.

Read verdict (the words in which a proof speaks), then parts: each module there offers settle(), which yields verdicts.
"""
