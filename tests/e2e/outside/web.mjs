// Runs inside a sandbox that stands for the outside: HTTPS in versions 1.1 and 2, with files, uploads, git and mail.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { createReadStream, readFileSync, statSync } from "node:fs";
import { createSecureServer } from "node:http2";

const [port, certificate, top, token] = process.argv.slice(2);
const basic = "Basic " + Buffer.from("x-access-token:" + token).toString("base64");
const pem = readFileSync(certificate);
const server = createSecureServer({ key: pem, cert: pem, allowHTTP1: true });

server.on("request", (request, response) => {
  const path = request.url.split("?")[0];
  if (path.startsWith("/git/open/")) return git(request, response, path.slice("/git".length));
  if (path.startsWith("/acme/")) return authorized(basic, request, response) && git(request, response, path);
  if (path.startsWith("/v1/") && !authorized("Bearer " + token, request, response)) return;
  if (path === "/v1/messages" && request.method === "GET") return response.end('[{"id": 7}]');
  if (request.method === "PUT" || request.method === "POST") return digest(request, response);
  if (path.endsWith("/hello")) return response.end(JSON.stringify(hello(request)));
  file(request, response, path.endsWith("/") ? path + "index.html" : path);
});

function hello(request) {
  return { version: request.httpVersion, authorization: request.headers.authorization ?? null };
}

function digest(request, response) {
  const hash = createHash("sha256");
  request.on("data", (data) => hash.update(data));
  request.on("end", () => response.end(hash.digest("hex")));
}

function file(request, response, path) {
  let size;
  try {
    size = statSync(top + path).size;
  } catch {
    response.statusCode = 404;
    return response.end();
  }
  const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? "");
  const start = range ? Number(range[1]) : 0;
  response.statusCode = range ? 206 : 200;
  if (range) response.setHeader("content-range", `bytes ${start}-${size - 1}/${size}`);
  response.setHeader("accept-ranges", "bytes");
  response.setHeader("content-length", size - start);
  response.setHeader("content-type", path.endsWith("/index.html") ? "text/html" : "application/octet-stream");
  if (request.method === "HEAD") return response.end();
  createReadStream(top + path, { start }).pipe(response);
}

function authorized(wanted, request, response) {
  if (request.headers.authorization === wanted) return true;
  response.writeHead(401, { "www-authenticate": "Basic" }).end();
  return false;
}

function git(request, response, path) {
  const program = spawn("git", ["http-backend"], {
    env: {
      ...process.env,
      GIT_PROJECT_ROOT: top + "/git",
      GIT_HTTP_EXPORT_ALL: "1",
      REMOTE_USER: "client",
      REQUEST_METHOD: request.method,
      PATH_INFO: path,
      QUERY_STRING: request.url.split("?")[1] ?? "",
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "",
      HTTP_GIT_PROTOCOL: request.headers["git-protocol"] ?? "",
    },
  });
  request.pipe(program.stdin);
  let head = Buffer.alloc(0);
  program.stdout.on("data", function first(data) {
    head = Buffer.concat([head, data]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    program.stdout.off("data", first);
    for (const line of head.subarray(0, end).toString().split("\r\n")) {
      const [name, value] = line.split(": ");
      if (name === "Status") response.statusCode = Number(value.split(" ")[0]);
      else response.setHeader(name, value);
    }
    response.write(head.subarray(end + 4));
    program.stdout.pipe(response);
  });
}

server.listen(Number(port));
