#!/usr/bin/env python3
"""Tests what serve.py decides itself: percentiles, and which process serves a model."""
import os
import subprocess
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "llama_cpp"))
import serve  # noqa: E402


class Workers(unittest.TestCase):
    def test_the_worker_of_a_model_is_a_child_with_its_name(self):
        router = serve.Server.__new__(serve.Server)
        router.process = SimpleNamespace(pid=os.getpid())
        command = [sys.executable, "-c", "print(flush=True); input()", "--alias"]
        started = [subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for name in ("one", "two")]
        try:
            for each in started:
                each.stdout.readline()
            self.assertEqual([router.worker(name) for name in ("one", "two")], [each.pid for each in started])
            with self.assertRaises(RuntimeError):
                router.worker("three")
        finally:
            for each in started:
                each.communicate(b"\n")


class Numbers(unittest.TestCase):
    def test_percentiles_are_values(self):
        values = list(range(1, 101))
        self.assertEqual([serve.percentile(values, share) for share in (0.5, 0.99, 1.0)], [50, 99, 100])
        self.assertEqual(serve.percentile([7], 0.99), 7)
        self.assertIsNone(serve.percentile([], 0.5))
        self.assertEqual(serve.told([]), {})


if __name__ == "__main__":
    unittest.main()
