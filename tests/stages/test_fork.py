"""In a forked child nothing waits for threads that only its parent has: it works, or it says why not."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from forks import in_child
from millstream.batches import BatchQueue, TrainingBatch
from millstream.errors import ClosedError
from millstream.stages import FunctionStage, IterableStage, Pipeline, Queue, SourceStage, serve_metrics

FUZZ = "MILLSTREAM_FUZZ" in os.environ
"""Whether to try more often."""
LEFT = "was at work when this process was forked"


class Endless(SourceStage[int]):
    def produce(self) -> Iterator[int]:
        number = 0
        while not self.stopping.is_set():
            yield number
            number += 1


def doubled(source: Any, **settings: Any) -> FunctionStage[int, int]:
    return FunctionStage(source, function=lambda number: [2 * number], threads=3, **settings)


def endless() -> Pipeline:
    numbers = Endless()
    return Pipeline({"numbers": numbers, "doubled": doubled(numbers)})


def told(*calls: Callable[[], Any]) -> None:
    """Each call, made in a child, says that the threads are elsewhere."""

    def work() -> None:
        for call in calls:
            with pytest.raises(ClosedError, match=LEFT):
                call()

    in_child(work)()


def test_a_child_is_told_that_a_pipeline_is_its_parents_whatever_its_threads_do() -> None:
    with endless() as pipeline:
        for _ in range(30):
            told(pipeline.get, pipeline.counters, pipeline.statistics, pipeline.join, lambda: next(iter(pipeline)))
            pipeline.get()
        assert pipeline.get() == 60


def test_a_child_may_close_or_forget_a_pipeline_and_its_parent_does_not_notice() -> None:
    closed = []
    pipeline = endless()
    pipeline.on_close(lambda: closed.append(True))
    with pipeline:
        pipeline.get()

        def forget() -> None:
            nonlocal pipeline
            stages = list(pipeline._run.stages.values())
            pipeline.close()
            del pipeline
            for stage in stages:
                stage.stop()
                assert stage.join(1)
            stages.clear()
            gc.collect()
            assert not closed

        for _ in range(30 if FUZZ else 3):
            in_child(forget)()
        assert pipeline.get() == 2 and not closed
    assert closed


def test_a_pipeline_that_was_not_started_works_in_a_child_and_in_its_parent() -> None:
    fed: Queue[int] = Queue()
    numbers, others = IterableStage(range(50)), doubled(fed)
    pipeline = Pipeline({"numbers": numbers, "doubled": doubled(numbers)})

    def work() -> tuple[list[int], list[int]]:
        others.start()
        with fed.producer() as producer:
            producer.put_many(range(9))
        with pipeline:
            return list(pipeline), list(others.output())

    assert in_child(work)() == work() == (list(range(0, 100, 2)), list(range(0, 18, 2)))


def test_a_pipeline_that_is_made_in_a_child_works_there() -> None:
    def work() -> list[int]:
        with endless() as inner:
            return [inner.get() for _ in range(20)]

    with endless():
        assert in_child(work)() == list(range(0, 40, 2))


def test_queues_of_threads_say_so_in_a_child() -> None:
    """Full or empty, with a thread at either end."""
    empty, full, fed = Queue[int](), Queue[int](capacity=2), Queue[int](capacity=2)
    producer, filled = empty.producer(), full.producer()
    filled.put_many([1, 2])
    stage = doubled(fed)
    stage.start()
    waiting = threading.Thread(target=lambda: list(empty))
    waiting.start()
    told(
        *(queue.get for queue in (empty, full)),
        *(queue.try_get for queue in (empty, full)),
        *(queue.producer for queue in (empty, full, fed)),
        lambda: producer.put(1),
        lambda: filled.try_put(3),
        lambda: filled.put(3),
        stage.output().get,
        stage.counters,
    )
    producer.close()
    waiting.join()
    assert full.get_many(9) == [1, 2]
    with fed.producer() as feeding:
        feeding.put(4)
    assert list(stage.output()) == [8]


def test_what_a_queue_holds_that_was_closed_comes_out_in_a_child_too() -> None:
    queue: Queue[str] = Queue()
    with queue.producer() as producer:
        producer.put_many("abc")
    assert in_child(lambda: list(queue))() == list(queue) == ["a", "b", "c"]


def test_a_queue_that_threads_are_at_all_the_time_never_holds_up_a_child() -> None:
    queue: Queue[bytes] = Queue(capacity=4, budget_bytes=1000, weigh=len)

    def fill() -> None:
        with pytest.raises(ClosedError), queue.producer() as producer:
            while True:
                producer.put(b"item")

    def drain() -> None:
        for _ in queue:
            pass

    threads = [threading.Thread(target=work) for work in (fill, fill, drain)]
    for thread in threads:
        thread.start()
    for _ in range(50 if FUZZ else 12):
        told(queue.get, queue.producer)
        in_child(queue.counters)()
    queue.close()
    for thread in threads:
        thread.join()


def test_a_queue_of_batches_says_the_same() -> None:
    queue = BatchQueue()
    queue.enqueue(TrainingBatch.empty(1, 4))
    told(queue.dequeue, lambda: queue.enqueue(TrainingBatch.empty(1, 4)))
    assert queue.dequeue().metadata["rows"] == 1


def test_a_child_that_closes_a_metrics_server_hangs_up_on_nobody() -> None:
    with endless() as pipeline, serve_metrics(pipeline) as server:
        for close in (server.close, pipeline.close):
            in_child(close)()
            with urlopen(server.url, timeout=30) as answer:
                assert b"millstream" in answer.read()
