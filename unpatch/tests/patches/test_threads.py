"""Many threads applying and reverting at once: each patch once, and everything back in the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from unpatch.patches import NotAppliedError, PatchManager, original

THREADS = 8


def _together(work):
    """Run `work(n)` in as many threads at the same moment; raises what any of them raised."""
    barrier = threading.Barrier(THREADS)

    def start(n):
        barrier.wait()
        return work(n)

    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result() for future in [pool.submit(start, n) for n in range(THREADS)]]


def test_each_patch_is_applied_by_one_thread_only(toy):
    manager, calls = PatchManager("toy"), []
    for n in range(20):

        def opaque():
            calls.append(1)

        opaque.__qualname__ = f"opaque{n}"
        manager.register_patch("g")(opaque)
        manager.declare(id=f"added{n}", group="g", reason="r").add(f"{toy.__name__}.added{n}", n)
    applied = _together(lambda n: manager.apply_all())
    assert len(calls) == 20
    assert sorted(patch.id for patches in applied for patch in patches) == sorted(patch.id for patch in manager.patches)


def test_a_thread_waits_for_a_function_that_another_one_is_running(toy):
    manager, started, never, finished = PatchManager("toy"), threading.Event(), threading.Event(), threading.Event()

    @manager.register_patch("a")
    def slow():
        started.set()
        never.wait(0.2)  # the time that the other thread has to overtake, if it could
        finished.set()

    manager.declare(id="after", group="b", reason="r").add(f"{toy.__name__}.flag", 1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(manager.apply_all)
        started.wait(30)
        second = manager.apply_all()
        assert finished.is_set()
    assert len(first.result()) + len(second) == 2


def test_applying_and_reverting_at_once_leaves_nothing_behind(toy):
    toy.TABLE = {"entry": len}
    before, class_before = dict(vars(toy)), dict(vars(toy.Thing))
    managers = [PatchManager(f"toy{n}") for n in range(THREADS)]
    for n, manager in enumerate(managers):
        patch = manager.declare(id="p", group="g", reason="r")
        for name in ("greet", "Thing.method", "Thing.inherited", "TABLE['entry']"):
            patch.replace(f"{toy.__name__}.{name}", lambda *args, n=n: n)

    def work(n):
        for _ in range(25):
            managers[n].apply_all()
            assert original(managers[n].get("p").writes[0].replacement)
            managers[n].revert("p")

    _together(work)
    assert vars(toy) == before
    assert dict(vars(toy.Thing)) == class_before
    assert toy.TABLE["entry"] is len


def test_of_many_reverts_one_succeeds(toy):
    manager = PatchManager("toy")
    manager.declare(id="p", group="g", reason="r").add(f"{toy.__name__}.flag", 1)
    manager.apply_all()

    def work(n):
        try:
            manager.revert("p")
        except NotAppliedError:
            return False
        return True

    assert sum(_together(work)) == 1
