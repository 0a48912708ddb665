#!/usr/bin/env python3
import hashlib, json, pathlib, sys

def ordered(v):
    if isinstance(v, dict): return {k: ordered(v[k]) for k in sorted(v, key=lambda k: k.encode("utf-16-be"))}
    return [ordered(x) for x in v] if isinstance(v, list) else v

def holds(v):
    text = json.dumps(ordered(v["preimage"]), ensure_ascii=False, separators=(",", ":"))
    return (text, "sha256:" + hashlib.sha256(text.encode()).hexdigest()) == (v["canonical"], v["fingerprint"])

vectors = json.loads(pathlib.Path(__file__).with_name("fingerprint-v1.json").read_bytes())
broken = [v["name"] for v in vectors if not holds(v)]
print("\n".join(f"broken: {name}" for name in broken) or f"{len(vectors)} vectors hold")
sys.exit(bool(broken))
