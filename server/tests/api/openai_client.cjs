// The official client for Node against a server over the tests' tiny model: openai_client.cjs BASE_URL.

const assert = require("node:assert/strict");
const OpenAI = require("openai").default;

async function main() {
  const client = new OpenAI({ baseURL: process.argv[2], apiKey: "secret", maxRetries: 0, timeout: 60000 });
  const messages = [{ role: "user", content: "Hello" }];
  const request = { model: "tiny", messages, seed: 1, max_tokens: 20 };

  assert.deepEqual((await client.models.list()).data.map((model) => model.id), ["tiny"]);

  const whole = await client.chat.completions.create({ ...request, logprobs: true, top_logprobs: 2 });
  const choice = whole.choices[0];
  assert(choice.logprobs.content.length > 0 && choice.logprobs.content[0].top_logprobs.length === 2);

  let text = "";
  let usage;
  const stream = await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, choice.message.content);
  assert.deepEqual(usage, whole.usage);

  const completion = await client.completions.create({ model: "tiny", prompt: "Once", seed: 1, max_tokens: 8, n: 2, logprobs: 1 });
  assert.deepEqual(completion.choices.map((choice) => choice.index), [0, 1]);
  assert(completion.choices[0].logprobs.tokens.length > 0);

  const object = (properties) => ({ type: "object", properties, required: Object.keys(properties), additionalProperties: false });
  const schema = object({ name: { enum: ["weather"] }, parameters: object({ city: { enum: ["Paris"] } }) });
  const response_format = { type: "json_schema", json_schema: { name: "call", strict: true, schema } };
  const answer = await client.chat.completions.create({ model: "tiny", messages, seed: 1, response_format });
  assert.deepEqual(JSON.parse(answer.choices[0].message.content), { name: "weather", parameters: { city: "Paris" } });

  const tools = [{ type: "function", function: { name: "weather", parameters: schema.properties.parameters } }];
  const calling = { model: "tiny", messages, seed: 1, tools, tool_choice: "required", parallel_tool_calls: false };
  const called = await client.chat.completions.create(calling);
  assert.equal(called.choices[0].finish_reason, "tool_calls");
  const call = called.choices[0].message.tool_calls[0];
  assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["weather", { city: "Paris" }]);
  const streamed = await client.chat.completions.stream(calling).finalChatCompletion();
  assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
  // The model's own answer is taken back, with the result.
  const result = { role: "tool", tool_call_id: call.id, content: "22" };
  await client.chat.completions.create({ model: "tiny", messages: [...messages, called.choices[0].message, result], max_tokens: 4 });

  const asked = { model: "tiny", input: "Hello", seed: 1, max_output_tokens: 20 };
  const response = await client.responses.create(asked);
  assert.equal(response.output_text, choice.message.content);
  const kinds = [];
  for await (const event of await client.responses.create({ ...asked, stream: true })) kinds.push(event.type);
  assert.equal(kinds[0], "response.created");
  assert(["response.completed", "response.incomplete"].includes(kinds.at(-1)), kinds.join());

  // An answer that nobody waits for any more.
  const left = await client.chat.completions.create({ ...request, max_tokens: 200, stream: true });
  for await (const _ of left) break;

  for (const refused of [{ temperature: -1 }, { messages: [] }]) {
    const error = await client.chat.completions.create({ model: "tiny", messages, ...refused }).catch((error) => error);
    assert(error instanceof OpenAI.BadRequestError, String(error));
    assert.deepEqual([error.status, error.param], [400, Object.keys(refused)[0]]);
  }
  const stranger = new OpenAI({ baseURL: process.argv[2], apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  console.log("ok");
}

main();
