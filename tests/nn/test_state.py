"""State dicts against torch: saving, loading, hooks, extra state, messages."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from tests.nn.scenes import Notes, Scene, assert_same
from tests.nn.test_module import net

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def saving(torch: Any, note: Notes) -> None:
    m = net(torch)
    state = m.state_dict()
    note(state, type(state).__name__, state._metadata)
    note(m.state_dict(keep_vars=True)["top"] is m.top, state["top"].requires_grad)
    note(state["top"].data_ptr() == m.top.data_ptr())
    note(list(m.state_dict(prefix="p.")), m.state_dict(prefix="p.")._metadata)
    target: Any = OrderedDict(other=1)
    note(m.state_dict(destination=target) is target, list(target), hasattr(target, "_metadata"))
    note(list(m.state_dict(None, "old.", True)))


def loading(torch: Any, note: Notes) -> None:
    m = net(torch)
    good = net(torch).double().state_dict()
    before = m.top
    result = m.load_state_dict(good)
    note(result, result.missing_keys, m.top is before, m.top, repr(result), str(result))
    for change in (
        lambda s: s.pop("top"),
        lambda s: s.update(extra=torch.ones(1)),
        lambda s: s.update({"first.more": 1, "first.deep.er": 2, "nowhere.x": 3}),
        lambda s: s.update(top=torch.ones(2)),
        lambda s: s.update(top=torch.ones(1)),
        lambda s: s.update(top=3.0),
        lambda s: (s.pop("top"), s.update(a=1), s.update({"first.weight": torch.ones(3)})),
        lambda s: s.clear(),
    ):
        state = OrderedDict(good)
        change(state)
        for strict in (True, False):
            m = net(torch)
            note.of(lambda m=m, state=state, strict=strict: m.load_state_dict(state, strict))
            note(m.top, m.first.weight)
    note.of(lambda: m.load_state_dict(3), lambda: m.load_state_dict([("a", 1)]))
    note(m.load_state_dict(dict(good)))


def assigning(torch: Any, note: Notes) -> None:
    m = net(torch)
    state = net(torch).double().state_dict()
    state["first.bias"] = torch.nn.Parameter(torch.ones(2))
    note(m.load_state_dict(state, assign=True), m.top, m.first.bias, m.first.mean)
    note(m.first.mean is state["first.mean"], m.top.data_ptr() == state["top"].data_ptr())
    m = net(torch).to("meta")
    note(m.load_state_dict(state, assign=True), m.top.is_meta, m.top)
    m = torch.nn.Linear(1, 1).to("meta")
    note(m.load_state_dict(torch.nn.Linear(1, 1).state_dict()), m.weight.is_meta)


def extra_state(torch: Any, note: Notes) -> None:
    class Extra(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.weight = torch.nn.Parameter(torch.ones(1))

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    m = torch.nn.ModuleList([Extra()])
    m[0].count = 7
    state = m.state_dict()
    fresh = torch.nn.ModuleList([Extra()])
    note(state, fresh.load_state_dict(state), fresh[0].count)
    del state["0._extra_state"]
    note.of(lambda: fresh.load_state_dict(state))
    plain = torch.nn.Linear(1, 1)
    note.of(lambda: plain.load_state_dict({**plain.state_dict(), "_extra_state": 1}))


def hooks(torch: Any, note: Notes) -> None:
    m = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
    inner = m[0]
    inner.register_state_dict_pre_hook(lambda mod, prefix, keep: note("pre", prefix, keep))
    inner._register_state_dict_hook(
        lambda mod, state, prefix, meta: note(list(state), prefix, meta)
    )
    inner.register_state_dict_post_hook(lambda mod, state, prefix, meta: state.update(added=1))
    m._register_state_dict_hook(lambda mod, state, prefix, meta: {"replaced": sorted(state)})
    note(m.state_dict())
    m = torch.nn.Linear(1, 1)
    m.register_state_dict_post_hook(lambda mod, state, prefix, meta: state)
    note.of(lambda: m.state_dict())

    m = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
    inner = m[0]

    def rename(state: Any, prefix: str, *rest: Any) -> None:
        note(list(state), prefix, rest)
        if prefix + "old" in state:
            state[prefix + "weight"] = state.pop(prefix + "old")

    first = inner._register_load_state_dict_pre_hook(rename)
    inner.register_load_state_dict_pre_hook(lambda mod, *rest: note(mod, len(rest)))
    inner.register_load_state_dict_post_hook(lambda mod, keys: note("post", mod, keys))
    m.register_load_state_dict_post_hook(lambda mod, keys: keys.unexpected_keys.clear())
    note.of(
        lambda: m.load_state_dict({"0.old": torch.ones(1, 1)}),
        lambda: m.load_state_dict({"0.weight": torch.ones(1, 1), "more": 3}),
        lambda: m.load_state_dict({}),
    )
    first.remove()
    inner.register_load_state_dict_post_hook(lambda mod, keys: 3)
    note.of(lambda: m.load_state_dict({"0.weight": torch.ones(1, 1)}))


def versions(torch: Any, note: Notes) -> None:
    class Versioned(torch.nn.Module):
        _version = 2

        def _load_from_state_dict(
            self, state: Any, prefix: str, local_metadata: Any, *rest: Any
        ) -> None:
            note(prefix, local_metadata, list(state))
            super()._load_from_state_dict(state, prefix, local_metadata, *rest)

    m = torch.nn.ModuleDict({"a": Versioned(), "b": torch.nn.ModuleDict({"c": Versioned()})})
    m.load_state_dict(m.state_dict())
    m.load_state_dict({})
    strip = torch.nn.modules.utils.consume_prefix_in_state_dict_if_present
    wrapped = torch.nn.DataParallel(torch.nn.Linear(1, 1)).state_dict()
    strip(wrapped, "module.")
    note(list(wrapped), wrapped._metadata)


SCENES: list[Scene] = [saving, loading, assigning, extra_state, hooks, versions]


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.__name__)
def test_scene(scene: Scene) -> None:
    assert_same(scene, torch)
