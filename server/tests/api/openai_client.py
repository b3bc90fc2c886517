"""The official Python client against a server over the tests' tiny model: openai_client.py BASE_URL."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0, timeout=60)
hello = [{"role": "user", "content": "Hello"}]

assert [model.id for model in client.models.list()] == ["tiny"]

whole = client.chat.completions.create(model="tiny", messages=hello, seed=1, max_tokens=20, logprobs=True, top_logprobs=2)
choice = whole.choices[0]
assert choice.finish_reason in ("stop", "length")
assert len(choice.logprobs.content) > 0 and len(choice.logprobs.content[0].top_logprobs) == 2
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

chunks = list(client.chat.completions.create(
    model="tiny", messages=hello, seed=1, max_tokens=20, stream=True, stream_options={"include_usage": True}))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == choice.message.content, (text, choice.message.content)
assert chunks[-1].usage == whole.usage and not chunks[-1].choices

completion = client.completions.create(model="tiny", prompt="Once", seed=1, max_tokens=8, n=2, logprobs=1)
assert [choice.index for choice in completion.choices] == [0, 1]
assert len(completion.choices[0].logprobs.tokens) > 0

schema = {
    "type": "object",
    "properties": {"name": {"enum": ["weather"]}, "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"], "additionalProperties": False}},
    "required": ["name", "parameters"],
    "additionalProperties": False,
}
strict = {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}
answer = client.chat.completions.create(model="tiny", messages=hello, seed=1, response_format=strict)
right = {"name": "weather", "parameters": {"city": "Paris"}}
assert json.loads(answer.choices[0].message.content) == right, answer

tools = [{"type": "function", "function": {"name": "weather", "parameters": schema["properties"]["parameters"]}}]
calling = dict(model="tiny", messages=hello, seed=1, tools=tools, tool_choice="required", parallel_tool_calls=False)
call = client.chat.completions.create(**calling)
assert call.choices[0].finish_reason == "tool_calls"
function = call.choices[0].message.tool_calls[0].function
assert (function.name, json.loads(function.arguments)) == ("weather", {"city": "Paris"})
with client.chat.completions.stream(**calling) as stream:
    streamed = stream.get_final_completion()
assert streamed.choices[0].message.tool_calls[0].function.arguments == function.arguments
# The model's own answer is taken back, with the result.
result = {"role": "tool", "tool_call_id": call.choices[0].message.tool_calls[0].id, "content": "22"}
client.chat.completions.create(model="tiny", messages=hello + [call.choices[0].message, result], max_tokens=4)

response = client.responses.create(model="tiny", input="Hello", extra_body={"seed": 1}, max_output_tokens=20)
assert response.output_text == choice.message.content, response
with client.responses.stream(model="tiny", input="Hello", extra_body={"seed": 1}, max_output_tokens=20) as stream:
    kinds = [event.type for event in stream]
assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds

for refused, status in [(dict(temperature=-1), 400), (dict(messages=[]), 400)]:
    try:
        client.chat.completions.create(**{"model": "tiny", "messages": hello, **refused})
    except openai.APIStatusError as error:
        assert error.status_code == status and error.body["param"] in refused, error
    else:
        raise AssertionError(refused)
try:
    client.with_options(api_key="wrong").models.list()
except openai.AuthenticationError:
    pass
else:
    raise AssertionError("the key")
print("ok")
