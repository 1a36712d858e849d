"""Code that seeds the random numbers of a kernel anew.

A copy of a sandbox has the same memory, and without this it would draw the same numbers. ``SEED`` stands for
a large number.
"""

from __future__ import annotations

# Only libraries that the kernel has loaded: the others seed themselves when they are loaded.
PYTHON = """exec('''
import os, sys
for name, method in (("random", "seed"), ("numpy.random", "seed"), ("torch", "manual_seed")):
    try:
        getattr(sys.modules[name], method)(SEED if name == "random" else SEED % 2**32)
    except Exception:
        pass
if "ssl" in sys.modules:
    sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)
''', {})"""

# V8 cannot seed `Math.random`, so the generator sfc32 takes its place. The generator of `crypto` takes new
# bytes from the operating system after each 64 KiB.
DENO = """void (() => {
  const seed = SEEDn;
  let [a, b, c, d] = [0n, 32n, 64n, 96n].map((bits) => Number(BigInt.asUintN(32, seed >> bits)) | 0);
  const next = () => {
    const sum = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return sum >>> 0;
  };
  for (let round = 0; round < 15; round++) next();
  Object.defineProperty(Math, "random", {
    value: function random() { return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992; },
    writable: true,
    configurable: true,
  });
  for (let half = 0; half < 2; half++) crypto.getRandomValues(new Uint8Array(65536));
})();"""
