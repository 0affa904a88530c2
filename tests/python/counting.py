"""A thread that counts while it is let: it stands still where another one holds Python's lock."""

import threading
import time


class Counting:
    def __enter__(self):
        self.count, self.goes_on = 0, True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        while self.count < 3:
            time.sleep(0.001)
        return self

    def run(self):
        while self.goes_on:
            self.count += 1
            time.sleep(0.0005)

    def __exit__(self, *exception):
        self.goes_on = False
        self.thread.join()


def counted_during(call):
    with Counting() as counting:
        before = counting.count
        call()
        return counting.count - before
