"""The fast implementation, in torch: the same ledger as the reference, whole batches at a time, on CPU and CUDA.

The host decides everything: lengths, rows and pages are known there, so a call is a few vector operations in numpy and
a fixed number of operators on the table. Read plan (where things stand), pages (what is free), prefix_cache, then
tensors and table_torch (the table on the device), then ledger (what an engine calls), selfcheck (all that must be true
of one between two calls) and backend (how it is checked).
"""
