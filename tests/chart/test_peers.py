"""tests/gpu/peers.py: what programs under the alternatives find in their environment, and what the script refuses to start without."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GPU_TESTS = Path(__file__).resolve().parents[1] / "gpu"
sys.path.insert(0, str(GPU_TESTS))

from peer_programs import Hami, XSched  # noqa: E402


class Environments(unittest.TestCase):
    def test_hami_limits_only_the_program_that_asks_and_each_has_a_container_of_its_own(self):
        hami = Hami(Path("/opt/libvgpu.so"), Path("/tmp/caches"))
        service, training = hami.environment("lc.hami"), hami.environment("be0.hami", sm_limit=50)
        self.assertNotIn("CUDA_DEVICE_SM_LIMIT", service)
        self.assertEqual(training["CUDA_DEVICE_SM_LIMIT"], "50")
        self.assertEqual({service["LD_PRELOAD"], training["LD_PRELOAD"]}, {"/opt/libvgpu.so"})
        self.assertNotEqual(service["CUDA_DEVICE_MEMORY_SHARED_CACHE"], training["CUDA_DEVICE_MEMORY_SHARED_CACHE"])

    def test_xsched_prefers_the_service_and_its_library_is_found_first(self):
        xsched = XSched(Path("/opt/xsched"))
        service, training = xsched.environment(1, before="/driver", priority=1), xsched.environment(1, before="/driver", priority=0)
        self.assertEqual(service["LD_LIBRARY_PATH"], "/opt/xsched/lib:/driver")
        self.assertEqual((service["XSCHED_AUTO_XQUEUE_PRIORITY"], training["XSCHED_AUTO_XQUEUE_PRIORITY"]), ("1", "0"))
        self.assertEqual((training["XSCHED_AUTO_XQUEUE_THRESHOLD"], training["XSCHED_AUTO_XQUEUE_BATCH_SIZE"]), ("4", "2"))
        self.assertEqual({each["XSCHED_SCHEDULER"] for each in (service, training)}, {"GLB"})
        self.assertNotIn("XSCHED_CUDA_LV3_IMPL", service)

    def test_level_three_is_the_variant_that_every_architecture_has(self):
        variables = XSched(Path("/opt/xsched")).environment(3, utilization=30)
        self.assertEqual((variables["XSCHED_AUTO_XQUEUE_LEVEL"], variables["XSCHED_CUDA_LV3_IMPL"]), ("3", "TSG"))
        self.assertEqual(variables["XSCHED_AUTO_XQUEUE_UTILIZATION"], "30")
        self.assertNotIn("XSCHED_AUTO_XQUEUE_PRIORITY", variables)
        # Nothing else was searched before: an empty entry would stand for the working folder.
        self.assertEqual(variables["LD_LIBRARY_PATH"], "/opt/xsched/lib")


class Script(unittest.TestCase):
    def run_script(self, *arguments, path=""):
        command = [sys.executable, GPU_TESTS / "peers.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PATH": path})

    def test_everything_that_is_missing_is_reported_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("service", "--hami", f"{folder}/libvgpu.so", "--xsched", folder, "--mps")
        self.assertEqual(done.returncode, 2)
        for words in ("libvgpu.so: no such file", "no bin/xserver", "no lib/libcuda.so.1", "no nvidia-cuda-mps-control"):
            self.assertIn(words, done.stdout)

    def test_unknown_question_is_refused(self):
        done = self.run_script("latency")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'service', 'pair'", done.stderr)


if __name__ == "__main__":
    unittest.main()
