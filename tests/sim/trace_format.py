"""The rules of Chrome's trace-event format, as far as files of this package use it.

After "Trace Event Format" (Google, 2016): phases X (complete), M (metadata), s and f (flow). What
the format leaves to viewers is taken as Perfetto takes it: slices of a thread nest, a flow
begins and ends inside of a slice, and times are whole nanoseconds (times with a fraction of one
are rounded, so that slices which touched overlap, and are dropped).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_KEYS = {
    "X": {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"},
    "M": {"ph", "name", "ts", "pid", "tid", "args"},
    "s": {"ph", "name", "cat", "id", "ts", "pid", "tid"},
    "f": {"ph", "name", "cat", "id", "ts", "pid", "tid", "bp"},
}
_METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def read_trace_file(path: Path) -> dict[str, Any]:
    """The content of a file, which must be JSON without NaN and infinity."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    return content


def faults(content: dict[str, Any]) -> list[str]:
    """What is wrong with a trace, a line each."""
    events: list[Event] = content.get("traceEvents", [])
    found = []
    if not isinstance(events, list) or not events:
        found.append("no list of events")
    if content.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        found.append("an unknown unit")
    for at, event in enumerate(events):
        found += [f"event {at}: {fault}" for fault in _of_event(event)]
    if found:
        return found
    return [*_of_names(events), *_of_slices(events), *_of_flows(events)]


def _of_event(event: Event) -> list[str]:
    phase = event.get("ph")
    if phase not in _KEYS:
        return [f"unknown phase {phase!r}"]
    found = [f"no {key}" for key in sorted(_KEYS[phase] - event.keys())]
    found += [f"unknown key {key}" for key in sorted(event.keys() - _KEYS[phase])]
    if found:
        return found
    for key in ("pid", "tid"):
        if type(event[key]) is not int or event[key] < 0:
            found.append(f"{key} is {event[key]!r}")
    for key in {"ts", "dur"} & event.keys():
        value = event[key]
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            found.append(f"{key} is {value!r}")
        elif value * 1000 % 1 or value * 8 % 1:
            found.append(f"{key} is {value!r}, which Perfetto rounds")
    if not isinstance(event["name"], str) or not event["name"]:
        found.append("no name")
    if phase == "M":
        key, kind = _METADATA.get(event["name"], ("", object))
        if not isinstance(event["args"].get(key), kind):
            found.append(f"metadata {event['name']!r} with {event['args']}")
    if phase == "f" and event["bp"] != "e":
        found.append(f"binding point {event['bp']!r}")
    return found


def _of_names(events: list[Event]) -> list[str]:
    """Every process and thread is named once, and every name is used."""
    found = []
    for kind, key in (("process_name", ("pid",)), ("thread_name", ("pid", "tid"))):
        named = [tuple(e[k] for k in key) for e in events if e["name"] == kind]
        used = {tuple(e[k] for k in key) for e in events if e["ph"] != "M"}
        if sorted(named) != sorted(used):
            found.append(f"{kind}: {sorted(named)} are named, {sorted(used)} used")
    return found


def _of_slices(events: list[Event]) -> list[str]:
    """Events are in the order of time, and the slices of a thread nest."""
    times = [event["ts"] for event in events if event["ph"] != "M"]
    found = ["events are not in order"] if times != sorted(times) else []
    for thread, spans in _spans(events).items():
        open_: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            if open_ and end > open_[-1]:
                found.append(f"thread {thread}: a slice ends after the one around it")
            open_.append(end)
    return found


def _spans(events: list[Event]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    spans = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return spans


def _of_flows(events: list[Event]) -> list[str]:
    """A flow has one beginning, then one end, of one name, each inside of a slice."""
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            flows[event["cat"], event["name"], event["id"]].append(event)
    found, spans = [], _spans(events)
    for (*_, number), both in flows.items():
        if [event["ph"] for event in both] != ["s", "f"]:
            found.append(f"flow {number}: {[event['ph'] for event in both]}")
        if any(before["ts"] > after["ts"] for before, after in pairwise(both)):
            found.append(f"flow {number}: ends before it begins")
        for event in both:
            own = spans[event["pid"], event["tid"]]
            # At its end a slice is closed; one without length is open at its only moment.
            if not any(start <= event["ts"] < max(end, start + 1e-9) for start, end in own):
                found.append(f"flow {number}: {event['ph']} is in no slice")
    return found
