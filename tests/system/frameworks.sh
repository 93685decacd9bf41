#!/usr/bin/env bash
# A share of what the Python package is compared with: DTensors of FSDP2 x TP, state dicts of two jobs, JAX with several processes.
# With WEFT_TEST_SHARE=full all of it. `make test-python` installs PyTorch and JAX; without them this is skipped.
set -u
python=$WEFT_BUILD_DIR/python/bin/python
log=$WEFT_BUILD_DIR/frameworks.log
"$python" -c 'import torch, jax, pytest, scikit_build_core' 2>/dev/null || {
    echo "skip: $WEFT_BUILD_DIR/python has no PyTorch and JAX: make test-python installs them"
    exit 77
}
"$python" -m pip install --disable-pip-version-check -q --no-build-isolation -C "build-dir=$WEFT_BUILD_DIR/pip" \
    -C cmake.define.WEFT_CUDA_ARCHS=90 "$WEFT_SOURCE_DIR" >"$log" 2>&1 || {
    tail -n 3 "$log"
    echo "pip cannot build the package"
    exit 1
}
cd "$WEFT_SOURCE_DIR" || exit 1
if [ "${WEFT_TEST_SHARE:-100}" = full ]; then
    tests=(tests/python/test_fsdp.py tests/python/test_jax.py tests/python/test_state.py)
else
    tests=("tests/python/test_fsdp.py::test_fsdp2_and_tp[2x2]" "tests/python/test_fsdp.py::test_random_pairs[4]"
        tests/python/test_fsdp.py::test_plans_that_differ tests/python/test_jax.py::test_several_processes tests/python/test_state.py)
fi
exec "$python" -m pytest -q -p no:cacheprovider "${tests[@]}"
