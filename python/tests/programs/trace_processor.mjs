// Perfetto's trace processor, as its user interface runs it in a worker: requests from standard input, replies to standard output.
// The first argument is the folder of engine_bundle.js and trace_processor.wasm.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const file = (name) => fs.readFileSync(path.join(process.argv[2], path.basename(String(name))));
const port = { postMessage: (bytes) => fs.writeSync(1, bytes) };
process.on("uncaughtException", (why) => {
  // The stack begins with the source line, which is the whole bundle.
  fs.writeSync(2, `${why.message}\n${String(why.stack).slice(-1000)}\n`);
  process.exit(1);
});
const worker = {
  // The errors are those of this realm: the bundle compares what WebAssembly throws.
  Error, TextDecoder, TextEncoder, TypeError, URL, Uint8Array, WebAssembly, crypto, performance, setTimeout,
  WorkerGlobalScope: class {},
  console: { log() {}, warn() {}, error() {} },
  fetch: async (name) => new Response(file(name), { headers: { "Content-Type": "application/wasm" } }),
  location: { href: "http://localhost/" },
  XMLHttpRequest: class {
    open(_, name) { this.name = name; }
    send() { this.response = file(this.name); }
  },
};
worker.self = worker;
vm.runInNewContext(file("engine_bundle.js").toString(), worker);
worker.onmessage({ data: port });
const requests = new Uint8Array(fs.readFileSync(0));
// After the module has been instantiated.
setTimeout(() => port.onmessage({ data: requests }), 0);
