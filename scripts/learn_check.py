"""Checks all that rungs of scripts/learn say: builds all programs, and then runs them."""
import os
import time

from learn_build import NotBuilt, build_all
from learn_grade import Refused


def faults_of_order(rungs):
    """No rung uses what a later one introduces, or needs one that is not there before it."""
    for place, rung in enumerate(rungs):
        used = rung.code()
        for later in rungs[place + 1:]:
            for name in later.introduces:
                if name in used:
                    yield f"{rung.folder.name} uses {name}, which {later.folder.name} introduces"
        for name in rung.introduces:
            if name not in used:
                yield f"{rung.folder.name} does not use {name}, which it introduces"
        for need in rung.needs:
            if str(need) not in [earlier.id for earlier in rungs[:place]]:
                yield f"{rung.folder.name} needs rung {need}, which is not before it"


class Watch:
    """How long something has taken, and how long processors have worked on it, which a busy machine does not stretch."""

    def __init__(self):
        self.begin, self.worked = time.monotonic(), sum(os.times()[:4])

    def __str__(self):
        return f"{time.monotonic() - self.begin:.0f} s ({sum(os.times()[:4]) - self.worked:.0f} s of processors)"


def check(rungs, asked, build, jobs=1):
    found = [f"{fault}" for fault in faults_of_order(rungs)]
    watch = Watch()
    build_all(build, asked, jobs)
    built, watch = str(watch), Watch()
    for rung in asked:
        begin = time.monotonic()
        try:
            faults = list(rung.faults(build))
        except (NotBuilt, Refused) as error:
            faults = [str(error)]
        print(f"{rung.folder.name}: {'holds' if not faults else 'FAILS'} in {time.monotonic() - begin:.1f} s", flush=True)
        found += [f"{rung.folder.name}: {fault}" for fault in faults]
    print(f"built in {built}, ran in {watch}")
    print("\n\n".join(found) or "every rung does what it says")
    return 1 if found else 0
