"""`kvledger bench`: the fast ledger against the real engines' own pools, and against itself at another size.

Read cases (what is asked of each figure), work (what a contender is asked to do), ours, sglang, vllm (who does it),
pools, trees, growth, counts (the cases, a family a file), equal (the proof that all do the same), measure (the clock).
command starts one process an engine, since an engine lives in an environment of its own; process is what runs there;
printed is what a reader sees.

What each side does, and does not do:

ours      the public calls of kvledger.fast.ledger, with every check on: rows that are held, lengths in order, room,
          pages that are free. Rows and lengths are int64 numpy arrays; those and prefixes that are admitted are there.
          An extend takes rows and pages, writes them down on the host and in the table, and returns the new slots; a
          decode and a release likewise.
sglang    PagedTokenToKVPoolAllocator (page size 1: TokenToKVPoolAllocator), ReqToTokenPool and RadixCache, on the
          native route in torch. An extend is alloc_rows, alloc_extend and write_cache_indices with its loop; of a
          later chunk also the read of its row and last_loc, which it needs anew each time. A decode is the read of
          last_loc, alloc_decode and the write. A release is free_segment for each request, and free_rows, in one
          free_group. Left out, in its favour: Req objects, the batch's tensors, last_loc and prefix tensors of
          requests that start, the question whether there is room. Its debug checks are off: a double free goes unseen.
vllm      BlockPool without caching: get_new_blocks where a request needs some, free_blocks for each that ends. Page ids
          only: no table, no slots. Which requests are at a page's edge is worked out beforehand.
trees     ours takes int32 numpy arrays at the door, theirs a RadixKey over an array("q"), made beforehand; the slots of
          what was found are part of a match on each side. The Rust core is called as UnifiedRadixCache calls it.
"""
