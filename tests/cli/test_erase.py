"""erase, erasures, erasure show, resume, cancel, verify."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_from_a_dry_run_to_a_verified_receipt(orders: Run, folder: Path) -> None:
    asked = ("erase", "shop.orders", "--key", "1")
    plan = orders(*asked, "--dry-run", "--json").json
    assert (plan["keys"], plan["rows"], plan["files_to_rewrite"] > 0) == (1, 1, True)
    assert "would be written anew" in orders(*asked, "--dry-run").out
    assert "would be written anew" not in orders(*asked, "--history", "cut", "--dry-run").out
    salt = folder / "salt"
    done = orders(*asked, "--reason", "ticket-118", "--wait", "--salt-out", str(salt), "--json").json
    assert (done["state"], done["reason"], done["history"]) == ("done", "ticket-118", "rewrite")
    assert orders("get", "shop.orders", "1").code == 3
    listed = orders("erasures", "--json").json
    assert [each["id"] for each in listed["erasures"]] == [done["id"]]
    assert orders("erasures", "--open", "--json").json["erasures"] == []
    verify = ("erasure", "verify", done["receipt"], "--key", "1", "--salt", str(salt), "--json")
    assert orders(*verify).json["subject"] is True
    assert orders(*verify, "--public-key", listed["public_key"]).json["known_signer"] is True
    changed = folder / "changed.json"
    changed.write_text(json.dumps({**json.loads(Path(done["receipt"]).read_text()), "keys": 9}))
    assert orders("erasure", "verify", str(changed)).code == 1
    assert orders(*asked, "--salt-out", str(salt)).code == 1  # a salt is not written over


def test_without_waiting_it_is_shown_resumed_and_cancelled(orders: Run) -> None:
    begun = orders("erase", "shop.orders", "--key", "1", "--history", "cut", "--json").json
    assert (begun["state"], len(begun["salt"])) == ("open", 64)
    assert orders("erasure", "show", begun["id"], "--json").json["state"] == "open"
    orders("tag", "shop.orders", "audit")
    held = orders("erasure", "resume", begun["id"], "--json")
    assert (held.code, held.json["state"]) == (1, "blocked")
    assert orders("erasure", "cancel", begun["id"], "--json").json["state"] == "cancelled"
    assert orders("erasure", "show", "0" * 32).code == 3
