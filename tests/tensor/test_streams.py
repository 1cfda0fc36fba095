"""`Stream` and `Event` of the host: work is done when a call returns."""

import pytest

import lucerne


def test_streams_and_events() -> None:
    s = lucerne.Stream()
    with s as entered:
        assert entered is s
        start = s.record_event()
    s.synchronize()
    s.wait_stream(lucerne.Stream())
    end = lucerne.Event(enable_timing=True)
    end.record(s)
    end.synchronize()
    end.wait(s)
    assert start.elapsed_time(end) >= 0
    assert s == lucerne.Stream("cpu")
    assert len({s, lucerne.Stream()}) == 1
    assert (s.device_type, s.device_index) == ("cpu", -1)


def test_times_must_be_asked_for() -> None:
    plain = lucerne.Event()
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(plain)
    timed = lucerne.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(timed)
