// Reads lines of "NUMBER FIRST-URL SECOND-URL". Each case has a kept connection of its own. Prints a JSON line for each.
const http = require("http");
const { createInterface } = require("readline");

function ask(agent, method, url) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method, agent, timeout: 10000 }, (response) => {
      let body = "";
      response.on("data", (piece) => (body += piece));
      response.on("end", () => resolve(body));
      response.on("error", reject);
    });
    request.on("error", reject);
    request.on("timeout", () => request.destroy(new Error("timeout")));
    request.end(method === "POST" ? "{}" : undefined);
  });
}

async function run([number, first, second]) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const bodies = [];
  for (const [method, url] of [["GET", first], ["POST", second]]) {
    bodies.push(await ask(agent, method, url).catch(() => null));
  }
  agent.destroy();
  console.log(JSON.stringify([Number(number), ...bodies]));
}

(async () => {
  const cases = [];
  for await (const line of createInterface({ input: process.stdin })) cases.push(line.split(" "));
  const next = async () => { while (cases.length) await run(cases.pop()); };
  await Promise.all(Array.from({ length: 16 }, next));
})();
