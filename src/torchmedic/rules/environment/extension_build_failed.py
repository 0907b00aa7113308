"""Code that is compiled when the program runs could not be built.

## What you see
`Ninja is required to load C++ extensions`, `Error building extension 'fused'`, `Failed to find C
compiler`, `Cannot find a working triton installation`, `CUDA_HOME environment variable is not set`,
`The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch`,
`Unsupported gpu architecture 'compute_89'`.
## Why
Extensions and `torch.compile` need a C++ compiler, ninja, Triton and, for CUDA code, a toolkit of
the version torch was built with. Wheels bring none of them.
## Fix
Install what is named. For `torch.compile`, run without it first.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = (
    "ninja", "building extension", "compiling objects", "compiler", "triton", "cuda_home",
    "mismatches the version", "gpu architecture", "visual c++", "nvcc",
)
CHECK = "nvcc --version; c++ --version; python -c \"import torch; print(torch.version.cuda)\""
KINDS = (
    (re.compile(r"Ninja is required|\['ninja', '-v'\]' returned|ninja: (?:command )?not found"),
     "ninja, which builds extensions, is missing or failed",
     Fix("install ninja; if it is there, the compiler's own error stands above",
         command="python -m pip install ninja")),
    (re.compile(r"detected CUDA version \((?P<a>[\d.]+)\) mismatches the version that was used to "
                r"compile\s+PyTorch \((?P<b>[\d.]+)\)"),
     "the CUDA toolkit is of another version than torch was built with",
     Fix("install the toolkit of torch's CUDA version, and point CUDA_HOME to it", command=CHECK)),
    (re.compile(r"Unsupported gpu architecture"),
     "the CUDA toolkit is too old for this GPU",
     Fix("install a newer toolkit, or set TORCH_CUDA_ARCH_LIST to what it knows", command=CHECK)),
    (re.compile(r"CUDA_HOME environment variable is not set|nvcc(?:'|\"|:)? ?(?:was )?not found"),
     "the CUDA toolkit (nvcc) is not found: torch's wheels do not bring it",
     Fix("install the toolkit of torch's CUDA version and set CUDA_HOME", command=CHECK)),
    (re.compile(r"working triton installation|No module named 'triton'|TritonMissing"),
     "Triton, which `torch.compile` needs for the GPU, is not installed",
     Fix("run without `torch.compile`, or install Triton",
         "on Windows that is `triton-windows`", command="TORCHDYNAMO_DISABLE=1 python …")),
    (re.compile(r"Failed to find C compiler|Compiler: \S+ is not found|InvalidCxxCompiler"
                r"|Microsoft Visual C\+\+ .* (?:is )?required"
                r"|C\+\+ compiler.*not found|CppCompileError"),
     "a C++ compiler is missing",
     Fix("install one (`build-essential`, or the Build Tools of Visual Studio)",
         "for `torch.compile`: TORCHDYNAMO_DISABLE=1 runs without it", command="c++ --version")),
    (re.compile(r"Error (?:building|compiling) (?:extension|objects)"),
     "an extension did not compile",
     Fix("look for the first `error:` above, of the compiler", "compare the versions of torch, "
         "CUDA toolkit and compiler with what the extension asks for", command=CHECK)),
)


def in_failure(failure: Failure) -> Iterator[Problem]:
    for pattern, message, fix in KINDS:
        if pattern.search(failure.message):
            yield Problem(message, where=failure.place, evidence=(raised(failure),), fix=fix)
            return


RULE = Rule(
    name="extension-build-failed", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires("RuntimeError: Ninja is required to load C++ extensions\n", "ninja", kind="log",
              title="ninja"),
        fires("RuntimeError: Error building extension 'fused'\n", "did not compile", kind="log",
              title="extension"),
        fires("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA "
              "install root.\n", "nvcc", kind="log", title="toolkit"),
        fires("RuntimeError: Cannot find a working triton installation.\n", "Triton",
              "TORCHDYNAMO_DISABLE", kind="log", title="triton"),
        fires("InductorError: RuntimeError: Failed to find C compiler. Please specify via CC.\n",
              "compiler is missing", kind="log", title="compiler"),
        quiet("RuntimeError: Error loading extension\n", kind="log", title="loading"),
    ),
)
