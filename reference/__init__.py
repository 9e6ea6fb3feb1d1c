"""The plain implementation, in SGLang's shape and names, to be read aloud. Standard library only.

Read rows, allocator, radix_cache (the three pools), then request, allocation, release, sessions (what moves between
them), then backend (how it is asked) and books (what it shows). It shares no judgement with the law: a second opinion.
"""
