"""SGLang where there is no GPU and no model: stand-ins for what is absent, and the settings that its modules read.

Imported before anything of SGLang's. Attention by torch_native selects the row writer and last_loc in Python. The
paged allocator takes the torch path by itself on a CPU from 0.5.22 on; before, and for the row write of
alloc_for_spec_decode, its Triton kernels run in Triton's interpreter.
"""

from __future__ import annotations

import logging
import os
import warnings
from importlib.util import find_spec

from kvledger.tests.engines import stubs

stubs.install("torchvision", "tvm_ffi", "gguf", "xgrammar", "sgl_kernel", "einops")
os.environ.setdefault("TRITON_INTERPRET", "1")
logging.getLogger("sglang").setLevel(logging.CRITICAL)  # an out-of-memory error is an answer here
warnings.filterwarnings("ignore", module="sglang")  # of kernels that want a GPU
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from sglang.srt import server_args
    from sglang.version import __version__

    settings = server_args.ServerArgs(model_path="dummy", device="cpu", attention_backend="torch_native")
    if find_spec("sglang.srt.runtime_context"):
        from sglang.srt import runtime_context

        settings.strip_thinking_cache = True  # of requests with reasoning_tokens: those that an end cuts to the prompt
        settings._mamba_cache_chunk_size = 64  # or a model's configuration is looked for
        runtime_context.publish(settings, role="tokenizer")
        runtime_context.get_spec()._set("speculative_algorithm", "EAGLE")  # or a release with reserved slots fails
    else:  # 0.5.10
        server_args.set_global_server_args_for_scheduler(settings)

VERSION: str = __version__
torch.set_num_threads(1)  # tensors of a few numbers
