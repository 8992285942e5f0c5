#!/usr/bin/env python3
"""Tests what serve.py decides itself: who is awake, and percentiles. Servers are stand-ins."""
import random
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "llama_cpp"))
import serve  # noqa: E402


class Awake:
    """Counts the servers that are awake, as they themselves see it."""

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), 0, 0


class StandIn:
    def __init__(self, awake):
        self.of, self.awake, self.asking, self.faults = awake, False, 0, []

    def ask(self):
        with self.of.lock:
            self.asking += 1
            if not self.awake:
                self.awake = True
                self.of.now += 1
                self.of.most = max(self.of.most, self.of.now)
        time.sleep(0.0005)
        with self.of.lock:
            self.asking -= 1

    def sleep(self):
        with self.of.lock:
            if self.asking or not self.awake:
                self.faults.append("put to sleep while it was asked, or asleep")
            self.awake = False
            self.of.now -= 1


class InTheRoom(unittest.TestCase):
    def test_concurrent_clients_never_wake_more_than_the_limit(self):
        awake = Awake()
        servers = [StandIn(awake) for _ in range(6)]
        room = serve.Room(2)

        def client(seed):
            order = random.Random(seed)
            for _ in range(60):
                server = order.choice(servers)
                room.enter(server)
                server.ask()
                room.leave(server)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(sum((server.faults for server in servers), []), [])
        self.assertEqual((awake.most, room.most), (2, 2))
        room.clear()
        self.assertEqual(awake.now, 0)

    def test_the_least_recently_used_one_goes(self):
        awake = Awake()
        one, two, three = (StandIn(awake) for _ in range(3))
        room = serve.Room(2)
        hits = []
        for server in (one, two, one, three, one, two):
            hits.append(room.enter(server))
            server.ask()
            room.leave(server)
        self.assertEqual(hits, [False, False, True, False, True, False])
        self.assertFalse(three.awake)

    def test_a_server_that_does_not_sleep_leaves_the_others_served(self):
        awake = Awake()
        one, two = StandIn(awake), StandIn(awake)
        room = serve.Room(1)
        room.enter(one)
        room.leave(one)
        one.sleep = lambda: (_ for _ in ()).throw(RuntimeError("refused"))
        with self.assertRaises(RuntimeError):
            room.enter(two)
        two.awake, awake.now = True, 1
        self.assertFalse(room.enter(one))
        room.leave(one)


class Numbers(unittest.TestCase):
    def test_percentiles_are_values(self):
        values = list(range(1, 101))
        self.assertEqual([serve.percentile(values, share) for share in (0.5, 0.99, 1.0)], [50, 99, 100])
        self.assertEqual(serve.percentile([7], 0.99), 7)
        self.assertIsNone(serve.percentile([], 0.5))
        self.assertEqual(serve.told([]), {})


if __name__ == "__main__":
    unittest.main()
