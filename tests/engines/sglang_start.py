"""SGLang where there is no GPU and no model: stand-ins for what is absent, and the settings that its modules read.

Imported before anything of SGLang's. Its paged allocator takes the torch path by itself on a CPU; attention by
torch_native selects the row writer and last_loc in Python; the one Triton kernel that is left, the row write of
alloc_for_spec_decode, runs in Triton's interpreter.
"""

from __future__ import annotations

import logging
import os
import warnings

from kvledger.tests.engines import stubs

stubs.install("torchvision", "tvm_ffi", "gguf", "xgrammar", "sgl_kernel")
os.environ.setdefault("TRITON_INTERPRET", "1")
logging.getLogger("sglang").setLevel(logging.CRITICAL)  # an out-of-memory error is an answer here
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of kernels that want a GPU
    import torch
    from sglang.srt import runtime_context
    from sglang.srt.server_args import ServerArgs
    from sglang.version import __version__

    settings = ServerArgs(
        model_path="dummy",
        device="cpu",
        attention_backend="torch_native",
        strip_thinking_cache=True,  # of requests with reasoning_tokens, which are those that an end cuts to the prompt
    )
    settings._mamba_cache_chunk_size = 64  # or a model's configuration is looked for
    runtime_context.publish(settings, role="tokenizer")
    runtime_context.get_spec()._set("speculative_algorithm", "EAGLE")  # or a release with reserved slots is an error

VERSION: str = __version__
torch.set_num_threads(1)  # tensors of a few numbers
