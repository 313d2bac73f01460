"""Make torchvision importable next to a torch whose libraries its compiled part does not find.

vLLM's vision-language classes and transformers' image processors import torchvision, of which they use the part that is
written in Python. Its wheel on PyPI is built against the CUDA build of torch; beside a CPU build its operators do not
load, and the import ends at the first one that it describes ("operator torchvision::nms does not exist"). Declaring
their names is enough to go on; calling one still fails.

`scripts/install/vllm_cpu.py` installs this module with a .pth file, so that every process of that environment has it.
"""

import sys
from importlib.machinery import PathFinder

OPERATORS = [
    *("nms", "qnms", "roi_align", "qroi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"),
    *("_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward"),
    "_deform_conv2d_backward",
]
KEPT = []  # a library takes its declarations along when it is collected


class BeforeTorchvision:
    """Import hook that declares torchvision's operators before its first import."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torchvision":
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations:
            declare(spec.submodule_search_locations[0])
        return None


def declare(folder):
    """Declare the operators, unless the compiled part in this folder brings them."""
    import torch

    try:
        torch.ops.load_library(f"{folder}/_C.so")
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in OPERATORS:
            library.define(f"{name}(Tensor missing) -> Tensor")
        KEPT.append(library)


sys.meta_path.insert(0, BeforeTorchvision)
