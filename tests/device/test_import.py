"""llvmlite is needed to compile, never to import."""

from __future__ import annotations

from tests.device.test_threads import run_script


def test_missing_llvmlite_is_named_when_a_kernel_is_compiled() -> None:
    output = run_script("""
        import sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "llvmlite":
                    raise ModuleNotFoundError("No module named 'llvmlite'")

        sys.meta_path.insert(0, Missing())
        import tileworkbench
        from tests.device.kernels import EMPTY
        from tileworkbench.compiler.diagnostics import UnsupportedError
        from tileworkbench.compiler.device.host import processor, launch, native
        value = 42
        for _ in range(2):
            try:
                native.build_native(EMPTY.ir_text, ["kernel"])
            except UnsupportedError as error:
                print(error)
        print(value, processor.core_count() > 0, processor.cache_sizes().l1 > 0)
        print(bool(processor.machine_name()))
    """)
    message = (
        "running kernels on the CPU needs llvmlite, which cannot be imported "
        "(No module named 'llvmlite')\nhint: pip install llvmlite\n"
    )
    assert output == message * 2 + "42 True True\nTrue\n"


def test_runtime_imports_neither_llvmlite_nor_torch_nor_numpy() -> None:
    output = run_script("""
        import sys
        from tileworkbench.compiler.device.host import launch, native
        from tileworkbench.compiler.runtime import arguments
        print([name for name in ("llvmlite", "torch", "numpy", "ml_dtypes") if name in sys.modules])
    """)
    assert output == "[]\n"
