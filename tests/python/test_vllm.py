"""weft.vllm where there is no vLLM, or one that is too old. tests/vllm has the tests with the real one."""

import subprocess
import sys

import pytest

OLD = {  # files of a vLLM
    "without weight transfer": {"vllm/__init__.py": ""},
    "without trainers": {
        "vllm/__init__.py": "",
        "vllm/distributed/__init__.py": "",
        "vllm/distributed/weight_transfer/__init__.py": "",
        "vllm/distributed/weight_transfer/base.py": "class WeightTransferEngine: pass\n",
        "vllm/distributed/weight_transfer/factory.py": "class WeightTransferEngineFactory: pass\n",
    },
}


@pytest.mark.parametrize("which", list(OLD))
def test_old_vllm_is_named(which, tmp_path):
    for path, text in {**OLD[which], "torch.py": ""}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import weft
assert not {{"torch", "vllm"}} & set(sys.modules)
import weft.vllm
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    last = done.stderr.strip().rpartition("\n")[2]
    assert done.returncode == 1 and last.startswith("ImportError: weft.vllm needs PyTorch and vLLM 0.28 or later: "), done.stderr
