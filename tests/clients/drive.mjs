// As drive.py, with clients of npm. They are those that are installed where it is started:
//
//     node tests/clients/drive.mjs NAME ROUNDS URL [URL]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const QUESTION = "How high is the Seine?";
const RESULT = '{"level":4}';
const SCHEMA = { type: "object", properties: { river: { type: "string" } }, required: ["river"] };
const FUNCTION = { name: "level", description: "The level of a river", parameters: SCHEMA };

async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

function openaiNode(url) {
  const { OpenAI } = require("openai");
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "test" });
  return async (model) => {
    const ask = async (messages) =>
      all(
        await client.chat.completions.create({
          model,
          messages,
          tools: [{ type: "function", function: FUNCTION }],
          stream: true,
          stream_options: { include_usage: true },
        }),
      );
    const messages = [{ role: "user", content: QUESTION }];
    const first = await ask(messages);
    const calls = first.flatMap((chunk) => chunk.choices.flatMap((choice) => choice.delta.tool_calls ?? []));
    const text = calls.map((call) => call.function.arguments).join("");
    const called = { id: calls[0].id, type: "function", function: { name: "level", arguments: text } };
    messages.push({ role: "assistant", tool_calls: [called] });
    messages.push({ role: "tool", tool_call_id: calls[0].id, content: RESULT });
    return [...first, ...(await ask(messages))];
  };
}

// The AI SDK calls the tool itself, and asks again with its result.
function vercel(url, api) {
  const { streamText, tool, jsonSchema, stepCountIs } = require("ai");
  const { createOpenAI } = require("@ai-sdk/openai");
  const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey: "test" });
  const level = tool({
    description: FUNCTION.description,
    inputSchema: jsonSchema(SCHEMA),
    execute: async () => JSON.parse(RESULT),
  });
  return async (model) => {
    const result = streamText({
      model: provider[api](model),
      prompt: QUESTION,
      tools: { level },
      stopWhen: stepCountIs(3),
      onError: () => {},
    });
    const seen = [];
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      // The SDK gives texts a random id; request, response and performance have times.
      const id = part.id?.startsWith("aitxt-") ? undefined : part.id;
      seen.push({ ...part, id, request: undefined, response: undefined, performance: undefined });
    }
    return seen;
  };
}

const CLIENTS = {
  "openai-node": [openaiNode, "openai"],
  "vercel ai chat": [(url) => vercel(url, "chat"), "ai"],
  "vercel ai responses": [(url) => vercel(url, "responses"), "ai"],
};

const [name, rounds, ...urls] = process.argv.slice(2);
const [client, named] = CLIENTS[name];
const talks = urls.map((url, place) => [place, client(url)]);
const seen = [];
const seconds = urls.map(() => []);
for (let round = 0; round < Number(rounds); round += 1) {
  for (const [place, talk] of talks) {
    const begun = performance.now();
    seen.push(await talk("m"));
    seconds[place].push((performance.now() - begun) / 1000);
  }
  talks.reverse();
}
for (const model of ["refused", "busy"]) {
  try {
    seen.push(await talks[0][1](model));
  } catch (error) {
    seen.push([error.name, error.message]);
  }
}
const { version } = JSON.parse(readFileSync(`node_modules/${named}/package.json`, "utf8"));
console.log(JSON.stringify({ version, seen, seconds }));
