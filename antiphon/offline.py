"""Nothing phones home: set before any library that would is loaded, and for child processes.

Found by tracing system calls (`tests/test_offline.py`), not by reading: onnxruntime sends events
to its makers from version 1.32 on.
"""

from __future__ import annotations

import os

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


def keep_offline() -> None:
    """Turn off usage reports and hub look-ups, whatever the environment says."""
    os.environ.update(QUIET)
