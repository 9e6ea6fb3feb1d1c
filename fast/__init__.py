"""The fast implementation, in torch: the same ledger as the reference, whole batches at a time, on CPU and CUDA.

The host decides everything: lengths, rows and pages are known there, so a call is a few vector operations in numpy and
a fixed number of operators on the table. Read plan (where things stand), pages (what is free), prefix_cache, then
tensors and table_torch (the table on the device), stride (a batch that decodes again and again), then ledger (what an
engine calls), attention (what reads KV through the table), selfcheck (all that must be true between two calls) and
backend (how it is checked).
device is the other way, for a stretch: the device decides itself, as a CUDA graph must (device_state, device_torch,
device_triton).
"""
